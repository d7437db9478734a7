"""Each row of a leaderboard against the first: order, differences, p-values, and rows with failed replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tipbench.compare import statistics
from tipbench.compare.additive import fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tipbench.compare.additive import Fit
    from tipbench.compare.scores import Scores
    from tipbench.compare.statistics import Interval, Summary

Test = Literal["paired", "pooled", "clusters"]

ENOUGH_SCENARIOS = 12
_STRICTER = 2.5  # .02 in place of .05
_BOTTOM = 0.1
_OUTLYING = 4.0
_LEAST_SPREAD = 0.05
_SIGMA = 1.4826


def winner_level(alpha: float, n_scenarios: int, *, fails: bool) -> float:
    """The p that a difference must stay below for a winner.

    Few scenarios may miss that a row fails now and then, so fewer than twelve need the level that holds where
    replies failed.
    """
    return alpha / _STRICTER if fails or n_scenarios < ENOUGH_SCENARIOS else alpha


def best_first(scores: Scores, means: NDArray[Any]) -> list[int]:
    """Best first; cells that differ by rounding alone go by name."""
    unit = scores.scale or 1.0
    return sorted(range(len(means)), key=lambda at: (-round(float(means[at]) / unit, 9), scores.cells[at]))


def noise_of(scores: Scores, fitted: Fit) -> float | None:
    """The variance of a scenario's value that neither its row nor its scenario explains.

    Scores come in steps, which hide any smaller spread: the variance is at least that of rounding to a step.
    """
    return None if fitted.noise is None else max(fitted.noise, scores.step**2 / 12)


def differences_from(scores: Scores, first: int) -> list[Summary]:
    """By cell: how far the first is ahead of it, on the scenarios that both have."""
    import numpy as np

    best = np.full(len(scores.scenarios), np.nan)
    of_first = scores.cell == first
    best[scores.scenario[of_first]] = scores.value[of_first]
    difference = best[scores.scenario] - scores.value
    shared = ~np.isnan(difference)
    return statistics.grouped(
        scores.cell[shared], difference[shared], count=len(scores.cells), scale=scores.scale
    )


@dataclass(frozen=True, kw_only=True)
class ClusterTest:
    """A difference by the means of clusters: its p, and how many of the shared clusters the first leads."""

    p_value: float
    ahead: int
    shared: int


def p_values(
    scores: Scores, fitted: Fit, behind: Sequence[Summary], clusters: Sequence[ClusterTest | None]
) -> list[dict[Test, float]]:
    """By cell: the p-values of its difference from the first. Empty without two shared scenarios."""
    noise = noise_of(scores, fitted)
    found: list[dict[Test, float]] = []
    for summary, by_cluster in zip(behind, clusters, strict=True):
        paired = statistics.two_sided_p(summary)
        pooled = None if noise is None else statistics.pooled_p(summary, noise=noise, df=fitted.df)
        tests: dict[Test, float | None] = {
            "paired": paired,
            "pooled": pooled,
            "clusters": by_cluster.p_value if by_cluster else None,
        }
        known = {name: p for name, p in tests.items() if p is not None}
        found.append(known if paired is not None else {})
    return found


def cluster_tests(grouped: Scores | None, scores: Scores, first: int) -> list[ClusterTest | None]:
    """By cell: its difference from the first by the means of clusters. None where scenarios share nothing."""
    nothing: list[ClusterTest | None] = [None] * len(scores.cells)
    if grouped is None:
        return nothing
    fitted = fit(grouped)
    noise = noise_of(grouped, fitted)
    if noise is None:
        return nothing
    behind = differences_from(grouped, first)
    return [
        _cluster_test(grouped, at, first, one, noise=noise, df=fitted.df) for at, one in enumerate(behind)
    ]


def _cluster_test(
    grouped: Scores, at: int, first: int, behind: Summary, *, noise: float, df: int
) -> ClusterTest | None:
    p = statistics.pooled_p(behind, noise=noise, df=df)
    if p is None:
        return None
    own, best = _by_scenario(grouped, at), _by_scenario(grouped, first)
    return ClusterTest(
        p_value=p, ahead=sum(best[one] > own[one] for one in own if one in best), shared=behind.n
    )


def _by_scenario(scores: Scores, cell: int) -> dict[int, float]:
    mine = scores.cell == cell
    return dict(zip(scores.scenario[mine].tolist(), scores.value[mine].tolist(), strict=True))


def failing_cells(scores: Scores, *, bounds: Interval | None) -> frozenset[int]:
    """Cells with a value at the bottom of the scale that their other values do not lead to expect.

    Nearly always these are failed replies. Their number varies a lot between samples of few scenarios, and
    the t-tests do not know it: a winner needs the stricter level. Without bounds the bottom is not known.
    """
    import numpy as np

    if bounds is None or not len(scores.value):
        return frozenset()
    low, high = bounds
    bottom = scores.value <= low + _BOTTOM * (high - low)
    if not bottom.any():
        return frozenset()
    rest = scores.value - _medians(scores.cell, scores.value)
    rest = rest - _medians(scores.scenario, rest)
    sd = max(_SIGMA * float(np.median(np.abs(rest))), _LEAST_SPREAD * (high - low))
    return frozenset(scores.cell[bottom & (rest < -_OUTLYING * sd)].tolist())


def _medians(groups: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """For each value the median of its group."""
    import numpy as np

    order = np.lexsort((values, groups))
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    ordered = values[order]
    used = np.maximum(sizes, 1)
    lower = np.minimum(starts + (used - 1) // 2, len(values) - 1)
    upper = np.minimum(starts + used // 2, len(values) - 1)
    return np.asarray(((ordered[lower] + ordered[upper]) / 2)[groups])
