"""One experiment against an earlier one, combination by combination, on the scenarios that both have.

A combination has dropped where its scores are lower beyond chance and by more than the margin. Chance is a
one-sided paired t-test on scenario means, since only a drop matters here, with Holm's correction over the
combinations. A combination that cannot be compared fails the comparison: nobody knows how it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tipbench.compare import statistics
from tipbench.compare.scores import Combination, gather
from tipbench.errors import BadInput
from tipbench.suite.problems import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.compare.scores import Row, Scores
    from tipbench.compare.statistics import Summary

    Means = Mapping[Combination, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class BaselineRow:
    """One combination now and then, on the `n_scenarios` that both experiments have judged.

    `change` is now minus then, with its interval. `p_value` is for a drop, one-sided and corrected for the
    number of combinations.
    """

    model: str
    prompt: str
    n_scenarios: int
    mean: float
    baseline_mean: float
    change: float
    low: float | None
    high: float | None
    p_value: float
    dropped: bool

    @property
    def combination(self) -> Combination:
        return Combination(self.model, self.prompt)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A combination of the baseline that cannot be compared, and why."""

    model: str
    prompt: str
    reason: str

    def __str__(self) -> str:
        return f"{self.model} with {self.prompt} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class BaselineReport:
    """What became of the baseline's combinations. It is passed if none has dropped and none is missing.

    `new` ones have nothing to be compared with and do not matter. `detectable` is the true drop that would
    be found four times in five; None where the changes do not vary.
    """

    rows: tuple[BaselineRow, ...]
    dropped: tuple[Combination, ...]
    missing: tuple[Missing, ...]
    new: tuple[Combination, ...]
    margin: float
    alpha: float
    detectable: float | None
    passed: bool
    sentences: tuple[str, ...]


def compare_to_baseline(
    rows: Iterable[Row], baseline_rows: Iterable[Row], *, margin: float = 0.5, alpha: float = 0.05
) -> BaselineReport:
    """Whether anything has become worse since the baseline. Rows are as for `rank`; largest drop first."""
    if not (math.isfinite(margin) and margin >= 0):
        raise BadInput(f"the margin is {margin}; give a number of points, 0 or more, such as 0.5")
    if not 0 < alpha < 1:
        raise BadInput(f"alpha is {alpha}; give a number between 0 and 1, such as 0.05")
    now, then = gather(rows), gather(baseline_rows)
    means, means_then = _means(now), _means(then)
    shared = {cell: _paired(means.get(cell, {}), of_cell) for cell, of_cell in means_then.items()}
    usable = {cell: pairs for cell, pairs in shared.items() if len(pairs) > 1}
    changes = {cell: _change(pairs) for cell, pairs in usable.items()}
    p_values = _holm({cell: _one_sided(change) for cell, change in changes.items()})
    found = [
        _row(cell, usable[cell], change, p_values[cell], margin=margin, alpha=alpha)
        for cell, change in changes.items()
    ]
    everyone, before = set(means) | set(now.unjudged), set(means_then) | set(then.unjudged)
    unusable = [cell for cell in sorted(before) if cell not in usable]
    missing = tuple(_missing(cell, everyone, means_then, len(shared.get(cell, ()))) for cell in unusable)
    report = BaselineReport(
        rows=tuple(sorted(found, key=lambda row: (row.change, row.combination))),
        dropped=tuple(sorted(row.combination for row in found if row.dropped)),
        missing=missing,
        new=tuple(sorted(everyone - before)),
        margin=margin,
        alpha=alpha,
        detectable=_detectable(list(changes.values()), margin=margin, alpha=alpha),
        passed=bool(found) and not missing and not any(row.dropped for row in found),
        sentences=(),
    )
    return replace(report, sentences=_sentences(report))


def _means(scores: Scores) -> dict[Combination, dict[str, float]]:
    means: dict[Combination, dict[str, float]] = {cell: {} for cell in scores.cells}
    entries = zip(scores.cell.tolist(), scores.scenario.tolist(), scores.value.tolist(), strict=True)
    for cell, scenario, value in entries:
        means[scores.cells[cell]][scores.scenarios[scenario]] = value
    return means


def _paired(now: Mapping[str, float], then: Mapping[str, float]) -> list[tuple[float, float]]:
    return [(now[scenario], then[scenario]) for scenario in sorted(then) if scenario in now]


