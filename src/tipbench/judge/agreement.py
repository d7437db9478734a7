"""Whether judges mean the same by the same scores, and whether a machine judges as people do.

Krippendorff's alpha is 1 where judges agree and 0 where they agree no better than by chance; from .80 on it
is good, from .667 tolerable. It says little on fewer than 60 candidates that two judges have scored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from math import fsum, sqrt
from typing import TYPE_CHECKING, Literal, NamedTuple

from tipbench.judge.verdicts import adjudicated, counted, judged, latest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tipbench.records import Judge, JudgeKind, Verdict
    from tipbench.suite.rubric import Scale

Word = Literal["good", "tolerable", "poor"]

ENOUGH = 60
GOOD = 0.80
TOLERABLE = 0.667
_PEOPLE: tuple[JudgeKind, ...] = ("human", "agent")
_GAP = 2


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A candidate on which judges are too far apart on one scale: `scores` has what each of them gave."""

    candidate: str
    scale: str
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Severity:
    """How much higher a judge scores than the others do, on the `n` candidates that they share.

    Below zero is a severe judge. `sum` is over all scales.
    """

    judge: Judge
    n: int
    scales: Mapping[str, float]
    sum: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far judges agree on the `n_items` candidates that at least two of them have scored.

    An alpha is None where it cannot be computed: with fewer than two such candidates, or where everybody
    gave the same score to everything.
    """

    n_items: int
    alpha: Mapping[str, float | None]
    gaps: tuple[Gap, ...]
    severity: tuple[Severity, ...]

    @property
    def enough(self) -> bool:
        return self.n_items >= ENOUGH

    @property
    def words(self) -> dict[str, Word | None]:
        return {name: word_for(alpha) for name, alpha in self.alpha.items()}

    @property
    def word(self) -> Word | None:
        """The word for the scale on which judges agree least; None where that is not known of all scales."""
        return word_for(_least(self.alpha))


@dataclass(frozen=True, kw_only=True)
class ScaleComparison:
    """A judge against people on one scale: `bias` above zero is too generous. Unknown is None.

    The swap audit: `swap_alpha` is Krippendorff's alpha between the judge's scores in the two orders, and
    `top_bonus` how much higher a text is scored where it stands nearer to the top. `length` and
    `length_people` are the rank correlations of the judge's and the people's scores with the texts' lengths.
    """

    bias: float | None
    alpha: float | None
    correlation: float | None
    swap_alpha: float | None = None
    top_bonus: float | None = None
    length: float | None = None
    length_people: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A judge against people on the `n` candidates that both have judged: its calibration.

    `people` is whom it was compared with: humans if there are any, else agents; None if there are neither.
    `version` names the weights and the prompt; others have a calibration of their own.
    `n_swapped` candidates have scores in both orders.
    """

    judge: str
    people: JudgeKind | None
    n: int
    scales: Mapping[str, ScaleComparison]
    version: str = ""
    n_swapped: int = 0

    @property
    def least_alpha(self) -> float | None:
        """The alpha of the scale on which the judge agrees least; None if an alpha is unknown."""
        return _least({name: one.alpha for name, one in self.scales.items()})

    @property
    def passes(self) -> bool:
        """Whether the judge agrees with people on every scale, and enough was compared to say so."""
        return self.n >= ENOUGH and self.least_alpha is not None and self.least_alpha >= TOLERABLE


def word_for(alpha: float | None) -> Word | None:
    if alpha is None:
        return None
    return "good" if alpha >= GOOD else "tolerable" if alpha >= TOLERABLE else "poor"


