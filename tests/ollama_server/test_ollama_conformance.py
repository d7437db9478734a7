"""The same cases on a real Ollama, on both generations of the fake, and on the embedded engine.

`make test` runs them on the fakes and on the embedded engine, `make test-ollama` on a real Ollama. What a
case expects was first observed on Ollama 0.17.4. `docs/reference/ollama.md` has both generations in a table.
"""

from __future__ import annotations

import json
import re
import string
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

from ollama_generations import VERSIONS, Generation
from stand_in import FakeModel, StandIn, running
from tiny_gguf import write_tiny_gguf
from tipbench.engine.embedded import start_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["fake 0.17", "fake August 2026", "embedded", "real"]
NUM_CTX = 512
HELLO = [{"role": "user", "content": "Hello"}]
COUNTS = ("prompt_eval_count", "eval_count")
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
# The release from which Ollama runs llama.cpp's own server as a child process.
LATER = (0, 30)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server under test. `generation` is None for the embedded engine, which has rules of its own."""

    kind: Kind
    http: httpx.Client
    model: str
    other: str
    generation: Generation | None

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def chat(self, **body: object) -> dict[str, Any]:
        """The whole reply of the smaller model, as one object."""
        body = {"model": self.model, "messages": HELLO, "stream": False, **body}
        response = self.post("/api/chat", **body)
        assert response.status_code == 200, response.text
        reply: dict[str, Any] = response.json()
        return reply

    def loaded(self) -> list[dict[str, Any]]:
        models: list[dict[str, Any]] = self.http.get("/api/ps").json()["models"]
        return models

    def wait_until_unloaded(self) -> None:
        while self.loaded():
            time.sleep(0.02)


@pytest.fixture(
    scope="module",
    params=["fake 0.17", "fake August 2026", "embedded", pytest.param("real", marks=pytest.mark.ollama)],
)
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    kind: Kind = request.param
    if kind == "real":
        real = request.getfixturevalue("real_ollama")
        with httpx.Client(base_url=real.url, timeout=300) as http:
            generation = _generation(http.get("/api/version").json()["version"])
            yield Server(
                kind=kind, http=http, model=real.models[0], other=real.models[1], generation=generation
            )
    elif kind == "embedded":
        folder = tmp_path_factory.mktemp("weights")
        models = {f"{name}:1m": write_tiny_gguf(folder / name, seed=n) for n, name in enumerate("ab")}
        with start_engine(models=models, threads=1) as url, httpx.Client(base_url=url, timeout=60) as http:
            yield Server(kind=kind, http=http, model="a:1m", other="b:1m", generation=None)
    else:
        generation = "0.17" if kind == "fake 0.17" else "August 2026"
        fake = StandIn([FakeModel("a:1b"), FakeModel("b:1b")], generation=generation)
        with running(fake), httpx.Client(base_url=fake.url, timeout=60) as http:
            yield Server(kind=kind, http=http, model="a:1b", other="b:1b", generation=generation)


def _generation(version: str) -> Generation:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return "August 2026" if numbers >= LATER else "0.17"


@pytest.fixture
def server(any_server: Server) -> Server:
    """The server with no model in memory."""
    for name in (any_server.model, any_server.other):
        any_server.post("/api/generate", model=name, keep_alive=0)
    any_server.wait_until_unloaded()
    return any_server


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.content.split(b"\n") if line]


def long_text(n_words: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": " ".join(["word"] * n_words)}]


def test_the_root_and_the_version(server: Server) -> None:
    """The root says that Ollama runs, and `/api/version` returns three numbers."""
    assert server.http.get("/").text == "Ollama is running"
    version = server.http.get("/api/version").json()["version"]
    assert re.match(r"\d+\.\d+\.\d+", version)
    if server.kind.startswith("fake"):
        assert version == VERSIONS[server.generation or "0.17"]


def test_an_unknown_route_is_a_404(server: Server) -> None:
    """A route that does not exist returns 404 as plain text."""
    response = server.http.get("/api/nope")
    assert (response.status_code, response.text) == (404, "404 page not found")


def test_tags_list_the_installed_models(server: Server) -> None:
    """Each model has its name, a SHA-256 digest, its size in bytes and its details."""
    listed = {entry["name"]: entry for entry in server.http.get("/api/tags").json()["models"]}
    for name in (server.model, server.other):
        entry = listed[name]
        assert entry["model"] == name
        assert re.fullmatch(r"[0-9a-f]{64}", entry["digest"])
        assert entry["size"] > 0
        assert entry["modified_at"].startswith("20")
        details = {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"}
        assert details <= entry["details"].keys()
    assert listed[server.model]["digest"] != listed[server.other]["digest"]


def test_show_describes_a_model(server: Server) -> None:
    """`/api/show` has the parameter count, exact and rounded, the context length and the capabilities."""
    shown = server.post("/api/show", model=server.model).json()
    info = shown["model_info"]
    exact = info["general.parameter_count"]
    number, unit = re.fullmatch(r"([\d.]+)([KMB])", shown["details"]["parameter_size"]).groups()  # type: ignore[union-attr]
    assert float(number) * {"K": 1e3, "M": 1e6, "B": 1e9}[unit] == pytest.approx(exact, rel=0.06)
    assert info[f"{info['general.architecture']}.context_length"] >= NUM_CTX
    assert "completion" in shown["capabilities"]
    assert {"modelfile", "template", "modified_at"} <= shown.keys()


def test_show_accepts_the_old_field_name(server: Server) -> None:
    """`name` works instead of `model`."""
    by_name = server.post("/api/show", name=server.model).json()
    assert by_name["model_info"] == server.post("/api/show", model=server.model).json()["model_info"]


def test_an_empty_generate_loads_a_model(server: Server) -> None:
    """The reply says `load`, and `/api/ps` lists the model with sizes, digest, expiry and context length."""
    reply = server.post("/api/generate", model=server.model, options={"num_ctx": NUM_CTX}).json()
    assert (reply["done"], reply["done_reason"], reply["response"]) == (True, "load", "")
    (entry,) = server.loaded()
    assert entry["name"] == entry["model"] == server.model
    assert re.fullmatch(r"[0-9a-f]{64}", entry["digest"])
    assert entry["size"] >= entry["size_vram"] >= 0
    assert entry["size"] > 0
    assert entry["context_length"] == NUM_CTX
    assert entry["expires_at"].startswith("20")
    assert "details" in entry


def test_keep_alive_0_unloads_a_model(server: Server) -> None:
    """An empty request with `keep_alive` 0 says `unload`, and the model disappears from `/api/ps`."""
    server.post("/api/generate", model=server.model)
    assert server.loaded()
    reply = server.post("/api/generate", model=server.model, keep_alive=0).json()
    assert (reply["done"], reply["done_reason"]) == (True, "unload")
    server.wait_until_unloaded()


def test_an_empty_chat_loads_and_unloads_too(server: Server) -> None:
    """`/api/chat` without messages does the same as an empty `/api/generate`."""
    assert server.chat(messages=[])["done_reason"] == "load"
    assert [entry["name"] for entry in server.loaded()] == [server.model]
    assert server.chat(messages=[], keep_alive=0)["done_reason"] == "unload"
    server.wait_until_unloaded()


def test_unloading_a_model_that_is_not_loaded_succeeds(server: Server) -> None:
    """The reply is the same as for a model in memory."""
    response = server.post("/api/generate", model=server.model, keep_alive=0)
    assert (response.status_code, response.json()["done_reason"]) == (200, "unload")


def test_a_chat_with_keep_alive_0_unloads_after_its_reply(server: Server) -> None:
    """The model is gone after the reply, without another request."""
    assert server.chat(options={"num_predict": 2}, keep_alive=0)["done"]
    server.wait_until_unloaded()


def test_another_num_ctx_loads_the_model_again(server: Server) -> None:
    """A request's `num_ctx` replaces the context length of the loaded model; there is still one of it."""
    for num_ctx in (NUM_CTX, 2 * NUM_CTX):
        server.chat(options={"num_ctx": num_ctx, "num_predict": 1})
        assert [entry["context_length"] for entry in server.loaded()] == [num_ctx]


