"""What is left to people once a model or the proxy has judged: all of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from judged_world import World, judge_next, plant_home
from tipbench.records import Judge
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.desk import JudgesDesk
from tipbench.workflows.exporting import Order
from tipbench.workflows.judge_status import judge_status

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {("qwen2.5:0.5b", "v1"): 4.6, ("llama3.2:1b", "v1"): 1.6}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    """Everything in it is judged by the proxy."""
    shutil.copytree(planted[0], fresh_home)
    judge_automatically(planted[1].settings, "proxy", emit=lambda _: None)
    return planted[1]


def test_the_proxy_leaves_everything_to_people(world: World) -> None:
    """On its own ground all is judged; a person or an agent is told of every candidate."""
    found = judge_status(world.settings)
    assert (found.judged, found.pending, found.left_to_people, found.minutes_left) == (20, 0, 20, 7)
    desk = JudgesDesk(
        settings=world.settings, judge=Judge(id="claude", kind="agent"), order=Order(judge="claude")
    )
    told = desk.status()
    assert (told["experiment_judged"], told["experiment_pending"], told["minutes_left"]) == (0, 20, 7)


def test_once_people_judge_the_proxy_spares_them_nothing(world: World, tmp_path: Path) -> None:
    """Cells that only the proxy has judged wait again, as the ranking does not count them any more."""
    first = judge_next(world, tmp_path / "b.json", order=Order(judge="ann", size=20))
    done = sum(item.role == "real" for item in world.ledger.batch(first.batch_id).items)
    assert 0 < done < 20
    found = judge_status(world.settings)
    assert (found.judged, found.pending, found.left_to_people) == (done, 20 - done, 20 - done)
    assert {run.judge_pending == (run.metrics["n_judged"] < 2) for run in world.runs} == {True}
    assert found.cells_pending == sum(run.judge_pending for run in world.runs) == first.pending > 0
