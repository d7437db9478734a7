"""Applying a judge's file: all of it or nothing, once, and only if the hidden checks speak for it."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from command import start
from judged_world import SCALES, World, fill, plant, plant_home
from tipbench.errors import BadInput, CheckFailed, JudgeFileError, NotFound
from tipbench.ledger import open_ledger
from tipbench.records import Mark
from tipbench.settings import Settings
from tipbench.workflows.applying import Applied, apply_file, rebuild
from tipbench.workflows.exporting import Order, export

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.records import Batch

GOOD, POOR = "qwen2.5:0.5b", "llama3.2:1b"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}
    return folder, plant_home(folder, made_home, "bench", quality=quality)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    """A batch of everything, for ann, not filled in."""
    path = tmp_path / "batch.json"
    export(world.settings, Order(judge="ann"), out=str(path))
    return path


def apply(world: World, file: Path, **how: bool) -> Applied:
    return apply_file(world.settings, str(file), **how)


def the_batch(world: World) -> Batch:
    (batch,) = world.ledger.batches(world.experiment)
    return batch


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def answer(file: Path, item_id: str, **given: object) -> None:
    """Change what is answered for one item."""
    document = json.loads(file.read_text())
    next(one for one in document["items"] if one["id"] == item_id)["judge"].update(given)
    file.write_text(json.dumps(document))


def numbers(world: World) -> dict[str, tuple[object, ...]]:
    """What the runs show of their verdicts."""
    names = ("relevance", "actionability", "tone", "composite", "n_judged")
    return {run.key: (run.judge_pending, *map(run.metrics.get, names)) for run in world.runs}


def test_a_verdict_stores_who_when_and_how_far_to_trust_it(world: World, file: Path) -> None:
    """Judge, moment, rubric, batch and the batch's drift, with the judge's note and objection."""
    fill(file, world)
    item = next(one for one in the_batch(world).items if one.role == "real")
    answer(file, item.id, note="hm ☕", overlong=True)
    before = time.time_ns() // 1_000_000
    applied = apply(world, file)
    batch = the_batch(world)
    verdict = next(one for one in batch.verdicts if one.candidate == item.candidate)
    assert (verdict.judge.id, verdict.judge.kind, verdict.batch_id) == ("ann", "human", batch.batch_id)
    assert before <= verdict.at_ms <= time.time_ns() // 1_000_000
    assert verdict.rubric_hash == world.suite.rubric.hash
    assert (verdict.note, verdict.overlong) == ("hm ☕", True)
    assert verdict.drift_z == applied.drift.z == batch.applications[0].drift_z is not None
    assert dict(verdict.scores) == dict(world.true_scores(item.scenario_id, item.text))
    assert (applied.new, applied.skipped, applied.pending) == (len(batch.items), 0, 0)
    assert applied.sentence == f"batch {batch.batch_id} of bench, judged by ann: {len(batch.items)} new"


def test_a_judges_overlong_counts_in_the_composite(world: World, file: Path) -> None:
    """True costs a point in the run's metrics and names the judge; null again returns to the code's value."""
    fill(file, world)
    apply(world, file)
    before, composites = numbers(world), composite_by_run(world)
    assert {run.overlong_by for run in world.runs} == {"code"}
    for item in the_batch(world).items:
        answer(file, item.id, overlong=True)
    apply(world, file)
    assert composite_by_run(world) == {key: value - 1 for key, value in composites.items()}
    assert {run.metrics["overlong"] for run in world.runs} == {1.0}
    assert {run.overlong_by for run in world.runs} == {"tip 1: ann; tip 2: ann"}
    for item in the_batch(world).items:
        answer(file, item.id, overlong=None)
    apply(world, file)
    assert numbers(world) == before
    assert {(run.metrics["overlong"], run.overlong_by) for run in world.runs} == {(0.0, "code")}


def test_a_rebuild_counts_the_overlong_of_verdicts_that_were_not_counted(world: World, file: Path) -> None:
    """Metrics that an earlier version derived without the judge's flag follow the flag after a rebuild."""
    fill(file, world)
    item = next(one for one in the_batch(world).items if one.role == "real")
    answer(file, item.id, overlong=True)
    apply(world, file)
    right = {run.key: (run.metrics, run.overlong_by) for run in world.runs}
    (flagged,) = [run for run in world.runs if run.overlong_by != "code"]
    assert flagged.overlong_by in {"tip 1: ann; the rest: code", "tip 2: ann; the rest: code"}
    earlier = {**flagged.metrics, "composite": flagged.metrics["composite"] + 0.5, "overlong": 0.0}
    old = Mark(metrics=earlier, judge_pending=False, overlong_by="code")
    world.ledger.mark(world.experiment, {flagged.run_id: old})
    assert rebuild(world.settings) == 1
    assert {run.key: (run.metrics, run.overlong_by) for run in world.runs} == right


