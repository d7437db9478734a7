"""Outgoing messages: kept until they arrive, sent by one at a time, given up in the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from store_processes import at_once

if TYPE_CHECKING:
    from tipbench.store import Store


def add(store: Store, key: str, now_ms: int = 0) -> bool:
    return store.deliveries.add(key=key, event="batch.ready", url="http://x/", body="{}", now_ms=now_ms)


def test_a_message_is_kept_once(store: Store) -> None:
    """The same occasion is not announced twice, not even after it was sent."""
    assert add(store, "b1")
    assert not add(store, "b1")
    claimed = store.deliveries.claim(now_ms=1, for_ms=10)
    assert claimed is not None
    assert store.deliveries.sent(claimed, status=204, now_ms=2)
    assert not add(store, "b1", now_ms=3)
    found = store.deliveries.get("b1")
    assert found is not None
    assert (found.state, found.status, found.attempts, found.ended_ms) == ("sent", 204, 1, 2)
    assert store.deliveries.get("b2") is None
    assert store.deliveries.claim(now_ms=10**9, for_ms=10) is None


def test_what_failed_is_due_again(store: Store) -> None:
    """A message waits for its next try with what went wrong; one that is given up can be sent once more."""
    add(store, "b1", now_ms=5)
    assert store.deliveries.claim(now_ms=4, for_ms=10) is None
    claimed = store.deliveries.claim(now_ms=5, for_ms=10)
    assert claimed is not None
    assert store.deliveries.failed(claimed, error="e" * 10**5 + "\ud800", status=500, retry_ms=100, now_ms=6)
    assert store.deliveries.claim(now_ms=99, for_ms=10) is None
    again = store.deliveries.claim(now_ms=100, for_ms=10)
    assert again is not None
    assert (again.attempts, again.status, again.last_error) == (2, 500, "e" * 500)
    assert store.deliveries.failed(again, error="gone", retry_ms=None, now_ms=101)
    assert store.deliveries.claim(now_ms=10**9, for_ms=10) is None
    (given_up,) = store.deliveries.page()
    assert (given_up.state, given_up.last_error, given_up.ended_ms) == ("failed", "gone", 101)
    assert store.deliveries.again(given_up.delivery_id, now_ms=200)
    assert not store.deliveries.again(given_up.delivery_id, now_ms=200)
    assert not store.deliveries.again(10**30, now_ms=200)
    assert store.deliveries.claim(now_ms=200, for_ms=10) is not None


def test_a_claim_runs_out(store: Store) -> None:
    """What a sender that died had claimed goes to another; the first one's late word no longer counts."""
    add(store, "b1")
    first = store.deliveries.claim(now_ms=0, for_ms=50)
    assert first is not None
    assert store.deliveries.claim(now_ms=49, for_ms=50) is None
    second = store.deliveries.claim(now_ms=50, for_ms=50)
    assert second is not None
    assert not store.deliveries.failed(first, error="late", retry_ms=None, now_ms=51)
    assert store.deliveries.sent(second, status=200, now_ms=52)
    assert not store.deliveries.sent(second, status=200, now_ms=53)


def test_the_longest_due_goes_first(store: Store) -> None:
    """Messages go out in the order in which they are due, and are listed newest first in pages."""
    for key, now_ms in (("late", 9), ("early", 3), ("next", 5)):
        add(store, key, now_ms=now_ms)
    claimed = [store.deliveries.claim(now_ms=8, for_ms=100) for _ in range(3)]
    assert [one and one.key for one in claimed] == ["early", "next", None]
    newest = store.deliveries.page(limit=2)
    assert [one.key for one in newest] == ["next", "early"]
    assert [one.key for one in store.deliveries.page(before_id=newest[-1].delivery_id)] == ["late"]


def test_of_several_senders_one_gets_a_message(store: Store) -> None:
    """Threads and processes that look for work at once never hold the same message."""
    for number in range(30):
        add(store, f"b{number}")
    claimed: list[str] = []

    def claim_all() -> None:
        while found := store.deliveries.claim(now_ms=1, for_ms=10**6):
            claimed.append(found.key)

    threads = [threading.Thread(target=claim_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    code = """
while found := store.deliveries.claim(now_ms=1, for_ms=10**6):
    print(found.key)
"""
    printed = at_once(store.path, code, count=1)
    for thread in threads:
        thread.join()
    assert sorted(claimed + printed[0].split()) == sorted(f"b{number}" for number in range(30))
