"""The Ollama client: what it sends, and what it makes of everything a host can answer."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stand_in import FakeModel, StandIn, running
from tipbench.engine.ollama import OllamaHost, connect, full_name, storable
from tipbench.errors import EngineFailure, EngineUnreachable, PromptTooLong
from tipbench.records import ChatRequest, Message, Sampling

SCHEMA = {"type": "array", "items": {"type": "string"}}


def a_request(**changes: Any) -> ChatRequest:  # noqa: ANN401 - any of the record's fields
    values: dict[str, Any] = {
        "model": "a:1b",
        "messages": (
            Message(role="system", content="Be brief."),
            Message(role="user", content="Tips, please."),
        ),
        "sampling": Sampling(temperature=0.3, num_ctx=2048, num_predict=77, think=False),
        "seed": 12345,
    }
    return ChatRequest(**(values | changes))


async def open_host(stand_in: StandIn, *, timeout_s: float = 10) -> OllamaHost:
    return await connect(stand_in.url, kind="ollama", timeout_s=timeout_s)


async def test_every_option_reaches_the_wire() -> None:
    """Temperature, seed, context, limit, schema, think, keep_alive and both messages are in the body."""
    with running(StandIn([FakeModel("a:1b")])) as stand_in:
        host = await open_host(stand_in)
        await host.chat(a_request(format=SCHEMA), keep_alive="7m")
        await host.close()
    sent = stand_in.chats[0]
    assert sent["options"] == {"temperature": 0.3, "seed": 12345, "num_ctx": 2048, "num_predict": 77}
    assert sent["format"] == SCHEMA
    assert sent["think"] is False
    assert sent["keep_alive"] == "7m"
    assert (sent["truncate"], sent["shift"]) == (False, False)
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]


async def test_a_model_is_loaded_with_the_options_of_its_chats() -> None:
    """Ollama loads a model again if a chat has another num_ctx, or (since 2026) another `shift`."""
    with running(StandIn([FakeModel("a:1b")])) as stand_in:
        host = await open_host(stand_in)
        await host.load("a:1b", num_ctx=2048, keep_alive="5m")
        await host.chat(a_request(), keep_alive="5m")
        await host.close()
    (loaded,) = [body for path, body in stand_in.requests if path == "/api/generate"]
    (asked,) = stand_in.chats
    assert loaded["shift"] is asked["shift"] is False
    assert loaded["options"]["num_ctx"] == asked["options"]["num_ctx"]


async def test_a_key_for_a_guarded_host_is_sent_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OLLAMA_API_KEY` goes along with chats and loads, as with all that the official client sends."""
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    with running(StandIn([FakeModel("a:1b")])) as stand_in:
        host = await open_host(stand_in)
        await host.load("a:1b", num_ctx=2048, keep_alive="5m")
        await host.chat(a_request(), keep_alive="5m")
        await host.resident()
        await host.close()
    assert set(stand_in.logins[1:]) == {"Bearer secret"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("the input length exceeds the context length", "the prompt is longer than num_ctx 2048"),
        (
            '{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":2613,"n_ctx":2048}}',
            "the prompt has 2613 tokens, num_ctx is 2048",
        ),
        (
            "input length (2613 tokens) exceeds the model's maximum context length (2048 tokens)",
            "the prompt has 2613 tokens, num_ctx is 2048",
        ),
        (
            "the prompt is longer than the context length currently available to the model; shorten it",
            "the prompt is longer than num_ctx 2048",
        ),
    ],
)
async def test_a_refused_prompt_is_told_apart_from_other_refusals(error: str, words: str) -> None:
    """Every way in which hosts say it, with the number of tokens where they give it."""
    with running(StandIn([FakeModel("a:1b")], amend=lambda _b, _l: {"error": error})) as stand_in:
        host = await open_host(stand_in)
        with pytest.raises(PromptTooLong) as caught:
            await host.chat(a_request(), keep_alive="5m")
        stand_in.amend = lambda _b, _l: {"error": "invalid option"}
        with pytest.raises(EngineFailure, match="the host answers 400: invalid option") as other:
            await host.chat(a_request(), keep_alive="5m")
        await host.close()
    assert str(caught.value) == words
    assert not caught.value.retryable
    assert not isinstance(other.value, PromptTooLong)


