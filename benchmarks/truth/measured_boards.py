"""What the leaderboard claims on boards whose truth is known, and how often the claim holds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from score_worlds import EVAL_STEPS, Boards, Clusters, Trouble, Truths, eval_world, own_world
from tipbench.compare.leaderboard import rank
from tipbench.compare.statistics import t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tipbench.compare.leaderboard import Leaderboard

    Array = NDArray[Any]
    Sums = dict[str, float]

SIZES = (4, 8, 24)
VARIANTS = (3, 6, 12)
CANDIDATES = (2, 5)
TRUTHS: tuple[Truths, ...] = ("equal", "sd .5", "sd 1", "two best", "one best")
CLUSTERS = tuple(
    Clusters(count=count, size=size, share=share)
    for count, size in ((4, 2), (8, 3), (4, 6))
    for share in (0.25, 0.5)
)
WELL_BEHAVED_KINDS = frozenset({"Likert", "continuous", "grades"})
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One kind of board. `cost_follows` is the correlation of a variant's cost with its truth."""

    truths: Truths
    scenarios: int
    variants: int
    candidates: int = 1
    trouble: Trouble = "none"
    clusters: Clusters | None = None
    kind: str = ""
    cost_follows: float = 0.0

    @property
    def family(self) -> str:
        if self.kind:
            return "evalstats"
        return "clusters" if self.clusters else self.trouble if self.trouble != "none" else "own"

    @property
    def well_behaved(self) -> bool:
        return self.family == "own" or self.kind in WELL_BEHAVED_KINDS

    def __str__(self) -> str:
        groups = self.clusters and f", {self.clusters.count} × {self.clusters.size}, {self.clusters.share:g}"
        return (
            f"{self.kind or self.family}{groups or ''}, {self.truths}, S {self.scenarios}, C {self.variants}"
            f"{f', {self.candidates} candidates' if not self.kind else ''}"
            f"{', cost .6' if self.cost_follows else ''}"
        )

    def measure(self, *, boards: int, seed: int) -> dict[str, float]:
        """Sums over boards; `boards`, `rows` and `gaps` count what the shares are of."""
        rng = np.random.default_rng([seed, *str(self).encode()])
        drawn = self.draw(boards, rng)
        cost = _costs(drawn.truth, self.cost_follows, rng)
        sums: Sums = defaultdict(float)
        for at in range(boards):
            _add(sums, self, drawn, at, cost[at])
        return dict(sums)

    def draw(self, boards: int, rng: np.random.Generator) -> Boards:
        if self.kind:
            return eval_world(
                self.kind,
                boards=boards,
                scenarios=self.scenarios,
                variants=self.variants,
                better=self.truths == "one best",
                rng=rng,
            )
        return own_world(
            self.truths,
            boards=boards,
            scenarios=self.scenarios,
            variants=self.variants,
            candidates=self.candidates,
            rng=rng,
            trouble=self.trouble,
            clusters=self.clusters,
        )


def all_cells() -> Iterator[Cell]:
    """Every kind of board of the table. Half of the own cells have a cost that follows the truth."""
    yield from _own_cells("none", TRUTHS)
    yield from _own_cells("ceiling", TRUTHS)
    yield from _own_cells("all fail", TRUTHS)
    yield from _own_cells("one fails", ("two best",))
    for clusters, variants, candidates in product(CLUSTERS, VARIANTS, CANDIDATES):
        for truths in ("two best", "one best", "sd 1"):
            yield Cell(
                truths=truths,
                scenarios=clusters.count * clusters.size,
                variants=variants,
                candidates=candidates,
                clusters=clusters,
            )
    for kind, size, variants in product(EVAL_STEPS, SIZES, VARIANTS):
        yield Cell(truths="equal", scenarios=size, variants=variants, kind=kind)
        yield Cell(truths="one best", scenarios=size, variants=variants, kind=kind)


