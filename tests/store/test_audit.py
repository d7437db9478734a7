"""The audit log: added to, never changed, free of tokens."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tipbench.store.audit import Entry

if TYPE_CHECKING:
    from tipbench.store import Store


def test_no_login_of_an_address_is_kept(store: Store) -> None:
    """A row of the audit log holds no user, password or query of an address, in any column."""
    url = "http://ann:hush@host:1/x?token=hush"
    store.audit.add(who=url, role="admin", action="x", target=url, detail=f"by {url}, and {url}", now_ms=1)
    (entry,) = store.audit.page()
    assert "hush" not in repr(entry)
    assert entry.detail == "by http://host:1/x, and http://host:1/x"


def test_entries_are_told_newest_first_in_pages(store: Store) -> None:
    """Pages follow each other without gaps or doubles while new entries come in."""
    for number in range(7):
        store.audit.add(who=f"w{number}", role="admin", action="a", target="t", now_ms=number)
    first = store.audit.page(limit=3)
    store.audit.add(who="late", role="admin", action="a", now_ms=9)
    second = store.audit.page(before_id=first[-1].entry_id, limit=3)
    third = store.audit.page(before_id=second[-1].entry_id, limit=3)
    assert [entry.who for entry in (*first, *second, *third)] == ["w6", "w5", "w4", "w3", "w2", "w1", "w0"]
    assert store.audit.page(before_id=0) == ()


@pytest.mark.parametrize("number", [10**30, -(10**30)])
def test_any_number_may_be_asked_for(store: Store, number: int) -> None:
    """A page before a number that no entry can have is a page like any other."""
    store.audit.add(who="w", role="r", action="a", now_ms=1)
    assert len(store.audit.page(before_id=number)) == (number > 0)
    assert len(store.audit.page(limit=number)) == (number > 0)


def test_an_entry_has_all_that_was_said(store: Store) -> None:
    """Who, as what, did what to what, when and from where."""
    said = {"who": "anna", "role": "admin", "action": "job.start", "target": "j1", "detail": "d", "ip": "::1"}
    entry_id = store.audit.add(**said, now_ms=5)
    assert store.audit.page() == (Entry(entry_id=entry_id, at_ms=5, **said),)


@pytest.mark.parametrize("statement", ["UPDATE audit SET who = 'x'", "DELETE FROM audit"])
def test_the_file_refuses_to_change_an_entry(store: Store, statement: str) -> None:
    """Not even a program that opens the file itself changes or removes an entry by accident."""
    store.audit.add(who="w", role="r", action="a", now_ms=1)
    with closing(sqlite3.connect(store.path)) as db, pytest.raises(sqlite3.IntegrityError, match="kept"):
        db.execute(statement)


def test_odd_texts_are_kept_readable(store: Store) -> None:
    """Tokens are cut down, what no database takes is written out, and what is too long ends in dots."""
    token = store.tokens.create("anna", "service", now_ms=1)
    store.audit.add(who="\ud800", role="r", action="a", target=token, detail="x" * 10**6, now_ms=2)
    (entry,) = store.audit.page()
    assert entry.who == "\\ud800"
    assert token not in entry.target
    assert entry.target.startswith("tb_service_")
    assert len(entry.detail) == 4000
    assert entry.detail.endswith("x…")
