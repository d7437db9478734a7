"""The bank of anchors: grown from what judges agree on, calibrated by people, kept on this machine."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from judged_world import World, fill, judge_next, plant_home
from suite_files import write_suite
from tipbench.errors import BadInput, JudgeFileError, NotFound, TipbenchError
from tipbench.settings import Settings
from tipbench.workflows.anchoring import (
    add_anchors,
    anchors_of,
    apply_anchors,
    bank_path,
    export_anchors,
    is_calibration,
    list_anchors,
)
from tipbench.workflows.applying import apply_file, read_judge_file
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judge_status import judge_status

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {("qwen2.5:0.5b", "v1"): 4.0, ("llama3.2:1b", "v1"): 2.5}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=2)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def calibrate(world: World, path: Path, **filling: object) -> None:
    export_anchors(world.settings, judge="ann", out=str(path), force=True)
    fill(path, world, **filling)  # type: ignore[arg-type]
    apply_anchors(world.settings, read_judge_file(str(path)))


def is_provisional(world: World) -> bool:
    return any("provisional" in note for note in judge_status(world.settings).notes)


def test_the_shipped_bank_is_by_agents_until_somebody_judges_it(world: World) -> None:
    """At least four a scenario with four judgements each, none of them by a person."""
    bank = list_anchors(world.settings)
    of_scenario = [one.scenario_id for one in bank.anchors]
    assert min(of_scenario.count(scenario.id) for scenario in world.suite.scenarios) >= 4
    assert min(one.n_references for one in bank.anchors) >= 4
    assert bank.by_people == 0
    assert not bank.path.exists()


def test_a_person_ends_the_provisional_state(world: World, tmp_path: Path) -> None:
    """Before, the gate says provisional; after a person has judged the anchors, it does not."""
    before = judge_next(world, tmp_path / "a.json", order=Order(judge="bob", size=7))
    assert before.drift.provisional
    assert is_provisional(world)
    calibrate(world, tmp_path / "anchors.json")
    assert list_anchors(world.settings).by_people == len(world.suite.anchors)
    export(world.settings, Order(judge="bob"), out=str(tmp_path / "b.json"))
    fill(tmp_path / "b.json", world)
    assert not apply_file(world.settings, str(tmp_path / "b.json")).drift.provisional
    assert not is_provisional(world)


def test_a_persons_scores_take_the_place_of_the_agents(world: World, tmp_path: Path) -> None:
    """The reference is the mean of people's judgements alone, and what the gate measures by."""
    calibrate(world, tmp_path / "anchors.json", shift=-1)
    for anchor in anchors_of(world.suite):
        shipped = next(one for one in world.suite.anchors if one.id == anchor.id).reference
        assert anchor.n_references == 1
        assert anchor.reference == {name: max(1, round(value - 1)) for name, value in shipped.items()}
    export(world.settings, Order(judge="bob"), out=str(tmp_path / "b.json"))
    fill(tmp_path / "b.json", world)
    with pytest.raises(TipbenchError, match="differ from the reference scores"):
        apply_file(world.settings, str(tmp_path / "b.json"))


def test_judging_the_anchors_in_parts(world: World, tmp_path: Path) -> None:
    """What is filled in counts; the rest keeps the agents' references, and the gate says provisional."""
    path = tmp_path / "anchors.json"
    monday = world.suite.scenarios[0].id
    calibrate(world, path, only=lambda item: item["scenario"] == monday)
    bank = list_anchors(world.settings)
    assert {one.scenario_id for one in bank.anchors if one.by_people} == {monday}
    judge_next(world, tmp_path / "a.json")
    assert is_provisional(world)
    fill(path, world)
    apply_anchors(world.settings, read_judge_file(str(path)))
    apply_anchors(world.settings, read_judge_file(str(path)))
    bank = list_anchors(world.settings)
    assert (bank.by_people, {one.n_references for one in bank.anchors}) == (len(bank.anchors), {1})


def test_an_agent_does_not_end_it(world: World, tmp_path: Path) -> None:
    """One more agent among the references is no person."""
    calibrate(world, tmp_path / "anchors.json", judge="bot", kind="agent")
    bank = list_anchors(world.settings)
    assert (bank.by_people, {one.n_references for one in bank.anchors}) == (0, {5})


def test_a_calibration_file_is_a_judges_file(world: World, tmp_path: Path) -> None:
    """Told from a batch by what it is, blind, and the same each time it is made."""
    path = tmp_path / "anchors.json"
    assert export_anchors(world.settings, judge="", out=str(path)) == len(world.suite.anchors)
    first = path.read_text()
    with pytest.raises(BadInput, match="exists"):
        export_anchors(world.settings, judge="", out=str(path))
    export_anchors(world.settings, judge="", out=str(path), force=True)
    assert path.read_text() == first
    assert is_calibration(read_judge_file(str(path)))
    assert not [one.id for one in world.suite.anchors if f'"{one.id}"' in first]
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    assert not is_calibration(read_judge_file(str(tmp_path / "b.json")))


