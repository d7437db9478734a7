"""What keeps others out: words that count once, keys made once, failed logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_processes import at_once

if TYPE_CHECKING:
    from tipbench.store import Store

DAY_MS = 24 * 3600 * 1000


def test_a_nonce_counts_once(store: Store) -> None:
    """The second time is refused until the nonce has expired."""
    assert store.seen.first_time("n", 0, keep_ms=100)
    assert not store.seen.first_time("n", 99, keep_ms=100)
    assert store.seen.first_time("n", 100, keep_ms=100)
    assert store.seen.first_time("other", 99)
    assert not store.seen.first_time("other", 98 + DAY_MS)


@pytest.mark.parametrize("nonce", ["", "x" * 10**6, "\ud800", "\x00"])
def test_any_nonce_is_remembered(store: Store, nonce: str) -> None:
    """Whatever a sender makes up is told from all else, in little room."""
    assert store.seen.first_time(nonce, 0)
    assert not store.seen.first_time(nonce, 1)
    assert store.seen.first_time(nonce + "x", 1)
    assert store.path.stat().st_size < 10**6


def test_of_several_who_bring_a_nonce_one_is_first(store: Store) -> None:
    """A message that is replayed at the same moment counts once."""
    code = "print([n for n in range(20) if store.seen.first_time(str(n), 1)])"
    printed = at_once(store.path, code, count=3)
    assert sorted(sum((eval(line) for line in printed), [])) == list(range(20))  # noqa: S307, RUF017 - our own list


def test_a_key_is_made_once(store: Store) -> None:
    """Everybody has the same key for a purpose, and another for another."""
    key = store.secrets.get("session")
    assert len(key) == 32
    assert len(set(key)) > 8
    store.close()
    assert store.secrets.get("session") == key
    assert store.secrets.get("webhook") != key


def test_failed_logins_are_counted_by_address_and_overall(store: Store) -> None:
    """Only those after the moment count; an odd address is an address like any other."""
    for address, now_ms in (("::1", 10), ("::1", 20), ("10.0.0.1", 20), ("\ud800" + "x" * 10**5, 30)):
        store.attempts.add(address, now_ms=now_ms)
    assert store.attempts.count(since_ms=9) == 4
    assert store.attempts.count(since_ms=10) == 3
    assert store.attempts.count(since_ms=9, address="::1") == 2
    assert store.attempts.count(since_ms=10, address="::1") == 1
    assert store.attempts.count(since_ms=0, address="\ud800" + "x" * 10**5) == 1
    assert store.attempts.count(since_ms=0, address="") == 0


def test_old_failures_are_forgotten(store: Store) -> None:
    """A table that anybody can make grow does not grow for ever."""
    for now_ms in range(0, 10 * 3600_000, 600_000):
        store.attempts.add("::1", now_ms=now_ms)
    assert store.attempts.count(since_ms=-1) == 6
