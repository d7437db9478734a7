"""A small part of what `benchmarks/truth` measures, and that its command works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from claims import CLAIMS, table
from gate_and_race import GateCell, RaceCell
from measured_boards import Cell, all_cells

if TYPE_CHECKING:
    from claims import AnyCell

SOME: tuple[AnyCell, ...] = (
    Cell(truths="two best", scenarios=8, variants=3, candidates=2),
    Cell(truths="one best", scenarios=24, variants=6, candidates=5),
    Cell(truths="sd .5", scenarios=24, variants=6, candidates=2, cost_follows=0.6),
    Cell(truths="two best", scenarios=8, variants=3, candidates=5, trouble="one fails"),
    Cell(truths="sd 1", scenarios=8, variants=6, candidates=2, trouble="ceiling"),
    GateCell(drop=0.0, scenarios=8, variants=6, candidates=2),
)


def test_the_table_has_each_claim_once() -> None:
    """A few boards of three kinds fill the table: one line for each claim about them, with its bar."""
    cells: tuple[AnyCell, ...] = (SOME[0], SOME[-1], RaceCell(truths="one best", candidates=2))
    lines = table({cell: cell.measure(boards=2, seed=1) for cell in cells}).splitlines()
    assert lines[0].startswith("claim | bar | cells")
    for beginning in (
        "95 % interval of a mean, well-behaved: covers | ≥ 0.93 | 1 |",
        "gate: BLOCK although nothing has changed | ≤ 0.012 | 1 |",
        "race: winner named where one is better by 2 | ≥ 0.88 | 1 |",
    ):
        assert sum(line.startswith(beginning) for line in lines) == 1


def test_every_cell_is_measured_under_its_own_name() -> None:
    """Names are the seeds of the worlds, so no two cells may share one."""
    names = [str(cell) for cell in all_cells()]
    assert len(names) == len(set(names)) == 540


@pytest.mark.slow
@pytest.mark.parametrize("cell", SOME, ids=str)
def test_the_claims_hold_on_some_boards(cell: AnyCell) -> None:
    """No claim misses its bar by more than four Monte-Carlo errors on 400 boards."""
    sums = cell.measure(boards=400, seed=7)
    for claim in CLAIMS:
        value = claim.of(cell, sums)
        if value is None or claim.bar is None or claim.on_average:
            continue
        bar = claim.bar_of(cell, sums) if claim.bar_of else claim.bar
        slack = 4 * (max(bar * (1 - bar), 1e-4) / 400) ** 0.5
        assert value >= bar - slack if claim.at_least else value <= bar + slack, claim.text
