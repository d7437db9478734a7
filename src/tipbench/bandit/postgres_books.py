"""Books in a PostgreSQL database, for processes on several machines. They take turns by an advisory lock.

Everything is in a schema of its own. `psycopg` comes with the extra `postgres`: only `opening` imports this.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tipbench.bandit.books import SERVE
from tipbench.bandit.sql_books import TABLES, SqlReading, SqlTransaction, schema
from tipbench.errors import NotFound, StateUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import Connection

    from tipbench.bandit.books import Changes
    from tipbench.bandit.sql_books import Row, Run

SCHEMA = "tipbench_tips"
_VERSION = 1
_TURN = 0x5449_5053_0001  # the advisory lock; its number is only ours within a database of ours
_MOST_IDLE = 4
# With every transaction, in one round trip: behind a pooler the next one may be in another session.
_SETTINGS = (
    f"SET LOCAL search_path = {SCHEMA}",
    "SET LOCAL synchronous_commit = on",  # acknowledged is durable, whatever the server's default
    "SET LOCAL lock_timeout = '30s'",
    # A machine that froze in the middle of its turn must not keep the others waiting for ever.
    "SET LOCAL idle_in_transaction_session_timeout = '60s'",
    "SET LOCAL extra_float_digits = 3",  # numbers come as they were written, whatever the server's default
)
# Whoever waited for their turn must see what the last one wrote, whatever the server's default.
_WRITING = "; ".join(("BEGIN ISOLATION LEVEL READ COMMITTED", *_SETTINGS))
_READING = "; ".join(("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *_SETTINGS))


class PostgresBooks:
    """The schema is made when it is first opened. One that is not whole is an error, never made again."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self._url = url
        self._where = _place(url)
        self._me = secrets.token_bytes(8)
        self._writer: Connection[Any] | None = None
        self._idle: list[Connection[Any]] = []
        self._turn = threading.Lock()
        self._fresh = True
        self._last_by: object = None
        with self._told():
            db = self._connected()
            try:
                self._seed = self._checked(db, make=make)
            finally:
                db.close()

    @property
    def where(self) -> str:
        return self._where

    def seed(self) -> bytes:
        return self._seed

    @contextmanager
    def transaction(self, by: object = None) -> Iterator[SqlTransaction]:
        with self._turn, self._told():
            db = self._begun()
            try:
                stale = self._take_turn(db) or by is not self._last_by
                self._last_by = by
                yield _Transaction(db, stale=stale)
                db.execute("COMMIT")
                self._fresh = False
            except BaseException:
                # Whether a commit that failed on the way happened is not known: begin again with nothing.
                self._fresh = True
                self._writer = None
                db.close()
                raise

    def begin(self, by: object = None) -> None:
        """Never at once: every statement is a way to the server and back."""

    @contextmanager
    def reading(self) -> Iterator[SqlReading]:
        with self._told():
            db = self._open_one()
            try:
                yield SqlReading(_runner(db))
                db.execute("COMMIT")
            except BaseException:
                db.close()
                raise
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(db)
            else:
                db.close()

    def tidy(self) -> None:
        """The server sees to it by itself."""

    def shrink(self) -> bool:
        ours = ", ".join(f"{SCHEMA}.{table}" for table in sorted(TABLES))  # others' are not ours to sweep
        with self._told():
            db = self._connected()
            try:
                db.execute(f"VACUUM {ours}".encode())
            finally:
                db.close()
        return False

    def close(self) -> None:
        with self._turn:
            while self._idle:
                self._idle.pop().close()
            if self._writer is not None:
                self._writer.close()
            self._writer, self._fresh = None, True

    def _begun(self) -> Connection[Any]:
        """The writer's connection with a transaction begun; a new one where the old one has gone away."""
        if self._writer is not None and not self._writer.closed:
            with suppress(psycopg.OperationalError):
                self._writer.execute(_WRITING, prepare=False)
                return self._writer
            self._writer.close()
        self._fresh = True
        self._writer = self._connected()
        self._writer.execute(_WRITING, prepare=False)
        return self._writer

    def _open_one(self) -> Connection[Any]:
        while self._idle:
            with suppress(psycopg.OperationalError, IndexError):
                db = self._idle.pop()
                db.execute(_READING, prepare=False)
                return db
        db = self._connected()
        db.execute(_READING, prepare=False)
        return db

    def _take_turn(self, db: Connection[Any]) -> bool:
        """Wait until nobody else writes; whether somebody did since this one's last turn."""
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_TURN,))
        # Only a statement that begins after the lock was taken sees what the last holder wrote.
        last = db.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()
        if last is None:
            raise self._damaged("it has lost the mark of who wrote last")
        if bytes(last[0]) == self._me:
            return self._fresh
        db.execute("UPDATE meta SET value = %s WHERE name = 'writer'", (self._me,))
        return True

    def _connected(self) -> Connection[Any]:
        return psycopg.connect(
            self._url,
            autocommit=True,
            client_encoding="UTF8",
            connect_timeout=10,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,  # ms; the others do not count while an answer is waited for
        )

    def _checked(self, db: Connection[Any], *, make: bool) -> bytes:
        """The seed, once the schema is there and whole."""
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StateUnusable(
                f"{self.where} keeps its text as {encoding}; make a database with ENCODING 'UTF8'"
            )
        db.execute(_WRITING, prepare=False)
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_TURN,))
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        found = {name for (name,) in db.execute(tables, (SCHEMA,))}
        if not found and not make:
            raise NotFound(f"{self.where} holds no tips: none has been served from it yet")
        self._see_to_schema(db)
        if not found:
            _make(db)
        elif lost := TABLES - found:
            raise self._damaged(f"it lacks {', '.join(sorted(lost))}")
        seed = self._said(db)
        db.execute("COMMIT")
        return seed

    def _see_to_schema(self, db: Connection[Any]) -> None:
        """Where somebody may not make it, another may have made an empty one for them."""
        granted = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
        may_use = db.execute(granted, (SCHEMA,)).fetchone()
        if may_use is None:
            db.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        elif not may_use[0]:
            raise StateUnusable(
                f"the schema {SCHEMA} in {self.where} is somebody else's, who has not granted you its use; "
                "ask them for it, or name another database in TIPBENCH_TIPS_DB"
            )

    def _said(self, db: Connection[Any]) -> bytes:
        said = {name: bytes(value) for name, value in db.execute("SELECT name, value FROM meta").fetchall()}
        version = said.get("version", b"")
        if not version.isdigit() or len(said.get("seed", b"")) != 32:
            raise self._damaged("it has lost its version or the server's seed")
        if int(version) > _VERSION:
            raise StateUnusable(f"{self.where} was made by a newer tipbench; use that one")
        return said["seed"]

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise self._damaged(_first_line(error)) from None
        except psycopg.Error as error:
            raise StateUnusable(
                f"{self.where} cannot be used ({_first_line(error)}); see that the server runs and has "
                "room, and that TIPBENCH_TIPS_DB names a database that you may write to"
            ) from None

    def _damaged(self, reason: str) -> StateUnusable:
        return StateUnusable(
            f"the schema {SCHEMA} in {self.where} is damaged, or another program's ({reason}); restore it "
            "from a backup, or rename it: what was learned and is only in it is then gone"
        )


