"""What an export says where judges agree well enough on scales of several lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judged_world import plant
from suite_files import RUBRIC, write_suite
from tipbench.errors import NotFound
from tipbench.workflows.exporting import Order, export

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
