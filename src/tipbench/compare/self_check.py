"""How often a board like this names a winner among equals: an A/A test on the user's own scores.

The candidates of one of the first rows are split into two random halves. The halves are equally good in
truth, so any winner among them is a false one. All other rows are reduced to half of their candidates too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.compare.leaderboard import rank
from tipbench.compare.scores import Combination

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tipbench.compare.scores import Row
    from tipbench.compare.statistics import Interval

    Candidates = Mapping[Combination, Mapping[str, Sequence[float]]]

MOST_SPLITS, LEAST_SPLITS = 200, 50
_MOST_VALUES = 400_000
_FIRST_HALF, _SECOND_HALF = Combination("first half", ""), Combination("second half", "")


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """The share of `splits` that named a winner among equals. `rate` is None where it cannot be measured."""

    rate: float | None
    splits: int

    def __str__(self) -> str:
        if self.rate is None:
            return (
                "Self-check: cannot tell. It needs two variants with two judged candidates for a scenario: "
                "judge more candidates of each cell, or collect with --repeats 2."
            )
        return (
            f"Self-check: a board like this named a winner among two equal variants in "
            f"{100 * self.rate:.1f} % of {self.splits} random splits of its own scores."
        )


def self_check(
    candidates: Candidates,
    *,
    splits: int | None = None,
    clusters: Mapping[str, str] | None = None,
    bounds: Interval | None = None,
    rng: np.random.Generator | None = None,
) -> SelfCheck:
    """Split the first two rows in turn, by default 200 times. Scenarios with one candidate are left out."""
    import numpy as np

    rng = rng or np.random.default_rng(0)
    usable = {
        cell: {name: list(values) for name, values in scenarios.items() if len(values) > 1}
        for cell, scenarios in candidates.items()
    }
    usable = {cell: scenarios for cell, scenarios in usable.items() if scenarios}
    if len(usable) < 2:
        return SelfCheck(rate=None, splits=0)
    if splits is None:
        size = sum(len(values) for scenarios in usable.values() for values in scenarios.values())
        splits = max(LEAST_SPLITS, min(MOST_SPLITS, _MOST_VALUES // size))
    order = sorted(usable, key=lambda cell: (-_mean(usable[cell]), cell))
    named = sum(
        _names_a_half(usable, order, split % 2, clusters=clusters, bounds=bounds, rng=rng)
        for split in range(splits)
    )
    return SelfCheck(rate=named / splits, splits=splits)


def _mean(scenarios: Mapping[str, Sequence[float]]) -> float:
    return math.fsum(math.fsum(values) / len(values) for values in scenarios.values()) / len(scenarios)


def _names_a_half(
    usable: Mapping[Combination, Mapping[str, Sequence[float]]],
    order: Sequence[Combination],
    split: int,
    *,
    clusters: Mapping[str, str] | None,
    bounds: Interval | None,
    rng: np.random.Generator,
) -> bool:
    """Whether a half of this row wins on a board that has its two halves in place of the first two rows."""
    rows: list[Row] = []
    for name, values in usable[order[split]].items():
        shuffled = rng.permutation(values).tolist()
        half = len(shuffled) // 2
        rows += [(*_FIRST_HALF, name, value) for value in shuffled[:half]]
        rows += [(*_SECOND_HALF, name, value) for value in shuffled[half : 2 * half]]
    for cell in order[2:]:
        for name, values in usable[cell].items():
            shuffled = rng.permutation(values).tolist()
            rows += [(*cell, name, value) for value in shuffled[: len(shuffled) // 2]]
    board = rank(rows, clusters=clusters, bounds=bounds, rng=rng)
    return board.winner in {_FIRST_HALF, _SECOND_HALF}
