"""The one place in memory: queueing, exchanging, expiring."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tipbench.engine.embedded import start_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HELLO = [{"role": "user", "content": "Hello"}]
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 5000}
WAIT_S = 20.0


def body(model: str, n: int, *, num_ctx: int = 4096, **more: object) -> dict[str, Any]:
    """A chat that goes on for exactly `n` tokens: its schema leaves no way to end earlier."""
    options = {"num_predict": n, "seed": 1, "temperature": 0, "num_ctx": num_ctx}
    return {"model": model, "messages": HELLO, "format": NUMBERS, "options": options, **more}


def loaded(http: httpx.Client) -> list[str]:
    return [model["name"] for model in http.get("/api/ps").json()["models"]]


def until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < WAIT_S
        time.sleep(0.02)


@pytest.fixture
def own(tiny: Path, other: Path) -> Iterator[httpx.Client]:
    """An engine that no other test touches."""
    models = {"tiny": tiny, "other": other}
    with start_engine(models=models, threads=1) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield http


def test_an_idle_model_expires(own: httpx.Client) -> None:
    """The time runs from the end of the last request, and starts anew with each."""
    own.post("/api/chat", json=body("tiny", 3, stream=False, keep_alive="3s"))
    time.sleep(1.6)
    own.post("/api/chat", json=body("tiny", 3, stream=False))
    ended = time.monotonic()
    time.sleep(1.6)
    assert loaded(own) == ["tiny:latest"]
    until(lambda: not loaded(own))
    assert time.monotonic() - ended > 2.9


def test_keep_alive_zero_unloads_after_the_reply(own: httpx.Client) -> None:
    """A reply with `keep_alive` 0 is whole, and the model is gone right after it."""
    reply = own.post("/api/chat", json=body("tiny", 5, stream=False, keep_alive=0)).json()
    assert reply["eval_count"] == 5
    until(lambda: not loaded(own))


def test_a_negative_keep_alive_is_for_ever(own: httpx.Client) -> None:
    """The model stays, and its expiry is generations away."""
    own.post("/api/generate", json={"model": "tiny", "keep_alive": -1})
    (model,) = own.get("/api/ps").json()["models"]
    assert int(model["expires_at"][:4]) > 2200


def test_a_request_is_never_cut_by_expiry_or_by_another_model(own: httpx.Client) -> None:
    """A long reply ends whole although its time is up, it is to be unloaded, and another model is wanted."""
    with (
        ThreadPoolExecutor() as pool,
        own.stream("POST", "/api/chat", json=body("tiny", 1500, keep_alive=0.01)) as response,
    ):
        parts = response.iter_lines()
        next(parts)
        second = pool.submit(own.post, "/api/chat", json=body("other", 3, stream=False))
        unload = own.post("/api/generate", json={"model": "tiny", "keep_alive": 0}).json()
        *_, last = (json.loads(line) for line in parts)
        assert unload["done_reason"] == "unload"
        assert (last["eval_count"], last["done_reason"]) == (1500, "length")
        assert second.result().json()["created_at"] > last["created_at"]
    assert loaded(own) == ["other:latest"]


def test_requests_are_served_in_the_order_of_their_coming(own: httpx.Client) -> None:
    """Requests for two models that pile up behind a long one all succeed, first come first served."""
    with ExitStack() as stack, own.stream("POST", "/api/chat", json=body("tiny", 2000)) as response:
        parts = response.iter_lines()
        next(parts)
        asked = []
        for model in ("other", "tiny", "tiny", "other"):
            # Sent from here: threads of a client may overtake each other.
            connection = http.client.HTTPConnection(own.base_url.host, own.base_url.port, timeout=60)
            asked.append(stack.enter_context(closing(connection)))
            connection.request("POST", "/api/chat", body=json.dumps(body(model, 5, stream=False)))
            time.sleep(0.1)
        *_, first = (json.loads(line) for line in parts)
        answers = [json.load(connection.getresponse()) for connection in asked]
    ended = [one["created_at"] for one in (first, *answers)]
    assert ended == sorted(ended)


def test_another_num_ctx_loads_anew(own: httpx.Client) -> None:
    """A changed context length reloads the model; the same one does not."""

    def load_ns(num_ctx: int) -> int:
        options = {"num_ctx": num_ctx, "num_predict": 1}
        reply = own.post("/api/chat", json=body("tiny", 1, stream=False) | {"options": options}).json()
        assert "load_duration" in reply, reply
        return int(reply["load_duration"])

    load_ns(512)
    assert load_ns(512) < 1e6
    assert load_ns(256) > 1e6


def test_a_file_that_is_replaced_is_loaded_anew(tmp_path: Path, tiny: Path, other: Path) -> None:
    """The model in memory is the file as it is now, and its digest with it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    with start_engine(models={"m": path}, threads=1) as url, httpx.Client(base_url=url, timeout=60) as http:
        first = http.post("/api/chat", json=body("m", 20, stream=False)).json()
        before = http.get("/api/ps").json()["models"][0]["digest"]
        replacement = tmp_path / "new.gguf"
        replacement.write_bytes(other.read_bytes())
        replacement.replace(path)
        second = http.post("/api/chat", json=body("m", 20, stream=False)).json()
        assert http.get("/api/ps").json()["models"][0]["digest"] != before
    assert first["message"]["content"] != second["message"]["content"]


def test_a_model_that_cannot_load_is_an_error_and_no_more(tmp_path: Path, tiny: Path) -> None:
    """llama.cpp's refusal is a 500 in one sentence; the engine and its other models go on."""
    path = tmp_path / "odd.gguf"
    path.write_bytes(tiny.read_bytes().replace(b"blk.3.ffn_up.weight", b"blk.3.ffn_xx.weight"))
    models = {"odd": path, "tiny": tiny}
    with start_engine(models=models, threads=1) as url, httpx.Client(base_url=url, timeout=60) as http:
        response = http.post("/api/chat", json=body("odd", 3))
        assert response.status_code == 500
        assert "llama.cpp cannot load odd:latest" in response.json()["error"]
        assert loaded(http) == []
        assert http.post("/api/chat", json=body("tiny", 3, stream=False)).json()["done"]


def test_slots_share_the_model(tiny: Path) -> None:
    """With two slots a second request starts before the first has ended, with a full context of its own."""
    with (
        start_engine(models={"tiny": tiny}, threads=1, parallel=2) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        with (
            ThreadPoolExecutor() as pool,
            http.stream("POST", "/api/chat", json=body("tiny", 1900, num_ctx=2048)) as response,
        ):
            parts = response.iter_lines()
            next(parts)
            short = pool.submit(http.post, "/api/chat", json=body("tiny", 5, num_ctx=2048)).result()
            *_, last = (json.loads(line) for line in parts)
        assert json.loads(short.text.split("\n")[0])["created_at"] < last["created_at"]
        assert last["eval_count"] == 1900
        assert http.get("/api/ps").json()["models"][0]["context_length"] == 2048


def test_the_prompt_cache_is_counted(tiny: Path) -> None:
    """With the cache on, a repeated beginning is reused and counted apart; the prompt's count stays whole."""
    with (
        start_engine(models={"tiny": tiny}, threads=1, prompt_cache=True) as url,
        httpx.Client(base_url=url) as http,
    ):
        first, second = (http.post("/api/chat", json=body("tiny", 5, stream=False)).json() for _ in range(2))
    assert "error" not in first | second
    assert first["prompt_eval_count"] == second["prompt_eval_count"]
    assert second["prompt_cached_count"] > first["prompt_cached_count"] == 0
