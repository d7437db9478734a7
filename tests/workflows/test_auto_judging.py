"""Judges that are no people: what they score, what is kept of it, and what it does not count for."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from ai_replies import reply_text
from judged_world import World, judge_next, plant_home
from openai_stand_in import OpenAIStandIn, Reply, openai_running, refused, said
from stand_in import FakeModel, StandIn, running
from tipbench.errors import BadInput, NotFound, TipbenchError
from tipbench.settings import Settings
from tipbench.suite import normalised
from tipbench.workflows.auto_judging import Automatic, judge_automatically
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.judged import judged_experiment

if TYPE_CHECKING:
    from collections.abc import Callable
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


def auto(world: World, judge: str, **how: Any) -> Automatic:  # noqa: ANN401 - any argument
    settings = Settings.of({"experiment": "bench", "retries": 0, **how.pop("settings", {})})
    return judge_automatically(settings, judge, emit=lambda _: None, **how)


def texts_in(body: dict[str, Any]) -> list[str]:
    lines = body["messages"][-1]["content"].splitlines()
    return [json.loads(line)["text"] for line in lines if line.startswith("{")]


def scored(world: World, body: dict[str, Any]) -> str:
    """Scores by what the texts are worth; of a text that is not planted, a three."""
    worth = {text: scores for (_, text), scores in world.worth.items()}
    threes = {"relevance": 3, "actionability": 3, "tone": 3}
    return reply_text(worth.get(normalised(text)) or threes for text in texts_in(body))


def server(world: World, fault: Callable[[int], Reply | None] = lambda _: None) -> OpenAIStandIn:
    return OpenAIStandIn(lambda number, body: fault(number) or said(scored(world, body)))


def test_the_proxy_scores_everything_once(world: World) -> None:
    """All candidates in one go, as verdicts of its own kind; a second time there is nothing to do."""
    found = auto(world, "proxy")
    assert (found.judge, found.judged, found.unread, found.pending) == ("proxy", 20, 0, 0)
    (batch,) = world.ledger.batches("bench")
    assert (batch.purpose, {item.role for item in batch.items}) == ("auto", {"real"})
    assert {(one.judge.id, one.judge.kind) for one in batch.verdicts} == {("proxy", "proxy")}
    assert judged_experiment(world.settings).ground() == "proxy"
    with pytest.raises(NotFound, match="nothing that proxy has not judged"):
        auto(world, "proxy")


def test_its_scores_are_never_averaged_with_peoples(world: World, tmp_path: Path) -> None:
    """Once a person has judged, the person's word counts, and the proxy's stays beside it."""
    auto(world, "proxy")
    shown = {run.key: run.metrics["relevance"] for run in world.runs}
    judge_next(world, tmp_path / "b.json")
    for run in world.runs:
        truth = [world.true_scores(run.scenario_id, one.text)["relevance"] for one in run.candidates]
        assert run.metrics["relevance"] == sum(truth) / 2
    assert {run.key: run.metrics["relevance"] for run in world.runs} != shown
    state = judged_experiment(world.settings)
    assert (state.ground(), len(state.scores("human")), len(state.scores("proxy"))) == ("human", 20, 20)


def test_a_model_behind_an_address_judges_through_batches(world: World) -> None:
    """Anchors are among its texts, each scenario is a conversation of its own, and its drift is measured."""
    with openai_running(server(world)) as host:
        found = auto(world, "openai:gpt-x", base_url=host.url)
    assert (found.judged, found.unread, found.stopped, found.pending) == (20, 0, None, 0)
    (batch,) = world.ledger.batches("bench")
    assert sum(item.role == "anchor" for item in batch.items) == 8
    assert len(batch.applications) == len({item.scenario_id for item in batch.items})
    assert {(one.judge.id, one.judge.kind) for one in batch.applications} == {("openai:gpt-x", "ai")}
    assert batch.applications[-1].drift_z is not None
    assert sum(len(one.hidden) for one in batch.applications) == len(batch.items) - 20
    for verdict in batch.verdicts:
        item = next(one for one in batch.items if one.candidate == verdict.candidate)
        assert dict(verdict.scores) == dict(world.true_scores(item.scenario_id, item.text))


def test_a_model_that_is_far_off_is_measured_and_not_rejected(world: World) -> None:
    """What bars it is the comparison with people, not the gate."""

    def fives(_: int, body: dict[str, Any]) -> Reply:
        return said(reply_text({"relevance": 5, "actionability": 5, "tone": 5} for _ in texts_in(body)))

    with openai_running(OpenAIStandIn(fives)) as host:
        assert auto(world, "openai:gpt-x", base_url=host.url).judged == 20
    (status,) = judge_status(world.settings).judges
    assert status.compared is not None
    assert not status.compared.passes
    assert status.chart[-1].beyond


def test_a_race_does_not_rest_on_a_model(world: World, tmp_path: Path) -> None:
    """However clear its scores are, people are still asked about every combination."""
    with openai_running(server(world)) as host:
        auto(world, "openai:gpt-x", base_url=host.url)
    assert not judge_status(world.settings).settled
    export(world.settings, Order(race=True), out=str(tmp_path / "b.json"))
    batch = world.ledger.batches("bench")[-1]
    assert sum(item.role == "real" for item in batch.items) == 20


def test_what_it_judged_before_a_failure_is_kept_and_it_goes_on(world: World) -> None:
    """The server goes away after three questions: what came is recorded, the next call asks for the rest."""
    with openai_running(server(world, lambda n: refused(401, "no more credit") if n > 4 else None)) as host:
        first = auto(world, "openai:gpt-x", base_url=host.url)
    assert first.stopped is not None
    assert 0 < first.judged < 20
    assert len(judged_experiment(world.settings).scores("ai")) == first.judged
    with openai_running(server(world)) as host:
        second = auto(world, "openai:gpt-x", base_url=host.url)
        shown = [text for body in host.bodies for text in texts_in(body)]
    assert (first.judged + second.judged, second.stopped) == (20, None)
    verdicts = judged_experiment(world.settings).verdicts
    assert len(verdicts) == len({one.candidate for one in verdicts}) == 20
    assert len(set(shown)) < 20 + 16


def test_where_nothing_is_judged_nothing_is_recorded(world: World) -> None:
    """A server that refuses the first question leaves no batch behind."""
    with (
        openai_running(server(world, lambda _: refused(401, "who are you"))) as host,
        pytest.raises(TipbenchError, match="who are you"),
    ):
        auto(world, "openai:gpt-x", base_url=host.url)
    assert world.ledger.batches("bench") == []


def test_unread_replies_are_left_for_the_next_time(world: World) -> None:
    """A scenario whose replies cannot be read stays unjudged and is counted."""
    rush = world.suite.scenarios[3]
    task = next(text for (name, text) in world.worth if name == rush.id)

    def answer(_: int, body: dict[str, Any]) -> Reply:
        about = any(normalised(text) == task for text in texts_in(body))
        return said("I cannot." if about else scored(world, body))

    with openai_running(OpenAIStandIn(answer)) as host:
        found = auto(world, "openai:gpt-x", base_url=host.url)
    assert found.unread >= 4
    assert found.judged == 16
    assert found.pending == 2
    with openai_running(server(world)) as host:
        assert auto(world, "openai:gpt-x", base_url=host.url).judged == 4


def test_a_judge_of_a_contestants_family_is_refused(world: World) -> None:
    """Unless told: nobody judges their own kind by accident."""
    with openai_running(server(world)) as host:
        with pytest.raises(BadInput, match="family"):
            auto(world, "openai:llama3.3:70b", base_url=host.url)
        assert host.bodies == []
        assert auto(world, "openai:llama3.3:70b", base_url=host.url, same_family=True).judged == 20


def test_one_judge_under_two_spellings_is_one(world: World) -> None:
    """`:latest` is what Ollama means by no tag: the second spelling finds everything judged."""

    def reply(_: int, body: dict[str, Any]) -> None:
        host.reply = scored(world, body)

    host = StandIn([FakeModel("mistral:latest")], fault=reply)
    with running(host):
        settings = {"ollama_url": host.url, "engine": "ollama", "unload_timeout": 0.5}
        assert auto(world, "ollama:mistral", settings=settings).judged == 20
        for spelling in ("ollama:mistral:latest", " ollama:mistral "):
            with pytest.raises(NotFound, match="nothing that ollama:mistral has not judged"):
                auto(world, spelling, settings=settings)
    assert host.resident == []


@pytest.mark.parametrize("judge", ["", "gpt-4", "ollama:", "proxy2", "anthropic:x"])
def test_a_judge_that_is_none_is_refused(world: World, judge: str) -> None:
    """One sentence says what there is."""
    with pytest.raises(BadInput, match="neither proxy, nor ollama:MODEL, nor openai:MODEL"):
        auto(world, judge)
    assert world.ledger.batches("bench") == []
