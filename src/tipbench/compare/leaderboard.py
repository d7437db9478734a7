"""Ranking (model, prompt) combinations by what was judged, claiming no more than the data hold."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tipbench.compare import statistics
from tipbench.compare.additive import Fit, fit
from tipbench.compare.pairwise import (
    ENOUGH_SCENARIOS,
    best_first,
    cluster_tests,
    differences_from,
    failing_cells,
    noise_of,
    p_values,
    winner_level,
)
from tipbench.compare.recommendation import most_p_loss, recommend
from tipbench.compare.scores import Combination, Row, Scores, by_cluster, gather
from tipbench.compare.shrinkage import Shrunken, shrink
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from tipbench.compare.pairwise import ClusterTest, Test
    from tipbench.compare.recommendation import Because
    from tipbench.compare.statistics import Interval, Spread, Summary

MarginFrom = Literal["given", "scale", "observed"]

MARGIN_SHARE = 0.05
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class LeaderboardRow:
    """One combination. What the data do not tell is None, never zero.

    `mean` with `low` and `high` is the plain mean over its scenarios, for scenarios like these; `estimate` is
    what to expect of it once luck is allowed for. `behind` is the difference of the estimates of the first
    row and this one. `p_loss` is the probability that another row is better by more than the margin: the
    larger of the posterior's and of a plain comparison with the first row. The posterior alone is too sure
    where one row is better than many equal ones.

    `p_values` are two-sided, against the first row on shared scenarios: by the paired test, by the spread of
    the whole board, and by the means of clusters. `p_value` is the largest of them; a winner needs it below
    `level`. The first row has the numbers of the row that it is told from least. `tied_for_first` says that
    the row cannot be told from the first. The first leads this row in `clusters_ahead` of `n_clusters`.
    """

    model: str
    prompt: str
    n_scenarios: int
    n_judged: int
    n_unjudged: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    estimate: float | None = None
    behind: float | None = None
    behind_low: float | None = None
    behind_high: float | None = None
    p_value: float | None = None
    p_values: Mapping[Test, float] = field(default_factory=dict)
    level: float | None = None
    tied_for_first: bool = False
    p_best: float | None = None
    p_loss: float | None = None
    clusters_ahead: int | None = None
    n_clusters: int | None = None

    @property
    def combination(self) -> Combination:
        return Combination(self.model, self.prompt)


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Rows from best to worst, and what may be concluded from them.

    `winner` is named only if it is told from every other row, judged or not. `recommended` is the cheapest
    row whose `p_loss`, the probability to be worse than the best by more than `margin` points, is at most
    `accepted_p_loss`. `exploratory` says that there are too few scenarios for a winner. `level` is the
    largest p of a winner. `detectable` is the smallest true difference that this many scenarios would show
    four times in five; `scenarios_needed` is how many would be needed to name a winner if all differences
    are as large as they look. `n_clusters` counts the groups of scenarios that are not independent, None
    without groups.
    """

    rows: tuple[LeaderboardRow, ...]
    winner: Combination | None
    recommended: Combination | None
    recommended_because: Because | None
    detectable: float | None
    scenarios_needed: int | None
    n_scenarios: int
    n_judged: int
    n_unjudged: int
    alpha: float
    level: float = 0.05
    margin: float = 0.0
    margin_from: MarginFrom = "observed"
    accepted_p_loss: float = 0.0
    exploratory: bool = False
    n_clusters: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same names, in plain values for JSON."""
        named = {"winner": self.winner, "recommended": self.recommended}
        plain = {name: one and {"model": one.model, "prompt": one.prompt} for name, one in named.items()}
        return {**asdict(self), "rows": [asdict(row) for row in self.rows], **plain}


def rank(
    rows: Iterable[Row],
    *,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
    cost: Mapping[tuple[str, str], Sequence[float | None]] | None = None,
    host: Mapping[tuple[str, str], str] | None = None,
    accept_loss: float | None = None,
    clusters: Mapping[str, str] | None = None,
    bounds: tuple[float, float] | None = None,
) -> Leaderboard:
    """The leaderboard of rows `(model, prompt, scenario, value)`; a value of None is unjudged.

    Several values for one scenario are averaged first. Rows may come in any order, and the same rows give
    the same answer unless another `rng` is handed in. `accept_loss` is the margin in points: how much worse
    than the best is acceptable. `bounds` are the lowest and the highest possible value; intervals stay
    between them. Without `accept_loss` the margin is 5 % of the scale, or of the observed range where
    `bounds` are missing too. `clusters` names for a scenario the group that it shares with others, such as a
    person. `cost` and `host` are those of `recommend`.
    """
    if not 0 < alpha < 1:
        raise BadInput(f"alpha is {alpha}; give a number between 0 and 1, such as 0.05")
    scores = gather(rows)
    margin, source = _margin(scores, accept_loss, bounds)
    plan = _Plan(
        alpha=alpha,
        margin=margin,
        margin_from=source,
        bounds=bounds,
        grouped=by_cluster(scores, clusters or {}),
        rng=rng,
    )
    return recommend(_board(scores, plan), cost or {}, host=host)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How a board is made. `grouped` has the scores by cluster, None where scenarios share nothing."""

    alpha: float
    margin: float
    margin_from: MarginFrom
    bounds: Interval | None
    grouped: Scores | None
    rng: np.random.Generator | None


