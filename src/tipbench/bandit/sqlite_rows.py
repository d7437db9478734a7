"""What SQLite's books read and write. Profiles, and where in the log a decision is, are written behind."""

# ruff: noqa: S608 - what is put together is written here; values go beside the statement

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tipbench.bandit import behind, sql_books
from tipbench.bandit.behind import PROFILES, SERVED
from tipbench.bandit.books import SERVE
from tipbench.bandit.sql_books import SqlReading, SqlTransaction, schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from tipbench.bandit.behind import Behind, Place
    from tipbench.bandit.books import Changes, Past
    from tipbench.bandit.sql_books import Run

VERSION = 2
TABLES = sql_books.TABLES | behind.TABLES
_KINDS = {"text": "TEXT", "whole": "INTEGER", "real": "REAL", "blob": "BLOB", "clustered": "WITHOUT ROWID"}


class SqliteReading(SqlReading):
    """What there was when the transaction began."""

    def decisions(self, ids: Sequence[str]) -> dict[str, Past]:
        found = self._find(SERVED, [_key(one) for one in ids])
        pasts = self._served_where("l.seq IN", [*found.values()])
        return {one: pasts[one] for one in ids if one in pasts}

    def profiles(self, users: Sequence[str]) -> dict[str, bytes]:
        return self._find(PROFILES, users)

    def _find(self, place: Place, keys: Sequence[Any]) -> dict[Any, Any]:
        return behind.find(self._run, place, keys)


class SqliteTransaction(SqliteReading, SqlTransaction):
    """The writer's. `known` is what was appended and may not be in its place yet."""

    def __init__(self, run: Run, known: Behind, *, stale: bool) -> None:
        super().__init__(run, stale=stale)
        self._behind = known

    def drop(self, *, upto: int, limit: int) -> int:
        until = self._until(upto, limit)
        ids = self._run(f"SELECT decision_id FROM log WHERE seq <= ? AND signal = '{SERVE}'", (until,))
        self._behind.change(self._run, [(SERVED, _key(one), None) for (one,) in ids])
        return super().drop(upto=upto, limit=limit)

    def _forget(self, user: str) -> None:
        super()._forget(user)
        self._behind.change(self._run, [(PROFILES, user, None)])

    def _find(self, place: Place, keys: Sequence[Any]) -> dict[Any, Any]:
        return self._behind.find(self._run, place, keys)

    def _keep(self, changes: Changes) -> None:
        served = [one for one in changes.entries if one.signal == SERVE]
        self._behind.change(
            self._run,
            [
                *((PROFILES, user, body) for user, body in changes.profiles.items()),
                *((SERVED, _key(one.decision_id), one.seq) for one in served),
            ],
        )


def make(db: sqlite3.Connection) -> None:
    """The tables, in a file that has none."""
    for statement in (*schema(**_KINDS), *behind.SCHEMA):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")


def upgrade(db: sqlite3.Connection) -> None:
    """From version 1, where the log had an index and profiles were in no order."""
    (profiles,) = (one for one in schema(**_KINDS) if "TABLE profiles" in one)
    db.execute("ALTER TABLE profiles RENAME TO old_profiles")
    for statement in (profiles, *behind.SCHEMA):
        db.execute(statement)
    db.execute("INSERT INTO profiles SELECT user_id, body FROM old_profiles ORDER BY user_id")
    db.create_function("key_of", 1, _key, deterministic=True)
    db.execute(
        f"INSERT INTO served SELECT key_of(decision_id), seq FROM log WHERE signal = '{SERVE}' ORDER BY 1"
    )
    db.execute("DROP TABLE old_profiles")
    db.execute("DROP INDEX log_served")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _key(decision_id: str) -> bytes:
    """Half as long as the id, where that is of our making."""
    try:
        return bytes.fromhex(decision_id)
    except ValueError:
        return decision_id.encode()
