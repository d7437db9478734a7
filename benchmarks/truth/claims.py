"""The claims about boards: which cells each is about, its bar, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gate_and_race import GateCell, RaceCell
from measured_boards import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    AnyCell = Cell | GateCell | RaceCell
    Sums = Mapping[str, float]
    Found = Mapping[AnyCell, Sums]

HONEST = 0.93


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`value` is what one cell shows, None where the claim is not about it. `bar` may depend on the cell.

    With `on_average` the bar holds for the mean over cells, otherwise for each of them. Without a bar the
    claim is only reported.
    """

    text: str
    at_least: bool
    value: Callable[[Any, Sums], float | None]
    bar: float | None = None
    on_average: bool = False
    bar_of: Callable[[Any, Sums], float] | None = None
    about: type = Cell

    def of(self, cell: AnyCell, sums: Sums) -> float | None:
        return self.value(cell, sums) if isinstance(cell, self.about) else None

    def misses(self, cell: AnyCell, sums: Sums) -> bool:
        value = self.of(cell, sums)
        bar = self.bar_of(cell, sums) if self.bar_of else self.bar
        return value is not None and bar is not None and (value < bar if self.at_least else value > bar)


def _share(sums: Sums, name: str, of: str) -> float | None:
    return sums.get(name, 0.0) / sums[of] if sums.get(of) else None


def _mean_cover(_cell: Cell, sums: Sums) -> float | None:
    return _share(sums, "mean covered", "rows with interval")


def _gap_cover(cell: Cell, sums: Sums) -> float | None:
    return _share(sums, "gap covered", "gaps") if cell.well_behaved else None


def _gap_width(cell: Cell, sums: Sums) -> float | None:
    return _share(sums, "gap width", "paired width") if cell.well_behaved else None


def _mean_width(_cell: Cell, sums: Sums) -> float | None:
    honest = (_share(sums, "t covered", "rows") or 0.0) >= HONEST
    return _share(sums, "mean width", "t width") if honest else None


def _false_winner(*families: str) -> Callable[[Cell, Sums], float | None]:
    def value(cell: Cell, sums: Sums) -> float | None:
        equal = cell.truths == "two best" or (cell.kind != "" and cell.truths == "equal")
        family = "own" if cell.well_behaved else cell.family
        return _share(sums, "false winner", "boards") if equal and family in families else None

    return value


def _only(
    check: Callable[[Cell], bool], value: Callable[[Cell, Sums], float | None]
) -> Callable[[Cell, Sums], float | None]:
    return lambda cell, sums: value(cell, sums) if check(cell) else None


def _power(cell: Cell, sums: Sums) -> float | None:
    if cell.family != "own" or cell.truths != "one best" or cell.scenarios != 24:
        return None
    return _share(sums, "named", "named by one test")


def _recommended_worse(_cell: Cell, sums: Sums) -> float | None:
    return _share(sums, "recommended worse", "boards")


def _loss_bar(_cell: Cell, sums: Sums) -> float:
    return max(0.2, 1.2 * (_share(sums, "first worse", "boards") or 0.0))


def _saves(cell: Cell, sums: Sums) -> float | None:
    if cell.family != "own" or cell.truths != "sd .5" or cell.scenarios != 24:
        return None
    return _share(sums, "recommended another", "boards")


def _troubled(cell: Cell) -> bool:
    return cell.family in {"ceiling", "one fails", "all fail"}


def _blocked(drop: float) -> Callable[[GateCell, Sums], float | None]:
    return lambda cell, sums: _share(sums, "BLOCK", "boards") if cell.drop == drop else None


def _raced(name: str, truths: str = "") -> Callable[[RaceCell, Sums], float | None]:
    return lambda cell, sums: _share(sums, name, "boards") if truths in {"", cell.truths} else None


