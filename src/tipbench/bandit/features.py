"""From a request and a profile to numbers: one row for each candidate.

A value that is the same for all candidates of a decision cannot reorder them. So every dimension but the bias
is of the candidate, or of candidate × context. All are in [-1, 1]. Feature sets are versioned: a change of
meaning is a new version, because what was learned on the old one does not hold for it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tipbench.bandit import formulae, given, tip_text
from tipbench.bandit.formulae import Dial, Now, Number, Rates
from tipbench.bandit.profiles import Tally
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.bandit.asked import Candidate, Context, ScoreRequest
    from tipbench.bandit.given import Given
    from tipbench.bandit.profiles import Profile
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSet:
    """What the numbers of one version mean, in order."""

    version: str
    names: tuple[str, ...]

    @property
    def dims(self) -> int:
        return len(self.names)


_OF_TIP = (
    "bias",
    "effort",
    "effort_evening",
    "task_overlap",
    "task_overlap_load",
    "novelty",
    "kind_hour_fit",
)
_OF_USER = ("completion_rate", "dismiss_rate", "mean_dwell", "hour_alignment", "tip_volume")
FEATURES = {
    "v1": FeatureSet(version="v1", names=_OF_TIP),
    "v2": FeatureSet(version="v2", names=_OF_TIP + _OF_USER),
}
# Larger numbers would leave nothing of float64's 16 digits after they are squared.
LARGEST = 1e6


class Vectors(NamedTuple):
    """The rows (K, D), the kinds of the candidates, and what was not known when they were made."""

    x: Array
    absent: tuple[str, ...]
    kinds: tuple[str, ...]


def vectors(version: str, request: ScoreRequest, profile: Profile) -> Vectors:
    """A row for each candidate of the request, or a BadInput that says what to send."""
    candidates = request.candidates
    verbatim = _form(candidates)
    said = given.read(request.profile_features)
    if verbatim:
        x = _verbatim(candidates, FEATURES[version])
        return Vectors(x, said.unknown, tuple([candidate.kind or "other" for candidate in candidates]))
    return _of_texts(version, request, profile, said)


def _form(candidates: Sequence[Candidate]) -> bool:
    """Whether the candidates come with features. All must be alike, and each have an id of its own."""
    verbatim = candidates[0].features is not None
    for candidate in candidates:
        if (candidate.text is None) is not verbatim or (candidate.features is not None) is not verbatim:
            raise BadInput(
                f"candidate '{candidate.id}': send a text for every candidate, or features for every one"
            )
    if len({candidate.id for candidate in candidates}) < len(candidates):
        raise BadInput("two candidates have the same id: give each its own")
    return verbatim


def _verbatim(candidates: Sequence[Candidate], wanted: FeatureSet) -> Array:
    dims, numbers = wanted.dims, array("d")
    for candidate in candidates:
        sent = candidate.features or []
        if len(sent) != dims:
            raise BadInput(
                f"candidate '{candidate.id}' has {len(sent)} features: "
                f"{wanted.version} takes exactly {wanted.dims} ({', '.join(wanted.names)})"
            )
        numbers.fromlist(sent)
    x: Array = np.frombuffer(numbers).reshape(len(candidates), dims)
    # Of no number above the limit can the square be missing in the sum; NaN compares as False.
    if not np.vdot(x, x) <= LARGEST:
        _refuse_large(candidates, x)
    return x


def _refuse_large(candidates: Sequence[Candidate], x: Array) -> None:
    for candidate, row in zip(candidates, x, strict=True):
        if not (np.abs(row) <= LARGEST).all():
            raise BadInput(
                f"candidate '{candidate.id}' has a feature that is not a finite number between "
                f"-{LARGEST:.0f} and {LARGEST:.0f}"
            )


def _of_texts(version: str, request: ScoreRequest, profile: Profile, said: Given) -> Vectors:
    now = formulae.now(request.situation.hour)
    readings = [tip_text.read(candidate.text or "") for candidate in request.candidates]
    kinds = [
        candidate.kind or reading.kind
        for candidate, reading in zip(request.candidates, readings, strict=True)
    ]
    tasks, load, absent = _tasks(request.situation)
    basis = _basis(profile, said, now.dial) if version == "v2" else None
    of_kind = {kind: _of_kind(kind, profile, said, now, basis) for kind in set(kinds)}
    rows: list[Any] = []  # floats, here
    for reading, kind in zip(readings, kinds, strict=True):
        rows += _of_tip(reading.effort, now.evening, _overlap(reading.words, tasks), load)
        rows += of_kind[kind]
    x = np.frombuffer(array("d", rows)).reshape(len(kinds), FEATURES[version].dims)
    unknown = _unknown(basis, kinds, said) if basis else []
    return Vectors(x, (*absent, *unknown, *said.unknown), tuple(kinds))


def _of_tip(effort: Number, evening: Number, overlap: Number, load: Number) -> tuple[Number, ...]:
    return 1.0, effort, effort * evening, overlap, overlap * load


class _Tasks(NamedTuple):
    words: frozenset[str]
    each: list[frozenset[str]]


_NO_TASKS = _Tasks(frozenset(), [])


def _tasks(context: Context) -> tuple[_Tasks, Number, list[str]]:
    """The words of the open tasks, the load they are, and the marks of what is missing."""
    absent = [] if context.hour is not None else ["hour"]
    tasks = context.open_tasks
    if tasks is None:
        return _NO_TASKS, 0.0, [*absent, "open_tasks"]
    if isinstance(tasks, int):
        return _NO_TASKS, formulae.load(tasks), [*absent, "task_texts"]
    each = [tip_text.words(task) for task in tasks]
    return _Tasks(frozenset().union(*each), each), formulae.load(len(each)), absent


def _overlap(words: frozenset[str], tasks: _Tasks) -> float:
    """The largest share of one task's words that the tip names."""
    shared = words & tasks.words
    if not shared:
        return 0.0
    return max([len(shared & task) / len(task) for task in tasks.each if not shared.isdisjoint(task)])