async def test_a_host_leads_nowhere_else() -> None:
    """What it answers with a redirect is a failure: the address that was allowed is the only one asked."""
    with running(StandIn([FakeModel("a:1b")])) as elsewhere:

        class Leads(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/api/version":
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(b'{"version": "1"}')
                    return
                self.send_response(307)
                self.send_header("Location", f"{elsewhere.url}{self.path}")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """A test's output is not for this."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Leads) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            host = await connect(f"http://127.0.0.1:{server.server_port}", kind="ollama", timeout_s=10)
            with pytest.raises(EngineFailure):
                await host.models()
            await host.close()
            server.shutdown()
            thread.join()


async def test_think_is_sent_when_the_prompt_asks_for_it() -> None:
    """`think: true` reaches the model, and without a schema no format is sent."""
    with running(StandIn([FakeModel("a:1b", thinks=True)])) as stand_in:
        host = await open_host(stand_in)
        sampling = Sampling(temperature=0.0, num_ctx=512, num_predict=10, think=True)
        await host.chat(a_request(sampling=sampling), keep_alive="0")
        await host.close()
    assert stand_in.chats[0]["think"] is True
    assert "format" not in stand_in.chats[0]
    assert stand_in.chats[0]["keep_alive"] == 0


async def test_load_time_is_kept_out_of_latency() -> None:
    """A reply that takes 1.0225 s, of which the host loads for 1 s, has a latency of 22.5 ms."""
    with running(StandIn([FakeModel("a:1b")])) as stand_in:
        host = await open_host(stand_in)
        done = await host.chat(a_request(), keep_alive="5m")
        await host.close()
    assert done.latency_ms == pytest.approx(22.5, rel=1e-4)
    assert done.load_ms == pytest.approx(1000)
    assert done.tokens_per_s == pytest.approx(6000, rel=1e-4)


@pytest.mark.parametrize(
    ("fault", "retryable", "words"),
    [
        ("drop", True, "connection broke"),
        ("500", True, "500: out of luck"),
        ("404", False, "404: out of luck"),
        ("torn", True, "connection broke"),
        ("garbage", True, "not what Ollama sends"),
        ("error-line", True, "the runner died"),
        ("stall", True, "no sign"),
    ],
)
async def test_faults_become_failures(fault: str, retryable: bool, words: str) -> None:  # noqa: FBT001
    """Whatever the wire does wrong is an EngineFailure that says whether asking again may help."""
    with running(StandIn([FakeModel("a:1b")], fault=lambda _n, _b: fault)) as stand_in:
        host = await open_host(stand_in, timeout_s=0.5)
        with pytest.raises(EngineFailure, match=words) as caught:
            await host.chat(a_request(), keep_alive="5m")
        await host.close()
    assert caught.value.retryable is retryable
    assert not caught.value.unreachable


@pytest.mark.parametrize(("fault", "cut"), [("length", "reply"), ("full-context", "prompt"), ("none", None)])
async def test_cut_texts_are_marked(fault: str, cut: str | None) -> None:
    """A reply that hit its limit and a prompt that filled the context never pass for whole ones."""
    with running(StandIn([FakeModel("a:1b")], fault=lambda _n, _b: fault)) as stand_in:
        host = await open_host(stand_in)
        done = await host.chat(a_request(), keep_alive="5m")
        await host.close()
    assert done.cut == cut


async def test_impossible_numbers_are_not_believed() -> None:
    """A negative duration counts for nothing, and a rate that cannot be is not known."""
    with running(StandIn([FakeModel("a:1b")], fault=lambda _n, _b: "absurd")) as stand_in:
        host = await open_host(stand_in)
        done = await host.chat(a_request(), keep_alive="5m")
        await host.close()
    assert done.load_ms == 0
    assert 0 < done.latency_ms < 10_000
    assert done.tokens_per_s is None


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
async def test_line_breaks_of_unicode_stay_inside_a_reply(character: str) -> None:
    """What JSON allows raw inside a text does not cut the reply in two."""
    reply = f'["one{character}two"]'
    with running(StandIn([FakeModel("a:1b")], reply=reply)) as stand_in:
        host = await open_host(stand_in)
        assert (await host.chat(a_request(), keep_alive="5m")).text == reply
        await host.close()


async def test_something_else_on_the_port_is_not_ollama() -> None:
    """A web server that answers everything with an error is not taken for a host."""
    with running(StandIn([], busy={"/api/version": 1, "/api/tags": 1})) as stand_in:
        with pytest.raises(EngineUnreachable, match="is not Ollama"):
            await connect(stand_in.url, kind="ollama", timeout_s=1)
        host = await open_host(stand_in)
        assert host.host.version == "0.17.4"
        await host.close()


async def test_what_answers_without_end_is_not_waited_for() -> None:
    """Each drop of the answer is in time, and the answer never is: it is given up, and the address named."""

    class Drips(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.01)

        def log_message(self, *_: object) -> None:
            """A test's output is not for this."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Drips) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(EngineUnreachable, match=f"{url} does not come to an end within 0.3 s"):
            await connect(url, kind="ollama", timeout_s=1, greeting_s=0.3)
        server.shutdown()
        thread.join()


async def test_a_context_shorter_than_asked_for_counts() -> None:
    """A prompt that fills the model's own context was cut, whatever larger context was asked for."""
    with running(StandIn([FakeModel("a:1b")])) as stand_in:
        host = await open_host(stand_in)
        done = await host.chat(a_request(context_length=12), keep_alive="5m")
        await host.close()
    assert done.cut == "prompt"


async def test_models_are_described_with_size_and_digest() -> None:
    """The parameter count comes from show, the digest from the listing, and a missing size is None."""
    with running(
        StandIn([FakeModel("a:1b", parameters=494_000_000), FakeModel("b:latest", parameters=None)])
    ) as s:
        host = await open_host(s)
        first, second = await host.models()
        assert (await host.model("b")) == second
        assert (await host.model("c")) is None
        await host.close()
    assert first.parameters == 494_000_000
    assert first.digest == FakeModel("a:1b").digest
    assert first.context_length == 8192
    assert second.parameters is None


async def test_nobody_at_the_address() -> None:
    """A port where nothing listens is EngineUnreachable, with what to do."""
    with running(StandIn([])) as stand_in:
        url = stand_in.url
    with pytest.raises(EngineUnreachable, match=r"ollama serve|install Ollama"):
        await connect(url, kind="ollama", timeout_s=1)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama3.2", "llama3.2:latest"),
        ("a:1b", "a:1b"),
        ("h:80/x/a", "h:80/x/a:latest"),
        ("h/a:1b", "h/a:1b"),
    ],
)
def test_full_name(name: str, full: str) -> None:
    """A name without a tag is the tag `latest`; a port in a registry's name is no tag."""
    assert full_name(name) == full


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain", "plain"), ("a\x00b", "a\ufffdb"), ("half \ud83d!", "half \ufffd!"), ("\ud83d\ude00", "😀")],
)
def test_storable(text: str, kept: str) -> None:
    """What no database takes is replaced; a surrogate pair split over two parts is put together."""
    assert storable(text) == kept
