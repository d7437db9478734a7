"""From tips to a number, through the ledger: every kind of slot, repeats, several judges, changed minds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from command import tipbench
from judged_world import SCALES, World, fill, judge_next, plant_home, with_tips
from tipbench import rank
from tipbench.judge.candidates import candidate_key
from tipbench.suite import load_suite
from tipbench.workflows.applying import apply_file
from tipbench.workflows.comparing import compare
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judged import judged_experiment
from tipbench.workflows.run_views import run_in_full, with_judges_flags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.records import CellResult, JudgeKind, Run

GOOD, POOR = "qwen2.5:0.5b", "llama3.2:1b"
MONDAY, SHIFT, SUNDAY, RUSH = (scenario.id for scenario in load_suite("tip").scenarios[:4])
LONG = "Set the phone aside, " * 10
FAILURE = 3.0


def oddities(result: CellResult) -> CellResult:
    """One cell of every kind; all others are whole replies with two tips."""
    suite, tips = load_suite("tip"), [candidate.text for candidate in result.candidates]
    failed = replace(result, completion=None, reading=None, candidates=(), error="the host answered 500")
    assert result.completion is not None
    cell = result.cell
    odd = {
        (GOOD, MONDAY, 0): with_tips(result, tips[:1], suite=suite),
        (GOOD, SHIFT, 0): with_tips(result, [], suite=suite, how="none", format_ok=False),
        (GOOD, SUNDAY, 0): replace(result, completion=replace(result.completion, cut="reply")),
        (GOOD, RUSH, 0): failed,
        (POOR, MONDAY, 0): with_tips(result, ["Pack the bag.", tips[1], "An extra.", "More."], suite=suite),
        (POOR, MONDAY, 1): with_tips(result, [" pack  THE bag. ", tips[1]], suite=suite),
        (POOR, SHIFT, 0): with_tips(result, tips, suite=suite, how="wrapped", format_ok=False),
        (POOR, SHIFT, 1): with_tips(result, [LONG, tips[1]], suite=suite),
        (POOR, SUNDAY, 0): with_tips(result, [], suite=suite),
    }
    return odd.get((cell.model.name, cell.scenario_id, cell.repeat), result)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("odd")
    quality = {(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}
    return folder, plant_home(folder, made_home, "odd", quality=quality, repeats=2, changed=oddities)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def cells(world: World) -> dict[tuple[str, str, int], Run]:
    return {(run.model, run.scenario_id, run.repeat): run for run in world.runs}


def worth(world: World, run: Run) -> float | None:
    """What a cell is worth by the words of the rubric, counted by hand."""
    if run.status == "failed":
        return None
    if run.how == "none" or run.cut:
        return FAILURE
    slots = [
        sum(world.true_scores(run.scenario_id, one.text)[name] for name in SCALES)
        + 2 * run.metrics["format_ok"]
        - (len(" ".join(one.text.split())) > 160)
        for one in run.candidates[:2]
    ]
    return fmean([*slots, *[FAILURE] * (2 - len(slots))])


def rows(world: World, ground: JudgeKind = "human") -> dict[tuple[str, str], float]:
    """By (model, scenario) what is ranked."""
    found = judged_experiment(world.settings).rows(ground)
    return {(model, scenario): value for model, _, scenario, value in found if value is not None}


def test_every_kind_of_slot_has_its_value(world: World, tmp_path: Path) -> None:
    """Judged, missing, unreadable, cut off, empty, of the wrong form, overlong: each by the rule; an engine
    failure is no value.
    """
    judge_next(world, tmp_path / "b.json")
    for place, run in cells(world).items():
        assert run.metrics.get("composite") == worth(world, run), place
    found = cells(world)
    assert found[GOOD, SHIFT, 0].metrics["composite"] == FAILURE
    assert found[GOOD, SUNDAY, 0].metrics["composite"] == FAILURE
    assert found[POOR, SUNDAY, 0].metrics["composite"] == FAILURE
    judged = {place: run.metrics.get("n_judged") for place, run in found.items()}
    assert (judged[GOOD, MONDAY, 0], judged[GOOD, SHIFT, 0], judged[GOOD, RUSH, 0]) == (1, 0, None)
    assert (judged[POOR, MONDAY, 0], judged[POOR, MONDAY, 1]) == (2, 2)


def test_a_judges_overlong_is_the_same_everywhere(world: World, tmp_path: Path) -> None:
    """The composite in MLflow, the ranked rows, the report's candidates, `show`, and the API's view of a run
    use the judges' flag.
    """
    path = tmp_path / "b.json"
    export(world.settings, Order(judge="ann"), out=str(path))
    fill(path, world)
    document = json.loads(path.read_text(encoding="utf-8"))
    for item in document["items"]:
        item["judge"]["overlong"] = True
    path.write_text(json.dumps(document), encoding="utf-8")
    apply_file(world.settings, str(path))
    run = cells(world)[POOR, SHIFT, 1]
    by_code = worth(world, run)
    assert by_code is not None
    expected = by_code - 0.5
    assert run.metrics["composite"] == expected
    assert (run.metrics["overlong"], run.overlong_by) == (1.0, "tip 1: ann; tip 2: ann")
    report = compare(world.settings)
    shown = [
        one
        for name, facts in report.facts.items()
        for one in facts.candidates
        if (name.model, one.scenario, one.repeat) == (POOR, SHIFT, 1)
    ]
    assert [one.overlong for one in shown] == [True, True]
    assert fmean(one.value for one in shown if one.value is not None) == expected
    in_full = run_in_full(world.settings, run.run_id)
    assert in_full["run"]["metrics"]["composite"] == expected
    assert [(one["overlong"], one["overlong_by"]) for one in in_full["candidates"]] == [(True, "ann")] * 2
    assert [one.overlong for one in with_judges_flags(world.settings, run).candidates] == [True, True]
    assert "overlong by    tip 1: ann; tip 2: ann" in tipbench("show", run.run_id).out


def test_a_row_is_the_mean_of_scenarios_which_are_means_of_repeats(world: World, tmp_path: Path) -> None:
    """A repeat that the engine failed is left out; the leaderboard's mean is that of the scenarios."""
    judge_next(world, tmp_path / "b.json")
    by_scenario: dict[tuple[str, str], list[float]] = {}
    for (model, scenario, _), run in cells(world).items():
        value = worth(world, run)
        if value is not None:
            by_scenario.setdefault((model, scenario), []).append(value)
    expected = {place: fmean(values) for place, values in by_scenario.items()}
    assert rows(world) == pytest.approx(expected)
    assert len(by_scenario[GOOD, RUSH]) == 1
    board = rank(judged_experiment(world.settings).rows("human"))
    means = {row.model: row.mean for row in board.rows}
    assert means[POOR] == pytest.approx(fmean(expected[POOR, name] for name in (MONDAY, SHIFT, SUNDAY, RUSH)))


