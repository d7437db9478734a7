"""Judging less: which combinations need no more judging, as they are behind the best beyond doubt.

Once a combination is judged on four scenarios it is raced out where all tests of the leaderboard agree that
it is behind the best. The one-sided p must be below alpha / (combinations left - 1), below a quarter of the
level that a winner needs, and below alpha / 10 for the last rival. With larger bounds the race ends too often
on a lucky first row, or stops just before a winner can be named. The result depends on the scores alone: a
combination that was out comes back if later scores speak for it.

`benchmarks/truth` measures how often a race ends wrongly, names a winner, and how much judging it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.compare.additive import fit
from tipbench.compare.pairwise import (
    best_first,
    cluster_tests,
    differences_from,
    failing_cells,
    noise_of,
    p_values,
    winner_level,
)
from tipbench.compare.scores import Combination, by_cluster, gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tipbench.compare.scores import Row, Scores
    from tipbench.compare.statistics import Interval

BLOCKS = 4
_LAST_RIVAL = 0.1
_SHARE_OF_LEVEL = 0.25
_SURE = 0.97
_SIMULATIONS = 2000


@dataclass(frozen=True, kw_only=True)
class RacedOut:
    """Why a combination is out: how far it is behind the best on the scenarios both have; p is one-sided."""

    best: Combination
    behind: float
    p_value: float
    n_scenarios: int


def raced_out(
    rows: Iterable[Row],
    *,
    alpha: float = 0.05,
    blocks: int = BLOCKS,
    clusters: Mapping[str, str] | None = None,
    bounds: Interval | None = None,
) -> dict[Combination, RacedOut]:
    """The combinations that need no more judging, and why. Rows, clusters and bounds are as for `rank`.

    The best is the first of those judged on enough scenarios. Combinations judged on fewer, or not at all,
    stay in and count among those left.
    """
    scores = gather(rows)
    best = _best(scores, blocks=blocks)
    if best is None:
        return {}
    fitted = fit(scores)
    behind = differences_from(scores, best)
    by_clusters = cluster_tests(by_cluster(scores, clusters or {}), scores, best)
    tests = p_values(scores, fitted, behind, by_clusters)
    failing = failing_cells(scores, bounds=bounds)
    everyone = len(set(scores.cells) | set(scores.unjudged))
    one_sided = {
        at: max(tests[at].values()) / 2 if one.mean > 0 else 1.0
        for at, one in enumerate(behind)
        if at != best and one.n >= blocks and tests[at]
    }
    out: dict[Combination, RacedOut] = {}
    for at in sorted(one_sided, key=lambda at: (one_sided[at], scores.cells[at])):
        rivals = everyone - len(out) - 1
        level = winner_level(alpha, behind[at].n, fails=at in failing or best in failing)
        bound = alpha * _LAST_RIVAL if rivals == 1 else alpha / rivals
        if one_sided[at] >= min(bound, level * _SHARE_OF_LEVEL):
            break
        out[scores.cells[at]] = RacedOut(
            best=scores.cells[best],
            behind=behind[at].mean,
            p_value=one_sided[at],
            n_scenarios=behind[at].n,
        )
    return out


def is_settled(
    rows: Iterable[Row],
    *,
    alpha: float = 0.05,
    blocks: int = BLOCKS,
    clusters: Mapping[str, str] | None = None,
    bounds: Interval | None = None,
) -> bool:
    """Whether one combination alone is left, and a simulation of the remaining judgements keeps it first."""
    rows = list(rows)
    everyone = {Combination(str(model), str(prompt)) for model, prompt, _, _ in rows}
    out = raced_out(rows, alpha=alpha, blocks=blocks, clusters=clusters, bounds=bounds)
    return len(everyone) > 1 and len(everyone) - len(out) == 1 and stays_first(rows) >= _SURE


def stays_first(rows: Sequence[Row], *, rng: np.random.Generator | None = None) -> float:
    """How often the first row stays first when the remaining judgements are simulated.

    A remaining scenario gives a row its mean plus the noise of the board. The mean itself is drawn as well:
    it is known only as far as its judged scenarios tell.
    """
    import numpy as np

    scores = gather(rows)
    fitted = fit(scores)
    noise = noise_of(scores, fitted)
    if len(scores.cells) < 2 or noise is None:
        return 0.0
    rng = rng or np.random.default_rng(0)
    judged = np.bincount(scores.cell, minlength=len(scores.cells)).astype(float)
    left = len({scenario for _, _, scenario, _ in rows}) - judged
    final = _final_means(fitted.means, judged, left, noise, rng)
    return float((final.argmax(axis=1) == fitted.means.argmax()).mean())


def _final_means(
    means: NDArray[Any], judged: NDArray[Any], left: NDArray[Any], noise: float, rng: np.random.Generator
) -> NDArray[Any]:
    import numpy as np

    shape = (_SIMULATIONS, len(means))
    true = means + rng.standard_normal(shape) * np.sqrt(noise / judged)
    rest = true + rng.standard_normal(shape) * np.sqrt(noise / np.maximum(left, 1))
    return np.asarray((judged * means + left * rest) / (judged + left))


def _best(scores: Scores, *, blocks: int) -> int | None:
    """The first as `rank` orders them, of those judged on enough scenarios."""
    import numpy as np

    if not scores.cells:
        return None
    enough = np.bincount(scores.cell, minlength=len(scores.cells)) >= blocks
    return next((at for at in best_first(scores, fit(scores).means) if enough[at]), None)