def test_what_cannot_be_taken_in_changes_nothing(world: World, tmp_path: Path) -> None:
    """No scores, a wrong score, another suite, a bank that has changed: refused, the bank as it was."""
    path, other = tmp_path / "anchors.json", Settings.of({"suite": "tip-wide"})
    export_anchors(world.settings, judge="ann", out=str(path))
    with pytest.raises(BadInput, match="has no scores yet"):
        apply_anchors(world.settings, read_judge_file(str(path)))
    fill(path, world)
    with pytest.raises(BadInput, match="the anchors of another suite, or of a bank that has changed"):
        apply_anchors(other, read_judge_file(str(path)))
    document = json.loads(path.read_text())
    document["items"][-1]["judge"]["tone"] = 0
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    with pytest.raises(JudgeFileError, match="tone is 0"):
        apply_anchors(world.settings, read_judge_file(str(tmp_path / "wrong.json")))
    assert not bank_path(world.suite).exists()
    grow(world, tmp_path)
    with pytest.raises(BadInput, match="export them again"):
        apply_anchors(world.settings, read_judge_file(str(path)))


def grow(world: World, tmp_path: Path, *, apart: int = 0) -> int:
    """Two judges on everything, who disagree by so much on the first scale."""
    judge_next(world, tmp_path / "first.json")
    path = tmp_path / "second.json"
    export(world.settings, Order(judge="bob", second=True), out=str(path))
    fill(path, world)
    document = json.loads(path.read_text())
    for item in document["items"]:
        if (item["scenario"], item["tip"].casefold()) in world.worth:
            item["judge"]["tone"] += apart if item["judge"]["tone"] <= 5 - apart else -apart
    path.write_text(json.dumps(document))
    apply_file(world.settings, str(path))
    return add_anchors(world.settings, per_scenario=3).added


def test_the_bank_grows_from_what_two_judges_agree_on(world: World, tmp_path: Path) -> None:
    """At most so many a scenario, over the range of their scores, by people; the rest at the next call."""
    with pytest.raises(NotFound, match="no candidate that two judges scored alike"):
        add_anchors(world.settings)
    assert grow(world, tmp_path, apart=1) == 6
    more = [one for one in anchors_of(world.suite) if one not in world.suite.anchors]
    assert len(more) == 6
    for anchor in more:
        assert {one.judge: one.kind for one in anchor.references} == {"ann": "human", "bob": "human"}
        truth = world.true_scores(anchor.scenario_id, anchor.text)
        assert anchor.reference["relevance"] == truth["relevance"]
        assert abs(anchor.reference["tone"] - truth["tone"]) == 0.5
    for scenario in world.suite.scenarios[:2]:
        sums = [sum(one.reference.values()) for one in more if one.scenario_id == scenario.id]
        all_sums = [sum(scores.values()) for (name, _), scores in world.worth.items() if name == scenario.id]
        assert max(sums) - min(sums) >= max(all_sums) - min(all_sums) - 1
    assert add_anchors(world.settings, per_scenario=3).added == 2
    with pytest.raises(NotFound, match="not an anchor yet"):
        add_anchors(world.settings)


def test_what_judges_are_apart_on_is_no_anchor(world: World, tmp_path: Path) -> None:
    """Two points on one scale are a dispute, not a reference."""
    with pytest.raises(NotFound):
        grow(world, tmp_path, apart=2)


def test_rules_are_no_second_judge(world: World, tmp_path: Path) -> None:
    """A person and the proxy do not make a reference."""
    judge_next(world, tmp_path / "a.json")
    judge_automatically(world.settings, "proxy", emit=lambda _: None)
    with pytest.raises(NotFound):
        add_anchors(world.settings)


def test_a_damaged_bank_is_named(world: World, tmp_path: Path) -> None:
    """Neither ignored nor written over."""
    path = bank_path(world.suite)
    path.parent.mkdir(parents=True)
    for content in (b"\xff\xfe", b"anchors: [", b"[]"):
        path.write_bytes(content)
        with pytest.raises(BadInput) as refusal:
            export(world.settings, Order(), out=str(tmp_path / "b.json"))
        assert str(path) in str(refusal.value)
        assert path.read_bytes() == content
    assert world.ledger.batches("bench") == []


def test_where_the_bank_cannot_be_kept(world: World, tmp_path: Path, fresh_home: Path) -> None:
    """A file in the way of the folder: one sentence, not a stack trace."""
    path = tmp_path / "anchors.json"
    export_anchors(world.settings, judge="ann", out=str(path))
    fill(path, world)
    (fresh_home / "anchors").write_text("")
    with pytest.raises(TipbenchError, match="cannot be"):
        apply_anchors(world.settings, read_judge_file(str(path)))
    with pytest.raises(BadInput, match="cannot be"):
        export_anchors(world.settings, judge="ann", out=str(tmp_path / ("n" * 250)))


def test_a_suite_without_anchors(fresh_home: Path, tmp_path: Path) -> None:
    """There is nothing to list, and nothing to calibrate."""
    settings = Settings.of({"suite": str(write_suite(tmp_path / "suite"))})
    assert list_anchors(settings).anchors == ()
    with pytest.raises(NotFound, match="has no anchors"):
        export_anchors(settings, judge="", out=str(tmp_path / "anchors.json"))