def _margin(scores: Scores, accept_loss: float | None, bounds: Interval | None) -> tuple[float, MarginFrom]:
    if accept_loss is not None and not (math.isfinite(accept_loss) and accept_loss >= 0):
        raise BadInput(f"accept_loss is {accept_loss}; give a number of points, 0 or more, such as 0.75")
    lowest = float(scores.value.min()) if len(scores.value) else 0.0
    highest = float(scores.value.max()) if len(scores.value) else 0.0
    if bounds is not None:
        _check_bounds(bounds, lowest, highest, judged=bool(len(scores.value)))
    if accept_loss is not None:
        return accept_loss, "given"
    low, high = bounds or (lowest, highest)
    return MARGIN_SHARE * (high - low), "scale" if bounds else "observed"


def _check_bounds(bounds: Interval, lowest: float, highest: float, *, judged: bool) -> None:
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadInput(f"bounds is {bounds}; give the lowest and the highest possible value, such as (2, 17)")
    slack = _ROUNDING * (high - low)
    if judged and not low - slack <= lowest <= highest <= high + slack:
        outside = lowest if lowest < low else highest
        raise BadInput(f"a scenario has the mean {outside:g}, outside the bounds {low:g} to {high:g}")


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A judged row with what it was made from: its differences from the first row."""

    row: LeaderboardRow
    behind: Summary


def _board(scores: Scores, plan: _Plan) -> Leaderboard:
    compared = _compare_rows(scores, plan)
    rows = [one.row for one in compared]
    unjudged = sorted(set(scores.unjudged) - set(scores.cells))
    rows += [_unjudged_row(cell, scores.unjudged[cell]) for cell in unjudged]
    exploratory = len(scores.scenarios) < statistics.FEWEST_SCENARIOS
    beaten = [_is_beaten(one) for one in compared[1:]]
    wins = bool(beaten) and all(beaten) and not unjudged and not exploratory
    level = (rows[0].level if compared else None) or winner_level(
        plan.alpha, len(scores.scenarios), fails=False
    )
    return Leaderboard(
        rows=tuple(rows),
        winner=rows[0].combination if wins else None,
        recommended=None,
        recommended_because=None,
        detectable=None if exploratory else _detectable(compared, plan, level=level),
        scenarios_needed=None if wins else _scenarios_needed(compared, plan),
        n_scenarios=len(scores.scenarios),
        n_judged=sum(scores.judged),
        n_unjudged=sum(scores.unjudged.values()),
        alpha=plan.alpha,
        level=level,
        margin=plan.margin,
        margin_from=plan.margin_from,
        accepted_p_loss=most_p_loss(len(rows)),
        exploratory=exploratory,
        n_clusters=len(plan.grouped.scenarios) if plan.grouped else None,
    )


def _unjudged_row(cell: Combination, count: int) -> LeaderboardRow:
    return LeaderboardRow(model=cell.model, prompt=cell.prompt, n_scenarios=0, n_judged=0, n_unjudged=count)


def _is_beaten(one: _Compared) -> bool:
    row = one.row
    return row.p_value is not None and row.p_value < (row.level or 0.0) and one.behind.mean > 0


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """What rows are made from, by cell. `failing` has the cells with failed replies."""

    first: int
    own: Sequence[Summary]
    behind: Sequence[Summary]
    p_values: Sequence[Mapping[Test, float]]
    clusters: Sequence[ClusterTest | None]
    failing: frozenset[int]
    noise: float | None
    df: int
    spread: Spread | None
    shrunken: Shrunken | None


def _compare_rows(scores: Scores, plan: _Plan) -> list[_Compared]:
    """The judged rows from best to worst."""
    if not scores.cells:
        return []
    fitted = fit(scores)
    order = best_first(scores, fitted.means)
    evidence = _evidence(scores, fitted, plan, first=order[0])
    compared = [_Compared(row=_row(scores, at, evidence, plan), behind=evidence.behind[at]) for at in order]
    return [_first(compared), *compared[1:]]


def _evidence(scores: Scores, fitted: Fit, plan: _Plan, *, first: int) -> _Evidence:
    own = statistics.grouped(scores.cell, scores.value, count=len(scores.cells), scale=scores.scale)
    noise = noise_of(scores, fitted)
    behind = differences_from(scores, first)
    clusters = cluster_tests(plan.grouped, scores, first)
    return _Evidence(
        first=first,
        own=own,
        behind=behind,
        p_values=p_values(scores, fitted, behind, clusters),
        clusters=clusters,
        failing=failing_cells(scores, bounds=plan.bounds),
        noise=noise,
        df=fitted.df,
        spread=None if noise is None else statistics.pooled_spread(own, noise=noise),
        shrunken=_shrunken(scores, fitted, noise, plan, first=first),
    )


def _row(scores: Scores, at: int, evidence: _Evidence, plan: _Plan) -> LeaderboardRow:
    cell, own, behind = scores.cells[at], evidence.own[at], evidence.behind[at]
    shrunken, by_cluster = evidence.shrunken, evidence.clusters[at]
    low, high = _interval(own, evidence.spread, plan) or (None, None)
    behind_low, behind_high = _gap_interval(at, evidence, plan) or (None, None)
    tied = statistics.not_ruled_out(behind, others=max(len(scores.cells) - 1, 1), alpha=plan.alpha)
    fails = at in evidence.failing or evidence.first in evidence.failing
    return LeaderboardRow(
        model=cell.model,
        prompt=cell.prompt,
        n_scenarios=own.n,
        n_judged=scores.judged[at],
        n_unjudged=scores.unjudged[cell],
        mean=own.mean,
        low=low,
        high=high,
        estimate=float(shrunken.estimate[at]) if shrunken else None,
        behind=_gap(at, evidence),
        behind_low=behind_low,
        behind_high=behind_high,
        p_value=max(evidence.p_values[at].values(), default=None),
        p_values=evidence.p_values[at],
        level=winner_level(plan.alpha, behind.n, fails=fails),
        tied_for_first=tied is not False,
        p_best=float(shrunken.p_best[at]) if shrunken else None,
        p_loss=_p_loss(at, evidence, plan),
        clusters_ahead=by_cluster.ahead if by_cluster else None,
        n_clusters=by_cluster.shared if by_cluster else None,
    )


def _interval(own: Summary, spread: Spread | None, plan: _Plan) -> Interval | None:
    if plan.bounds is None:
        return statistics.interval(own, alpha=plan.alpha)
    return statistics.interval_on_scale(own, spread=spread, bounds=plan.bounds, alpha=plan.alpha)


def _gap(at: int, evidence: _Evidence) -> float | None:
    """The difference of the estimates; of the means on shared scenarios where there are no estimates."""
    if evidence.shrunken is not None:
        estimate = evidence.shrunken.estimate
        return float(estimate[evidence.first] - estimate[at])
    return evidence.behind[at].mean if evidence.behind[at].n else None


def _gap_interval(at: int, evidence: _Evidence, plan: _Plan) -> Interval | None:
    """The interval of the gap: it covers the paired test's interval and the posterior's.

    The paired test's alone ignores that the data chose the first row. The posterior's alone is too narrow
    where true means lie far apart.
    """
    paired = statistics.interval(evidence.behind[at], alpha=plan.alpha)
    if evidence.shrunken is None or at == evidence.first:
        return paired
    low, high = float(evidence.shrunken.gap_low[at]), float(evidence.shrunken.gap_high[at])
    return (low, high) if paired is None else (min(low, paired[0]), max(high, paired[1]))


def _p_loss(at: int, evidence: _Evidence, plan: _Plan) -> float | None:
    if evidence.shrunken is None or evidence.noise is None:
        return None
    posterior = float(evidence.shrunken.p_loss[at])
    if at == evidence.first:
        return posterior
    plain = statistics.p_beyond(evidence.behind[at], plan.margin, noise=evidence.noise, df=evidence.df)
    return max(posterior, plain)


def _first(compared: Sequence[_Compared]) -> _Compared:
    """The first row: behind nobody, and as sure of its place as the comparison that says least."""
    rivals = [one.row for one in compared[1:]]
    first = replace(compared[0].row, p_value=None, p_values={}, level=None)
    if rivals and all(row.p_value is not None for row in rivals):
        least = max(rivals, key=lambda row: (row.p_value or 0.0) / (row.level or 1.0))
        first = replace(first, p_value=least.p_value, p_values=least.p_values, level=least.level)
    return replace(compared[0], row=first)


def _shrunken(
    scores: Scores, fitted: Fit, noise: float | None, plan: _Plan, *, first: int
) -> Shrunken | None:
    """None where the data hold no measure of their own noise."""
    import numpy as np

    if len(scores.cells) < 2 or noise is None or noise <= (1e-9 * scores.scale) ** 2:
        return None
    return shrink(
        fitted.means,
        np.bincount(scores.cell, minlength=len(scores.cells)),
        noise=noise,
        df=fitted.df,
        first=first,
        margin=plan.margin,
        alpha=plan.alpha,
        rng=plan.rng or np.random.default_rng(0),
    )


def _detectable(compared: Sequence[_Compared], plan: _Plan, *, level: float) -> float | None:
    """From the typical spread of differences from the first row, on as many scenarios as are shared.

    None where the difference would be larger than the scale.
    """
    pairs = [one.behind for one in compared[1:] if one.behind.sd is not None]
    if not pairs:
        return None
    sd = (sum((pair.sd or 0.0) ** 2 for pair in pairs) / len(pairs)) ** 0.5
    shared = sorted(pair.n for pair in pairs)[len(pairs) // 2]
    if sd <= 0:
        return None
    found = statistics.detectable_difference(sd, n=shared, alpha=level)
    return None if plan.bounds and found > plan.bounds[1] - plan.bounds[0] else found


def _scenarios_needed(compared: Sequence[_Compared], plan: _Plan) -> int | None:
    """How many scenarios would name a winner, at the level that holds for as many."""
    needed = [_needed(one, plan) for one in compared[1:] if not _is_beaten(one)]
    known = [number for number in needed if number is not None]
    return max(known) if known and len(known) == len(needed) else None


def _needed(one: _Compared, plan: _Plan) -> int | None:
    few = winner_level(plan.alpha, 0, fails=False)
    strict = statistics.scenarios_to_separate(one.behind, alpha=few)
    if strict is None or strict < ENOUGH_SCENARIOS:
        return strict
    usual = statistics.scenarios_to_separate(one.behind, alpha=plan.alpha) or strict
    return max(usual, ENOUGH_SCENARIOS)
