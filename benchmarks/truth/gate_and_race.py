"""What the gate and the race claim, on own worlds whose truth is known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from measured_boards import CANDIDATES, VARIANTS, board_rows
from score_worlds import CANDIDATE_SD, HIGH, LEVEL, LOW, SCENARIO_SD, VARIANT_SD, own_world
from tipbench.compare.baseline import compare_to_baseline
from tipbench.compare.leaderboard import rank
from tipbench.compare.race import is_settled, raced_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from score_worlds import Truths
    from tipbench.compare.scores import Combination, Row

    Array = NDArray[Any]
    Sums = dict[str, float]

DROPS = (0.0, 2.0, 3.0)
RACE_SCENARIOS, RACE_VARIANTS = 24, 6
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class GateCell:
    """Two experiments on the same scenarios; the first variant has dropped by `drop` points."""

    scenarios: int
    variants: int
    candidates: int
    drop: float

    @property
    def family(self) -> str:
        return "gate"

    def __str__(self) -> str:
        return (
            f"gate, drop {self.drop:g}, S {self.scenarios}, C {self.variants}, {self.candidates} candidates"
        )

    def measure(self, *, boards: int, seed: int) -> Sums:
        rng = np.random.default_rng([seed, *str(self).encode()])
        sums: Sums = defaultdict(float)
        shape = (boards, self.variants, self.scenarios)
        level = LEVEL + rng.normal(0, 1, (boards, self.variants, 1))
        cells = (
            level + rng.normal(0, SCENARIO_SD, (boards, 1, self.scenarios)) + rng.normal(0, VARIANT_SD, shape)
        )
        lower = cells.copy()
        lower[:, 0] -= self.drop
        then, now = (self._judged(one, rng) for one in (cells, lower))
        for before, after in zip(then, now, strict=True):
            found = compare_to_baseline(board_rows(after), board_rows(before))
            sums["boards"] += 1
            sums[found.result] += 1
        return dict(sums)

    def _judged(self, cells: Array, rng: np.random.Generator) -> Array:
        noise = rng.normal(0, CANDIDATE_SD, (*cells.shape, self.candidates))
        return np.clip(np.rint(cells[..., None] + noise), LOW, HIGH)


@dataclass(frozen=True, kw_only=True)
class RaceCell:
    """A race over 24 scenarios of six variants."""

    truths: Truths
    candidates: int

    @property
    def family(self) -> str:
        return "race"

    def __str__(self) -> str:
        return f"race, {self.truths}, {self.candidates} candidates"

    def measure(self, *, boards: int, seed: int) -> Sums:
        rng = np.random.default_rng([seed, *str(self).encode()])
        drawn = own_world(
            self.truths,
            boards=boards,
            scenarios=RACE_SCENARIOS,
            variants=RACE_VARIANTS,
            candidates=self.candidates,
            rng=rng,
        )
        sums: Sums = defaultdict(float)
        for values, truth in zip(drawn.values, drawn.truth, strict=True):
            self._add(sums, values, truth, drawn.bounds)
        return dict(sums)

    def _add(self, sums: Sums, values: Array, truth: Array, bounds: tuple[float, float]) -> None:
        everything = board_rows(values)
        seen, settled = _raced(everything, bounds)
        board = rank(seen, bounds=bounds)
        best = truth.max()
        good = {f"m{RACE_VARIANTS - at:02}" for at in np.flatnonzero(truth >= best - _ROUNDING)}
        first_is_best = len(good) == 1 and board.rows[0].model in good
        sums["boards"] += 1
        sums["labels"] += len(seen) / len(everything)
        sums["settled"] += settled
        sums["settled wrongly"] += settled and not first_is_best
        sums["named"] += board.winner is not None
        sums["false winner"] += board.winner is not None and not first_is_best


def _raced(everything: Sequence[Row], bounds: tuple[float, float]) -> tuple[list[Row], bool]:
    """The rows that a race would have judged, scenario by scenario, and whether it was settled."""
    seen: list[Row] = []
    by_scenario: dict[str, list[Row]] = defaultdict(list)
    for row in everything:
        by_scenario[row[2]].append(row)
    for at, (_, rows) in enumerate(sorted(by_scenario.items())):
        gone: set[Combination] = set(raced_out(seen, bounds=bounds))
        left = [(m, p, s, None) for m, p, s, _ in everything if s not in sorted(by_scenario)[:at]]
        if is_settled([*seen, *left], bounds=bounds):
            return seen, True
        seen += [row for row in rows if (row[0], row[1]) not in gone]
    return seen, False


def gate_and_race_cells() -> Iterator[GateCell | RaceCell]:
    for drop, size, variants, candidates in product(DROPS, (8, 24), VARIANTS, CANDIDATES):
        yield GateCell(drop=drop, scenarios=size, variants=variants, candidates=candidates)
    kinds: tuple[Truths, ...] = ("equal", "sd 1", "two best", "one best")
    for truths, candidates in product(kinds, CANDIDATES):
        yield RaceCell(truths=truths, candidates=candidates)
