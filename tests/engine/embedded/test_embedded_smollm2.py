"""The real model that can be installed like a package."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import httpx
import ollama

from tipbench.engine.embedded import SMOLLM2, start_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import psutil

MB = 1 << 20
QUESTION = [{"role": "user", "content": "Name three things that help a tired person sleep."}]


def text(url: str, *, seed: int, num_predict: int = 30) -> str:
    with ollama.Client(host=url) as client:
        options = {"seed": seed, "temperature": 0.7, "num_predict": num_predict}
        return str(client.chat(SMOLLM2, messages=QUESTION, options=options).message.content)


def test_it_speaks_english(smollm2: Path) -> None:
    """The model answers a question in words, most of which are plain English ones."""
    with start_engine(models={SMOLLM2: smollm2}, threads=1) as url:
        words = re.findall(r"[a-z']+", text(url, seed=1).lower())
    common = {
        "a",
        "and",
        "the",
        "to",
        "of",
        "your",
        "is",
        "sleep",
        "can",
        "that",
        "in",
        "for",
        "with",
        "help",
        "you",
    }
    assert len(words) > 20
    assert len(common & set(words)) >= 5


def test_same_seed_same_text_whatever_came_before(smollm2: Path) -> None:
    """Order and a reload change nothing; another seed does."""
    with start_engine(models={SMOLLM2: smollm2}, threads=1) as url:
        first, second = text(url, seed=1), text(url, seed=2)
        httpx.post(f"{url}/api/generate", json={"model": SMOLLM2, "keep_alive": 0})
        assert [text(url, seed=2), text(url, seed=1)] == [second, first]
    assert first != second


def test_same_seed_same_text_on_any_number_of_threads(smollm2: Path) -> None:
    """One or two threads give the same text, even for a prompt so long that its sums are split among them."""
    options = {"seed": 1, "temperature": 0.7, "num_predict": 20}
    prompt = "The quick brown fox jumps over the lazy dog. " * 40
    body = {"model": SMOLLM2, "prompt": prompt, "raw": True, "stream": False, "options": options}
    replies = []
    for threads in (1, 2):
        with start_engine(models={SMOLLM2: smollm2}, threads=threads) as url:
            replies.append(httpx.post(f"{url}/api/generate", json=body, timeout=120).json()["response"])
    assert replies[0] == replies[1] != ""


def test_memory_is_really_given_back(
    smollm2: Path, engine_process: Callable[..., AbstractContextManager[tuple[str, psutil.Process]]]
) -> None:
    """The process grows by what `/api/ps` says, and shrinks when the model is unloaded or its time is up."""
    request = {"model": SMOLLM2, "prompt": "Hi", "stream": False, "options": {"num_predict": 2}}
    with engine_process("--threads=1", f"--gguf={SMOLLM2}={smollm2}") as (url, process):

        def resident() -> int:
            return int(process.memory_info().rss)

        empty = resident()
        httpx.post(f"{url}/api/generate", json=request, timeout=60)
        grown, size = resident() - empty, httpx.get(f"{url}/api/ps").json()["models"][0]["size"]
        assert 0.7 * size < grown < 1.5 * size
        assert size > smollm2.stat().st_size
        httpx.post(f"{url}/api/generate", json={"model": SMOLLM2, "keep_alive": 0}, timeout=60)
        assert resident() - empty < 0.3 * grown
        httpx.post(f"{url}/api/generate", json={**request, "keep_alive": "300ms"}, timeout=60)
        assert resident() - empty > 0.7 * grown
        time.sleep(1)
        assert httpx.get(f"{url}/api/ps").json()["models"] == []
        assert resident() - empty < 0.3 * grown