def test_a_streamed_chat(server: Server) -> None:
    """A chat streams by default: pieces of text, then one last object with the counts and durations."""
    response = server.post(
        "/api/chat", model=server.model, messages=HELLO, options={"num_predict": 5, "seed": 1}
    )
    *pieces, last = lines(response)
    assert response.headers["content-type"] == "application/x-ndjson"
    assert pieces
    for piece in pieces:
        assert (piece["model"], piece["done"], piece["message"]["role"]) == (server.model, False, "assistant")
        assert "done_reason" not in piece
    assert "".join(piece["message"]["content"] for piece in pieces)
    assert (last["done"], last["message"]["content"]) == (True, "")
    assert all(isinstance(last[name], int) and last[name] > 0 for name in (*COUNTS, *DURATIONS))
    assert last["total_duration"] >= last["load_duration"]


def test_a_chat_in_one_piece(server: Server) -> None:
    """With `stream` off the reply is one JSON object with the text and all numbers."""
    response = server.post(
        "/api/chat",
        model=server.model,
        messages=HELLO,
        stream=False,
        think=False,
        options={"num_predict": 5, "seed": 1},
    )
    reply = response.json()
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert reply["message"]["content"]
    assert all(reply[name] > 0 for name in (*COUNTS, *DURATIONS))


