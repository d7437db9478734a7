"""The cell key: what is in it, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tipbench.records import (
    Candidate,
    Cell,
    CellResult,
    Completion,
    Host,
    Model,
    Reading,
    Sampling,
    content_hash,
)

CELL = Cell(
    model=Model(name="a:1b", digest="d" * 64, parameters=1, size_bytes=1),
    prompt_id="v1",
    prompt_hash="p",
    scenario_id="s",
    scenario_hash="h",
    n_tips=5,
    sampling=Sampling(temperature=0.7, num_ctx=4096, num_predict=400),
    base_seed=0,
    repeat=0,
)


@pytest.mark.parametrize(
    "changed",
    [
        replace(CELL, model=replace(CELL.model, digest="e" * 64)),
        replace(CELL, prompt_hash="q"),
        replace(CELL, scenario_hash="i"),
        replace(CELL, n_tips=4),
        replace(CELL, sampling=replace(CELL.sampling, temperature=0.8)),
        replace(CELL, sampling=replace(CELL.sampling, num_ctx=2048)),
        replace(CELL, sampling=replace(CELL.sampling, num_predict=401)),
        replace(CELL, sampling=replace(CELL.sampling, think=True)),
        replace(CELL, base_seed=1),
        replace(CELL, repeat=1),
    ],
)
def test_all_that_determines_the_output_is_in_the_key(changed: Cell) -> None:
    """Changing any of it makes another key and another sampling seed."""
    assert changed.key != CELL.key
    assert changed.seed != CELL.seed


def test_names_are_not_in_the_key() -> None:
    """A model pulled under another name is the same model."""
    assert replace(CELL, model=replace(CELL.model, name="b:1b")).key == CELL.key


def test_the_key_is_the_same_on_any_machine() -> None:
    """A known answer: a key written down once is found again after an upgrade."""
    assert CELL.key == "d09b6c5842932bc10021b0237f2e7a07"
    assert 0 <= CELL.seed < 2**31


def test_content_hash_ignores_the_order_of_keys() -> None:
    """The same content in another order is the same content; another value is not."""
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"a": [1, 2]}) != content_hash({"a": [2, 1]})


def test_unknown_metrics_are_left_out() -> None:
    """What a host did not tell is absent, never zero."""
    result = CellResult(
        cell=CELL,
        suite_id="tip",
        rubric_id="tip-v1",
        rubric_hash="r",
        host=Host(kind="ollama", url="u", version="1"),
        messages=(),
        started_ms=0,
        ended_ms=1,
        completion=Completion(text="x", latency_ms=5.0, load_ms=0.0),
        reading=Reading(candidates=("x",), how="strict", format_ok=True),
        candidates=(Candidate(text="x", overlong=True), Candidate(text="y", overlong=False)),
    )
    assert result.metrics == {
        "latency_ms": 5.0,
        "load_ms": 0.0,
        "n_candidates": 2.0,
        "format_ok": 1.0,
        "overlong": 0.5,
    }
