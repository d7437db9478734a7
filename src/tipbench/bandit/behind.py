"""Rows that are looked up by a key, written behind: new ones are appended, and put in their place later.

Keys come in any order. Put in its place at once, a row of some thirty bytes would cost a page of four
kilobytes, in the write-ahead log and again in the file. Appended, it shares a page with those before and
after it; and when many are put in their places together, in the order of their keys, those share pages too.

What was appended and is not in its place yet is also in memory, of every process that writes. Each puts all
of it in place, a little with every transaction, and removes what it then knows to be in place. Removed is the
oldest only, and never the newest: whoever finds the row behind the last one they saw has missed nothing.
Whoever only reads, now and then, goes through all that was appended: that takes milliseconds and no memory.
"""

# ruff: noqa: S608 - what is put together is written here; values go beside the statement

from __future__ import annotations

import sqlite3
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from tipbench.bandit.sql_books import insert, marks, padded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tipbench.bandit.sql_books import Row, Run

    Place: TypeAlias = str
    # A place, a key in it, and what is to stand there, None for nothing.
    Change: TypeAlias = tuple[Place, Any, Any]

PROFILES, SERVED = "profiles", "served"
ALL = ""  # the key under which nothing stands when nothing does under any
_COLUMNS = {PROFILES: ("user_id", "body"), SERVED: ("key", "seq")}
_VALUES = {PROFILES: (bytes, NoneType), SERVED: (int, NoneType)}
SCHEMA = (
    "CREATE TABLE served (key BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE fresh (n INTEGER PRIMARY KEY, place TEXT NOT NULL, key BLOB NOT NULL, value BLOB)",
)
TABLES = frozenset({"served", "fresh"})
# How many rows are let come together: the more, the fewer pages each of them costs, and the more memory. When
# there is to be a hurry: each of several processes that append may be too slow for all of them. And the most
# that are left: processes that end before all is in place, again and again, would pile them up.
_MANY, _TOO_MANY, _MOST = 40_000, 100_000, 200_000
# How many rows are put in place, or removed, by one statement; and how many for each one that is appended:
# so all are in their place and removed by the time that as many again have come. And how many in a hurry.
_TOGETHER, _PACE, _HURRY = 64, 2, 16