def agreement(
    verdicts: Iterable[Verdict], *, rubric_hash: str, scales: Sequence[Scale], kinds: Collection[JudgeKind]
) -> Agreement:
    """How far judges of these kinds agree, by each one's latest verdict; adjudications are no second opinion.

    The gaps are what is to be adjudicated: candidates that were so already are left out.
    """
    verdicts = list(verdicts)
    shared = _shared(verdicts, rubric_hash=rubric_hash, kinds=kinds)
    settled = adjudicated(verdicts, rubric_hash=rubric_hash, kinds=kinds)
    still_open = {candidate: by for candidate, by in shared.items() if candidate not in settled}
    names = [scale.name for scale in scales]
    return Agreement(
        n_items=len(shared),
        alpha={name: ordinal_alpha(_units(shared, name)) for name in names},
        gaps=tuple(gap for candidate, by in still_open.items() for gap in _gaps(candidate, by, scales)),
        severity=_severities(shared, names),
    )


def _shared(
    verdicts: Iterable[Verdict], *, rubric_hash: str, kinds: Collection[JudgeKind]
) -> dict[str, dict[Judge, Mapping[str, float]]]:
    """By candidate that at least two judges of these kinds have scored: what each of them gave."""
    chosen = {
        candidate: {judge: one.scores for judge, one in by_judge.items() if judge.kind in kinds}
        for candidate, by_judge in latest(verdicts, rubric_hash=rubric_hash).items()
    }
    return {candidate: by_judge for candidate, by_judge in chosen.items() if len(by_judge) > 1}


def _units(shared: Mapping[str, Mapping[Judge, Mapping[str, float]]], name: str) -> list[list[float]]:
    return [[scores[name] for scores in by_judge.values()] for by_judge in shared.values()]


def ordinal_alpha(units: Iterable[Sequence[float]]) -> float | None:
    """Krippendorff's alpha for ordered levels, over units of several values each; those of one are left out.

    For ordered levels the distance of two values is that of their mid-ranks, so alpha compares the spread of
    mid-ranks within units to the spread over all: one minus that ratio.
    """
    units = [unit for unit in units if len(unit) > 1]
    ranks = _mid_ranks([value for unit in units for value in unit])
    n = sum(len(unit) for unit in units)
    overall = _squares([ranks[value] for unit in units for value in unit])
    if len(units) < 2 or overall == 0:
        return None
    within = fsum(len(unit) / (len(unit) - 1) * _squares([ranks[one] for one in unit]) for unit in units)
    return 1 - (n - 1) / n * within / overall


