"""From verdicts to the scores that count: whose count, how they are pooled, and what is still wanted.

Verdicts of different kinds of judges are never averaged. A ranking stands on one kind, its ground; a
candidate's scores are then the mean over the judges of that kind of each one's latest verdict.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, get_args

from tipbench.errors import BadSetting
from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import is_failure, known_values, labels, slot_texts, slot_values
from tipbench.records import JudgeKind, Mark
from tipbench.suite.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tipbench.judge.scoring import Rubric, Scores
    from tipbench.records import Judge, Run, Verdict

KINDS: tuple[JudgeKind, ...] = get_args(JudgeKind)
_CODE = "code"
_LONGEST_NAMES = 4000


@dataclass(frozen=True, kw_only=True)
class OverlongFlag:
    """Whether judges found a candidate too long, and the names of those who decided that."""

    value: bool
    by: tuple[str, ...]


def under(verdicts: Iterable[Verdict], rubric_hash: str) -> list[Verdict]:
    """The verdicts under one rubric, oldest first; those of one moment stay in their order."""
    return sorted((one for one in verdicts if one.rubric_hash == rubric_hash), key=lambda one: one.at_ms)


def latest(verdicts: Iterable[Verdict], *, rubric_hash: str) -> dict[str, dict[Judge, Verdict]]:
    """By candidate, each judge's latest verdict of his own, adjudications left out.

    A judge is known by name and kind: the same name with another model is the same judge.
    """
    found: dict[str, dict[tuple[str, str], Verdict]] = defaultdict(dict)
    for verdict in under(verdicts, rubric_hash):
        if not verdict.adjudicated:
            found[verdict.candidate][verdict.judge.kind, verdict.judge.id] = verdict
    return {key: {one.judge: one for one in by.values()} for key, by in found.items()}


def counting_judges(verdicts: Iterable[Verdict], *, rubric_hash: str, kind: JudgeKind) -> list[Judge]:
    """The judges of a kind whose verdicts count, by name.

    A name is there once for each version that some of its latest verdicts come from.
    """
    found = {
        (judge.id, judge.version): judge
        for by_judge in latest(verdicts, rubric_hash=rubric_hash).values()
        for judge in by_judge
        if judge.kind == kind
    }
    return [found[name] for name in sorted(found)]


def adjudicated(
    verdicts: Iterable[Verdict], *, rubric_hash: str, kinds: Container[JudgeKind]
) -> dict[str, Verdict]:
    """By candidate, the latest adjudicated verdict by a judge of these kinds or by any human."""
    settled = (one for one in under(verdicts, rubric_hash) if one.adjudicated)
    return {one.candidate: one for one in settled if one.judge.kind in kinds or one.judge.kind == "human"}


def counted(
    verdicts: Iterable[Verdict], *, rubric_hash: str, kind: JudgeKind
) -> dict[str, Mapping[str, float]]:
    """The scores that count on this ground, by candidate.

    An adjudicated verdict of this kind, or by any human, replaces what the judges of this kind gave.
    """
    verdicts = list(verdicts)
    given = {
        candidate: own
        for candidate, by_judge in latest(verdicts, rubric_hash=rubric_hash).items()
        if (own := [one.scores for judge, one in by_judge.items() if judge.kind == kind])
    }
    settled = adjudicated(verdicts, rubric_hash=rubric_hash, kinds={kind})
    scores = {candidate: mean_scores(own) for candidate, own in given.items()}
    replaced = {one: v.scores for one, v in settled.items() if one in scores or v.judge.kind == kind}
    return {**scores, **replaced}


def overlong_flags(
    verdicts: Iterable[Verdict], *, rubric_hash: str, kind: JudgeKind
) -> dict[str, OverlongFlag]:
    """The `overlong` flags that judges set on this ground, by candidate. The code sets all others.

    The latest adjudicated verdict decides; its null leaves the flag to the code. Without one, more than half
    of the judges must give the same value; a null is a vote for the code's value, and so is a tie.
    """
    verdicts = list(verdicts)
    if all(one.overlong is None for one in verdicts):
        return {}
    found: dict[str, OverlongFlag] = {}
    given = latest(verdicts, rubric_hash=rubric_hash)
    settled = adjudicated(verdicts, rubric_hash=rubric_hash, kinds={kind})
    for candidate in given.keys() | settled.keys():
        own = [one for judge, one in given.get(candidate, {}).items() if judge.kind == kind]
        last = settled.get(candidate)
        if last is not None and (own or last.judge.kind == kind):
            flag = _adjudicated_flag(last)
        else:
            flag = _majority_flag(own)
        if flag is not None:
            found[candidate] = flag
    return found


def _adjudicated_flag(verdict: Verdict) -> OverlongFlag | None:
    if verdict.overlong is None:
        return None
    return OverlongFlag(value=verdict.overlong, by=(f"{verdict.judge.id} (adjudicated)",))


def _majority_flag(verdicts: Sequence[Verdict]) -> OverlongFlag | None:
    """The value of more than half of the judges.

    If there is none, the code's value has at least half of the votes: each null is a vote for it.
    """
    for value in (True, False):
        names = sorted(one.judge.id for one in verdicts if one.overlong is value)
        if 2 * len(names) > len(verdicts):
            return OverlongFlag(value=value, by=tuple(names))
    return None


def mean_scores(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean on each scale of scores under one rubric."""
    return {name: fsum(scores[name] for scores in several) / len(several) for name in several[0]}


