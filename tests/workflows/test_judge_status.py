"""How far judging has come, and how far the judges can be trusted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from judged_world import World, fill, judge_next, plant_home
from tipbench.errors import NotFound
from tipbench.judge.gate import visibility_sentence
from tipbench.records import Application, Judge
from tipbench.settings import Settings
from tipbench.workflows.applying import apply_file
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judge_status import JudgeState, JudgeStatus, judge_status

if TYPE_CHECKING:
    from pathlib import Path

GOOD, POOR = "qwen2.5:0.5b", "llama3.2:1b"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(GOOD, "v1"): 4.6, (POOR, "v1"): 1.6}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def status(world: World) -> JudgeState:
    return judge_status(world.settings)


def of(world: World, name: str) -> JudgeStatus:
    return next(one for one in status(world).judges if one.judge.id == name)


def test_before_anything_is_judged(world: World) -> None:
    """All candidates are pending, at twenty seconds each, and nothing is claimed."""
    found = status(world)
    assert (found.wanted, found.judged, found.pending, found.cells_pending) == (20, 0, 20, 10)
    assert (found.minutes_left, found.seconds_each) == (7, 20.0)
    assert (found.settled, found.judges, found.open_batches, found.notes) == (False, (), (), ())
    assert found.agreement.n_items == 0
    with pytest.raises(NotFound, match="there is no experiment 'x'"):
        judge_status(Settings.of({"experiment": "x"}))


def test_half_way(world: World, tmp_path: Path) -> None:
    """What is judged, what is pending and which batch is still out, per judge."""
    monday = world.suite.scenarios[0].id
    judge_next(world, tmp_path / "b.json", only=lambda item: item["scenario"] == monday)
    found = status(world)
    assert (found.wanted, found.judged, found.pending, found.cells_pending) == (20, 4, 16, 8)
    (judge,) = found.judges
    assert (judge.judge, judge.verdicts, judge.batches) == (Judge(id="ann", kind="human"), 4, 1)
    (out,) = found.open_batches
    items = world.ledger.batches("bench")[0].items
    assert (out.judge, out.items) == ("ann", len(items))
    assert out.judged == sum(item.scenario_id == monday for item in items)
    fill(tmp_path / "b.json", world)
    apply_file(world.settings, str(tmp_path / "b.json"))
    assert (status(world).pending, status(world).open_batches, status(world).minutes_left) == (0, (), 0)


def test_a_changed_mind_is_not_another_item(world: World, tmp_path: Path) -> None:
    """A batch whose half is judged twice is half judged, and its judge has as many candidates as before."""
    path, scenarios = tmp_path / "b.json", [one.id for one in world.suite.scenarios[:4]]
    judge_next(world, path, only=lambda item: item["scenario"] in scenarios)
    before = status(world)
    document = json.loads(path.read_text())
    for item in document["items"]:
        if item["judge"]["tone"] is not None:
            item["judge"]["tone"] += 1 if item["judge"]["tone"] < 5 else -1
    path.write_text(json.dumps(document))
    apply_file(world.settings, str(path), rejudge=True, accept_drift=True)
    after = status(world)
    assert after.open_batches == before.open_batches != ()
    assert after.judges[0].verdicts == before.judges[0].verdicts == 16


def test_a_candidate_judged_in_another_batch_is_judged_here_too(world: World, tmp_path: Path) -> None:
    """The same candidates in two batches, both brought back by ann: neither is out any more."""
    for name in ("a", "b"):
        export(world.settings, Order(judge="ann", even_if_open=True), out=str(tmp_path / f"{name}.json"))
    for name in ("a", "b"):
        fill(tmp_path / f"{name}.json", world)
        apply_file(world.settings, str(tmp_path / f"{name}.json"))
    assert status(world).open_batches == ()


def test_the_pace_is_that_of_the_batches_so_far(world: World, tmp_path: Path) -> None:
    """Thirty seconds an item from export to apply; a batch left lying for days says nothing."""
    ledger = world.ledger
    export(world.settings, Order(judge="ann", size=12), out=str(tmp_path / "b.json"))
    batch = ledger.batches("bench")[0]
    hidden = {item.id: {"relevance": 3} for item in batch.items if item.role != "real"}
    applied = Application(
        application_id="a1",
        judge=Judge(id="ann", kind="human"),
        at_ms=batch.created_ms + 30_000 * len(hidden),
        verdicts=(),
        hidden=hidden,
    )
    slow = replace(batch, batch_id="b2")
    ledger.add_batch(slow)
    ledger.commit(batch, applied)
    ledger.commit(slow, replace(applied, at_ms=batch.created_ms + 10**9))
    found = status(world)
    assert (found.seconds_each, found.minutes_left) == (30.0, 10)


def test_a_decided_race_asks_for_nothing_more(world: World, tmp_path: Path) -> None:
    """After one slot of five scenarios the winner is certain: said so, nothing pending or exported."""
    race = Order(judge="ann", race=True, size=14)
    judge_next(world, tmp_path / "a.json", order=race)
    found = status(world)
    assert found.settled
    assert found.raced_out == (f"{POOR} with v1",)
    assert (found.wanted, found.judged, found.pending, found.cells_pending) == (10, 10, 0, 0)
    assert not any(run.judge_pending for run in world.runs)
    with pytest.raises(NotFound, match="simulated judgements of the rest keep it first"):
        export(world.settings, race, out=str(tmp_path / "b.json"))


def test_without_a_race_the_rest_stays_wanted(world: World, tmp_path: Path) -> None:
    """That the winner cannot change is said, and who wants more exact means may go on."""
    judge_next(world, tmp_path / "a.json", order=Order(judge="ann", size=14))
    found = status(world)
    assert (found.settled, found.raced_out, found.pending) == (True, (), 10)


def test_the_drift_chart_has_a_point_a_batch(world: World, tmp_path: Path) -> None:
    """In the order of the batches, with the moving average and its limit."""
    order = Order(judge="ann", size=14)
    for name in ("a", "b"):
        judge_next(world, tmp_path / f"{name}.json", order=order)
    chart = of(world, "ann").chart
    assert [point.batch_id for point in chart] == [batch.batch_id for batch in world.ledger.batches("bench")]
    assert chart[1].ewma == pytest.approx(0.3 * chart[1].z + 0.7 * chart[0].ewma)
    assert not any(point.beyond for point in chart)


def test_what_the_gate_can_see_is_said(world: World, tmp_path: Path) -> None:
    """One batch sees large drifts only, and the shipped anchors are provisional."""
    judge_next(world, tmp_path / "a.json")
    visibility, provisional = status(world).notes
    assert visibility == visibility_sentence(world.suite.rubric.scales)
    assert provisional.startswith("The drift check is provisional: no person has judged the anchors yet")


def test_agreement_severity_and_what_to_adjudicate(world: World, tmp_path: Path) -> None:
    """Bob is a point lower on one scale of everything: alpha below 1, he severe, ann lenient by as much."""
    judge_next(world, tmp_path / "ann.json")
    path = tmp_path / "bob.json"
    export(world.settings, Order(judge="bob", second=True), out=str(path))
    fill(path, world)
    document = json.loads(path.read_text())
    planted = [one for one in document["items"] if (one["scenario"], one["tip"].casefold()) in world.worth]
    lowered = [one for one in planted if one["judge"]["tone"] > 1]
    for item in lowered:
        item["judge"]["tone"] -= 1
    lowered[0]["judge"]["tone"] = 5 if lowered[0]["judge"]["tone"] < 3 else 1
    path.write_text(json.dumps(document))
    apply_file(world.settings, str(path))
    found = status(world)
    assert (found.agreement.n_items, found.agreement.enough) == (20, False)
    assert found.agreement.alpha["relevance"] == 1
    assert found.agreement.alpha["tone"] is not None
    assert found.agreement.alpha["tone"] < 1
    assert len({gap.candidate for gap in found.agreement.gaps}) == 1
    severity = of(world, "bob").severity
    assert severity is not None
    assert of(world, "ann").severity == pytest.approx(-severity)
    assert severity < -0.3
    assert [judge.judge.id for judge in found.judges] == ["ann", "bob"]


def test_the_proxy_is_compared_with_people(world: World, tmp_path: Path) -> None:
    """Bias, alpha and correlation per scale; it does not rank alone. People are compared with nobody."""
    judge_automatically(world.settings, "proxy", emit=lambda _: None)
    alone = of(world, "proxy").compared
    assert alone is not None
    assert (alone.n, alone.people, alone.passes) == (0, None, False)
    judge_next(world, tmp_path / "ann.json")
    compared = of(world, "proxy").compared
    assert compared is not None
    assert (compared.n, compared.people, compared.passes) == (20, "human", False)
    assert set(compared.scales) == {"relevance", "actionability", "tone"}
    assert all(scale.bias is not None for scale in compared.scales.values())
    assert of(world, "ann").compared is None
