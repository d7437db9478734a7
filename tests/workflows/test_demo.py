"""The demo, with cells that are there already: judged by rules, ranked, and a report to open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from demo_world import plant_demo
from tipbench.ledger import open_ledger
from tipbench.workflows.demo import EXPERIMENT, PROMPTS, demo

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_goes_from_cells_to_a_page(home: Path) -> None:
    """Nothing is generated twice, the proxy judges all of it once, and the page says first that it did."""
    assert plant_demo(home) == 32
    events: list[dict[str, Any]] = []
    found = demo(emit=lambda event: events.append(dict(event)))
    assert (found.summary.cells.planned, found.summary.cells.skipped, found.summary.calls) == (32, 32, 0)
    assert {row.prompt for row in found.report.board.rows} == set(PROMPTS)
    assert found.report.first[0] == "Demo scores come from simple word rules. Do not ship on them."
    assert (found.report.ground, found.report.advise, found.report.board.n_unjudged) == ("proxy", False, 0)
    assert found.page == home / "reports" / f"{EXPERIMENT}.html"
    page = found.page.read_text()
    assert "Demo scores come from simple word rules" in page
    assert "Write the first line now." in page
    ledger = open_ledger("", home=home)
    assert ledger.run(found.example)[0].experiment == EXPERIMENT
    batches = ledger.batches(EXPERIMENT)
    again = demo(emit=lambda event: events.append(dict(event)))
    assert again.report.board == found.report.board
    assert ledger.batches(EXPERIMENT) == batches
