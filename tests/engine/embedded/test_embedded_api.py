"""Ollama's API as the official client and a bare HTTP client see it."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import ollama
import pytest

from tiny_gguf import CONTEXT_LENGTH

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

HELLO = [{"role": "user", "content": "Hello"}]
NUMBERS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.content.split(b"\n") if line]


def test_it_says_that_it_runs(http: httpx.Client) -> None:
    """The root answers GET and HEAD as Ollama's does, and a version is given."""
    assert http.get("/").text == "Ollama is running"
    assert http.head("/").status_code == 200
    assert re.match(r"\d+\.\d+", http.get("/api/version").json()["version"])


def test_models_are_listed_with_real_digests(client: ollama.Client, tiny: Path, other: Path) -> None:
    """The list has full names, sizes and the SHA-256 of each file."""
    listed = {model.model: model for model in client.list().models}
    for name, path in (("tiny:latest", tiny), ("other:1m", other)):
        model = listed[name]
        assert model.digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert model.size == path.stat().st_size
        assert model.details is not None
        assert (model.details.format, model.details.family) == ("gguf", "llama")
        assert (model.details.parameter_size, model.details.quantization_level) == ("1.05M", "F16")


def test_a_model_is_shown(client: ollama.Client) -> None:
    """Show tells architecture, parameter count, context length and the chat template."""
    shown = client.show("tiny")
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["general.parameter_count"] == 1_053_568
    assert shown.modelinfo["llama.context_length"] == CONTEXT_LENGTH
    assert shown.capabilities == ["completion"]
    assert "im_start" in str(shown.template)


def test_a_chat_reply_carries_what_ollamas_carries(http: httpx.Client) -> None:
    """One object with the text, why it ended, and every count and duration."""
    body = {"model": "tiny", "messages": HELLO, "stream": False, "options": {"num_predict": 7, "seed": 3}}
    http.post("/api/chat", json=body)
    response = http.post("/api/chat", json=body)
    reply = response.json()
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert (reply["model"], reply["done"]) == ("tiny", True)
    assert reply["message"]["role"] == "assistant"
    assert reply["message"]["content"]
    assert all(isinstance(reply[name], int) and reply[name] > 0 for name in NUMBERS)
    assert reply["eval_count"] <= 7
    assert reply["prompt_cached_count"] == 0
    assert reply["total_duration"] >= reply["load_duration"] + reply["eval_duration"]
    assert datetime.fromisoformat(reply["created_at"].replace("Z", "+00:00")).tzinfo is not None


def test_streaming_is_the_default(http: httpx.Client) -> None:
    """Without `stream` come lines of JSON: pieces that are not done, and a last one that is."""
    body: dict[str, Any] = {"model": "tiny", "messages": HELLO, "options": {"num_predict": 9, "seed": 3}}
    response = http.post("/api/chat", json=body)
    *pieces, last = lines(response)
    whole = http.post("/api/chat", json={**body, "stream": False}).json()
    assert response.headers["content-type"] == "application/x-ndjson"
    assert len(pieces) > 1
    assert not any(piece["done"] or "done_reason" in piece for piece in pieces)
    assert (last["done"], last["message"]["content"]) == (True, "")
    assert "".join(piece["message"]["content"] for piece in pieces) == whole["message"]["content"]


def test_the_official_client_streams(client: ollama.Client) -> None:
    """The client's own stream gives the same text as its single reply."""
    options = {"num_predict": 20, "seed": 5}
    parts = list(client.generate("tiny", "Hello", stream=True, options=options))
    whole = client.generate("tiny", "Hello", options=options)
    assert "".join(part.response or "" for part in parts) == whole.response
    assert parts[-1].done
    assert parts[-1].eval_count == whole.eval_count


def test_a_reply_that_hits_its_limit_says_length(client: ollama.Client) -> None:
    """`num_predict` cuts the reply, and the reply says so."""
    reply = client.chat("tiny", messages=HELLO, options={"num_predict": 3, "seed": 3})
    assert (reply.done_reason, reply.eval_count) == ("length", 3)


def test_a_reply_that_ends_by_itself_says_stop(client: ollama.Client) -> None:
    """A reply that the model ended is not marked as cut."""
    reply = client.chat("tiny", messages=HELLO, options={"seed": 3})
    assert reply.done_reason == "stop"


