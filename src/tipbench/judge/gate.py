"""Whether a judge still means by a score what was agreed, read from the items hidden in a batch.

Anchors have agreed scores. A judge's deviation on one is the sum over the scales of score minus reference;
its mean over the anchors is the shift, and z is that in standard errors. A batch is rejected where the shift
is beyond chance and large enough to matter, where the scores are far off in both directions, or where several
batches together show a drift that none of them shows alone (an exponentially weighted moving average, EWMA).
Foils are tips shown under a scenario that they were not written for; whoever finds two of them relevant did
not read the scenarios.

One batch alone sees only drifts of about 1.1 points on the sum of three 1-5 scales; see `visible_drift`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum, isclose, sqrt
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import Batch, Item, Judge, JudgeKind
    from tipbench.suite.rubric import Scale

State = Literal["off", "unchecked", "ok", "warn", "reject"]

# The spread of one judge's sum over three 1-5 scales around what is agreed.
_SPREAD = 0.83
_REJECT_Z, _WARN_Z = 3.0, 2.0
_LEAST_SHIFT, _MOST_SCATTER = 0.5, 2.0
# On fewer anchors than this an honest judge's scatter exceeds its limit too often: 3 % of the time on one.
_SCATTER_ANCHORS = 3
_WEIGHT, _LIMIT = 0.3, 3.0
_FOILS = 2
_FOIL_SCALE, _FOIL_SHARE = "relevance", 0.75
# The normal quantile of two thirds.
_TWO_IN_THREE = 0.43
_ONLY_MEASURED: frozenset[JudgeKind] = frozenset({"ai", "proxy"})


@dataclass(frozen=True, kw_only=True)
class Past:
    """What an application showed of its judge; after one that was `accepted` the EWMA starts anew."""

    batch_id: str
    z: float
    accepted: bool = False


@dataclass(frozen=True, kw_only=True)
class Point:
    """A batch on the drift chart: `ewma` within plus or minus `limit` is fine."""

    batch_id: str
    z: float
    ewma: float
    limit: float
    accepted: bool

    @property
    def beyond(self) -> bool:
        return abs(self.ewma) > self.limit


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What the hidden items of a batch say about its judge, and why.

    `shift` and `abs_shift` are the mean and the mean absolute deviation from the anchors' references, in
    points of the sum. `accepted` says that but for the person's word the batch would have been rejected for
    drift. `provisional` says that some of the references are not by people.
    """

    state: State
    reason: str
    n_anchors: int = 0
    shift: float | None = None
    abs_shift: float | None = None
    z: float | None = None
    ewma: float | None = None
    ewma_limit: float | None = None
    foils_failed: int = 0
    foils_seen: int = 0
    provisional: bool = False
    accepted: bool = False


def check_drift(
    batch: Batch,
    *,
    judge: Judge,
    scores_by_item_id: Mapping[str, Mapping[str, float]],
    history: Sequence[Past] = (),
    scales: Sequence[Scale],
    accept_drift: bool = False,
) -> Drift:
    """Whether what the judge has given for this batch so far may be taken in.

    `scores_by_item_id` has the scores of the hidden items, those of earlier applications of the batch among
    them. Drift that was accepted before for the very same anchors' scores need not be accepted again; foils
    cannot be accepted. An AI judge or the proxy is measured and never rejected: what bars them is the
    comparison with people.
    """
    measured = _measured(batch, scores_by_item_id, history, scales)
    drift = _drift_problems(measured, scales)
    foils = _foil_problem(measured, scales)
    known = _accepted_before(measured, batch.batch_id, history)
    if judge.kind in _ONLY_MEASURED:
        return _only_measured(measured, drift, foils)
    return _decided(measured, drift, foils, accept=accept_drift or known)


def _measured(
    batch: Batch,
    given: Mapping[str, Mapping[str, float]],
    history: Sequence[Past],
    scales: Sequence[Scale],
) -> Drift:
    """The numbers, without a decision: `ok` with anchors judged, else `unchecked` or `off`."""
    anchors = [item for item in batch.items if item.role == "anchor" and _has_reference(item, scales)]
    judged = [item for item in anchors if item.id in given]
    failed, seen = _foils(batch, given, scales)
    bare = Drift(state="off", reason="judge drift not checked: the suite has no anchors here.")
    if not judged:
        waiting = "judge drift not checked yet: none of the hidden anchors is judged."
        bare = replace(bare, state="unchecked", reason=waiting) if anchors else bare
        return replace(bare, foils_failed=failed, foils_seen=seen)
    deviations = [_deviation(item, given[item.id], scales) for item in judged]
    shift, error = fsum(deviations) / len(deviations), _standard_error(judged, scales)
    z = shift / error if error else 0.0
    now = ewma_series([*history, Past(batch_id=batch.batch_id, z=z)])[-1]
    return Drift(
        state="ok",
        reason="",
        n_anchors=len(judged),
        shift=shift,
        abs_shift=fsum(map(abs, deviations)) / len(deviations),
        z=z,
        ewma=now.ewma,
        ewma_limit=now.limit,
        foils_failed=failed,
        foils_seen=seen,
        provisional=not all(item.by_people for item in judged),
    )