class Behind:
    """What one connection knows of the rows that were appended."""

    def __init__(self) -> None:
        self._fresh: dict[Place, dict[Any, tuple[int, Any]]] = {place: {} for place in _COLUMNS}
        self._last = 0
        # All up to a row is being put in place, one place after the other, in the order of the keys, of which
        # the first stands last. All up to another row is in place and was removed.
        self._upto = self._removed = 0
        self._places: list[Place] = []
        self._place = ""
        self._waiting: list[Any] = []
        self._owed = 0  # how many are to be put in place or removed
        self._dropped = 0  # what the last row was when those that are in place were last dropped from memory

    def forget(self) -> None:
        """Whatever was read or changed: it may never have been committed."""
        for fresh in self._fresh.values():
            fresh.clear()
        self._places, self._waiting = [], []
        self._last = self._upto = self._removed = self._dropped = 0

    def catch_up(self, run: Run) -> None:
        """Read what others have appended since the last time."""
        first, last = run("SELECT (SELECT min(n) FROM fresh), (SELECT max(n) FROM fresh)", ())[0]
        if last is None or first > self._last + 1:
            self.forget()
        if last is None or last == self._last:
            return
        rows = run("SELECT n, place, key, value FROM fresh WHERE n > ? ORDER BY n", (self._last,))
        _check((place, value) for _, place, _, value in rows)
        self._note(rows)
        self._removed = max(self._removed, first - 1)
        if self._last - self._dropped > _MOST:  # whoever writes little puts little in place: others do
            self._drop()

    def find(self, run: Run, place: Place, keys: Sequence[Any]) -> dict[Any, Any]:
        """What stands under these keys."""
        fresh = self._fresh[place]
        found = {key: fresh[key][1] for key in keys if key in fresh}
        for some in padded([key for key in keys if key not in found]):
            found.update(_in_place(run, place, some))
        return {key: value for key, value in found.items() if value is not None}

    def change(self, run: Run, changes: Sequence[Change]) -> None:
        """Have these hold from now on. Whoever says that nothing stands anywhere has seen to the places."""
        rows = [(n, *one) for n, one in enumerate(changes, self._last + 1)]
        insert(run, "fresh", rows)
        self._note(rows)
        self._owed += (_PACE if self._left() <= _TOO_MANY else _HURRY) * len(rows)
        while self._owed >= _TOGETHER or self._left() > _MOST:
            self._owed = max(self._owed - _TOGETHER, 0)
            self._go_on(run)

    def _note(self, rows: Sequence[Sequence[Any]]) -> None:
        for n, place, key, value in rows:
            fresh = self._fresh[place]
            if value is None and key == ALL:
                fresh.clear()
            fresh[key] = n, value
        if rows:
            self._last = rows[-1][0]

    def _go_on(self, run: Run) -> None:
        """Put some in place; then remove what is; then, when enough have come together, begin again."""
        if self._waiting:
            some = self._waiting[-_TOGETHER:]
            del self._waiting[-_TOGETHER:]
            self._put(run, self._place, some[::-1])
        elif self._places:
            self._place = self._places.pop()
            fresh = self._fresh[self._place]
            self._waiting = sorted((key for key in fresh if fresh[key][0] <= self._upto), reverse=True)
        elif self._removed < self._upto:
            self._removed = min(self._removed + _TOGETHER, self._upto)
            run("DELETE FROM fresh WHERE n <= ?", (self._removed,))
            if self._removed == self._upto:
                self._drop()
        elif self._left() >= _MANY:
            # The newest row stays: the next is counted from it.
            self._upto = min(self._removed + _MANY, self._last - 1)
            self._places = [*_COLUMNS]

    def _put(self, run: Run, place: Place, keys: Sequence[Any]) -> None:
        """As they are now, which may be newer than what was to be put: then it will be put once more."""
        fresh = self._fresh[place]
        known = [(key, *fresh[key]) for key in keys if key in fresh]
        rows = [(key, value) for key, n, value in known if n > self._removed]  # others may have been quicker
        insert(run, place, [row for row in rows if row[1] is not None])
        for some in padded([key for key, value in rows if value is None]):
            run(f"DELETE FROM {place} WHERE {_COLUMNS[place][0]} IN ({marks(len(some))})", some)

    def _left(self) -> int:
        return self._last - self._removed

    def _drop(self) -> None:
        """What is in place need not be remembered."""
        self._dropped = self._last
        for place, fresh in self._fresh.items():
            self._fresh[place] = {key: one for key, one in fresh.items() if one[0] > self._removed}


def find(run: Run, place: Place, keys: Sequence[Any]) -> dict[Any, Any]:
    """As `Behind.find`, for those who have read nothing before."""
    if len(keys) > _TOGETHER:  # to go through the table for each few of them would take long
        known = Behind()
        known.catch_up(run)
        return known.find(run, place, keys)
    found: dict[Any, Any] = dict(_in_place(run, place, keys))
    wanted = f"place = ? AND key IN ({marks(len(keys) + 1)})"
    rows = run(f"SELECT key, value FROM fresh WHERE {wanted} ORDER BY n", (place, *keys, ALL))
    _check((place, value) for _, value in rows)
    for key, value in rows:
        if value is None and key == ALL:
            found.clear()
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def _in_place(run: Run, place: Place, keys: Sequence[Any]) -> list[Row]:
    key, value = _COLUMNS[place]
    return run(f"SELECT {key}, {value} FROM {place} WHERE {key} IN ({marks(len(keys))})", keys)


def _check(values: Iterable[tuple[Place, Any]]) -> None:
    if not all(isinstance(value, _VALUES.get(place, ())) for place, value in values):
        raise sqlite3.DatabaseError("a row of fresh is for no place that there is")