def test_num_predict_limits_a_reply(server: Server) -> None:
    """A reply that reaches `num_predict` ends with `length` and has exactly this number of tokens."""
    reply = server.chat(options={"num_predict": 2, "seed": 1})
    assert (reply["done_reason"], reply["eval_count"]) == ("length", 2)


def test_the_same_seed_gives_the_same_text(server: Server) -> None:
    """Two requests with one seed return one text."""
    options = {"num_predict": 12, "seed": 7, "temperature": 0.7}
    texts = {server.chat(options=options)["message"]["content"] for _ in range(2)}
    assert len(texts) == 1


def test_a_reply_without_text(server: Server) -> None:
    """If the first token ends the reply, the text is empty; 0.17 then leaves out `eval_duration`."""
    reply = server.chat(options={"num_predict": 9, "stop": list(string.printable), "seed": 1})
    assert reply["message"]["content"] == ""
    assert reply["done_reason"] == "stop"
    assert reply["eval_count"] <= 1
    if server.generation == "0.17":
        assert "eval_duration" not in reply


def test_a_prompt_that_fits_is_read_whole(server: Server) -> None:
    """The count of prompt tokens grows with the prompt as long as there is room."""
    options = {"num_ctx": NUM_CTX, "num_predict": 1}
    short = server.chat(messages=long_text(10), options=options)["prompt_eval_count"]
    longer = server.chat(messages=long_text(40), options=options)["prompt_eval_count"]
    assert 0 < short < longer < NUM_CTX


@pytest.mark.parametrize("n_words", [600, 1200])
def test_a_prompt_that_is_too_long_is_cut_by_default(server: Server, n_words: int) -> None:
    """0.17 cuts it to `num_ctx` tokens, August 2026 to about half, and both answer 200."""
    body = {"model": server.model, "messages": long_text(n_words), "stream": False}
    response = server.post("/api/chat", **body, options={"num_ctx": NUM_CTX, "num_predict": 1})
    if server.kind == "real" and server.generation == "August 2026" and response.status_code == 400:
        # With the template of the model's own file, llama.cpp refuses a single message that is too long.
        assert "exceed_context_size_error" in response.json()["error"]
        return
    expected = {"0.17": NUM_CTX, "August 2026": 258, None: NUM_CTX}[server.generation]
    assert response.json()["prompt_eval_count"] == pytest.approx(expected, abs=2)


def test_a_prompt_that_is_too_long_is_refused_on_request(server: Server) -> None:
    """With `truncate` and `shift` off the answer is 400, and it explains the length."""
    body = {"model": server.model, "messages": long_text(1200), "truncate": False, "shift": False}
    for stream in (True, False):
        response = server.post("/api/chat", **body, stream=stream, options={"num_ctx": NUM_CTX})
        assert response.status_code == 400
        error = response.json()["error"]
        if server.generation == "0.17":
            assert error == "the input length exceeds the context length"
        else:
            inner = json.loads(error)["error"]
            assert inner["type"] == "exceed_context_size_error"
            assert inner["n_prompt_tokens"] > inner["n_ctx"] == NUM_CTX


def test_a_prompt_that_fits_is_not_refused(server: Server) -> None:
    """`truncate` and `shift` off change nothing for a prompt that fits."""
    options = {"num_ctx": NUM_CTX, "num_predict": 1}
    strict = server.chat(messages=long_text(30), options=options, truncate=False, shift=False)
    assert (
        strict["prompt_eval_count"]
        == server.chat(messages=long_text(30), options=options)["prompt_eval_count"]
    )


def test_old_turns_are_dropped_first(server: Server) -> None:
    """Of a long conversation the oldest turns go, and the count tells nothing of it."""
    turn = [{"role": "user", "content": "word " * 25}, {"role": "assistant", "content": "word " * 25}]
    messages = [{"role": "system", "content": "Be brief."}, *turn * 15, *HELLO]
    options = {"num_ctx": NUM_CTX, "num_predict": 1}
    reply = server.chat(messages=messages, options=options)
    alone = server.chat(messages=[messages[0], *HELLO], options=options)
    assert alone["prompt_eval_count"] < reply["prompt_eval_count"] <= NUM_CTX
    body = {"model": server.model, "messages": messages, "options": options}
    assert server.post("/api/chat", **body, truncate=False, shift=False).status_code == 400


