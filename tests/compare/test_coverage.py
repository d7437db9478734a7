"""How often what the leaderboard claims is true, measured in a world where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from ordinal_world import World
from tipbench.compare.leaderboard import Leaderboard, rank


def boards(
    *, cells: int, spread: float, scenarios: int, runs: int, seed: int
) -> list[tuple[Leaderboard, dict[str, float]]]:
    """Boards of fresh worlds whose cells differ by `spread`, each with the true means."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        world = World.of((10.5 + rng.normal(0, spread, cells)).tolist(), rng=rng)
        board = rank(world.rows(scenarios, tips=5, rng=rng), rng=rng)
        found.append((board, {f"m{c:02}": float(mean) for c, mean in enumerate(world.truth)}))
    return found


def mean_coverage(scenarios: int, *, runs: int, seed: int) -> float:
    found = boards(cells=12, spread=0.5, scenarios=scenarios, runs=runs, seed=seed)
    hits = [
        (row.low or 0) <= truth[row.model] <= (row.high or 0) for board, truth in found for row in board.rows
    ]
    return float(np.mean(hits))


def difference_coverage(scenarios: int, *, runs: int, seed: int) -> float:
    """Of two cells, so that which one comes first makes no difference to how often the interval holds."""
    hits = []
    for board, truth in boards(cells=2, spread=0.5, scenarios=scenarios, runs=runs, seed=seed):
        first, second = board.rows
        gap = truth[first.model] - truth[second.model]
        hits.append((second.behind_low or 0) <= gap <= (second.behind_high or 0))
    return float(np.mean(hits))


def equal_best(scenarios: int, *, runs: int, seed: int) -> tuple[float, float]:
    """With two equal best cells of twelve: how often a winner is claimed, and the first of them kept."""
    rng = np.random.default_rng(seed)
    truth = [11.5, 11.5, *np.linspace(7, 10, 10).tolist()]
    claimed, kept = 0, 0
    for _ in range(runs):
        board = rank(World.of(truth, rng=rng).rows(scenarios, tips=5, rng=rng), rng=rng)
        claimed += board.winner is not None
        kept += any(row.tied_for_first for row in board.rows if row.model == "m00")
    return claimed / runs, kept / runs


def top_row(*, cells: int, spread: float, scenarios: int, runs: int, seed: int) -> tuple[float, float, float]:
    """For the first row: P(best) minus how often it is, and how far estimate and mean are above the truth."""
    stated, true, estimate, mean = [], [], [], []
    for board, truth in boards(cells=cells, spread=spread, scenarios=scenarios, runs=runs, seed=seed):
        top = board.rows[0]
        stated.append(top.p_best or 0)
        true.append(truth[top.model] == max(truth.values()))
        estimate.append((top.estimate or 0) - truth[top.model])
        mean.append((top.mean or 0) - truth[top.model])
    return float(np.mean(stated) - np.mean(true)), float(np.mean(estimate)), float(np.mean(mean))


def test_intervals_hold_about_as_often_as_they_say() -> None:
    """A quick look: 95 % intervals hold 92 to 98 % of the time on eight scenarios."""
    assert 0.92 < mean_coverage(8, runs=120, seed=1) < 0.98
    assert 0.91 < difference_coverage(8, runs=400, seed=2) < 0.985


def test_false_winners_are_rare() -> None:
    """A quick look: of two equal best cells one is seldom called the winner; each is nearly always tied."""
    claimed, kept = equal_best(8, runs=150, seed=3)
    assert claimed <= 0.1
    assert kept >= 0.93


def test_the_estimate_is_closer_to_the_truth_than_the_mean() -> None:
    """A quick look: the first row's mean is inflated by having been picked, its estimate hardly."""
    gap, estimate, mean = top_row(cells=12, spread=0.5, scenarios=8, runs=150, seed=4)
    assert abs(gap) < 0.15
    assert abs(estimate) < 0.25
    assert mean > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("scenarios", [4, 8, 24])
def test_coverage_is_nominal(scenarios: int) -> None:
    """Intervals of means hold 95 ± 1.5 % of the time, those of differences at least 94 %."""
    assert mean_coverage(scenarios, runs=600, seed=10 + scenarios) == pytest.approx(0.95, abs=0.015)
    assert 0.94 <= difference_coverage(scenarios, runs=4000, seed=20 + scenarios) <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("scenarios", [4, 8, 24])
def test_false_winners_stay_below_their_bound(scenarios: int) -> None:
    """Of two equal best cells one is called the winner at most 5.5 % of the time; each stays tied 95 %."""
    claimed, kept = equal_best(scenarios, runs=2000, seed=30 + scenarios)
    assert claimed <= 0.055
    assert kept >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("cells", "spread"), [(8, 0.25), (8, 0.5), (12, 0.5)])
def test_p_best_and_estimate_are_honest(cells: int, spread: float) -> None:
    """On average over 4, 8 and 24 scenarios P(best) is within .08, and the first row's estimate within .2."""
    found = [
        top_row(cells=cells, spread=spread, scenarios=scenarios, runs=1000, seed=40 + cells + scenarios)
        for scenarios in (4, 8, 24)
    ]
    gap, estimate, mean = np.mean(found, axis=0)
    assert abs(gap) <= 0.08
    assert abs(estimate) <= 0.2
    assert mean > abs(estimate)