def _own_cells(trouble: Trouble, kinds: Iterable[Truths]) -> Iterator[Cell]:
    for truths in kinds:
        for number, (size, variants, candidates) in enumerate(product(SIZES, VARIANTS, CANDIDATES)):
            yield Cell(
                truths=truths,
                scenarios=size,
                variants=variants,
                candidates=candidates,
                trouble=trouble,
                cost_follows=0.6 * ((number // 2 + number) % 2),
            )


def _costs(truth: Array, follows: float, rng: np.random.Generator) -> Array:
    """Costs with this correlation to the truth; any where all truths are equal."""
    noise = rng.standard_normal(truth.shape)
    spread = truth.std(axis=1, keepdims=True)
    standard = np.divide(
        truth - truth.mean(axis=1, keepdims=True), spread, where=spread > 0, out=noise.copy()
    )
    return np.asarray(follows * standard + (1 - follows**2) ** 0.5 * noise)


def board_rows(values: Array) -> list[tuple[str, str, str, float]]:
    """The rows of one board as `rank` takes them. The best variant does not come first by its name."""
    variants = len(values)
    return [
        (f"m{variants - c:02}", "p", f"s{s:02}", float(value))
        for c, by_scenario in enumerate(values)
        for s, by_candidate in enumerate(by_scenario)
        for value in by_candidate
    ]


def _add(sums: Sums, cell: Cell, drawn: Boards, at: int, cost: Sequence[float]) -> None:
    names = [f"m{cell.variants - c:02}" for c in range(cell.variants)]
    truth = dict(zip(names, drawn.truth[at].tolist(), strict=True))
    clusters = None
    if cell.clusters:
        clusters = {f"s{s:02}": f"g{s // cell.clusters.size}" for s in range(cell.scenarios)}
    board = rank(
        board_rows(drawn.values[at]),
        cost={(name, "p"): (float(one),) for name, one in zip(names, cost, strict=True)},
        clusters=clusters,
        bounds=drawn.bounds,
    )
    sums["boards"] += 1
    _add_means(sums, board, drawn, at, truth)
    _add_gaps(sums, board, drawn, at, truth)
    _add_answer(sums, board, truth)


def _add_means(sums: Sums, board: Leaderboard, drawn: Boards, at: int, truth: dict[str, float]) -> None:
    means = drawn.values[at].mean(axis=2)
    half = t_quantile(0.975, means.shape[1] - 1) * means.std(axis=1, ddof=1) / means.shape[1] ** 0.5
    own = dict(zip(truth, zip(means.mean(axis=1).tolist(), half.tolist(), strict=True), strict=True))
    low, high = drawn.bounds
    for row in board.rows:
        mean, width = own[row.model]
        sums["rows"] += 1
        sums["t covered"] += abs(truth[row.model] - mean) <= width
        sums["t width"] += 2 * width
        if row.low is None or row.high is None:
            continue
        sums["rows with interval"] += 1
        sums["mean covered"] += row.low <= truth[row.model] <= row.high
        sums["mean width"] += row.high - row.low
        sums["outside the scale"] += row.low < low - _ROUNDING or row.high > high + _ROUNDING


def _add_gaps(sums: Sums, board: Leaderboard, drawn: Boards, at: int, truth: dict[str, float]) -> None:
    by_name = dict(zip(truth, drawn.values[at].mean(axis=2), strict=True))
    first = board.rows[0].model
    n = drawn.values.shape[2]
    quantile = t_quantile(0.975, n - 1) / n**0.5
    for row in board.rows[1:]:
        if row.behind_low is None or row.behind_high is None:
            continue
        gap = truth[first] - truth[row.model]
        paired = float((by_name[first] - by_name[row.model]).std(ddof=1))
        sums["gaps"] += 1
        sums["gap covered"] += row.behind_low - _ROUNDING <= gap <= row.behind_high + _ROUNDING
        sums["gap width"] += row.behind_high - row.behind_low
        sums["paired width"] += 2 * quantile * paired


def _add_answer(sums: Sums, board: Leaderboard, truth: dict[str, float]) -> None:
    best = max(truth.values())
    alone = sum(value >= best - _ROUNDING for value in truth.values()) == 1
    first = board.rows[0].model
    earlier = all(row.p_values.get("paired", 1.0) < board.alpha for row in board.rows[1:])
    sums["named"] += board.winner is not None
    sums["named by one test"] += earlier
    if board.winner is not None:
        sums["false winner"] += not (alone and truth[board.winner.model] >= best - _ROUNDING)
    chosen = board.recommended.model if board.recommended else first
    sums["recommended worse"] += best - truth[chosen] > board.margin + _ROUNDING
    sums["first worse"] += best - truth[first] > board.margin + _ROUNDING
    sums["recommended another"] += chosen != first
    sums["best guess"] += board.recommended_because == "best guess"
