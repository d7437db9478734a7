"""Judging by a model: on a host under the rules of a collection, and behind an OpenAI-compatible address."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ai_replies import reply_text
from openai_stand_in import OpenAIStandIn, Reply, openai_running, refused, said
from stand_in import FakeModel, StandIn, running
from suite_files import RUBRIC
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.errors import (
    BadInput,
    BadSetting,
    EngineUnreachable,
    HostBusy,
    Interrupted,
    ModelRefused,
    Unavailable,
)
from tipbench.judge.ai import Block, prompt_hash
from tipbench.settings import Settings
from tipbench.suite.rubric_file import rubric_from_text
from tipbench.workflows.ai_judges import AutoJudged, judge_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tipbench.records import Judge

pytestmark = pytest.mark.usefixtures("fresh_home")

SMALL = rubric_from_text(RUBRIC, name="a test")
EVENTS = list[dict[str, Any]]
KEY = "sk-very-secret-0123456789"


def blocks_of(count: int, *, size: int = 3) -> list[Block]:
    return [
        Block(
            scenario_id=f"s{n}",
            context=f"Scenario {n}.",
            items=tuple((f"{n}.{place}", f"Text {place} for scenario {n}.") for place in range(size)),
        )
        for n in range(count)
    ]


def texts_in(body: Mapping[str, Any]) -> list[str]:
    """The numbered texts of a question, in their order."""
    lines = body["messages"][-1]["content"].splitlines()
    return [json.loads(line)["text"] for line in lines if line.startswith("{")]


def scored(body: Mapping[str, Any], use: Callable[[str], int] = lambda _text: 2) -> str:
    return reply_text({"use": use(text)} for text in texts_in(body))


def judging_host(*, reply: Callable[[int, dict[str, Any]], str | None] | None = None, **how: Any) -> StandIn:  # noqa: ANN401 - any of the stand-in's fields
    """A host whose model gives every text a 2, unless `reply` says otherwise or `fault` steps in."""
    fault = how.pop("fault", lambda _number, _body: None)

    def answer(number: int, body: dict[str, Any]) -> str | None:
        other = reply(number, body) if reply else None
        host.reply = scored(body) if other is None else other
        found: str | None = fault(number, body)
        return found

    host = StandIn([FakeModel("mistral:7b", **how)], fault=answer)
    return host


def run(host: StandIn, blocks: list[Block], **changes: Any) -> AutoJudged:  # noqa: ANN401 - any argument
    base = {"ollama_url": host.url, "engine": "ollama", "retries": 0, "unload_timeout": 0.5}
    settings = Settings.of(base | changes.pop("settings", {}))
    given = {"rubric": SMALL, "contestants": ["qwen2.5:0.5b"], "emit": lambda _event: None, **changes}
    return judge_blocks("ollama:mistral:7b", blocks, settings=settings, **given)


def test_a_model_on_a_host_judges_every_block_in_two_orders() -> None:
    """Loaded once, asked at temperature 0 with one context length and a schema, then unloaded."""
    events: EVENTS = []
    with running(judging_host()) as host:
        found = run(host, blocks_of(2), emit=lambda event: events.append(dict(event)))
        assert (host.loads, host.resident) == (["mistral:7b"], [])
    assert found.scores == {f"{n}.{place}": {"use": 2.0} for n in (0, 1) for place in range(3)}
    assert (found.unread, found.stopped) == ((), None)
    orders = [texts_in(chat) for chat in host.chats]
    assert [orders[1], orders[3]] == [orders[0][::-1], orders[2][::-1]]
    assert {json.dumps(chat["options"]) for chat in host.chats} == {json.dumps(host.chats[0]["options"])}
    assert host.chats[0]["options"]["temperature"] == 0
    assert host.chats[0]["format"]["required"] == ["scores"]
    done = [(event["done"], event["total"]) for event in events if event["event"] == "judged"]
    assert done == [(3, 6), (6, 6)]


def test_a_judge_is_its_digest_and_its_prompt() -> None:
    """Other weights under the same name, or another prompt, are another judge."""
    with running(judging_host()) as host:
        judge = run(host, blocks_of(1)).judge
        digest = host.models[0].digest[:8]
    assert (judge.id, judge.kind) == ("ollama:mistral:7b", "ai")
    assert judge.model == f"mistral:7b@{digest} prompt {prompt_hash()}"


def test_large_blocks_are_cut() -> None:
    """23 texts of one scenario are three conversations of eight or seven, each a fresh context."""
    with running(judging_host()) as host:
        assert len(run(host, blocks_of(1, size=23)).scores) == 23
    assert [len(texts_in(chat)) for chat in host.chats] == [8, 8, 7, 7, 8, 8]
    assert {len(chat["messages"]) for chat in host.chats} == {2}


def test_unreadable_replies_are_asked_for_again_and_then_counted() -> None:
    """A text that stays unread is left unjudged and named; the others of its block are judged."""

    def deaf_to_one(_number: int, body: dict[str, Any]) -> str:
        return scored(body, lambda text: 9 if text.startswith("Text 1") else 3)

    with running(judging_host(reply=deaf_to_one)) as host:
        found = run(host, blocks_of(1))
    assert (set(found.scores), found.unread) == ({"0.0", "0.2"}, ("0.1",))
    assert [len(texts_in(chat)) for chat in host.chats] == [3, 1, 2]


def test_kin_is_refused_before_anything_is_asked() -> None:
    """A judge of a contestant's family is refused, unless the person insists."""
    with running(judging_host()) as host:
        with pytest.raises(ModelRefused, match="mistral:7b may not judge a/Mistral-small"):
            run(host, blocks_of(1), contestants=["a/Mistral-small"])
        assert host.requests == []
        assert run(host, blocks_of(1), contestants=["a/Mistral-small"], same_family=True).scores


