"""One experiment against an earlier one, row by row, on the scenarios that both have: a gate for a CI job.

BLOCK: a row has dropped by more than the margin beyond chance. INCONCLUSIVE: a row of the baseline cannot be
compared, or on too few scenarios. WARN: a drop is beyond chance but perhaps within the margin, or it looks
larger than the margin but may be chance. Otherwise PASS. Chance is a one-sided paired t-test on scenario
means, as only a drop matters here, with Holm's correction over the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tipbench.compare import statistics
from tipbench.compare.scores import Combination, gather
from tipbench.errors import BadInput
from tipbench.suite.problems import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.compare.scores import Row, Scores
    from tipbench.compare.statistics import Summary

    Means = Mapping[Combination, Mapping[str, float]]

GateResult = Literal["BLOCK", "INCONCLUSIVE", "WARN", "PASS"]

FEWEST_SHARED = 8
_MOST_WORSE = 5
_DEFAULT_MARGIN = 0.5


@dataclass(frozen=True, kw_only=True)
class BaselineRow:
    """One combination now and then, on the `n_scenarios` that both experiments have judged.

    `change` is now minus then, with its interval. `p_value` is for any drop and `p_beyond` for a drop by more
    than the margin; both are one-sided and corrected for the number of rows. `worse` has the scenarios that
    fell by more than the margin, the worst first, with their changes.
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
    p_beyond: float
    result: GateResult
    worse: tuple[tuple[str, float], ...] = ()

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
    """What became of the baseline's combinations. `result` is that of the worst row.

    `new` ones have nothing to be compared with and do not matter. `detectable` is the smallest true drop that
    would block four times in five; None where the changes do not vary.
    """

    rows: tuple[BaselineRow, ...]
    missing: tuple[Missing, ...]
    new: tuple[Combination, ...]
    margin: float
    alpha: float
    detectable: float | None
    result: GateResult
    sentences: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.result in {"PASS", "WARN"}

    @property
    def suspicious(self) -> tuple[Combination, ...]:
        """The rows that a second collection should confirm."""
        return tuple(row.combination for row in self.rows if row.result in {"BLOCK", "WARN"})


