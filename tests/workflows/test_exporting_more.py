"""What an export says of judges: how far apart they are, and of which kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judged_world import plant
from suite_files import RUBRIC, write_suite
from tipbench.errors import BadInput, NotFound
from tipbench.workflows.exporting import Order, export, export_again

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("fresh_home")
def test_how_far_apart_is_told_by_the_scales_at_hand(tmp_path: Path) -> None:
    """Half of a long scale, not the two points of a scale of five."""
    rubric = RUBRIC.replace("use: 1-3", "use: 0-10")
    suite = write_suite(tmp_path / "suite", rubric=rubric)
    world = plant("bench", quality={("qwen2.5:0.5b", "v1"): 2.0}, suite=str(suite))
    with pytest.raises(NotFound, match="no two judges are 5 or more points apart on any scale"):
        export(world.settings, Order(adjudicate=True), out=str(tmp_path / "b.json"))


@pytest.mark.usefixtures("fresh_home")
def test_an_agents_batch_stays_an_agents(tmp_path: Path) -> None:
    """Written once more it does not turn into a person's; and a kind without a name is nobody's."""
    world = plant("bench", quality={("qwen2.5:0.5b", "v1"): 2.0}, n_scenarios=2)
    with pytest.raises(BadInput, match=r"--kind agent .* --judge NAME"):
        export(world.settings, Order(kind="agent"), out=str(tmp_path / "a.json"))
    (one,) = export(world.settings, Order(judge="claude", kind="agent"), out=str(tmp_path / "b.json"))
    export_again(world.settings, one.batch_id, kind="agent", out=str(tmp_path / "c.json"))
    first, again = (json.loads((tmp_path / name).read_text()) for name in ("b.json", "c.json"))
    assert first["judged_by"] == again["judged_by"] == {"id": "claude", "kind": "agent", "model": None}
