"""The whole path on a real llama.cpp: collect, show, try, serve."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from command import here, start, tipbench
from tiny_gguf import write_tiny_gguf
from tipbench import runs

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import Run

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def collect_tiny(tiny: Path, experiment: str, *more: str) -> dict[str, Run]:
    ran = tipbench(
        *("collect", "--engine", "embedded", "--models", "tiny", "--gguf", f"tiny={tiny}", "--json"),
        *("--prompts", "v1,v4-structured", "--n-scenarios", "2", "--n-tips", "2", "--num-predict", "600"),
        *("--experiment", experiment, *more),
    )
    assert ran.code == 0, ran.err
    assert (ran.json["model_loads"], ran.json["max_resident"]) == (1, 1)
    return {run.key: run for run in runs(experiment)}


def raw(run: Run) -> str:
    text: str = here("show", run.run_id, "--json").json["raw"]
    return text


def test_same_key_same_text(tiny: Path) -> None:
    """Two experiments with the same cells have the same texts: one key, one engine, one text.

    A prompt with `output: schema` gets strict JSON from random weights; the cache was not used.
    """
    first, second = collect_tiny(tiny, "one"), collect_tiny(tiny, "two")
    assert len(first) == 4
    assert first.keys() == second.keys()
    assert [run.candidates for run in first.values()] == [second[key].candidates for key in first]
    key = next(iter(first))
    assert raw(first[key]) == raw(second[key]) != ""
    found = first.values()
    structured = [run for run in found if run.prompt_id == "v4-structured" and run.cut is None]
    assert structured
    assert {run.how for run in structured} == {"strict"}
    assert {len(run.candidates) for run in structured} == {2}
    assert {run.metrics["cached_tokens"] for run in found} == {0.0}
    assert [run.marks for run in found] == [("first-call",), (), (), ()]


@pytest.mark.slow
def test_a_reply_at_its_limit_is_marked_as_cut(tiny: Path) -> None:
    """Eight tokens are not enough for two tips: every reply is cut, and none is well-formed."""
    found = collect_tiny(tiny, "short", "--num-predict", "8").values()
    assert {run.cut for run in found} == {"reply"}
    assert {run.metrics["format_ok"] for run in found} == {0.0}


def test_a_prompt_that_does_not_fit_fails_its_cell(tiny: Path) -> None:
    """With a context of 64 tokens no prompt fits: every cell fails with its tokens and the remedy."""
    ran = tipbench(
        *("collect", "--engine", "embedded", "--models", "tiny", "--gguf", f"tiny={tiny}", "--json"),
        *("--prompts", "v1", "--n-scenarios", "2", "--num-ctx", "64", "--experiment", "narrow"),
    )
    assert (ran.code, ran.json["cells"]["failed"]) == (1, 2)
    sentence = r"the prompt has \d{3,4} tokens, num_ctx is 64: raise num_ctx in the suite"
    assert all(re.match(sentence, run.error or "") for run in runs("narrow"))


def test_a_real_model_from_end_to_end() -> None:
    """SmolLM2 writes English tips that are read, recorded, listed and shown."""
    ran = tipbench(
        *("collect", "--engine", "embedded", "--models", "smollm2:135m", "--prompts", "v4-structured"),
        *("--n-scenarios", "1", "--n-tips", "2", "--diversity", "--experiment", "real", "--json"),
        timeout_s=280,
    )
    assert ran.code == 0, ran.err
    (model,) = ran.json["models"]
    assert model["parameters"] == 134_515_008
    assert model["peak_bytes"] > 90_000_000
    (run,) = runs("real")
    assert len(run.candidates) == 2
    assert run.metrics["format_ok"] == 1
    assert "diversity" in run.metrics
    shown = here("show", run.run_id[:8])
    assert run.candidates[0].text[:20] in shown.out
    assert "Monday" in shown.out
    listed = here("experiments", "--json").json
    assert [(entry["name"], entry["done"], entry["pending"]) for entry in listed] == [("real", 1, 1)]


def test_try_shows_a_cell_and_records_nothing(tiny: Path) -> None:
    """The prompt as sent, the reply and the candidates are printed; no experiment appears."""
    ran = tipbench(
        *(
            "try",
            "--engine",
            "embedded",
            "--model",
            "tiny",
            "--gguf",
            f"tiny={tiny}",
            "--prompt",
            "v4-structured",
        ),
        *("--n-tips", "2", "--num-predict", "600", "--show-prompt"),
    )
    assert ran.code == 0, ran.err
    assert "Maya" in ran.out
    assert "as it was read (strict)" in ran.out
    assert here("experiments", "--json").json == []


def test_engine_serve_is_an_ollama_host(tiny: Path) -> None:
    """`engine serve` answers at the address it prints, and a collection takes it for any other host."""
    server = start("engine", "serve", "--port", "0", "--gguf", f"tiny={tiny}")
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address
        ran = tipbench(
            *(
                "collect",
                "--ollama-url",
                address[0],
                "--models",
                "tiny",
                "--prompts",
                "v4-structured",
                "--json",
            ),
            *("--n-scenarios", "1", "--n-tips", "1", "--num-predict", "300", "--experiment", "served"),
        )
        assert ran.code == 0, ran.err
        assert ran.json["engine"] == "ollama"
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode in {0, 130}