def compare_to_baseline(
    rows: Iterable[Row],
    baseline_rows: Iterable[Row],
    *,
    margin: float = _DEFAULT_MARGIN,
    alpha: float = 0.05,
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
    found = _rows(usable, margin=margin, alpha=alpha)
    everyone, before = set(means) | set(now.unjudged), set(means_then) | set(then.unjudged)
    unusable = [cell for cell in sorted(before) if cell not in usable]
    missing = tuple(_missing(cell, everyone, means_then, len(shared.get(cell, ()))) for cell in unusable)
    report = BaselineReport(
        rows=tuple(sorted(found, key=lambda row: (row.change, row.combination))),
        missing=missing,
        new=tuple(sorted(everyone - before)),
        margin=margin,
        alpha=alpha,
        detectable=_detectable([_change(pairs) for pairs in usable.values()], margin=margin, alpha=alpha),
        result=_worst(found, missing=bool(missing)),
        sentences=(),
    )
    return replace(report, sentences=_sentences(report))


def _worst(rows: Sequence[BaselineRow], *, missing: bool) -> GateResult:
    results = {row.result for row in rows}
    if "BLOCK" in results:
        return "BLOCK"
    if missing or not rows or "INCONCLUSIVE" in results:
        return "INCONCLUSIVE"
    return "WARN" if "WARN" in results else "PASS"


def _means(scores: Scores) -> dict[Combination, dict[str, float]]:
    means: dict[Combination, dict[str, float]] = {cell: {} for cell in scores.cells}
    entries = zip(scores.cell.tolist(), scores.scenario.tolist(), scores.value.tolist(), strict=True)
    for cell, scenario, value in entries:
        means[scores.cells[cell]][scores.scenarios[scenario]] = value
    return means


def _paired(now: Mapping[str, float], then: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """By scenario, its mean now and then."""
    return {scenario: (now[scenario], then[scenario]) for scenario in sorted(then) if scenario in now}


def _change(pairs: Mapping[str, tuple[float, float]]) -> Summary:
    differences = [now - then for now, then in pairs.values()]
    mean = math.fsum(differences) / len(differences)
    squares = math.fsum((one - mean) ** 2 for one in differences)
    scale = max(abs(value) for pair in pairs.values() for value in pair)
    return statistics.summary(n=len(pairs), mean=mean, squares=squares, scale=scale)


def _one_sided(change: Summary) -> float:
    """How easily chance would make the scores fall this much."""
    p = statistics.two_sided_p(change)
    return 1.0 if p is None else p / 2 if change.mean < 0 else 1 - p / 2


def _holm(p_values: Mapping[Combination, float]) -> dict[Combination, float]:
    """Each p times the number of those that are no smaller, and no less than a smaller one's."""
    corrected: dict[Combination, float] = {}
    largest = 0.0
    for place, cell in enumerate(sorted(p_values, key=lambda cell: (p_values[cell], cell))):
        largest = max(largest, min(1.0, p_values[cell] * (len(p_values) - place)))
        corrected[cell] = largest
    return corrected


def _rows(
    usable: Mapping[Combination, Mapping[str, tuple[float, float]]], *, margin: float, alpha: float
) -> list[BaselineRow]:
    changes = {cell: _change(pairs) for cell, pairs in usable.items()}
    beyond_margin = {cell: replace(change, mean=change.mean + margin) for cell, change in changes.items()}
    p_values = _holm({cell: _one_sided(change) for cell, change in changes.items()})
    p_beyond = _holm({cell: _one_sided(change) for cell, change in beyond_margin.items()})
    return [
        _row(cell, pairs, changes[cell], (p_values[cell], p_beyond[cell]), margin=margin, alpha=alpha)
        for cell, pairs in usable.items()
    ]


def _row(
    cell: Combination,
    pairs: Mapping[str, tuple[float, float]],
    change: Summary,
    p_values: tuple[float, float],
    *,
    margin: float,
    alpha: float,
) -> BaselineRow:
    low, high = statistics.interval(change, alpha=alpha) or (None, None)
    p_value, p_beyond = p_values
    changes = sorted((now - then, scenario) for scenario, (now, then) in pairs.items())
    return BaselineRow(
        model=cell.model,
        prompt=cell.prompt,
        n_scenarios=len(pairs),
        mean=math.fsum(now for now, _ in pairs.values()) / len(pairs),
        baseline_mean=math.fsum(then for _, then in pairs.values()) / len(pairs),
        change=change.mean,
        low=low,
        high=high,
        p_value=p_value,
        p_beyond=p_beyond,
        result=_result(change, p_values, margin=margin, alpha=alpha),
        worse=tuple((scenario, one) for one, scenario in changes if -one > margin)[:_MOST_WORSE],
    )


def _result(change: Summary, p_values: tuple[float, float], *, margin: float, alpha: float) -> GateResult:
    p_value, p_beyond = p_values
    if p_beyond < alpha:
        return "BLOCK"
    if change.n < FEWEST_SHARED:
        return "INCONCLUSIVE"
    return "WARN" if p_value < alpha or -change.mean > margin else "PASS"


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
    """The smallest true drop that blocks four times in five."""
    spreads = [change.sd for change in changes if change.sd]
    if not spreads:
        return None
    sd = math.sqrt(math.fsum(one**2 for one in spreads) / len(spreads))
    n = sorted(change.n for change in changes)[len(changes) // 2]
    level = min(2 * alpha / len(changes), 1.0)
    return margin + statistics.detectable_difference(sd, n=n, alpha=level)


def _sentences(report: BaselineReport) -> tuple[str, ...]:
    parts = [_finding(report), _warnings(report), _not_compared(report), _worse(report), _power(report)]
    return tuple(sentence for sentence in [*parts, _new(report)] if sentence)


def _finding(report: BaselineReport) -> str:
    if not report.rows:
        return "INCONCLUSIVE: nothing can be compared with the baseline."
    blocked = [row for row in report.rows if row.result == "BLOCK"]
    if blocked:
        names = listed(
            f"{row.combination} by {-row.change:.1f} points ({_p(row.p_beyond)})" for row in blocked
        )
        return f"BLOCK: dropped by more than the margin of {report.margin:g} beyond chance: {names}."
    if report.result == "INCONCLUSIVE":
        return "INCONCLUSIVE: no drop is certain, but not every row of the baseline can be compared."
    count = f"None of the {len(report.rows)} rows" if len(report.rows) > 1 else "The only row"
    verb = "has" if len(report.rows) > 1 else "has not"
    return (
        f"{report.result}: {count} {verb} dropped by more than the margin of {report.margin:g} beyond chance."
    )


def _warnings(report: BaselineReport) -> str:
    found = [row for row in report.rows if row.result == "WARN"]
    if not found:
        return ""
    names = listed(f"{row.combination} ({row.change:+.1f} points, {_p(row.p_value)})" for row in found)
    return f"Look at {names}: a drop is certain or larger than the margin, but not both."


def _not_compared(report: BaselineReport) -> str:
    few = [row for row in report.rows if row.result == "INCONCLUSIVE"]
    names = [
        *(
            f"{row.combination} ({row.n_scenarios} shared scenarios, {FEWEST_SHARED} are needed)"
            for row in few
        ),
        *map(str, report.missing),
    ]
    return f"Cannot be judged: {listed(names, most=6)}." if names else ""


def _worse(report: BaselineReport) -> str:
    """The scenarios that became worse, of the rows that block or warn."""
    found = [row for row in report.rows if row.result in {"BLOCK", "WARN"} and row.worse]
    lists = (
        f"{row.combination}: {', '.join(f'{name} ({change:+.1f})' for name, change in row.worse)}"
        for row in found
    )
    return f"Scenarios that became worse: {'; '.join(lists)}." if found else ""


def _power(report: BaselineReport) -> str:
    if not report.rows:
        return ""
    n = sorted(row.n_scenarios for row in report.rows)[len(report.rows) // 2]
    if report.detectable is None:
        return "The changes do not vary, so it is not known how small a drop would be found."
    return (
        f"With {n} shared scenarios a true drop of about {report.detectable:.1f} points would block four "
        "times in five; smaller ones may go unseen."
    )


def _new(report: BaselineReport) -> str:
    if not report.new:
        return ""
    return f"Not in the baseline, so not compared: {listed(map(str, report.new), most=6)}."


def _p(value: float) -> str:
    return "p < .001" if value < 0.001 else f"p {value:.3f}".replace("0.", ".", 1)