def _change(pairs: Sequence[tuple[float, float]]) -> Summary:
    differences = [now - then for now, then in pairs]
    mean = math.fsum(differences) / len(differences)
    squares = math.fsum((one - mean) ** 2 for one in differences)
    scale = max(abs(value) for pair in pairs for value in pair)
    return statistics.summary(n=len(pairs), mean=mean, squares=squares, scale=scale)


def _one_sided(change: Summary) -> float:
    """How easily chance would make the scores fall this much."""
    p = statistics.two_sided_p(change) or 0.0
    return p / 2 if change.mean < 0 else 1 - p / 2


def _holm(p_values: Mapping[Combination, float]) -> dict[Combination, float]:
    """Each p times the number of those that are no smaller, and no less than a smaller one's."""
    corrected: dict[Combination, float] = {}
    largest = 0.0
    for place, cell in enumerate(sorted(p_values, key=lambda cell: (p_values[cell], cell))):
        largest = max(largest, min(1.0, p_values[cell] * (len(p_values) - place)))
        corrected[cell] = largest
    return corrected


def _row(
    cell: Combination,
    pairs: Sequence[tuple[float, float]],
    change: Summary,
    p_value: float,
    *,
    margin: float,
    alpha: float,
) -> BaselineRow:
    low, high = statistics.interval(change, alpha=alpha) or (None, None)
    return BaselineRow(
        model=cell.model,
        prompt=cell.prompt,
        n_scenarios=len(pairs),
        mean=math.fsum(now for now, _ in pairs) / len(pairs),
        baseline_mean=math.fsum(then for _, then in pairs) / len(pairs),
        change=change.mean,
        low=low,
        high=high,
        p_value=p_value,
        dropped=p_value < alpha and -change.mean > margin,
    )


def _missing(cell: Combination, now: set[Combination], then: Means, shared: int) -> Missing:
    if cell not in now:
        reason = "not in this experiment"
    elif cell not in then:
        reason = "not judged in the baseline"
    else:
        reason = (
            f"{shared or 'no'} judged scenario{'' if shared == 1 else 's'} in common, at least 2 are needed"
        )
    return Missing(model=cell.model, prompt=cell.prompt, reason=reason)


def _detectable(changes: Sequence[Summary], *, margin: float, alpha: float) -> float | None:
    """The true drop found four times in five: it must stand out from chance and exceed the margin as well."""
    spreads = [change.sd for change in changes if change.sd]
    if not spreads:
        return None
    sd = math.sqrt(math.fsum(one**2 for one in spreads) / len(spreads))
    n = sorted(change.n for change in changes)[len(changes) // 2]
    by_chance = statistics.detectable_difference(sd, n=n, alpha=min(2 * alpha / len(changes), 1.0))
    return max(by_chance, margin + statistics.t_quantile(statistics.POWER, n - 1) * sd / math.sqrt(n))


def _sentences(report: BaselineReport) -> tuple[str, ...]:
    said = [_finding(report), _missing_sentence(report), _power(report), _new(report)]
    return tuple(sentence for sentence in said if sentence)


def _finding(report: BaselineReport) -> str:
    if not report.rows:
        return "Nothing can be compared with the baseline, so the comparison fails."
    if not report.dropped:
        count = f"None of the {len(report.rows)} combinations" if len(report.rows) > 1 else "The combination"
        verb = "has dropped" if len(report.rows) > 1 else "has not dropped"
        return f"{count} {verb} by more than the margin of {report.margin:g} and beyond chance."
    fallen = [row for row in report.rows if row.dropped]
    names = listed(f"{row.combination} by {-row.change:.1f} points (p {_p(row.p_value)})" for row in fallen)
    return f"Dropped beyond chance and by more than the margin of {report.margin:g}: {names}."


def _missing_sentence(report: BaselineReport) -> str:
    if not report.missing:
        return ""
    names = listed(map(str, report.missing), most=6)
    return f"The comparison fails as it cannot say anything about {names}."


def _power(report: BaselineReport) -> str:
    if not report.rows:
        return ""
    n = sorted(row.n_scenarios for row in report.rows)[len(report.rows) // 2]
    if report.detectable is None:
        return "The changes do not vary, so it is not known how small a drop would be found."
    return (
        f"With {n} shared scenarios a true drop of about {report.detectable:.1f} points would be found four "
        "times in five; smaller ones may go unseen."
    )


def _new(report: BaselineReport) -> str:
    if not report.new:
        return ""
    return f"Not in the baseline, so not compared: {listed(map(str, report.new), most=6)}."


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")
