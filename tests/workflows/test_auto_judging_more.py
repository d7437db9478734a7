"""What `judge auto` announces, sends, records and continues: on fake servers that speak real HTTP."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ai_replies import entry, reply_text
from command import here, start
from judged_world import World, judge_next, plant, plant_home, with_tips
from openai_stand_in import OpenAIStandIn, Reply, openai_running, said
from stand_in import FakeModel, StandIn, running
from suite_files import SCENARIOS, write_suite
from tipbench.ledger import codec
from tipbench.settings import Settings
from tipbench.suite import normalised
from tipbench.workflows.auto_judging import Automatic, judge_automatically
from tipbench.workflows.comparing import compare
from tipbench.workflows.exporting import Order
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.judged import judged_experiment
from verdict_planting import ANNA, by_scenario, judge

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import CellResult, Judge

GOOD, POOR = "qwen2.5:0.5b", "llama3.2:1b"
JUDGE = "ollama:mistral:7b"
SCALES = ("relevance", "actionability", "tone")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(GOOD, "v1"): 4.6, (POOR, "v1"): 1.6}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def texts_in(body: dict[str, Any]) -> list[str]:
    lines = body["messages"][-1]["content"].splitlines()
    return [json.loads(line)["text"] for line in lines if line.startswith("{")]


def scores_of(world: World, text: str) -> dict[str, int]:
    worth = {tip: scores for (_, tip), scores in world.worth.items()}
    return dict(worth.get(normalised(text)) or dict.fromkeys(SCALES, 3))


def scored(world: World, body: dict[str, Any]) -> str:
    return reply_text(scores_of(world, text) for text in texts_in(body))


def ollama(world: World, *, latency_s: float = 0.0, contradicts: str = "") -> StandIn:
    """A host whose model gives the planted scores; of the text `contradicts` reason and score differ."""

    def answer(_: int, body: dict[str, Any]) -> None:
        rows = [entry(n, **scores_of(world, text)) for n, text in enumerate(texts_in(body), 1)]
        for row, text in zip(rows, texts_in(body), strict=True):
            if text == contradicts:
                row["tone"] = {"reason": "level 1: cold", "score": 5}
        host.reply = json.dumps({"scores": rows})

    host = StandIn([FakeModel("mistral:7b")], fault=answer, latency_s=latency_s)
    return host


def auto(world: World, host: StandIn, *, emit: Any = lambda _: None) -> Automatic:  # noqa: ANN401 - an `Emit`
    given = {"ollama_url": host.url, "engine": "ollama", "unload_timeout": 0.5, "retries": 0}
    named = {"experiment": world.experiment, "suite": world.suite_name}
    return judge_automatically(Settings.of({**named, **given}), JUDGE, emit=emit)


def test_a_text_whose_reason_and_score_differ_is_counted(world: World) -> None:
    """It is sent twice, gets no scores, and is counted in the summary, the record and `judge status`."""
    bad = world.runs[0].candidates[0].text
    with running(ollama(world, contradicts=bad)) as host:
        found = auto(world, host)
        assert sum(bad in texts_in(chat) for chat in host.chats) == 2
    assert (found.judged, found.inconsistent, found.unread) == (19, 1, 0)
    (batch,) = world.ledger.batches("bench")
    left_out = {name for one in batch.applications for name in one.inconsistent}
    assert [item.text for item in batch.items if item.id in left_out] == [bad]
    assert judge_status(world.settings).judges[0].inconsistent == 1
    assert "1 text left out, because reason and score named" in here("judge", "status", "bench").out
    with running(ollama(world)) as host:
        again = auto(world, host)
    assert (again.judged, again.inconsistent) == (1, 0)
    assert judge_status(world.settings).judges[0].inconsistent == 0


def test_a_block_without_a_single_score_is_recorded_as_left_out(world: World) -> None:
    """Nothing was judged, yet the record says which texts the judge contradicted itself on."""

    def contradicting(_: int, body: dict[str, Any]) -> Reply:
        rows = [entry(n, **dict.fromkeys(SCALES, 2)) for n, _ in enumerate(texts_in(body), 1)]
        for row in rows:
            row["tone"] = {"reason": "level 1: cold", "score": 5}
        return said(json.dumps({"scores": rows}))

    with openai_running(OpenAIStandIn(contradicting)) as host:
        settings = Settings.of({"experiment": "bench", "retries": 0})
        found = judge_automatically(settings, "openai:gpt-x", emit=lambda _: None, base_url=host.url)
    assert (found.judged, found.inconsistent) == (0, 20)
    batches = world.ledger.batches("bench")
    assert sum(len(one.inconsistent) for batch in batches for one in batch.applications) >= 20


def test_the_estimate_comes_first(world: World) -> None:
    """Before the model is loaded, a notice names the minutes, the texts and where the number comes from."""
    events: list[dict[str, Any]] = []
    with running(ollama(world)) as host:
        auto(world, host, emit=lambda event: events.append(dict(event)))
    first = next(at for at, event in enumerate(events) if "minute" in str(event.get("message")))
    assert all(event["event"] not in {"model_start", "model_loaded", "judged"} for event in events[:first])
    assert str(events[first]["message"]).startswith(f"{JUDGE}: less than a minute for ")
    assert str(events[first]["message"]).endswith("each scored in two orders (a rough guess)")


def test_a_measured_pace_replaces_the_guess(world: World) -> None:
    """A judge that has scored some blocks here is estimated by them."""
    bad = world.runs[0].candidates[0].text
    messages: list[str] = []
    with running(ollama(world, contradicts=bad)) as host:
        auto(world, host)
        auto(world, host, emit=lambda event: messages.append(str(event.get("message"))))
    assert any(message.endswith("(at the pace of its earlier blocks)") for message in messages)


def test_both_orders_are_recorded_and_survive_storing(world: World) -> None:
    """A verdict has the scores of both orders; verdicts of earlier versions have none and are still read."""
    with running(ollama(world)) as host:
        auto(world, host)
    (batch,) = world.ledger.batches("bench")
    for verdict in batch.verdicts:
        assert verdict.readings == (dict(verdict.scores), dict(verdict.scores))
    data = json.loads(codec.application_to_json(batch.applications[0]))
    assert codec.application_from_json(json.dumps(data)) == batch.applications[0]
    data.pop("inconsistent")
    for verdict in data["verdicts"]:
        verdict.pop("readings")
    old = codec.application_from_json(json.dumps(data))
    assert (old.inconsistent, {one.readings for one in old.verdicts}) == ((), {()})


def test_identical_texts_are_sent_once_and_tie(home: Path) -> None:
    """The same words from two models, in other letters and spaces, are one text in each order."""
    suite = plant("seed", quality={(GOOD, "v1"): 3}, n_scenarios=4).suite

    def same(result: CellResult) -> CellResult:
        tips = ["Call Ann at four.", f"Own idea of {result.cell.model.name}, {result.cell.scenario_id}."]
        if result.cell.model.name == POOR:
            tips = [tips[1], "  call ANN  at four. "]
        return with_tips(result, tips, suite=suite)

    quality = {(GOOD, "v1"): 4.0, (POOR, "v1"): 4.0}
    world = plant("same", quality=quality, n_scenarios=4, changed=same)
    with running(ollama(world)) as host:
        assert auto(world, host).judged == 12
        sent = [normalised(text) for chat in host.chats for text in texts_in(chat)]
    assert sent.count(normalised("Call Ann at four.")) == 4 * 2
    scores = judged_experiment(Settings.of({"experiment": "same"})).scores("ai")
    assert len(scores) == 12
    with running(ollama(world)) as host:
        assert here("judge", "auto", "same", "--judge", JUDGE, "--ollama-url", host.url).code == 2
        assert host.chats == []


def test_other_weights_score_everything_again(world: World) -> None:
    """A new digest under the same name is another judge: it is told of, and never mixed with the old one."""
    with running(ollama(world)) as host:
        auto(world, host)
    messages: list[str] = []
    with running(ollama(world)) as host:
        host.models[0].weights = "others"
        found = auto(world, host, emit=lambda event: messages.append(str(event.get("message"))))
    assert found.judged == 20
    assert any("20 candidates that it scored then are scored again" in message for message in messages)
    state = judged_experiment(world.settings)
    assert len(state.verdicts) == 40
    assert len({one.version for by in state.scores("ai") for one in _judges_of(state, by)}) == 1


def _judges_of(state: Any, candidate: str) -> list[Judge]:  # noqa: ANN401 - a `Judged`
    newest = max((one for one in state.verdicts if one.candidate == candidate), key=lambda one: one.at_ms)
    return [newest.judge]


def test_a_kill_loses_at_most_the_block_being_judged(world: World) -> None:
    """Killed half way, the blocks before are recorded; the same command judges the rest and nothing twice."""
    with running(ollama(world, latency_s=0.3)) as host:
        options = ("--experiment", "bench", "--judge", JUDGE, "--ollama-url", host.url, "--engine", "ollama")
        process = start("judge", "auto", *options)
        while len(host.chats) < 6 and process.poll() is None:
            pass
        process.kill()
        process.communicate()
        done = judged_experiment(world.settings).scores("ai")
        chats = len(host.chats)
        assert chats >= 6
        assert len(done) >= 2 * (chats // 2 - 1) > 0, (
            "two blocks are whole when the third's last question comes"
        )
        host.chats.clear()
        host.resident.clear()
        host.latency_s = 0.0
        assert here("judge", "auto", *options).code == 0
        sent = {normalised(text) for chat in host.chats for text in texts_in(chat)}
    known = {normalised(one.text) for run in world.runs for one in run.candidates}
    assert len(sent & known) == 20 - len(done)
    assert len(judged_experiment(world.settings).verdicts) == 20
    assert all(not run.judge_pending for run in world.runs)


def test_show_prompt_prints_the_question_and_sends_nothing(world: World) -> None:
    """No judge is needed; the rubric, the form and a scenario's candidates are in it, and no model's name."""
    shown = here("judge", "auto", "--experiment", "bench", "--show-prompt")
    assert shown.code == 0
    assert shown.out.startswith("# System\n\nYou are a strict and fair judge.")
    assert "\n# User\n\nThe scenario:\n" in shown.out
    assert world.suite.rubric.text.strip().splitlines()[-1] in shown.out
    assert world.runs[0].candidates[0].text in shown.out
    assert not any(name in shown.out for name in (GOOD, POOR))
    assert "built in" in shown.err
    found = json.loads(here("judge", "auto", "--experiment", "bench", "--show-prompt", "--json").out)
    assert [message["role"] for message in found["messages"]] == ["system", "user"]
    assert world.ledger.batches("bench") == []


def test_the_suites_own_prompt_is_sent_and_shown(home: Path, tmp_path: Path) -> None:
    """A judge.md in the suite's folder is what the model receives, and its hash is in the verdicts."""
    folder = write_suite(tmp_path / "suite", scenarios=SCENARIOS)
    own = "# User\nMY OWN WORDS {{ rubric }} {{ form }} {{ context }}\n{{ texts }}\n"
    (folder / "judge.md").write_text(own, encoding="utf-8")
    world = plant("own", quality={(GOOD, "v1"): 2.0}, n_scenarios=2, suite=str(folder))
    shown = here("judge", "auto", "--experiment", "own", "--show-prompt")
    assert shown.out.startswith("# User\n\nMY OWN WORDS ")
    assert "from the suite's judge.md" in shown.err

    def answer(_: int, body: dict[str, Any]) -> None:
        host.reply = reply_text({"use": 2} for _ in texts_in(body))

    host = StandIn([FakeModel("mistral:7b")], fault=answer)
    with running(host):
        assert auto(world, host).judged == 4
    assert all(chat["messages"][0]["content"].startswith("MY OWN WORDS ") for chat in host.chats)
    (judged_by,) = {one.judge for one in judged_experiment(world.settings).verdicts}
    assert judged_by.version.split()[-1] in shown.err
    shutil.rmtree(folder)
    stored = here("judge", "auto", "--experiment", "own", "--show-prompt")
    assert (stored.out, stored.err) == (shown.out, shown.err), "the experiment keeps the prompt's text"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "judge auto needs a judge: --judge proxy"),
        (("--judge", "proxy", "--show-prompt"), "has no prompt"),
    ],
)
def test_what_auto_refuses(world: World, options: tuple[str, ...], problem: str) -> None:
    """No judge without --show-prompt, and no prompt of rules: exit code 2 and one sentence."""
    ran = here("judge", "auto", "--experiment", "bench", *options)
    assert (ran.code, problem in ran.err) == (2, True)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("wide")
    quality = {(GOOD, "v1"): 3.6, (POOR, "v1"): 2.6}
    world = plant_home(folder, made_home, "wide", quality=quality, n_scenarios=24, suite="tip-wide")
    return folder, world