def test_the_size_limit_holds_for_judges() -> None:
    """A judge above --max-model-b is refused as a contestant would be."""
    with running(judging_host(parameters=7_000_000_000)) as host:
        with pytest.raises(ModelRefused, match="above --max-model-b 4"):
            run(host, blocks_of(1))
        assert host.loads == []
        assert run(host, blocks_of(1), settings={"max_model_b": 7}).scores


def test_a_host_that_is_collecting_is_left_alone() -> None:
    """The judge takes the same lock as a collection."""
    with running(judging_host()) as host:
        held = {"folder": lock_folder(), "experiment": "x", "wait": False, "waiting": print}
        with hold_host(host_name(host.url), **held), pytest.raises(HostBusy):  # type: ignore[arg-type]
            run(host, blocks_of(1))


def test_another_models_memory_is_not_taken() -> None:
    """A model that somebody else has loaded is left there, and the judge does not start."""
    with running(judging_host()) as host:
        host.models.append(FakeModel("other:1b"))
        host.resident.append("other:1b")
        with pytest.raises(HostBusy, match="other:1b"):
            run(host, blocks_of(1))
        assert host.resident == ["other:1b"]


def test_ctrl_c_keeps_what_was_judged() -> None:
    """The first block's scores were handed on before the signal came; the model is unloaded."""
    kept: list[tuple[Judge, Mapping[str, Any]]] = []

    def interrupt(number: int, _body: dict[str, Any]) -> str | None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return None

    with running(judging_host(fault=interrupt)) as host:
        host.latency_s = 0.2
        found = run(host, blocks_of(2), keep=lambda judge, block: kept.append((judge, block.scores)))
        assert host.resident == []
    assert isinstance(found.stopped, Interrupted)
    assert set(found.scores) == {"0.0", "0.1", "0.2"}
    assert kept == [(found.judge, found.scores)]


def test_a_host_that_goes_away_half_way() -> None:
    """What was judged before is handed back with the reason."""
    stop: list[Callable[[], None]] = []

    def go_away(number: int, _body: dict[str, Any]) -> str | None:
        if number == 3:
            stop[0]()
            return "drop"
        return None

    with running(judging_host(fault=go_away), stop) as host:
        found = run(host, blocks_of(2))
    assert isinstance(found.stopped, EngineUnreachable)
    assert len(found.scores) == 3


def test_passing_faults_are_retried() -> None:
    """A fault that goes away costs a retry, not a text."""
    with running(judging_host(fault=lambda n, _body: "500" if n == 2 else None)) as host:
        found = run(host, blocks_of(1), settings={"retries": 1})
    assert (len(found.scores), len(host.chats)) == (3, 3)


def test_a_question_that_did_not_fit_is_no_judgement() -> None:
    """Where the host cut the prompt, its reply does not count; with nothing judged at all, that is told."""
    words = r"mistral:7b judged nothing: .* did not fit"
    cutting = judging_host(fault=lambda _n, _body: "full-context")
    with running(cutting) as host, pytest.raises(Unavailable, match=words):
        run(host, blocks_of(1))


def test_a_model_that_cannot_load_is_an_error() -> None:
    """The host's own reason is told."""
    with running(judging_host()) as host:
        host.load_error["mistral:7b"] = "not enough memory"
        with pytest.raises(Unavailable, match="not enough memory"):
            run(host, blocks_of(1))


def test_a_short_context_gets_short_blocks() -> None:
    """Where ten texts do not fit the model's context, fewer are asked for at a time."""
    with running(judging_host(context_length=1200)) as host:
        assert len(run(host, blocks_of(1, size=10)).scores) == 10
    assert {chat["options"]["num_ctx"] for chat in host.chats} == {1200}
    assert len(host.chats) > 2