def test_a_reply_that_fills_the_context_says_length(client: ollama.Client) -> None:
    """Without a limit the context is the limit: prompt and reply together."""
    options = {"num_ctx": 64, "num_predict": -1, "seed": 3, "temperature": 0}
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 500}
    reply = client.chat("tiny", messages=HELLO, options=options, format=schema)
    assert reply.done_reason == "length"
    assert (reply.prompt_eval_count or 0) + (reply.eval_count or 0) == 64


def test_the_same_seed_gives_the_same_text(client: ollama.Client) -> None:
    """Seed and options decide the text; another model in between, and a reload, change nothing."""

    def text(**options: float) -> str:
        return str(client.generate("tiny", "Hello", options={"num_predict": 30, **options}).response)

    first = text(seed=11)
    client.generate("other:1m", "Something else", options={"num_predict": 5})
    assert text(seed=11) == first
    assert text(seed=12) != first


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0001}, {"min_p": 1.0}])
def test_sampling_options_reach_the_model(client: ollama.Client, options: dict[str, float]) -> None:
    """Each option that leaves one token to choose from makes the seed irrelevant; without it, it is not."""

    def texts(**more: float) -> set[str]:
        return {
            str(client.generate("tiny", "Hello", options={"num_predict": 12, "seed": seed, **more}).response)
            for seed in range(3)
        }

    assert len(texts()) == 3
    assert len(texts(**options)) == 1


def test_a_repeat_penalty_keeps_words_apart(client: ollama.Client) -> None:
    """With a heavy penalty on what was said, a greedy reply has no token twice."""

    def tokens(penalty: float) -> list[int]:
        options = {"temperature": 0, "num_predict": 40, "repeat_penalty": penalty}
        reply = client.generate("tiny", "Hello", options=options)
        return list(reply.context or [])[reply.prompt_eval_count :]

    assert len(set(tokens(1.0))) < len(tokens(1.0))
    assert len(set(tokens(100.0))) == len(tokens(100.0))


def test_a_stop_word_ends_the_reply(client: ollama.Client) -> None:
    """The reply ends before the stop word, and by itself."""
    whole = str(client.generate("tiny", "Hello", options={"seed": 5, "num_predict": 40}).response)
    word = whole[4:6]
    cut = client.generate("tiny", "Hello", options={"seed": 5, "num_predict": 40, "stop": [word]})
    assert cut.response == whole[: whole.index(word)]
    assert cut.done_reason == "stop"


def test_a_schema_is_followed(client: ollama.Client) -> None:
    """A JSON schema holds the reply to its shape, for every seed."""
    schema = {
        "type": "object",
        "properties": {
            "tips": {
                "type": "array",
                "items": {"type": "string", "maxLength": 20},
                "minItems": 2,
                "maxItems": 2,
            },
            "mood": {"enum": ["good", "bad"]},
        },
        "required": ["tips", "mood"],
        "additionalProperties": False,
    }
    for seed in range(5):
        reply = client.chat("tiny", messages=HELLO, format=schema, options={"seed": seed, "num_predict": 200})
        value = json.loads(str(reply.message.content))
        assert set(value) == {"tips", "mood"}
        assert len(value["tips"]) == 2
        assert value["mood"] in {"good", "bad"}


def test_json_mode_gives_an_object(client: ollama.Client) -> None:
    """`format: json` alone gives some JSON object; a reply that was cut is the beginning of one."""
    for seed in range(4):
        reply = client.generate("tiny", "Hello", format="json", options={"seed": seed, "num_predict": 400})
        assert str(reply.response).startswith("{")
        if reply.done_reason == "stop":
            assert isinstance(json.loads(str(reply.response)), dict)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"enum": []}])
def test_a_schema_that_cannot_be_followed_is_refused(http: httpx.Client, schema: dict[str, Any]) -> None:
    """A schema is followed or refused, never silently dropped."""
    body = {"model": "tiny", "messages": HELLO, "format": schema}
    response = http.post("/api/chat", json=body)
    assert response.status_code == 400
    assert "schema" in response.json()["error"]