def test_what_cannot_be_judged_is_not_exported(world: World, tmp_path: Path) -> None:
    """No extra tip, nothing of a reply that was cut off, and a text that two cells wrote once only."""
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    shown = [
        (item["scenario"], item["tip"]) for item in json.loads((tmp_path / "b.json").read_text())["items"]
    ]
    cut = cells(world)[GOOD, SUNDAY, 0]
    assert not {(SUNDAY, one.text) for one in cut.candidates} & set(shown)
    assert not {"An extra.", "More."} & {text for _, text in shown}
    assert sum(text.split()[0].casefold() == "pack" and "THE bag." in text for _, text in shown) == 0
    assert [text for _, text in shown].count("Pack the bag.") == 1


def test_a_missing_verdict_is_left_out_and_counted(world: World, tmp_path: Path) -> None:
    """A cell with one of two slots judged has that slot's value; one with none judged has no value at all."""
    first = cells(world)[POOR, RUSH, 0].candidates[0].text
    judge_next(world, tmp_path / "b.json", only=lambda item: item["tip"] == first)
    found = cells(world)
    truth = sum(world.true_scores(RUSH, first).values())
    assert found[POOR, RUSH, 0].metrics["composite"] == truth + 2
    assert found[POOR, RUSH, 0].metrics["n_judged"] == 1
    assert "composite" not in found[POOR, RUSH, 1].metrics
    assert "composite" not in found[GOOD, MONDAY, 0].metrics, "a missing slot alone would look like a failure"
    values = [
        value
        for model, _, scenario, value in judged_experiment(world.settings).rows("human")
        if (model, scenario) == (POOR, RUSH)
    ]
    assert values == [truth + 2, None, None, None]


def test_pending_until_nothing_is_wanted(world: World, tmp_path: Path) -> None:
    """Judging is over for a cell once its slots are judged, or where there is nothing to judge."""
    empty = {(GOOD, SHIFT, 0), (GOOD, SUNDAY, 0), (GOOD, RUSH, 0), (POOR, SUNDAY, 0)}
    collected = {place for place, run in cells(world).items() if run.status == "done"}
    assert {place for place, run in cells(world).items() if run.judge_pending} == collected - empty
    only_monday = judge_next(world, tmp_path / "b.json", only=lambda item: item["scenario"] == MONDAY)
    waiting = {place for place, run in cells(world).items() if run.judge_pending}
    assert waiting == {place for place in cells(world) if place[1] != MONDAY} - empty
    assert only_monday.pending == len(waiting)
    again = Order(judge="ann", reopen=True)  # the rest of the batch is still out
    assert judge_next(world, tmp_path / "c.json", order=again).pending == 0
    assert not any(run.judge_pending for run in world.runs)


