"""A changed rubric is a new one: nothing is mixed, judging is begun anew when asked for, nothing is lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from judged_world import World, fill, judge_next, plant_home
from suite_files import RUBRIC, write_suite
from tipbench.errors import BadInput, JudgeFileError, NotFound, PinConflict
from tipbench.settings import Settings, home
from tipbench.suite import SHIPPED, load_suite
from tipbench.workflows.applying import apply_file, rebuild
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.collect import make_grid, pin_of
from tipbench.workflows.comparing import compare
from tipbench.workflows.exporting import Order, export, export_again
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.judged import judged_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.workflows.applying import Applied

NEW = (
    RUBRIC.replace("so so", "neither")
    .replace("  use: 1-3\n", "  use: 1-3\n  wit: 1-5\n")
    .replace("composite: use", "composite: use + wit")
    + "## wit\n### 1\n> dull\n### 5\n> witty\n"
)
ANEW = Order(judge="ann", new_rubric=True)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    suite = write_suite(tmp_path_factory.mktemp("suite"))
    quality = {("qwen2.5:0.5b", "v1"): 2.4, ("llama3.2:1b", "v1"): 1.6}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=2, suite=str(suite))


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path, tmp_path: Path) -> World:
    """Judged whole under a suite of one's own; then its rubric is changed."""
    shutil.copytree(planted[0], fresh_home)
    write_suite(tmp_path / "suite")
    world = replace(planted[1], suite_name=str(tmp_path / "suite"))
    judge_next(world, tmp_path / "old.json")
    write_suite(tmp_path / "suite", rubric=NEW)
    return world


def test_a_changed_rubric_is_refused_by_collect_and_by_judge(world: World, tmp_path: Path) -> None:
    """Cells and verdicts under two texts are never mixed by accident."""
    with pytest.raises(PinConflict, match="the rubric 'small-v1' has changed"):
        world.ledger.pin(
            "bench", pin_of(make_grid(Settings.of({"suite": world.suite_name, "prompts": "v1"})))
        )
    with pytest.raises(PinConflict, match=r"is not the one that it is pinned to .*--new-rubric"):
        export(world.settings, Order(), out=str(tmp_path / "b.json"))
    with pytest.raises(PinConflict, match="--new-rubric"):
        judge_automatically(world.settings, "proxy", emit=lambda _: None)
    assert len(world.ledger.batches("bench")) == 1


def test_judging_is_reopened_and_the_old_verdicts_are_kept(world: World, tmp_path: Path) -> None:
    """Everything waits for a judge again, no run shows an old score, and the old verdicts stay."""
    assert not any(run.judge_pending for run in world.runs)
    export(world.settings, ANEW, out=str(tmp_path / "new.json"))
    pin = world.ledger.pinned("bench")
    assert pin is not None
    assert pin.rubric_text == load_suite(world.suite_name).rubric.text
    assert {(run.judge_pending, *map(run.metrics.get, ("use", "composite"))) for run in world.runs} == {
        (True, None, None)
    }
    state = judge_status(world.settings)
    assert (state.judged, state.pending, state.old_verdicts) == (0, 8, 8)
    assert state.judges == ()


def rubrics(world: World) -> set[tuple[str, str]]:
    """The rubric that each run shows: its hash, and the text stored with it."""
    return {(run.rubric_hash, world.ledger.run(run.run_id)[1].rubric) for run in world.runs}


def test_every_run_shows_the_rubric_of_its_scores(world: World, tmp_path: Path) -> None:
    """Runs hold the text that they were generated for, and the new text once it is the one that counts."""
    (before,) = rubrics(world)
    assert before[1] == RUBRIC
    export(world.settings, ANEW, out=str(tmp_path / "new.json"))
    new = load_suite(world.suite_name).rubric
    assert rubrics(world) == {(new.hash, NEW)}
    run_id = world.runs[0].run_id
    kept = home() / "artifacts" / run_id / "artifacts" / f"rubric-{before[0][:12]}.md"
    assert kept.read_text() == RUBRIC


def test_runs_that_still_show_the_old_rubric_are_mended(world: World) -> None:
    """A writer that died before the runs were marked leaves nothing that `rebuild` cannot mend."""
    new = load_suite(world.suite_name).rubric
    world.ledger.change_rubric("bench", rubric_id=new.id, rubric_hash=new.hash, rubric_text=new.text)
    assert rebuild(world.settings) == len(world.runs)
    assert rubrics(world) == {(new.hash, NEW)}
    assert rebuild(world.settings) == 0