def _has_reference(item: Item, scales: Sequence[Scale]) -> bool:
    return all(scale.name in item.reference for scale in scales)


def _deviation(item: Item, scores: Mapping[str, float], scales: Sequence[Scale]) -> float:
    return fsum(scores[scale.name] - item.reference[scale.name] for scale in scales)


def _standard_error(anchors: Sequence[Item], scales: Sequence[Scale]) -> float:
    """Of the shift: a judge's own spread, plus that of references made from few judgements."""
    widened = fsum(1 + 1 / max(item.n_references, 1) for item in anchors) / len(anchors)
    return _spread(scales) * sqrt(widened / len(anchors))


def _spread(scales: Sequence[Scale]) -> float:
    return _SPREAD * sqrt(fsum(((scale.high - scale.low) / 4) ** 2 for scale in scales) / 3)


def _unit(scales: Sequence[Scale]) -> float:
    """One point on the sum of three 1-5 scales, as it is on these scales."""
    return fsum(scale.high - scale.low for scale in scales) / 12


def _foils(
    batch: Batch, given: Mapping[str, Mapping[str, float]], scales: Sequence[Scale]
) -> tuple[int, int]:
    """How many foils were found relevant, and how many were judged; none without a scale of that name."""
    bar = _foil_bar(scales)
    seen = [item for item in batch.items if item.role == "foil" and item.id in given and bar is not None]
    return sum(given[item.id][_FOIL_SCALE] >= (bar or 0) for item in seen), len(seen)


def _foil_bar(scales: Sequence[Scale]) -> float | None:
    bars = [one.low + _FOIL_SHARE * (one.high - one.low) for one in scales if one.name == _FOIL_SCALE]
    return bars[0] if bars else None


def _drift_problems(found: Drift, scales: Sequence[Scale]) -> list[str]:
    """What is wrong for which the batch is rejected, each as the first half of a sentence."""
    if found.z is None or found.shift is None or found.abs_shift is None:
        return []
    unit = _unit(scales)
    problems = []
    if abs(found.z) > _REJECT_Z and abs(found.shift) > _LEAST_SHIFT * unit:
        problems.append(_shift_text(found))
    if found.abs_shift > _MOST_SCATTER * unit and found.n_anchors >= _SCATTER_ANCHORS:
        problems.append(_scatter_text(found))
    if not problems and abs(found.ewma or 0) > (found.ewma_limit or 0):
        problems.append(_ewma_text(found))
    return problems


def _shift_text(found: Drift) -> str:
    shift, n = found.shift or 0, found.n_anchors
    what = (
        "the score of one hidden anchor is" if n == 1 else f"scores of the {n} hidden anchors are on average"
    )
    whose = "its reference" if n == 1 else "their references"
    return (
        f"{what} {abs(shift):.1f} points {'higher' if shift > 0 else 'lower'} than {whose} (z {found.z:.1f})"
    )


def _scatter_text(found: Drift) -> str:
    return (
        f"scores of the {found.n_anchors} hidden anchors are {found.abs_shift:.1f} points away from "
        "their references on average, up or down"
    )


def _ewma_text(found: Drift) -> str:
    side = "above" if (found.ewma or 0) > 0 else "below"
    return (
        f"over the last batches scores of the hidden anchors have crept {side} their references (moving "
        f"average of z {found.ewma:.2f}, limit {found.ewma_limit:.2f})"
    )


def _foil_problem(found: Drift, scales: Sequence[Scale]) -> str:
    if not found.foils_failed:
        return ""
    return (
        f"{found.foils_failed} of {found.foils_seen} hidden tips that were written for another scenario got "
        f"{_foil_bar(scales):g} or more for {_FOIL_SCALE}"
    )