def _of_kind(kind: str, profile: Profile, said: Given, now: Now, basis: _Basis | None) -> tuple[Number, ...]:
    """Novelty, fit to the hour, and what v2 adds."""
    recent = profile.recent
    new = formulae.novelty(recent.count(kind), len(recent))
    fit = now.fits.get(kind, 0.0)
    if basis is None:
        return new, fit
    tally = profile.kinds.get(kind, _NO_TALLY)
    return (new, fit, *_of_user(tally, said.kinds.get(kind), basis, now.dial))


_NO_TALLY = Tally()


class _Basis(NamedTuple):
    """What a user's kinds shrink to, and which dimensions are known at all."""

    rates: Rates
    volume: Number | None
    known: tuple[bool, ...]


def _basis(profile: Profile, said: Given, at: Dial) -> _Basis:
    total, flat, hour = profile.total, said.flat, at is not formulae.UNKNOWN_HOUR
    known = (
        total.ended > 0 or "completion_rate" in flat,
        total.ended > 0 or "dismiss_rate" in flat,
        total.dwell_n > 0 or "mean_dwell_s" in flat,
        hour and (total.hour_n > 0.0 or "preferred_hour" in flat),
        total.shown > 0 or "tip_volume" in flat,
    )
    return _Basis(_replaced(formulae.overall(total, at), flat, at), _volume(flat), known)


def _volume(flat: Mapping[str, Any]) -> Number | None:
    return formulae.volume(flat["tip_volume"]) if "tip_volume" in flat else None


def _replaced(rates: Rates, sent: Mapping[str, Any], at: Dial) -> Rates:
    """A user's own rates, each replaced by what a request sends for it."""
    if not sent:
        return rates
    return Rates(
        sent.get("completion_rate", rates.completion),
        sent.get("dismiss_rate", rates.dismissal),
        formulae.dwell(sent["mean_dwell_s"]) if "mean_dwell_s" in sent else rates.dwell,
        _alignment(sent["preferred_hour"], at) if "preferred_hour" in sent else rates.alignment,
    )


def _alignment(preferred: Number, at: Dial) -> Number:
    best = formulae.dials(preferred) if isinstance(preferred, np.ndarray) else formulae.dial(preferred)
    return formulae.between(at, best)


