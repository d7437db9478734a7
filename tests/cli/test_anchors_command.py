"""`judge anchors`: what a person sees of the bank, and how they make it their own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from command import here, tipbench
from judged_world import World, fill, judge_next, plant_home
from suite_files import write_suite
from tipbench.workflows.exporting import Order

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {("qwen2.5:0.5b", "v1"): 4.0}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=2)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def test_the_list_shows_scores_and_by_whom(world: World) -> None:
    """A line an anchor, and that no person has judged them yet."""
    ran = here("judge", "anchors", "list")
    lines = ran.out.splitlines()
    assert lines[0].split("\t") == ["scenario", "relevance", "actionability", "tone", "references", "text"]
    assert len(lines) == len(world.suite.anchors) + 2
    assert "4 by agents" in lines[1]
    assert lines[-1].endswith("none judged by people yet: provisional")


def test_a_person_calibrates_the_bank(world: World, tmp_path: Path) -> None:
    """Exported, filled in, applied with the usual command: the gate is provisional no more."""
    path = tmp_path / "anchors.json"
    exported = tipbench("judge", "anchors", "export", "--out", str(path), "--judge", "ann")
    assert exported.code == 0, exported
    assert f"{path}: {len(world.suite.anchors)} anchors" in exported.out
    assert f"judge apply {path}\n" in exported.out
    fill(path, world)
    applied = here("judge", "apply", str(path), "--suite", "tip")
    assert applied.code == 0, applied
    assert f"{len(world.suite.anchors)} anchors calibrated" in applied.err
    assert f"{len(world.suite.anchors)} of them judged by people" in here("judge", "anchors", "list").out
    judge_next(world, tmp_path / "b.json")
    status = here("judge", "status", "--experiment", "bench")
    assert "provisional" not in status.out


def test_the_bank_grows_from_agreed_verdicts(world: World, tmp_path: Path) -> None:
    """With two judges alike it says how many and where they are kept; before, what to do first."""
    before = here("judge", "anchors", "add", "--experiment", "bench")
    assert before.code == 2
    assert "judge export --second --judge NAME" in before.err
    judge_next(world, tmp_path / "a.json")
    judge_next(world, tmp_path / "b.json", order=Order(judge="bob", second=True))
    ran = here("judge", "anchors", "add", "--experiment", "bench", "--per-scenario", "1")
    assert ran.out.startswith("2 anchors added, kept in ")
    assert (
        f"{len(world.suite.anchors) + 2} anchors for tip-v1, 2 of them"
        in here("judge", "anchors", "list").out
    )


def test_a_suite_without_anchors_says_that_drift_is_not_checked(fresh_home: Path, tmp_path: Path) -> None:
    """Listing says so, exporting has nothing to write."""
    suite = str(write_suite(tmp_path / "suite"))
    assert here("judge", "anchors", "list", "--suite", suite).out == (
        "small has no anchors: judge drift is not checked\n"
    )
    assert here("judge", "anchors", "export", "--suite", suite, "--out", str(tmp_path / "a.json")).code == 2
