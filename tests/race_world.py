"""Races in a world whose truth is known: what they save, and what they get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ordinal_world import World
from tipbench.compare.leaderboard import rank
from tipbench.compare.race import raced_out

if TYPE_CHECKING:
    from tipbench.compare.scores import Row


def race(world: World, *, scenarios: int, tips: int, rng: np.random.Generator) -> tuple[list[Row], list[Row]]:
    """All rows of a sample, and those that a race over its scenarios would have had judged."""
    everything: list[Row] = [*world.rows(scenarios, tips=tips, rng=rng)]
    seen: list[Row] = []
    for at in range(scenarios):
        gone = raced_out(seen)
        seen += [row for row in everything if row[2] == f"s{at:02}" and (row[0], row[1]) not in gone]
    return everything, seen


def raced(*, runs: int, seed: int, scenarios: int = 24, tips: int = 2) -> tuple[float, float, float]:
    """Of twelve combinations: the share judged, how often the first is the same and the best is out."""
    rng = np.random.default_rng(seed)
    share, same, lost = 0.0, 0, 0
    for _ in range(runs):
        world = World.of((10.5 + rng.normal(0, 0.8, 12)).tolist(), rng=rng)
        everything, seen = race(world, scenarios=scenarios, tips=tips, rng=rng)
        share += len(seen) / len(everything) / runs
        same += rank(everything).rows[0].model == rank(seen).rows[0].model
        lost += f"m{int(np.argmax(world.truth)):02}" in {cell.model for cell in raced_out(seen)}
    return share, same / runs, lost / runs


def false_winners(*, runs: int, seed: int) -> float:
    """How often one of two equally good combinations is named the winner at the end of a race."""
    rng = np.random.default_rng(seed)
    truth = [11.5, 11.5, *np.linspace(7, 10, 10).tolist()]
    named = 0
    for _ in range(runs):
        _, seen = race(World.of(truth, rng=rng), scenarios=24, tips=2, rng=rng)
        named += rank(seen).winner is not None
    return named / runs