def _of_user(
    tally: Any,  # noqa: ANN401 - a Tally, or an object with its fields as arrays
    sent: Mapping[str, Any] | None,
    basis: _Basis,
    at: Dial,
) -> tuple[Number, ...]:
    """The five dimensions of (user, kind). A count is shrunk only when the request gives a prior for it."""
    rates = formulae.of_kind(tally, basis.rates, at)
    volume = formulae.volume(tally.shown)
    if basis.volume is not None:
        volume = formulae.shrunk(tally.shown * volume, tally.shown, basis.volume)
    if not sent:
        return (*rates, volume)
    return (
        *_replaced(Rates(*rates), sent, at),
        formulae.volume(sent["tip_volume"]) if "tip_volume" in sent else volume,
    )


def _unknown(basis: _Basis, kinds: Sequence[str], said: Given) -> list[str]:
    """Names of the dimensions for which nothing is known; `name:kind` where it is for some kinds only."""
    marks: list[str] = []
    for name, raw, known in zip(_OF_USER, given.RANGES, basis.known, strict=True):
        if not known:
            marks += _without(name, raw, kinds, said)
    return marks


def _without(name: str, raw: str, kinds: Sequence[str], said: Given) -> list[str]:
    distinct = sorted(set(kinds)) if said.kinds else []
    without = [kind for kind in distinct if raw not in said.kinds.get(kind, ())]
    return [name] if len(without) == len(distinct) else [f"{name}:{kind}" for kind in without]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """Many decisions side by side, as arrays: (…, K) for what is of a candidate, (…) for the rest.

    `suits` is what `suits_of` makes of the kinds. `of_kind` and `of_all` have the fields of a Tally, as
    arrays. `flat` (…) and `by_kind` (…, K) hold profile features as a request would send them.
    """

    effort: Array
    overlap: Array
    hour: Array  # (…), NaN where it is not known
    open_tasks: Array  # (…)
    alike: Array  # how many of the recent tips were of the candidate's kind
    recent: Array  # (…): how many recent tips there were, ten at most
    suits: Dial
    of_kind: Any = None
    of_all: Any = None
    flat: Mapping[str, Array] = field(default_factory=dict)
    by_kind: Mapping[str, Array] = field(default_factory=dict)


def suits_of(kinds: Sequence[str]) -> Dial:
    """The hours that suit some kinds, as arrays: index both to lay them out by candidate."""
    points = np.array([formulae.suits(kind) for kind in kinds])
    return Dial(points[:, 0], points[:, 1])


def matrix(version: str, decisions: Decisions) -> Array:
    """(…, K, D): the very numbers that `vectors` gives, one decision at a time, for the same counters."""
    at = formulae.dials(decisions.hour[..., None])
    load = formulae.load(decisions.open_tasks[..., None])
    columns = (
        *_of_tip(decisions.effort, formulae.evening(at), decisions.overlap, load),
        formulae.novelty(decisions.alike, decisions.recent[..., None]),
        formulae.between(at, decisions.suits),
        *(_of_users(decisions, at) if version == "v2" else ()),
    )
    x: Array = np.stack(np.broadcast_arrays(*columns), axis=-1)
    return x


def _of_users(decisions: Decisions, at: Dial) -> tuple[Number, ...]:
    flat = {name: value[..., None] for name, value in decisions.flat.items()}
    of_all = _NO_TALLY if decisions.of_all is None else _Aside(decisions.of_all)
    of_kind = _NO_TALLY if decisions.of_kind is None else decisions.of_kind
    rates = _replaced(formulae.overall(of_all, at), flat, at)
    return _of_user(of_kind, decisions.by_kind, _Basis(rates, _volume(flat), ()), at)


class _Aside:
    """A tally (…) of users, read as (…, 1): beside the candidates of each."""

    def __init__(self, tally: Any) -> None:  # noqa: ANN401 - any object with the fields of a Tally
        self._tally = tally

    def __getattr__(self, name: str) -> Array:
        beside: Array = getattr(self._tally, name)[..., None]
        return beside