@pytest.mark.parametrize("spec", ["", "ollama", "ollama:", "anthropic:x", "qwen2.5:0.5b"])
def test_judges_that_are_none(spec: str) -> None:
    """The sentence says what a judge may be."""
    with pytest.raises(BadSetting, match="ollama:MODEL"):
        judge_blocks(
            spec, [], rubric=SMALL, settings=Settings.of({}), contestants=[], emit=lambda _event: None
        )


def test_an_address_is_for_openai_only() -> None:
    """--base-url beside an Ollama judge is a mistake, not something to ignore."""
    with running(judging_host()) as host, pytest.raises(BadSetting, match="--ollama-url"):
        run(host, blocks_of(1), base_url="http://localhost:1/v1")


def test_a_real_model_judges() -> None:
    """The embedded model's replies are read, or counted as unread; none gets lost."""
    found = judge_blocks(
        "ollama:smollm2:135m",
        blocks_of(2, size=2),
        rubric=SMALL,
        settings=Settings.of({"engine": "embedded"}),
        contestants=["qwen2.5:0.5b"],
        emit=lambda _event: None,
    )
    assert {*found.scores, *found.unread} == {"0.0", "0.1", "1.0", "1.1"}
    assert found.scores, "a grammar holds the reply to its form"
    assert all(score["use"] in {1, 1.5, 2, 2.5, 3} for score in found.scores.values())


def ask_openai(server: OpenAIStandIn, blocks: list[Block], **changes: Any) -> AutoJudged:  # noqa: ANN401
    settings = Settings.of({"retries": 0} | changes.pop("settings", {}))
    given = {
        "rubric": SMALL,
        "contestants": ["qwen2.5:0.5b"],
        "emit": lambda _event: None,
        "base_url": server.url,
        **changes,
    }
    return judge_blocks("openai:gpt-x", blocks, settings=settings, **given)