def _accepted_before(found: Drift, batch_id: str, history: Iterable[Past]) -> bool:
    same = [past.z for past in history if past.accepted and past.batch_id == batch_id]
    return found.z is not None and any(isclose(z, found.z, abs_tol=1e-6) for z in same)


def _decided(found: Drift, drift: list[str], foils: str, *, accept: bool) -> Drift:
    again = "judge this batch again with the rubric's examples beside you"
    if found.foils_failed >= _FOILS:
        said = _and([foils, *drift])
        return replace(
            found, state="reject", reason=_sentence(f"{said}: {again}, reading each scenario first")
        )
    if drift and not accept:
        said = f"{_and(drift)}: {again}, or accept it with --accept-drift"
        return replace(found, state="reject", reason=_sentence(said))
    if drift:
        said = f"{_and(drift)}; accepted all the same"
        return replace(found, state="warn", reason=_sentence(said), accepted=True)
    return _watched(found, foils)


def _watched(found: Drift, foils: str) -> Drift:
    """Not rejected: fine, or something to look at."""
    remarks = [foils] if foils else []
    if abs(found.z or 0) > _WARN_Z:
        remarks.append(_shift_text(found))
    if remarks:
        said = f"{_and(remarks)}: taken in, but look at the rubric's examples before going on"
        return replace(found, state="warn", reason=_sentence(said))
    if found.state != "ok":
        return replace(found, reason=_sentence(found.reason))
    return replace(found, reason=_sentence(f"{_shift_text(found)}, which is within chance"))


def _only_measured(found: Drift, drift: list[str], foils: str) -> Drift:
    if drift or found.foils_failed >= _FOILS:
        said = _and([*([foils] if foils else []), *drift])
        return replace(found, state="warn", reason=_sentence(f"{said}: compare this judge with people"))
    return _watched(found, foils)


def _and(parts: Sequence[str]) -> str:
    return ", and ".join(parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def ewma_series(history: Sequence[Past]) -> list[Point]:
    """The drift chart: each batch once, where it was last applied, with its moving average and its limits.

    The scores of a batch that is applied in parts add up, so its last z stands for all of them.
    """
    points: list[Point] = []
    level, age = 0.0, 0
    for past in _one_per_batch(history):
        level, age = _WEIGHT * past.z + (1 - _WEIGHT) * level, age + 1
        points.append(
            Point(batch_id=past.batch_id, z=past.z, ewma=level, limit=_limit(age), accepted=past.accepted)
        )
        if past.accepted:
            level, age = 0.0, 0
    return points


def _one_per_batch(history: Iterable[Past]) -> list[Past]:
    batches: dict[str, Past] = {}
    for past in history:
        before = batches.pop(past.batch_id, None)
        accepted = past.accepted or (before is not None and before.accepted)
        batches[past.batch_id] = replace(past, accepted=accepted)
    return list(batches.values())


def _limit(age: int) -> float:
    """Three standard deviations of the moving average of this many z; it widens to its final value."""
    return _LIMIT * sqrt(_WEIGHT / (2 - _WEIGHT) * (1 - (1 - _WEIGHT) ** (2 * age)))


def history_of(batches: Iterable[Batch], judge: Judge) -> list[Past]:
    """What the judge's applications in these batches have shown, in the order in which they were made."""
    applied = [
        (application.at_ms, batch.batch_id, application)
        for batch in batches
        for application in batch.applications
        if (application.judge.id, application.judge.kind) == (judge.id, judge.kind)
    ]
    return [
        Past(batch_id=batch_id, z=one.drift_z, accepted=one.drift_accepted)
        for _, batch_id, one in sorted(applied, key=lambda entry: entry[0])
        if one.drift_z is not None
    ]


def visible_drift(scales: Sequence[Scale], *, n_anchors: int = 8, n_references: int = 4) -> float:
    """The true shift of the sum that one batch alone would reject two times in three."""
    error = _spread(scales) * sqrt((1 + 1 / n_references) / n_anchors)
    return max(_REJECT_Z * error, _LEAST_SHIFT * _unit(scales)) + _TWO_IN_THREE * error


def visibility_sentence(scales: Sequence[Scale], *, n_anchors: int = 8, n_references: int = 4) -> str:
    """What one batch cannot show, in plain words."""
    points = visible_drift(scales, n_anchors=n_anchors, n_references=n_references)
    return (
        f"One batch alone sees only drifts of about {points:.1f} points on the sum of the scales; smaller "
        "ones show over several batches."
    )