@pytest.fixture
def calibrated(wide: tuple[Path, World], fresh_home: Path, tmp_path: Path) -> World:
    """People scored 16 of 24 scenarios, the AI judge scored all, and they agree."""
    shutil.copytree(wide[0], fresh_home)
    world = wide[1]
    some = {one.id for one in world.suite.scenarios[:16]}
    for number in range(2):
        path = tmp_path / f"{number}.json"
        judge_next(world, path, order=Order(judge="ann"), only=lambda item: item["scenario"] in some)
    with running(ollama(world)) as host:
        auto(world, host)
    return world


def test_a_calibrated_judge_helps_where_people_scored_a_part(calibrated: World) -> None:
    """`judge status` shows both means, never a wider interval; `compare` has one line on it."""
    found = judge_status(calibrated.settings)
    (machine,) = [one for one in found.judges if one.judge.kind == "ai"]
    assert machine.compared is not None
    assert machine.compared.passes
    assert machine.compared.n_swapped == machine.compared.n
    assert len(found.assisted) == 2
    for one in found.assisted:
        assert (one.assisted.n_people, one.assisted.n_judge) == (16, 24)
        assert one.assisted.ratio < 1
    out = here("judge", "status", "wide").out
    assert f"means with the scores of {JUDGE}" in out
    assert "lowest Krippendorff's alpha 1.00; agrees well enough to rank alone" in out
    assert "swap audit: 64 texts scored once more in reverse order" in out
    assert any("narrower" in note for note in compare(calibrated.settings).notes)


