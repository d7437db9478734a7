"""`judge export --reopen`: the same order given again makes nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command import here
from judged_world import fill, judge_next, plant
from tipbench.errors import NotFound
from tipbench.judge.candidates import candidate_key
from tipbench.workflows.applying import apply_file
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.recording import the_ledger

if TYPE_CHECKING:
    from judged_world import World
    from tipbench.records import Batch

pytestmark = pytest.mark.usefixtures("fresh_home")
ALL = Order(every=True, reopen=True, size=12)


@pytest.fixture
def world(fresh_home: Path) -> World:
    return plant("bench", quality={("qwen2.5:0.5b", "v1"): 2.0, ("gemma3:1b", "v1"): 3.0}, n_scenarios=3)


def reopened(world: World, folder: Path) -> list[str]:
    return [one.batch_id for one in export(world.settings, ALL, out=str(folder))]


def test_the_same_batches_come_again(world: World, tmp_path: Path) -> None:
    """Into the same folder and into another: no batch is added, and each candidate is in one of them."""
    first = reopened(world, tmp_path / "one")
    assert len(first) > 1
    assert reopened(world, tmp_path / "one") == reopened(world, tmp_path / "two") == first
    batches = the_ledger(world.settings).batches("bench")
    assert {batch.batch_id for batch in batches} == set(first)
    given = [item.candidate for batch in batches for item in batch.items if item.candidate]
    assert len(given) == len(set(given))


def test_a_file_that_is_there_is_left_as_it_is(world: World, tmp_path: Path) -> None:
    """Somebody may be judging in it; one that was lost is written once more."""
    reopened(world, tmp_path)
    kept, lost, *_ = sorted(tmp_path.iterdir())
    fill(kept, world, judge="ann", kind="human")
    text, was = kept.read_text(), lost.read_text()
    lost.unlink()
    reopened(world, tmp_path)
    assert kept.read_text() == text
    assert lost.read_text() == was


def test_what_came_back_is_not_given_out_again(world: World, tmp_path: Path) -> None:
    """A batch that was applied is done; what is new since then goes into a new one."""
    first, *others = reopened(world, tmp_path)
    path = next(tmp_path.glob(f"*-{first}.json"))
    fill(path, world, judge="ann", kind="human")
    apply_file(world.settings, str(path))
    assert reopened(world, tmp_path / "next") == others
    for name in others:
        path = next(tmp_path.glob(f"*-{name}.json"))
        fill(path, world, judge="ann", kind="human")
        apply_file(world.settings, str(path))
    assert reopened(world, tmp_path / "last") == []


def test_new_cells_go_into_new_batches(world: World, tmp_path: Path) -> None:
    """Those that are out stay as they are, and hold nothing of the new ones."""
    first = reopened(world, tmp_path)
    plant("bench", quality={("llama3.2:3b", "v1"): 4.0}, n_scenarios=3, seed=1)
    every = reopened(world, tmp_path)
    assert every[: len(first)] == first
    assert len(every) > len(first)
    ledger = the_ledger(world.settings)
    held = {item.candidate for name in every for item in ledger.batch(name).items if item.candidate}
    assert held == {
        candidate_key(run.scenario_id, one.text) for run in ledger.runs("bench") for one in run.candidates
    }


def test_one_batch_comes_again(world: World, tmp_path: Path) -> None:
    """Without --all the first open batch is written again, then the next one once it came back."""
    first, second, *rest = reopened(world, tmp_path / "all")
    one = replace(ALL, every=False)
    (again,) = export(world.settings, one, out=str(tmp_path / "b.json"))
    left = sum(
        len([item for item in batch.items if item.candidate]) for batch in batches(world, *rest, second)
    )
    assert (again.batch_id, again.left) == (first, left)
    fill(tmp_path / "b.json", world, judge="ann", kind="human")
    apply_file(world.settings, str(tmp_path / "b.json"))
    (following,) = export(world.settings, one, out=str(tmp_path / "c.json"))
    assert following.batch_id == second


def batches(world: World, *names: str) -> list[Batch]:
    return [the_ledger(world.settings).batch(name) for name in names]


def test_a_second_judges_batch_comes_again(world: World, tmp_path: Path) -> None:
    """What bob got to judge as second is not handed out to him twice; with --reopen it is the same batch."""
    judge_next(world, tmp_path / "ann.json", judge="ann")
    second = Order(judge="bob", second=True)
    (first,) = export(world.settings, second, out=str(tmp_path / "bob.json"))
    with pytest.raises(NotFound, match=r"12 candidates are in open batches .* with --reopen"):
        export(world.settings, second, out=str(tmp_path / "more.json"))
    (again,) = export(world.settings, replace(second, reopen=True), out=str(tmp_path / "again.json"))
    assert again.batch_id == first.batch_id
    (cleos,) = export(world.settings, replace(second, judge="cleo"), out=str(tmp_path / "cleo.json"))
    assert cleos.batch_id != first.batch_id


def test_the_rest_of_a_batch_is_handed_out_again_on_request(world: World, tmp_path: Path) -> None:
    """The judge may still go on with a half-filled file, so its rest is new only with --reopen."""
    order = Order(judge="ann", every=True)
    export(world.settings, order, out=str(tmp_path / "all.json"))
    fill(tmp_path / "all.json", world, only=lambda item: item["number"] <= 5)
    apply_file(world.settings, str(tmp_path / "all.json"))
    with pytest.raises(NotFound, match="are in open batches"):
        export(world.settings, order, out=str(tmp_path / "more.json"))
    (one,) = export(world.settings, replace(order, reopen=True), out=str(tmp_path / "rest.json"))
    (first, rest) = the_ledger(world.settings).batches("bench")
    assert rest.batch_id == one.batch_id
    judged = {verdict.candidate for verdict in first.verdicts}
    candidates = [{item.candidate for item in batch.items if item.candidate} for batch in (first, rest)]
    assert judged
    assert candidates[1] == candidates[0] - judged


def test_the_home_is_told(fresh_home: Path) -> None:
    """`tipbench --home` prints where its state is, for scripts that keep files beside it."""
    ran = here("--home")
    assert (ran.code, Path(ran.out.strip())) == (0, fresh_home)