class _Transaction(SqlTransaction):
    """Writes everything in one round trip."""

    def __init__(self, db: Connection[Any], *, stale: bool) -> None:
        super().__init__(_runner(db), stale=stale)
        self._db = db

    def write(self, changes: Changes) -> None:
        with self._db.pipeline():
            super().write(changes)


def _runner(db: Connection[Any]) -> Run:
    def run(statement: str, values: Sequence[object]) -> list[Row]:
        cursor = db.execute(_in_their_style(statement), values)
        # To ask for rows waits for them, which would be a round trip for each statement that has none.
        return cursor.fetchall() if statement.startswith(("SELECT", "WITH")) else []

    return run


@lru_cache(maxsize=2048)
def _in_their_style(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _place(url: str) -> str:
    """The address without who and with which password.

    An address in which a password's odd character ends it too early has the rest of the password in the place
    of a host, a port or a database: nothing of such a one is ever shown, nor what the driver says about it.
    """
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (psycopg.Error, UnicodeError):
        raise _unreadable() from None
    hosts, ports = (parts.get(name, "").split(",") for name in ("host", "port"))
    database = parts.get("dbname", "")
    if "@" in database + "".join(hosts) or not all(port.isdecimal() for port in ports if port):
        raise _unreadable()
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = (f"{_host(host)}:{port}".rstrip(":") for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{','.join(places)}/{database}"


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else quote(name, safe="")  # a folder is the place of a socket


def _unreadable() -> StateUnusable:
    return StateUnusable(
        "TIPBENCH_TIPS_DB cannot be read as the address of a PostgreSQL database; write "
        "postgresql://host:port/database, with user:password@ before the host, odd characters by their "
        "numbers (%40 for @, %2F for /, %25 for %, %20 for a space), and after ? only what PostgreSQL knows"
    )


def _make(db: Connection[Any]) -> None:
    kinds = {"text": 'TEXT COLLATE "C"', "whole": "BIGINT", "real": "DOUBLE PRECISION", "blob": "BYTEA"}
    by_id = f"CREATE UNIQUE INDEX log_served ON log (decision_id) WHERE signal = '{SERVE}'"
    for statement in (*schema(**kinds, clustered=""), by_id):
        db.execute(statement.encode())
    first = {"seed": secrets.token_bytes(32), "version": str(_VERSION).encode(), "writer": b"nobody"}
    for name, value in first.items():
        db.execute("INSERT INTO meta VALUES (%s, %s)", (name, value))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