@pytest.fixture(autouse=True)
def _no_openai_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_an_openai_compatible_server_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temperature 0, a seed, a schema and the key are sent; the key is nowhere in what comes back."""
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    with openai_running(OpenAIStandIn(lambda _n, body: said(scored(body)))) as server:
        found = ask_openai(server, blocks_of(2))
    path, headers, body = server.requests[0]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["temperature"], body["seed"]) == ("gpt-x", 0, 1)
    assert body["response_format"]["json_schema"]["strict"] is True
    assert (len(found.scores), len(server.requests)) == (6, 4)
    assert found.judge.id == "openai:gpt-x"
    assert found.judge.model == f"gpt-x@{server.url[7:-3]} prompt {prompt_hash()}"


def test_no_key_no_header_and_the_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local server needs no key, and OPENAI_BASE_URL names it as it does for other tools."""
    with openai_running(OpenAIStandIn(lambda _n, body: said(scored(body)))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/")
        assert ask_openai(server, blocks_of(1), base_url="").scores
    path, headers, _ = server.requests[0]
    assert path == "/v1/chat/completions"
    assert "authorization" not in headers


@pytest.mark.parametrize("refuses", ["response_format", "seed"])
def test_options_that_a_server_refuses_are_left_out(refuses: str) -> None:
    """It is asked without them at once, and from then on."""

    def picky(_number: int, body: dict[str, Any]) -> Reply:
        return refused(400, f"unknown field {refuses}") if refuses in body else said(scored(body))

    with openai_running(OpenAIStandIn(picky)) as server:
        assert len(ask_openai(server, blocks_of(2)).scores) == 6
    good = [refuses not in body for body in server.bodies]
    assert good[-4:] == [True] * 4
    assert len(good) == 4 + (1 if refuses == "response_format" else 2)


def test_a_server_that_is_busy_is_waited_for() -> None:
    """429 and 5xx are tried again, after as long as the server asked for."""
    events: EVENTS = []

    def busy(number: int, body: dict[str, Any]) -> Reply:
        if number == 1:
            return refused(429, "slow down", Retry_After="0.2")
        return Reply("<html>oops", 502) if number == 2 else said(scored(body))

    with openai_running(OpenAIStandIn(busy)) as server:
        found = ask_openai(
            server,
            blocks_of(1),
            settings={"retries": 2},
            emit=lambda event: events.append(dict(event)),
        )
    retries = [event for event in events if event["event"] == "retry"]
    assert (len(found.scores), len(retries), retries[0]["pause_s"]) == (3, 2, 0.2)
    assert "answers 502: a web page" in retries[1]["error"]


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (refused(401, f"bad key {KEY}"), BadInput, r"refuses the key in OPENAI_API_KEY"),
        (refused(404, "no such model"), ModelRefused, r"has no gpt-x.*no such model.*--base-url"),
        (refused(400, "temperature must be 1"), ModelRefused, r"temperature must be 1"),
        (refused(403, f"{KEY} is from elsewhere"), BadInput, r"\(the key\) is from elsewhere"),
        (refused(503, f"{KEY} overloaded"), Unavailable, r"answers 503: \(the key\) overloaded"),
        (Reply("<html>a portal</html>"), EngineUnreachable, r"a web page.*--base-url"),
        (Reply({"choices": []}), EngineUnreachable, r"does not reply as OpenAI does"),
        (Reply("[" * 100_000), EngineUnreachable, r"does not reply as OpenAI does"),
        (Reply("", 301, {"Location": "http://127.0.0.1:1/"}), BadInput, r"301"),
    ],
    ids=["401", "404", "400", "403", "503", "html", "empty", "deep", "moved"],
)
def test_refusals_are_told_in_a_sentence_without_the_key(
    reply: Reply, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server says is told in one line; a key that it repeats is cut out."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    stand_in = OpenAIStandIn(lambda _n, _body: reply)
    with openai_running(stand_in) as server, pytest.raises(error, match=words) as caught:
        ask_openai(server, blocks_of(1))
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_at_the_address() -> None:
    """Exit 3, with the address and the option to check."""
    nobody = OpenAIStandIn(lambda _n, _body: said(""))
    nobody.url = "http://127.0.0.1:9/v1"
    with pytest.raises(EngineUnreachable, match=r"nothing answers at 127\.0\.0\.1:9 .*--base-url") as caught:
        ask_openai(nobody, blocks_of(1))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("url", ["localhost:1234", "ftp://x/v1", "http://", "http://[x/v1", "http://a b/v1"])
def test_addresses_that_are_none(url: str) -> None:
    """They are refused as the option they were given in."""
    server = OpenAIStandIn(lambda _n, _body: said(""))
    with pytest.raises(BadSetting, match="--base-url"):
        ask_openai(server, blocks_of(1), base_url=url)


@pytest.mark.parametrize("key", ["sk-a\nb", "schlüssel"])
def test_a_key_that_no_header_carries_is_not_printed(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable, not what is in it."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(BadInput, match="OPENAI_API_KEY holds") as caught:
        ask_openai(OpenAIStandIn(lambda _n, _body: said(""), url="http://127.0.0.1:9"), blocks_of(1))
    assert key not in str(caught.value)


def test_a_server_that_gives_up_half_way() -> None:
    """What was judged before is handed back beside the reason; the rest was not asked for."""
    with openai_running(
        OpenAIStandIn(lambda n, body: said(scored(body)) if n <= 2 else refused(500, "broken"))
    ) as server:
        found = ask_openai(server, blocks_of(3))
    assert (set(found.scores), found.unread) == ({"0.0", "0.1", "0.2"}, ())
    assert "broken" in str(found.stopped)
    assert isinstance(found.stopped, Unavailable)


def test_one_block_that_a_server_objects_to_does_not_stop_the_others() -> None:
    """A server that has replied before and refuses one question leaves only that one's texts unjudged."""

    def filters(_number: int, body: dict[str, Any]) -> Reply:
        objects = any("scenario 0" in text for text in texts_in(body))
        return refused(400, "content filter") if objects else said(scored(body))

    blocks = blocks_of(3)
    with openai_running(OpenAIStandIn(filters)) as server:
        found = ask_openai(server, [blocks[1], blocks[0], blocks[2]])
    assert (len(found.scores), found.unread) == (6, ("0.0", "0.1", "0.2"))
    assert "response_format" in server.bodies[-1], "one refusal does not change how the others are asked"


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": "PART"}], "PART"])
def test_contents_of_every_form(content: object) -> None:
    """Text, parts of text and nothing at all are all replies."""

    def answer(_number: int, body: dict[str, Any]) -> Reply:
        filled = json.loads(json.dumps(content).replace("PART", json.dumps(scored(body))[1:-1]))
        return said(filled)

    with openai_running(OpenAIStandIn(answer)) as server:
        found = ask_openai(server, blocks_of(1))
    assert (len(found.scores), len(found.unread)) == ((0, 3) if content is None else (3, 0))


def test_several_requests_in_flight() -> None:
    """With --parallel several blocks are asked at a time, and each text is still judged once."""
    with openai_running(OpenAIStandIn(lambda _n, body: said(scored(body)))) as server:
        found = ask_openai(server, blocks_of(5), settings={"parallel": 3})
    assert (len(found.scores), len(server.requests)) == (15, 10)