def test_pending_ends_beyond_tips_per_cell(world: World, tmp_path: Path) -> None:
    """With one tip per cell the second slot is not wanted, nor does it count."""
    judge_next(world, tmp_path / "b.json", order=Order(judge="ann", tips_per_cell=1))
    assert not any(run.judge_pending for run in world.runs)
    found = cells(world)
    assert found[POOR, RUSH, 0].metrics["n_judged"] == 1
    assert found[GOOD, MONDAY, 0].metrics["composite"] == 2 + sum(
        world.true_scores(MONDAY, found[GOOD, MONDAY, 0].candidates[0].text).values()
    ), "the second slot, which is missing, is beyond what is wanted"


def one_text(world: World) -> tuple[str, str]:
    return RUSH, cells(world)[POOR, RUSH, 0].candidates[0].text


def give(world: World, path: Path, scores: tuple[int, int, int], **how: Any) -> None:  # noqa: ANN401 - see below
    """Let a judge give one text these scores, in a batch of his own or (`again`) in the one that is there."""
    if not how.get("again"):
        order = Order(
            judge=how["judge"], second=how.get("second", False), adjudicate=how.get("settle", False)
        )
        export(world.settings, order, out=str(path))
    scenario, text = one_text(world)
    told = World(
        experiment=world.experiment,
        suite=world.suite,
        worth={(scenario, text.casefold()): dict(zip(SCALES, scores, strict=True))},
    )
    fill(path, told, kind=how.get("kind", ""), only=lambda item: item["tip"] == text)
    apply_file(world.settings, str(path), rejudge=how.get("again", False))


def counts(world: World, ground: JudgeKind = "human") -> Mapping[str, float]:
    return judged_experiment(world.settings).scores(ground)[candidate_key(*one_text(world))]


def scores(relevance: float, actionability: float, tone: float) -> dict[str, float]:
    return {"relevance": relevance, "actionability": actionability, "tone": tone}


def test_several_judges_count_by_the_mean_of_their_latest(world: World, tmp_path: Path) -> None:
    """A changed mind replaces a judge's earlier verdict, which stays in the ledger."""
    give(world, tmp_path / "ann.json", (2, 2, 2), judge="ann")
    give(world, tmp_path / "bob.json", (4, 4, 4), judge="bob", second=True)
    assert counts(world) == scores(3, 3, 3)
    give(world, tmp_path / "ann.json", (3, 2, 2), judge="ann", again=True)
    assert counts(world) == scores(3.5, 3, 3)
    verdicts = judged_experiment(world.settings).verdicts
    assert [(one.judge.id, one.scores["relevance"]) for one in verdicts] == [
        ("ann", 2),
        ("ann", 3),
        ("bob", 4),
    ]
    assert cells(world)[POOR, RUSH, 0].metrics["relevance"] == 3.5


def test_an_adjudicated_verdict_replaces_the_others(world: World, tmp_path: Path) -> None:
    """Neither ann's 1 nor bob's 5 counts once cleo has decided, not even when ann judges anew."""
    give(world, tmp_path / "ann.json", (1, 1, 1), judge="ann")
    give(world, tmp_path / "bob.json", (5, 1, 1), judge="bob", second=True)
    give(world, tmp_path / "cleo.json", (4, 1, 1), judge="cleo", settle=True)
    assert counts(world) == scores(4, 1, 1)
    give(world, tmp_path / "ann.json", (2, 1, 1), judge="ann", again=True)
    assert counts(world) == scores(4, 1, 1)
    assert len(judged_experiment(world.settings).verdicts) == 4


def test_kinds_of_judges_are_never_pooled(world: World, tmp_path: Path) -> None:
    """A person's and an agent's verdicts stand side by side; the ground is the kind that judged more."""
    give(world, tmp_path / "ann.json", (2, 2, 2), judge="ann")
    give(world, tmp_path / "bot.json", (5, 5, 5), judge="bot", kind="agent", second=True)
    assert (counts(world, "human"), counts(world, "agent")) == (scores(2, 2, 2), scores(5, 5, 5))
    assert judged_experiment(world.settings).ground() == "human", "where both judged as many"
    assert cells(world)[POOR, RUSH, 0].metrics["relevance"] == 2
    judge_next(world, tmp_path / "more.json", judge="bot", kind="agent")
    assert judged_experiment(world.settings).ground() == "agent"
    run = cells(world)[POOR, RUSH, 0]
    other = world.true_scores(RUSH, run.candidates[1].text)["relevance"]
    assert run.metrics["relevance"] == fmean([5, other]), "the agent's two slots, nothing of ann's"