CLAIMS = (
    Claim(
        text="95 % interval of a mean, well-behaved: covers",
        bar=0.93,
        at_least=True,
        value=_only(lambda cell: cell.well_behaved, _mean_cover),
    ),
    Claim(
        text="95 % interval of a mean, ceilings and failed replies: covers, on average",
        bar=0.92,
        at_least=True,
        value=_only(_troubled, _mean_cover),
        on_average=True,
    ),
    Claim(
        text="95 % interval of a mean, ceilings and failed replies: covers, each",
        bar=0.89,
        at_least=True,
        value=_only(_troubled, _mean_cover),
    ),
    Claim(
        text="95 % interval of a mean, clusters: covers (the board says: other moments of these people)",
        bar=0.92,
        at_least=True,
        value=_only(lambda cell: cell.family == "clusters", _mean_cover),
    ),
    Claim(
        text="ends of intervals outside the scale",
        bar=0.0,
        at_least=False,
        value=lambda _, sums: float(sums.get("outside the scale", 0.0)),
    ),
    Claim(
        text="width of the interval of a mean ÷ t interval, where that is honest, on average",
        bar=1.25,
        at_least=False,
        value=_mean_width,
        on_average=True,
    ),
    Claim(
        text="95 % interval of a gap, well-behaved: covers",
        bar=0.94,
        at_least=True,
        value=_gap_cover,
    ),
    Claim(
        text="width of the interval of a gap ÷ paired t interval, on average",
        bar=1.2,
        at_least=False,
        value=_gap_width,
        on_average=True,
    ),
    Claim(
        text="false winner, two equal best, well-behaved",
        bar=0.055,
        at_least=False,
        value=_false_winner("own"),
    ),
    Claim(
        text="false winner, two equal best, clusters",
        bar=0.07,
        at_least=False,
        value=_false_winner("clusters"),
    ),
    Claim(
        text="false winner, two equal best, failed replies",
        bar=0.08,
        at_least=False,
        value=_false_winner("one fails", "all fail"),
    ),
    Claim(
        text="winner named where one is better by 2, S 24 ÷ named by the paired test alone",
        bar=0.85,
        at_least=True,
        value=_power,
    ),
    Claim(
        text="recommendation worse than the best by more than the margin",
        bar=0.2,
        at_least=False,
        value=_recommended_worse,
        bar_of=_loss_bar,
    ),
    Claim(
        text="another row than the first is recommended, truths of sd .5, S 24",
        bar=0.25,
        at_least=True,
        value=_saves,
    ),
    Claim(
        text="gate: BLOCK although nothing has changed",
        bar=0.012,
        at_least=False,
        value=_blocked(0),
        about=GateCell,
    ),
    Claim(text="gate: BLOCK after a drop of 2", at_least=True, value=_blocked(2), about=GateCell),
    Claim(text="gate: BLOCK after a drop of 3", at_least=True, value=_blocked(3), about=GateCell),
    Claim(
        text="race: settled wrongly",
        bar=0.03,
        at_least=False,
        value=_raced("settled wrongly"),
        about=RaceCell,
    ),
    Claim(text="race: false winner", bar=0.07, at_least=False, value=_raced("false winner"), about=RaceCell),
    Claim(
        text="race: winner named where one is better by 2",
        bar=0.88,
        at_least=True,
        value=_raced("named", "one best"),
        about=RaceCell,
    ),
    Claim(text="race: labels, of the full grid", at_least=False, value=_raced("labels"), about=RaceCell),
)


def table(found: Found, *, every_cell: bool = False) -> str:
    """For each claim: its bar, the mean and the worst over cells, and the cells that miss the bar."""
    lines = ["claim | bar | cells | mean | worst | error | misses", "--- | --- | --- | --- | --- | --- | ---"]
    for claim in CLAIMS:
        values = {cell: claim.of(cell, sums) for cell, sums in found.items()}
        known = {cell: value for cell, value in values.items() if value is not None}
        if known:
            lines += _lines(claim, found, known, every_cell=every_cell)
    return "\n".join(lines)


def _lines(claim: Claim, found: Found, known: Mapping[AnyCell, float], *, every_cell: bool) -> Iterator[str]:
    worst = (min if claim.at_least else max)(known, key=lambda cell: known[cell])
    mean = sum(known.values()) / len(known)
    bar = "" if claim.bar is None else f"{'≥' if claim.at_least else '≤'} {claim.bar:g}"
    missed = [cell for cell in known if claim.misses(cell, found[cell])]
    count = len(missed)
    if claim.on_average and claim.bar is not None:
        count = int(mean < claim.bar if claim.at_least else mean > claim.bar)
    error = _error(known[worst], found[worst]["boards"])
    measured = f"{mean:.3f} | {known[worst]:.3f} ({worst}) | ± {error:.3f} | {count}"
    yield f"{claim.text} | {bar} | {len(known)} | {measured}"
    for cell in known if every_cell else () if claim.on_average else missed:
        yield f"  {cell} | | | | {known[cell]:.3f} | | {_beside(claim, found[cell])}"


def _error(share: float, boards: float) -> float:
    """The Monte-Carlo standard error of a share of boards."""
    inside = min(max(share, 0.0), 1.0)
    return float((inside * (1 - inside) / boards) ** 0.5)


def _beside(claim: Claim, sums: Sums) -> str:
    """The numbers that a reader compares this one with."""
    if "recommendation worse" in claim.text:
        return f"first row {_share(sums, 'first worse', 'boards'):.3f}"
    if "interval of a mean" in claim.text and sums.get("t width"):
        covered, width = _share(sums, "t covered", "rows"), _share(sums, "mean width", "t width")
        return f"t {covered:.3f}, width ÷ t {width:.2f}"
    return ""