def test_system_text_and_raw_prompts_reach_the_model(http: httpx.Client) -> None:
    """System text lengthens the prompt; a raw prompt goes without the template."""

    def prompt_tokens(**body: object) -> int:
        request = {"model": "tiny", "prompt": "Hello", "stream": False, "options": {"num_predict": 1}, **body}
        return int(http.post("/api/generate", json=request).json()["prompt_eval_count"])

    assert prompt_tokens(raw=True) == len("Hello")
    assert prompt_tokens() > prompt_tokens(raw=True)
    assert prompt_tokens(system="Be brief.") > prompt_tokens()


def test_a_conversation_goes_on(client: ollama.Client) -> None:
    """All messages of a chat are in its prompt, and generate's context can be handed back."""
    longer = [*HELLO, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Well"}]
    options = {"num_predict": 4}
    short = client.chat("tiny", messages=HELLO, options=options)
    long = client.chat("tiny", messages=longer, options=options)
    assert (long.prompt_eval_count or 0) > (short.prompt_eval_count or 0)
    first = client.generate("tiny", "Hello", options=options)
    second = client.generate("tiny", "Hello", context=first.context, options=options)
    assert second.prompt_eval_count == len(first.context or []) + (first.prompt_eval_count or 0)


def test_a_prompt_too_long_is_cut_to_the_context(http: httpx.Client) -> None:
    """A prompt beyond `num_ctx` fills it exactly and the reply says so; without `truncate` it is refused."""
    messages = [{"role": "user", "content": "word " * 400}]
    options = {"num_ctx": 100, "num_predict": 20, "seed": 1}
    body = {"model": "tiny", "messages": messages, "stream": False, "options": options}
    reply = http.post("/api/chat", json=body).json()
    assert reply["prompt_eval_count"] == 100
    assert reply["prompt_truncated"] is True
    assert reply["eval_count"] > 1
    refused = http.post("/api/chat", json={**body, "truncate": False, "shift": False})
    assert refused.status_code == 400
    error = json.loads(refused.json()["error"])["error"]
    assert (error["type"], error["n_ctx"]) == ("exceed_context_size_error", 100)
    assert error["n_prompt_tokens"] > 400


def test_a_cut_prompt_keeps_its_beginning_and_its_end(http: httpx.Client) -> None:
    """The first `num_keep` tokens and the newest ones stay; the middle goes."""

    def context(prompt: str, **options: int) -> list[int]:
        body = {"model": "tiny", "prompt": prompt, "stream": False, "options": {"num_predict": 1, **options}}
        reply = http.post("/api/generate", json=body).json()
        return list(reply["context"][: reply["prompt_eval_count"]])

    prompt = "".join(chr(33 + i % 90) for i in range(200))
    whole = context(prompt)
    assert context(prompt, num_ctx=50, num_keep=10) == whole[:10] + whole[-40:]


def test_a_chat_too_long_loses_its_oldest_messages(http: httpx.Client) -> None:
    """System text and the last message stay whole while older messages go."""
    system = {"role": "system", "content": "Be brief."}
    old = [{"role": "user", "content": "x" * 60}, {"role": "assistant", "content": "y" * 60}] * 3
    body = {"model": "tiny", "stream": False, "options": {"num_ctx": 160, "num_predict": 1}}
    kept = http.post("/api/chat", json={**body, "messages": [system, *HELLO]}).json()
    cut = http.post("/api/chat", json={**body, "messages": [system, *old, *HELLO]}).json()
    assert cut["prompt_truncated"]
    assert kept["prompt_eval_count"] < cut["prompt_eval_count"] <= 160


def test_num_ctx_is_capped_by_the_model(client: ollama.Client) -> None:
    """A context beyond what the model was made for is cut down to it; the default is 4096."""
    client.generate("tiny", keep_alive="1m")
    assert client.ps().models[0].context_length == 4096
    client.generate("tiny", "Hi", options={"num_ctx": 10**6, "num_predict": 1})
    assert client.ps().models[0].context_length == CONTEXT_LENGTH
    client.generate("tiny", "Hi", options={"num_ctx": 128, "num_predict": 1})
    assert client.ps().models[0].context_length == 128


def test_loading_and_unloading_by_empty_requests(
    client: ollama.Client, http: httpx.Client, tiny: Path
) -> None:
    """An empty request loads the model, one with `keep_alive` 0 unloads it, on both routes."""
    loaded = client.generate("tiny", keep_alive=60)
    assert (loaded.done_reason, loaded.response) == ("load", "")
    (model,) = client.ps().models
    assert (model.name, model.model) == ("tiny:latest", "tiny:latest")
    assert model.digest == hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert model.size is not None
    assert model.size > tiny.stat().st_size
    assert model.size_vram == 0
    assert model.expires_at is not None
    assert 50 < (model.expires_at - datetime.now(tz=timezone.utc)).total_seconds() <= 60
    assert client.generate("tiny", keep_alive=0).done_reason == "unload"
    assert client.ps().models == []
    body = {"model": "tiny", "messages": []}
    assert http.post("/api/chat", json=body).json()["done_reason"] == "load"
    assert http.post("/api/chat", json={**body, "keep_alive": 0}).json()["done_reason"] == "unload"
    assert client.ps().models == []


def test_one_model_at_a_time(client: ollama.Client) -> None:
    """Another model takes the first one's place."""
    for name in ("tiny:latest", "other:1m", "tiny:latest"):
        client.generate(name, "Hi", options={"num_predict": 1})
        assert [model.model for model in client.ps().models] == [name]


@pytest.mark.parametrize("route", ["/api/chat", "/api/generate", "/api/show"])
def test_an_unknown_model_is_a_404(http: httpx.Client, route: str) -> None:
    """The words are Ollama's, so that clients recognise them."""
    response = http.post(route, json={"model": "nope", "messages": HELLO, "prompt": "Hi"})
    assert response.status_code == 404
    assert response.json() == {"error": "model 'nope' not found"}


@pytest.mark.parametrize("route", ["/api/chat", "/api/generate", "/api/show", "/api/pull"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 5}', b"{}"])
def test_a_body_that_cannot_be_read_is_a_400(http: httpx.Client, route: str, body: bytes) -> None:
    """Every route that takes a body says what is wrong with it."""
    response = http.post(route, content=body)
    assert response.status_code == 400
    assert response.json()["error"]


def test_thinking_is_refused_in_ollamas_words(client: ollama.Client) -> None:
    """A model that cannot think says so, with status 400."""
    with pytest.raises(ollama.ResponseError, match='"tiny" does not support thinking') as caught:
        client.chat("tiny", messages=HELLO, think=True)
    assert caught.value.status_code == 400


def test_what_is_not_offered_says_so(http: httpx.Client, client: ollama.Client) -> None:
    """Routes of Ollama's that the engine has no use for answer in its words; others do not exist."""
    for route in ("/api/push", "/api/create", "/api/copy", "/api/embed"):
        response = http.post(route, json={"model": "tiny"})
        assert response.status_code == 501
        assert "does not offer" in response.json()["error"]
    assert http.request("DELETE", "/api/delete", json={"model": "nope"}).status_code == 404
    assert http.request("DELETE", "/api/delete", json={"model": "tiny"}).status_code == 501
    assert client.pull("tiny").status == "success"
    assert [part.status for part in client.pull("tiny", stream=True)][-1] == "success"
    with pytest.raises(ollama.ResponseError, match="cannot be pulled"):
        client.pull("nope")
    assert (http.get("/nope").status_code, http.get("/nope").text) == (404, "404 page not found")
    assert http.get("/api/chat").status_code == 405


def test_odd_text_survives(http: httpx.Client) -> None:
    """Line separators, emoji, NUL and half a surrogate pair in a message are no reason to fail."""
    raw = b'{"model":"tiny","stream":false,"messages":[{"role":"user","content":"%s"}]}'
    for text in (b"\\u2028\\u0085", b"\\ud83d\\ude00", b"\\u0000", b"\\ud83d", "naïve ☃".encode()):
        response = http.post("/api/chat", content=raw % text)
        assert response.status_code == 200, response.text
        assert response.json()["done"]


def test_a_reply_with_line_separators_stays_one_line(http: httpx.Client) -> None:
    """Nothing in a reply can break the stream's lines: they are plain ASCII."""
    schema = {"enum": ["a\u2028b\u0085c☃"]}
    response = http.post("/api/chat", json={"model": "tiny", "messages": HELLO, "format": schema})
    assert response.content.isascii()
    text = "".join(line["message"]["content"] for line in lines(response))
    assert json.loads(text) == "a\u2028b\u0085c☃"
