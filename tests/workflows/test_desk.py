"""A judge's desk on a real ledger: one batch at a time, applied as a file is, whoever else is at work."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from judged_world import World, judge_next, plant_home
from tipbench.errors import CheckFailed, NotFound
from tipbench.judge.answers import Answer
from tipbench.judge.attempts import hidden_texts
from tipbench.judge.filled_file import check_file, read_file
from tipbench.records import Judge
from tipbench.store import Store
from tipbench.workflows.agent_judging import AgentJudging
from tipbench.workflows.desk import JudgesDesk
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judge_replies import BatchClosed

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import Batch

AGENT = Judge(id="bot", kind="agent", model="some-model")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {("qwen2.5:0.5b", "v1"): 4.0, ("llama3.2:1b", "v1"): 2.5}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=2)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def desk(world: World, *, size: int = 60) -> JudgesDesk:
    return JudgesDesk(settings=world.settings, judge=AGENT, order=Order(judge="bot", kind="agent", size=size))


def answers(world: World, batch: Batch, shift: int = 0) -> dict[str, Answer]:
    found = {}
    for item in batch.items:
        truth = world.true_scores(item.scenario_id, item.text)
        scores = {name: max(1, min(5, round(value) + shift)) for name, value in truth.items()}
        found[item.id] = Answer(scores=scores)
    return found


def test_one_batch_after_the_other_until_nothing_is_left(world: World) -> None:
    """Taken once, applied, then the next; what is applied carries the agent and its model."""
    judges = desk(world, size=7)
    seen = set()
    for _ in range(2):
        batch = judges.take()
        assert judges.take() == batch
        seen |= {item.candidate for item in batch.items}
        assert judges.apply(batch, answers(world, batch)).sentence.endswith("new")
    with pytest.raises(NotFound, match="nothing left to judge"):
        judges.take()
    assert len(seen - {""}) == 8
    verdicts = [one for batch in world.ledger.batches("bench") for one in batch.verdicts]
    assert {one.judge for one in verdicts} == {AGENT}
    assert not any(run.judge_pending for run in world.runs)


def test_an_open_batch_is_found_again(world: World, tmp_path: Path) -> None:
    """A new desk takes the batch that the judge has, also one that was exported as a file."""
    export(world.settings, Order(judge="bot", kind="agent"), out=str(tmp_path / "b.json"))
    (batch,) = world.ledger.batches("bench")
    assert desk(world).take() == desk(world).take() == batch


def test_the_file_of_a_batch_is_the_agents(world: World) -> None:
    """It can be filled in and applied as any other."""
    batch = desk(world).take()
    text = desk(world).draft_text(batch)
    rubric = desk(world).rubric()
    file = check_file(
        read_file(text.encode(), path="draft"), batch, rubric_text=rubric.text, scales=rubric.scales
    )
    assert (file.judge, len(file.entries)) == (AGENT, len(batch.items))


def test_a_rejected_batch_stays_open(world: World) -> None:
    """The gate is the same as for a file: nothing is recorded, and the batch can be judged again."""
    judges = desk(world)
    batch = judges.take()
    with pytest.raises(CheckFailed, match="rejected"):
        judges.apply(batch, answers(world, batch, shift=-1))
    assert world.ledger.batches("bench")[0].applications == ()
    assert judges.take() == batch
    judges.apply(batch, answers(world, batch))
    assert judges.status()["drift_state"] == "ok"


def test_a_closed_batch_is_followed_by_another_one(world: World) -> None:
    """Three rejections in words without a number; then the desk takes a batch with other hidden texts."""
    judges = desk(world)
    batch = judges.take()
    words = []
    for shift in (-1, -2, -3):
        with pytest.raises(CheckFailed) as refused:
            judges.apply(batch, answers(world, batch, shift=shift))
        words.append(str(refused.value))
    assert not re.search(r"\d", "".join(words))
    assert [isinstance(one, str) and "closed now" in one for one in words] == [False, False, True]
    with pytest.raises(BatchClosed, match="is closed"):
        judges.apply(batch, answers(world, batch))
    fresh = judges.take()
    assert (fresh.replaces, desk(world).take()) == (batch.batch_id, fresh)
    assert not hidden_texts([batch]) & hidden_texts([fresh])
    judges.apply(fresh, answers(world, fresh))
    assert not any(run.judge_pending for run in world.runs)


def test_an_agent_goes_on_after_a_closed_batch(world: World, tmp_path: Path) -> None:
    """Three rejections over the agent's tools, then another batch's items; the old draft is gone."""
    store = Store(tmp_path / "drafts.db")
    judging = AgentJudging(desk(world), store=store)
    batch = desk(world).take()
    for shift in (-1, -2, -3):
        with pytest.raises(CheckFailed) as refused:
            judging.submit_scores(scores_of(world, batch, shift=shift))
    assert "The batch can be judged again" not in str(refused.value)
    items = judging.next_items(20)["items"]
    fresh = desk(world).take()
    assert fresh.replaces == batch.batch_id
    assert {one["id"] for one in items} <= {item.id for item in fresh.items}
    assert store.drafts.get(batch.batch_id, "bot") == {}
    assert judging.submit_scores(scores_of(world, fresh))["applied"]


def scores_of(world: World, batch: Batch, shift: int = 0) -> list[dict[str, object]]:
    found = answers(world, batch, shift=shift)
    return [{"id": item_id, **(answer.scores or {})} for item_id, answer in found.items()]


def test_a_batch_applied_in_part_stays_with_its_judge(world: World) -> None:
    """Otherwise the next batch would show by comparison which of its items are hidden."""
    judges = desk(world)
    batch = judges.take()
    first, *rest = answers(world, batch).items()
    judges.apply(batch, dict([first]))
    assert judges.take().batch_id == desk(world).take().batch_id == batch.batch_id
    judges.apply(batch, dict(rest))
    with pytest.raises(NotFound):
        judges.take()


def test_status_tells_how_far_and_how_true(world: World) -> None:
    """Before and after a batch: what is judged, what is pending, what the hidden items said."""
    judges = desk(world, size=7)
    before = judges.status()
    assert (before["experiment_judged"], before["experiment_pending"]) == (0, 8)
    assert before["drift"] == "no batch applied yet"
    batch = judges.take()
    judges.apply(batch, answers(world, batch))
    after = judges.status()
    assert (after["experiment_judged"], after["experiment_pending"]) == (4, 4)
    assert after["drift"] == "The scores agree with the reference scores, as far as one batch can tell."


def test_two_desks_of_one_judge_do_not_judge_a_batch_twice(world: World) -> None:
    """What one has brought back, the other does not hand out again."""
    one, other = desk(world, size=7), desk(world, size=7)
    batch = one.take()
    assert other.take() == batch
    one.apply(batch, answers(world, batch))
    following = other.take()
    assert following.batch_id != batch.batch_id
    assert {item.candidate for item in following.items if item.candidate}.isdisjoint(
        item.candidate for item in batch.items
    )


def test_nothing_is_left_after_a_person(world: World, tmp_path: Path) -> None:
    """Everything judged by a person leaves the agent nothing to take."""
    judge_next(world, tmp_path / "b.json")
    with pytest.raises(NotFound):
        desk(world).take()