def composite_by_run(world: World) -> dict[str, float]:
    return {run.key: run.metrics["composite"] for run in world.runs}


def test_the_same_file_again_changes_nothing(world: World, file: Path) -> None:
    """Not a verdict more, and the same numbers."""
    fill(file, world)
    apply(world, file)
    before, shown = the_batch(world), numbers(world)
    again = apply(world, file)
    assert (again.new, again.changed, again.unchanged) == (0, 0, len(before.items))
    assert (the_batch(world), numbers(world)) == (before, shown)


def test_a_file_is_applied_in_parts(world: World, file: Path) -> None:
    """Half filled in, then whole: each item is recorded once, and only cells that are whole are done."""
    monday = world.suite.scenarios[0].id
    fill(file, world, only=lambda item: item["scenario"] == monday)
    first = apply(world, file)
    assert first.skipped == sum(item.scenario_id != monday for item in the_batch(world).items)
    assert {run.scenario_id for run in world.runs if not run.judge_pending} == {monday}
    fill(file, world)
    second = apply(world, file)
    assert (second.unchanged, second.new) == (first.new, first.skipped)
    verdicts = the_batch(world).verdicts
    assert len(verdicts) == len({one.candidate for one in verdicts}) == 16
    assert not any(run.judge_pending for run in world.runs)


def test_an_empty_file_records_nothing(world: World, file: Path) -> None:
    """Nothing filled in is nothing to apply, and no error."""
    edit(file, lambda document: document["judged_by"].update(id="ann", kind="human"))
    applied = apply(world, file)
    assert (applied.new, applied.skipped) == (0, len(the_batch(world).items))
    assert the_batch(world).applications == ()


def other_score(value: int) -> int:
    return value - 1 if value > 1 else 2