def _mid_ranks(values: Sequence[float]) -> dict[float, float]:
    ordered = sorted(values)
    return {value: (bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in set(ordered)}


def _squares(values: Sequence[float]) -> float:
    """The sum of squared deviations from the mean; none for no values."""
    middle = fsum(values) / max(len(values), 1)
    return fsum((value - middle) ** 2 for value in values)


def _gaps(
    candidate: str, by_judge: Mapping[Judge, Mapping[str, float]], scales: Sequence[Scale]
) -> list[Gap]:
    found = []
    for scale in scales:
        given = {name: by_judge[judge][scale.name] for judge, name in _names(by_judge).items()}
        if max(given.values()) - min(given.values()) >= wide_gap(scale):
            found.append(Gap(candidate=candidate, scale=scale.name, scores=given))
    return found


def _names(judges: Iterable[Judge]) -> dict[Judge, str]:
    """Names to show; a human and an agent of one name are told apart by their kind."""
    judges = list(judges)
    taken = [judge.id for judge in judges]
    return {one: one.id if taken.count(one.id) == 1 else f"{one.id} ({one.kind})" for one in judges}


def wide_gap(scale: Scale) -> float:
    """How far apart scores call for an adjudication: 2 points on a 1-5 scale, half of a longer one."""
    width = scale.high - scale.low
    return max(min(max(_GAP, width / 2), width), 1)


def _severities(
    shared: Mapping[str, Mapping[Judge, Mapping[str, float]]], names: Sequence[str]
) -> tuple[Severity, ...]:
    differences: dict[Judge, list[dict[str, float]]] = defaultdict(list)
    people = {(judge.kind, judge.id): judge for by_judge in shared.values() for judge in by_judge}
    for by_judge in shared.values():
        for judge, own in by_judge.items():
            others = [scores for other, scores in by_judge.items() if other is not judge]
            differences[people[judge.kind, judge.id]].append(_difference(own, others, names))
    ordered = sorted(differences.items(), key=lambda pair: (pair[0].kind, pair[0].id))
    return tuple(_severity(judge, some, names) for judge, some in ordered)


def _difference(
    own: Mapping[str, float], others: Sequence[Mapping[str, float]], names: Sequence[str]
) -> dict[str, float]:
    return {name: own[name] - fsum(scores[name] for scores in others) / len(others) for name in names}


def _severity(judge: Judge, differences: Sequence[Mapping[str, float]], names: Sequence[str]) -> Severity:
    n = len(differences)
    scales = {name: fsum(one[name] for one in differences) / n for name in names}
    return Severity(judge=judge, n=n, scales=scales, sum=fsum(scales.values()))


def compare_kinds(
    verdicts: Iterable[Verdict],
    judge_id: str,
    *,
    rubric_hash: str,
    scales: Sequence[Scale],
    kinds: Collection[JudgeKind] = ("ai", "proxy"),
    version: str | None = None,
    texts: Mapping[str, str] | None = None,
) -> Comparison:
    """The judge of this name, of one of these kinds, against what counts as people's scores.

    With `version`, only verdicts of these weights and this prompt count (`Judge.version`). `texts` has the
    texts by candidate, for the correlation with length.
    """
    verdicts = list(verdicts)
    own = {
        candidate: one
        for candidate, by_judge in latest(verdicts, rubric_hash=rubric_hash).items()
        for judge, one in by_judge.items()
        if judge.id == judge_id and judge.kind in kinds and version in {None, judge.version}
    }
    people = next((kind for kind in _PEOPLE if judged(verdicts, rubric_hash=rubric_hash, kinds=[kind])), None)
    theirs = counted(verdicts, rubric_hash=rubric_hash, kind=people) if people else {}
    pairs = [_Pair(one, theirs[name], (texts or {}).get(name)) for name, one in own.items() if name in theirs]
    return Comparison(
        judge=judge_id,
        people=people,
        n=len(pairs),
        scales={scale.name: _compared(pairs, scale.name) for scale in scales},
        version=version or "",
        n_swapped=sum(len(pair.own.readings) > 1 for pair in pairs),
    )


class _Pair(NamedTuple):
    """A candidate that the judge and people scored."""

    own: Verdict
    theirs: Mapping[str, float]
    text: str | None


def _compared(pairs: Sequence[_Pair], name: str) -> ScaleComparison:
    both = [(pair.own.scores[name], pair.theirs[name]) for pair in pairs]
    orders = [pair.own.readings for pair in pairs if len(pair.own.readings) > 1]
    swapped = [(first[name], second[name]) for first, second, *_ in orders]
    known = [(pair, float(len(pair.text))) for pair in pairs if pair.text is not None]
    return ScaleComparison(
        bias=_mean_difference(both),
        alpha=ordinal_alpha(both),
        correlation=_correlation(both),
        swap_alpha=ordinal_alpha(swapped),
        top_bonus=_mean_difference(swapped),
        length=_rank_correlation([(pair.own.scores[name], length) for pair, length in known]),
        length_people=_rank_correlation([(pair.theirs[name], length) for pair, length in known]),
    )


def _mean_difference(pairs: Sequence[tuple[float, float]]) -> float | None:
    return fsum(one - other for one, other in pairs) / len(pairs) if pairs else None


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's, which a few very long texts do not decide."""
    ranks = [_mid_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    return _correlation([(ranks[0][one], ranks[1][other]) for one, other in pairs])


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's; None where one side does not vary."""
    own, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
    if len(set(own)) < 2 or len(set(theirs)) < 2:
        return None
    middle = fsum(own) / len(own)
    return fsum((one - middle) * two for one, two in pairs) / sqrt(_squares(own) * _squares(theirs))


def _least(alphas: Mapping[str, float | None]) -> float | None:
    known = [alpha for alpha in alphas.values() if alpha is not None]
    return min(known) if known and len(known) == len(alphas) else None