def test_a_reply_ends_with_the_context_if_shift_is_off(server: Server) -> None:
    """Prompt and reply fill `num_ctx`, and the reply ends with `length`."""
    prompt = server.chat(options={"num_ctx": NUM_CTX, "num_predict": 1})["prompt_eval_count"]
    num_ctx = prompt + 6
    schema = {"type": "string", "minLength": 200, "maxLength": 300}
    options = {"num_ctx": num_ctx, "num_predict": 200, "seed": 1}
    reply = server.chat(options=options, truncate=False, shift=False, format=schema)
    assert reply["done_reason"] == "length"
    assert num_ctx - 2 <= reply["prompt_eval_count"] + reply["eval_count"] <= num_ctx + 1


def test_a_schema_is_obeyed(server: Server) -> None:
    """The reply is JSON that has the fields, types and lengths of the schema."""
    schema = {
        "type": "object",
        "properties": {
            "ok": {"type": "boolean"},
            "tips": {
                "type": "array",
                "items": {"type": "string", "minLength": 3, "maxLength": 8},
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "required": ["ok", "tips"],
        "additionalProperties": False,
    }
    reply = server.chat(format=schema, options={"num_predict": 300, "seed": 2, "temperature": 0.5})
    value = json.loads(reply["message"]["content"])
    assert value.keys() == {"ok", "tips"}
    assert isinstance(value["ok"], bool)
    assert [3 <= len(tip) <= 8 for tip in value["tips"]] == [True, True]


def test_a_reply_of_equal_tokens_breaks_off(server: Server) -> None:
    """After more than 30 equal tokens Ollama ends the reply without its last object, with status 200."""
    schema = {"enum": [" ".join(["a"] * 60)]}
    body = {"model": server.model, "messages": HELLO, "format": schema, "options": {"num_predict": 300}}
    response = server.post("/api/chat", **body)
    *_, last = lines(response)
    assert (response.status_code, last["done"]) == (200, server.generation is None)
    assert server.post("/api/chat", **body, stream=False).json()["done"] is (server.generation is None)


def test_think_is_refused_by_a_model_that_does_not_think(server: Server) -> None:
    """The answer is 400 and names the model; `think: false` is always allowed."""
    if "thinking" in server.post("/api/show", model=server.model).json()["capabilities"]:
        pytest.skip(f"{server.model} thinks")
    response = server.post("/api/chat", model=server.model, messages=HELLO, think=True)
    assert response.status_code == 400
    assert response.json() == {"error": f'"{server.model}" does not support thinking'}
    assert server.chat(think=False, options={"num_predict": 1})["done"]


@pytest.mark.parametrize("route", ["/api/show", "/api/generate", "/api/chat"])
@pytest.mark.parametrize("keep_alive", [None, 0])
def test_an_unknown_model_is_a_404(server: Server, route: str, keep_alive: int | None) -> None:
    """The error names the model as the request does, also when the request unloads it."""
    response = server.post(route, model="nope", messages=HELLO, keep_alive=keep_alive)
    assert response.status_code == 404
    assert response.json() == {"error": "model 'nope' not found"}


@pytest.mark.parametrize("route", ["/api/show", "/api/generate", "/api/chat"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 5}'])
def test_a_body_that_cannot_be_read_is_a_400(server: Server, route: str, content: bytes) -> None:
    """The error is one text that says what is wrong."""
    response = server.http.post(route, content=content)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error == ("missing request body" if content == b"" else error) != ""


@pytest.mark.parametrize("route", ["/api/show", "/api/generate", "/api/chat"])
def test_a_body_without_a_model(server: Server, route: str) -> None:
    """The answer is 400, but Ollama's `/api/generate` answers 404."""
    response = server.post(route)
    if route == "/api/generate" and server.generation is not None:
        assert (response.status_code, response.json()["error"]) == (404, "model '' not found")
    else:
        assert (response.status_code, response.json()["error"]) == (400, "model is required")


@pytest.mark.parametrize("changed", [{"messages": "x"}, {"keep_alive": "soon"}, {"think": "lots"}])
def test_a_field_of_the_wrong_kind_is_a_400(server: Server, changed: dict[str, str]) -> None:
    """Messages that are no list, a time that cannot be read and an unknown level of thinking are refused."""
    body: dict[str, object] = {"model": server.model, "messages": HELLO, **changed}
    response = server.post("/api/chat", **body)
    assert response.status_code == 400
    assert response.json()["error"]