def apply_new(world: World, path: Path) -> Applied:
    """Judge everything anew: a one for use, a four for wit."""
    export(world.settings, ANEW, out=str(path))
    worth = {place: {"use": 1, "wit": 4} for place in world.worth}
    fill(path, replace(world, suite=load_suite(world.suite_name), worth=worth))
    return apply_file(world.settings, str(path))


def test_new_verdicts_count_and_old_ones_do_not(world: World, tmp_path: Path) -> None:
    """Scores under the new text alone make the numbers; both are in the ledger."""
    apply_new(world, tmp_path / "new.json")
    assert {(run.judge_pending, run.metrics["composite"], run.metrics["wit"]) for run in world.runs} == {
        (False, 6.0, 4.0)
    }
    state = judged_experiment(world.settings)
    assert len(state.verdicts) == 16
    assert set(map(str, state.scores("human").values())) == {"{'use': 1.0, 'wit': 4.0}"}


def test_a_file_of_the_old_rubric_is_refused(world: World, tmp_path: Path) -> None:
    """Neither applied nor written again: its rubric is not the experiment's any more."""
    old = world.ledger.batches("bench")[0].batch_id
    export(world.settings, ANEW, out=str(tmp_path / "new.json"))
    with pytest.raises(JudgeFileError, match="made under another text of the rubric 'small-v1'"):
        apply_file(world.settings, str(tmp_path / "old.json"))
    with pytest.raises(BadInput, match=f"batch {old} was made under another text of the rubric"):
        export_again(world.settings, old, out=str(tmp_path / "again.json"))
    assert not (tmp_path / "again.json").exists()


def test_the_way_back(world: World, tmp_path: Path) -> None:
    """With the old text restored its verdicts count again, though nothing is left to export."""
    export(world.settings, ANEW, out=str(tmp_path / "new.json"))
    write_suite(tmp_path / "suite", rubric=RUBRIC)
    with pytest.raises(PinConflict):
        export(world.settings, Order(), out=str(tmp_path / "b.json"))
    with pytest.raises(NotFound, match="nothing left to judge"):
        export(world.settings, ANEW, out=str(tmp_path / "b.json"))
    assert judge_status(world.settings).judged == 8
    assert not any(run.judge_pending for run in world.runs)
    assert rebuild(world.settings) == 0


def test_a_suite_without_anchors_says_so(world: World, tmp_path: Path) -> None:
    """The gate is off; status, every application and the ranking say that drift is not checked."""
    applied = apply_new(world, tmp_path / "new.json")
    assert (applied.drift.state, applied.drift.z) == ("off", None)
    assert applied.drift.reason.startswith("Judge drift not checked")
    assert any("Judge drift not checked" in line for line in compare(world.settings).first)
    assert judge_status(world.settings).notes == ("Judge drift not checked: the suite has no anchors.",)
    roles = {item.role for batch in world.ledger.batches("bench") for item in batch.items}
    assert roles == {"real"}


def test_the_folder_of_another_suite_is_refused(world: World, tmp_path: Path) -> None:
    """An experiment of one's own suite needs its folder."""
    with pytest.raises(BadInput, match="was collected with the suite 'small', and --suite is 'tip'"):
        export(Settings.of({"experiment": "bench"}), Order(), out=str(tmp_path / "b.json"))
    write_suite(tmp_path / "suite", scenarios="scenarios:\n  - id: one\n    who: Zoe\n    tasks: [rest]\n")
    with pytest.raises(PinConflict, match=r"the scenario 'one' of .* is not the one that was collected"):
        export(world.settings, Order(), out=str(tmp_path / "b.json"))


def test_a_changed_copy_of_a_suite_that_ships(fresh_home: Path, made_home: Path, tmp_path: Path) -> None:
    """A folder that is given goes before the suite of the same name that ships."""
    assert "tip" in SHIPPED
    copy = tmp_path / "tip"
    shutil.copytree(load_suite("tip").path, copy)
    quality = {("qwen2.5:0.5b", "v1"): 3.0}
    world = plant_home(fresh_home, made_home, "bench", quality=quality, n_scenarios=1, suite=str(copy))
    rubric = copy / "rubric.md"
    rubric.write_text(rubric.read_text() + "\nOne more remark.\n")
    with pytest.raises(PinConflict, match="--new-rubric"):
        export(world.settings, Order(), out=str(tmp_path / "b.json"))
    export(world.settings, Order(new_rubric=True), out=str(tmp_path / "b.json"))
    assert "One more remark." in (tmp_path / "b.json").read_text()