def test_a_calibration_is_not_used_for_another_prompt(calibrated: World) -> None:
    """The same judge with another prompt has scored nothing that people scored: nothing is assisted."""
    state = judged_experiment(calibrated.settings)
    (now,) = {one.judge for one in state.verdicts if one.judge.kind == "ai"}
    other = replace(now, model=now.model[:-8] + "00000000")
    assert state.calibration(now).passes
    assert (state.calibration(other).n, state.calibration(other).passes) == (0, False)
    points = by_scenario({(GOOD, "v1"): [9], (POOR, "v1"): [6]})
    late = {one.id for one in calibrated.suite.scenarios[20:]}
    judge(
        calibrated.ledger,
        "wide",
        other,
        points,
        only=lambda run, _slot: run.scenario_id in late,
        at_ms=max(one.at_ms for one in state.verdicts) + 1000,
    )
    found = judge_status(calibrated.settings)
    assert found.assisted == ()
    assert any("under 2 versions of its weights and prompt" in note for note in found.ai_notes)
    ran = here("compare", "wide", "--ground", "ai")
    assert (ran.code, "under its weights and prompt" in ran.err) == (4, True)


def test_a_ranking_by_a_calibrated_judge_says_its_alpha(calibrated: World) -> None:
    """The note has Krippendorff's alpha, and no share of equal scores."""
    notes = compare(calibrated.settings, ground="ai").notes
    assert (
        f"{JUDGE} against humans on 64 candidates: Krippendorff's alpha 1.00 on the scale where they agree "
        "least (good)." in notes
    )


def test_a_judge_that_is_not_calibrated_assists_nobody(world: World) -> None:
    """Too few candidates in common: people's scores stand alone."""
    points = by_scenario({(GOOD, "v1"): [12, 11], (POOR, "v1"): [6, 7]})
    judge(world.ledger, "bench", ANNA, points, only=lambda _run, slot: slot == 0)
    with running(ollama(world)) as host:
        auto(world, host)
    assert judge_status(world.settings).assisted == ()
