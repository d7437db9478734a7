"""Drafts: every stroke is kept, merged with those before it, and survives whatever ends the process."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_processes import at_once, let_go, started
from tipbench.store import Store

KEYS = st.sampled_from(["use", "tone", "overlong", "note"])
VALUES = st.one_of(st.none(), st.integers(1, 5), st.booleans(), st.text(max_size=8))
PUTS = st.lists(
    st.tuples(
        st.sampled_from(["b1", "b2"]),
        st.sampled_from(["anna", "bert"]),
        st.sampled_from(["i1", "i2", "i3"]),
        st.dictionaries(KEYS, VALUES, max_size=4),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(PUTS)
def test_strokes_add_up_as_in_a_dictionary(puts: list[tuple[str, str, str, dict[str, Any]]]) -> None:
    """Each stroke changes its own keys of its own item, batch and judge; None takes a key away."""
    expected: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.db") as store:
        for now_ms, (batch, judge, item, answer) in enumerate(puts):
            store.drafts.put(batch, judge, item, answer, now_ms=now_ms)
            items = expected.setdefault((batch, judge), {})
            merged = {k: v for k, v in (items.pop(item, {}) | answer).items() if v is not None}
            items |= {item: merged} if merged else {}
        for batch, judge in [("b1", "anna"), ("b1", "bert"), ("b2", "anna"), ("b2", "bert")]:
            assert store.drafts.get(batch, judge) == expected.get((batch, judge), {})


def test_a_scale_at_a_time(store: Store) -> None:
    """A half-given answer grows, is corrected and undone; the item touched last is told last."""
    put = store.drafts.put
    put("b", "anna", "i1", {"use": 2}, now_ms=1)
    put("b", "anna", "i2", {"use": 3}, now_ms=2)
    put("b", "anna", "i1", {"tone": 4, "note": "hm"}, now_ms=3)
    assert [(item.item_id, item.updated_ms) for item in store.drafts.items("b", "anna")] == [
        ("i2", 2),
        ("i1", 3),
    ]
    put("b", "anna", "i1", {"tone": None, "use": 1}, now_ms=4)
    put("b", "anna", "i2", {"use": None}, now_ms=5)
    assert store.drafts.get("b", "anna") == {"i1": {"use": 1, "note": "hm"}}


@pytest.mark.parametrize(
    "text", ["“quotes”\nlines", "\ud800", "\x00", "a" * 100_000, "'; DROP TABLE draft; --"]
)
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    """A note is kept to the character, whatever is in it; so is one under an odd judge or item."""
    store.drafts.put("b", text, text, {"note": text}, now_ms=1)
    (found,) = store.drafts.get("b", text).values()
    assert found == {"note": text}
    assert store.drafts.get("b", "anna") == {}


def test_several_items_are_put_as_a_whole(store: Store) -> None:
    """Where one of them cannot be kept, none is."""
    with pytest.raises(TypeError):
        store.drafts.put_all("b", "anna", {"i1": {"use": 1}, "i2": {"use": object()}}, now_ms=1)
    assert store.drafts.get("b", "anna") == {}
    store.drafts.put_all("b", "anna", {"i1": {"use": 1}, "i2": {"use": 2}}, now_ms=1)
    assert store.drafts.get("b", "anna") == {"i1": {"use": 1}, "i2": {"use": 2}}


def test_a_rejected_draft_stays_with_the_reason(store: Store) -> None:
    """A rejection is noted beside the answers, and goes with them; other drafts are not touched."""
    for judge in ("anna", "bert"):
        store.drafts.put("b", judge, "i", {"use": 1}, now_ms=1)
    store.drafts.reject("b", "anna", "too generous", now_ms=2)
    assert store.drafts.rejection("b", "anna") == "too generous"
    assert store.drafts.get("b", "anna") == {"i": {"use": 1}}
    assert store.drafts.rejection("b", "bert") is None
    store.drafts.reject("b", "anna", "still too generous", now_ms=3)
    assert store.drafts.rejection("b", "anna") == "still too generous"
    store.drafts.delete("b", "anna")
    assert store.drafts.rejection("b", "anna") is None
    assert store.drafts.get("b", "anna") == {}
    assert store.drafts.get("b", "bert") == {"i": {"use": 1}}


def test_strokes_of_two_processes_on_one_item_are_both_kept(store: Store) -> None:
    """Two windows that fill in different scales of an item do not undo each other."""
    code = """
import os
for turn in range(25):
    store.drafts.put('b', 'anna', 'i', {f'{os.getpid()}-{turn}': turn}, now_ms=turn)
"""
    at_once(store.path, code, count=3)
    assert len(store.drafts.get("b", "anna")["i"]) == 75


def test_nothing_acknowledged_is_lost_to_a_kill(store: Store) -> None:
    """A process that is killed between strokes leaves every stroke that it was told is kept."""
    code = """
for number in range(100_000):
    store.drafts.put('b', 'anna', f'i{number}', {'use': number}, now_ms=number)
    print(number, flush=True)
"""
    process = started(store.path, code)
    with process:
        let_go(process)
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    found = store.drafts.get("b", "anna")
    assert {f"i{number}" for number in told} <= set(found)
    assert len(found) <= len(told) + 1
    assert all(answer == {"use": int(item[1:])} for item, answer in found.items())