def judged(
    verdicts: Iterable[Verdict], *, rubric_hash: str, kinds: Collection[JudgeKind] = KINDS
) -> set[str]:
    """The candidates that somebody of these kinds has judged under the rubric."""
    return {one.candidate for one in verdicts if one.rubric_hash == rubric_hash and one.judge.kind in kinds}


def choose_ground(
    verdicts: Iterable[Verdict], rubric_hash: str, asked: str | None = None
) -> JudgeKind | None:
    """The kind of judge that a ranking stands on: the one asked for, else whichever has something to say.

    Of humans and agents those who judged more candidates, humans where it is even; then an AI judge, then the
    proxy. None where nothing is judged under the rubric.
    """
    if asked is not None:
        return _known(asked)
    verdicts = list(verdicts)
    n = {kind: len(judged(verdicts, rubric_hash=rubric_hash, kinds=[kind])) for kind in KINDS}
    people: JudgeKind = "agent" if n["agent"] > n["human"] else "human"
    order: tuple[JudgeKind, ...] = (people, "ai", "proxy")
    return next((kind for kind in order if n[kind]), None)


def _known(asked: str) -> JudgeKind:
    for kind in KINDS:
        if asked == kind:
            return kind
    hint = did_you_mean(asked, KINDS) or f"; give one of {', '.join(KINDS)}"
    raise BadSetting("ground", f"there is no kind of judge '{asked}'{hint}")


def wanted(
    runs: Iterable[Run], *, tips_per_cell: int = 0, raced_out: Collection[tuple[str, str]] = ()
) -> dict[str, list[str]]:
    """By run id, the keys of the candidates that are to be judged, in the order of their slots.

    Give all runs of the experiment: `raced_out` has (model, prompt) by the names that `labels` gives them.
    """
    runs = list(runs)
    names = labels(runs)
    in_play = [run for run in runs if names[run.variant] not in raced_out]
    keys = {run.run_id: _keys(run, tips_per_cell) for run in in_play}
    return {run_id: some for run_id, some in keys.items() if some}


def _keys(run: Run, tips_per_cell: int = 0) -> list[str]:
    return [candidate_key(run.scenario_id, text) for text in slot_texts(run, tips_per_cell=tips_per_cell)]


def pending(
    runs: Iterable[Run],
    done: AbstractSet[str],
    *,
    tips_per_cell: int = 0,
    raced_out: Collection[tuple[str, str]] = (),
) -> dict[str, list[str]]:
    """As `wanted`, less the candidates that are done: the runs that still wait for a judge, and for what."""
    asked = wanted(runs, tips_per_cell=tips_per_cell, raced_out=raced_out)
    left = {run_id: [key for key in keys if key not in done] for run_id, keys in asked.items()}
    return {run_id: keys for run_id, keys in left.items() if keys}


def marks(
    runs: Iterable[Run],
    scores: Scores,
    *,
    rubric: Rubric,
    waiting: Container[str],
    overlong: Mapping[str, OverlongFlag] | None = None,
    tips_per_cell: int = 0,
) -> dict[str, Mark]:
    """What the scores make of each run that is done, by run id; `waiting` has the runs still pending.

    `composite` is the run's value, failures included; each scale is its mean over the `n_judged` slots that
    are judged. What is not known yet is left out. `overlong` has the flags that judges set: the run's metric
    of that name follows them, and returns to the code's value when they are gone.
    """
    flags = overlong or {}
    return {
        run.run_id: _mark(run, scores, flags, rubric, tips_per_cell, waits=run.run_id in waiting)
        for run in runs
        if run.status == "done"
    }


def _mark(
    run: Run,
    scores: Scores,
    flags: Mapping[str, OverlongFlag],
    rubric: Rubric,
    tips_per_cell: int,
    *,
    waits: bool,
) -> Mark:
    values = {key: flag.value for key, flag in flags.items()} if flags else {}
    metrics = _metrics(run, scores, values, rubric, tips_per_cell)
    share, by = _overlong_share(run, flags)
    if by == run.overlong_by == _CODE or share is None:
        return Mark(metrics=metrics, judge_pending=waits)
    return Mark(metrics={**metrics, "overlong": share}, judge_pending=waits, overlong_by=by)


def _metrics(
    run: Run, scores: Scores, overlong: Mapping[str, bool], rubric: Rubric, tips_per_cell: int
) -> dict[str, float]:
    given = [scores[key] for key in _keys(run, tips_per_cell) if key in scores]
    values = slot_values(run, scores, rubric=rubric, overlong=overlong, tips_per_cell=tips_per_cell)
    known = known_values(run, values)
    metrics = {"n_judged": float(len(given))}
    if known:
        metrics["composite"] = fsum(known) / len(known)
    if given:
        names = [scale.name for scale in rubric.scales]
        metrics |= {name: fsum(one[name] for one in given) / len(given) for name in names}
    return metrics


def _overlong_share(run: Run, flags: Mapping[str, OverlongFlag]) -> tuple[float | None, str]:
    """The share of a run's candidates that are overlong, and who set their flags."""
    if not run.candidates:
        return None, _CODE
    found = [
        None if is_failure(run) else flags.get(candidate_key(run.scenario_id, one.text))
        for one in run.candidates
    ]
    values = [
        one.overlong if flag is None else flag.value for one, flag in zip(run.candidates, found, strict=True)
    ]
    by = [f"tip {number}: {', '.join(flag.by)}" for number, flag in enumerate(found, start=1) if flag]
    rest = [f"the rest: {_CODE}"] if len(by) < len(found) else []
    names = "; ".join([*by, *rest]) if by else _CODE
    return sum(values) / len(values), names[:_LONGEST_NAMES]