def test_a_changed_score_is_a_conflict_until_rejudged(world: World, file: Path) -> None:
    """Without --rejudge nothing of the file is recorded, not even what is new; with it both are kept."""
    monday = world.suite.scenarios[0].id
    fill(file, world, only=lambda item: item["scenario"] == monday)
    apply(world, file)
    before = the_batch(world)
    fill(file, world)
    item = next(one for one in before.items if one.role == "real" and one.scenario_id == monday)
    truth = world.true_scores(monday, item.text)["tone"]
    answer(file, item.id, tone=other_score(int(truth)))
    with pytest.raises(BadInput, match=r"batch.json:\d+: item \d+: 'ann' has scored this before.*--rejudge"):
        apply(world, file)
    assert the_batch(world) == before
    applied = apply(world, file, rejudge=True)
    assert (applied.changed, applied.new) == (1, applied.skipped + len(before.items) - applied.unchanged - 1)
    given = [one.scores["tone"] for one in the_batch(world).verdicts if one.candidate == item.candidate]
    assert given == [truth, other_score(int(truth))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document["items"][-1]["judge"].update(tone=6), "not between 1 and 5"),
        (lambda document: document["items"][-1]["judge"].update(tone="4"), "without quotation marks"),
        (lambda document: document["items"][-1]["judge"].update(tone=None), "has no score"),
        (lambda document: document["items"][3].update(tip="Another."), "'tip' was changed"),
        (lambda document: document["items"].reverse(), "put them back in order"),
        (lambda document: document["items"].pop(), "is missing"),
        (lambda document: document["judged_by"].update(id="bob"), "was exported for 'ann'"),
        (lambda document: document["judged_by"].update(kind="ai"), '"human" or "agent"'),
        (lambda document: document.update(rubric_hash="0" * 64), "rubric_hash"),
        (lambda document: document.update(batch="b0"), "there is no batch 'b0'"),
        (lambda document: document["rubric"].append("More."), "'rubric' was changed"),
    ],
)
def test_a_file_with_one_mistake_is_not_applied_at_all(
    world: World, file: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    """Everything else in it is fine, and nothing of it is recorded."""
    fill(file, world)
    edit(file, change)
    with pytest.raises(BadInput, match=words):
        apply(world, file)
    assert the_batch(world).applications == ()


def test_a_drifting_judge_is_rejected_and_may_be_accepted(world: World, file: Path) -> None:
    """A point too low on every scale: nothing recorded; accepted, the verdicts carry it."""
    fill(file, world, shift=-1)
    with pytest.raises(CheckFailed, match=r"is rejected and nothing of it is recorded\. Its scores differ"):
        apply(world, file)
    assert the_batch(world).applications == ()
    assert {run.judge_pending for run in world.runs} == {True}
    applied = apply(world, file, accept_drift=True)
    assert (applied.drift.state, applied.drift.accepted) == ("warn", True)
    assert the_batch(world).applications[0].drift_accepted
    assert apply(world, file).new == 0, "what was accepted need not be accepted again"


def test_whoever_finds_foils_relevant_is_rejected_whatever_is_accepted(world: World, file: Path) -> None:
    """Two tips of other scenarios found relevant: the scenarios were not read."""
    fill(file, world, foils_relevant=True)
    with pytest.raises(CheckFailed, match="is rejected"):
        apply(world, file, accept_drift=True)
    assert the_batch(world).applications == ()
    (rejection,) = the_batch(world).rejections
    assert "2 of 2 hidden tips that were written for another scenario" in rejection.reason


def test_a_slight_drift_is_seen_over_batches(world: World, tmp_path: Path) -> None:
    """Each batch alone passes; the moving average rejects the one that makes it a pattern."""
    path, said = tmp_path / "b.json", list[str]()
    while not said or said[-1] in {"ok", "warn"}:
        export(world.settings, Order(judge="ann", size=4), out=str(path), force=True)
        fill(path, world)
        raise_anchors(path, world.ledger.batch(json.loads(path.read_text())["batch"]))
        try:
            said.append(apply(world, path).drift.state)
        except CheckFailed:
            said.append(world.ledger.rejected_batches()[0].rejections[0].reason)
    assert 2 <= len(said) <= 5
    assert "over the last batches scores of the hidden anchors have crept above" in said[-1].casefold()
    assert "accept it with --accept-drift" in said[-1]


def raise_anchors(path: Path, batch: Batch) -> None:
    """Score the two anchors 2 to 3 points above their references, taken together."""
    references = {one.id: one.reference for one in batch.items if one.role == "anchor"}
    document = json.loads(path.read_text())
    answers = {one["id"]: one["judge"] for one in document["items"] if one["id"] in references}
    for item_id, name in itertools.cycle([(item_id, name) for item_id in answers for name in SCALES]):
        above = sum(answers[one][scale] - references[one][scale] for one in answers for scale in SCALES)
        if above >= 2:
            break
        answers[item_id][name] = min(5, answers[item_id][name] + 1)
    path.write_text(json.dumps(document))


def test_numbers_are_derived_anew(world: World, file: Path) -> None:
    """Whatever the runs show, a rebuild brings back what follows from the verdicts, and then has nothing
    to do.
    """
    fill(file, world)
    apply(world, file)
    right = numbers(world)
    wrong = Mark(metrics={"composite": 1.0, "n_judged": 9.0, "tone": 2.5}, judge_pending=True)
    world.ledger.mark(world.experiment, {run.run_id: wrong for run in world.runs[:3]})
    assert numbers(world) != right
    assert rebuild(world.settings) == 3
    assert numbers(world) == right
    assert rebuild(world.settings) == 0


def test_the_same_file_mends_what_was_cut_off_after_the_commit(world: World, file: Path) -> None:
    """Killed between the verdicts and the runs' numbers, applying the same file again writes the numbers."""
    fill(file, world)
    apply(world, file)
    right, verdicts = numbers(world), the_batch(world).verdicts
    names = ("relevance", "actionability", "tone", "composite", "n_judged")
    unmarked = Mark(metrics=dict.fromkeys(names, math.nan), judge_pending=True)
    world.ledger.mark(world.experiment, {run.run_id: unmarked for run in world.runs})
    assert set(numbers(world).values()) == {(True, *[None] * 5)}
    assert apply(world, file).new == 0
    assert numbers(world) == right
    assert the_batch(world).verdicts == verdicts


def test_any_machine_that_reaches_the_ledger_can_apply(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exported with one home and applied with another, over a ledger that both reach."""
    uri = f"sqlite:///{tmp_path}/shared.db"
    settings = Settings.of({"experiment": "bench", "mlflow_url": uri})
    world = plant(
        "bench", quality={(GOOD, "v1"): 4.0}, n_scenarios=2, ledger=open_ledger(uri, home=fresh_home)
    )
    path = tmp_path / "batch.json"
    export(settings, Order(judge="ann"), out=str(path))
    fill(path, world)
    monkeypatch.setenv("TIPBENCH_HOME", str(tmp_path / "other"))
    assert apply_file(settings, str(path)).pending == 0
    monkeypatch.setenv("TIPBENCH_HOME", str(fresh_home))
    assert not any(run.judge_pending for run in open_ledger(uri, home=fresh_home).runs("bench"))
    with pytest.raises(NotFound, match="name the ledger that it was exported from"):
        apply_file(Settings.of({"experiment": "bench"}), str(path))


def test_a_batch_for_nobody_takes_whoever_fills_it_in(world: World, tmp_path: Path) -> None:
    """Two judges with a copy each of the same file: two verdicts on everything."""
    path, copy = tmp_path / "a.json", tmp_path / "b.json"
    export(world.settings, Order(), out=str(path))
    shutil.copy(path, copy)
    fill(copy, world, judge="bot", kind="agent")
    fill(path, world)
    with pytest.raises(JudgeFileError, match="'id' in 'judged_by' is missing"):
        apply(world, path)
    fill(path, world, judge="ann", kind="human")
    apply(world, path)
    apply(world, copy)
    assert {(one.judge.id, one.judge.kind) for one in the_batch(world).verdicts} == {
        ("ann", "human"),
        ("bot", "agent"),
    }
    assert len(the_batch(world).verdicts) == 32


def test_two_judges_who_apply_at_once(world: World, tmp_path: Path) -> None:
    """One half of every cell each, at the same moment: the cells show both halves in the end."""
    folder = tmp_path / "all"
    for one in export(world.settings, Order(every=True, size=12), out=str(folder)):
        fill(Path(one.path), world, judge=one.batch_id, kind="human")
    processes = [start("judge", "apply", str(path)) for path in sorted(folder.iterdir())]
    for process in processes:
        assert process.communicate()[1] == ""
        assert process.returncode == 0
    assert {values[-1] for values in numbers(world).values()} == {2}
    assert not any(run.judge_pending for run in world.runs)
