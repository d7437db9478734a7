"""What is generated and not yet in the ledger, safe on this disk; and what is known to be in the ledger.

A SQLite file that one process fills while another drains it. A result is durable once `put` returns.
Ledgers are known by their addresses without credentials.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tipbench.errors import SpoolUnusable
from tipbench.ledger.address import public_uri
from tipbench.ledger.codec import pin_from_json, result_from_json, to_json
from tipbench.ledger.locks import file_lock
from tipbench.ledger.pins import merge_pins, with_rubric_of
from tipbench.private import make_file, narrow_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from tipbench.records import CellResult, Host, Pin

_VERSION = 3
_OLDER_VERSIONS = (1, 2)
_APPLICATION_ID = 0x7469_7062  # "tipb": what tells our file from any other
# Marks for cells that are perhaps recorded already. Version 1 lacks this table.
_LATE_MARKS = """
CREATE TABLE IF NOT EXISTS late_mark (
    ledger TEXT NOT NULL, experiment TEXT NOT NULL, key TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (ledger, experiment, key, mark)
) WITHOUT ROWID"""
# Cells whose model was not read again on its host since they were generated. Versions 1 and 2 lack this.
_UNCHECKED = """
CREATE TABLE IF NOT EXISTS unchecked (
    ledger TEXT NOT NULL, experiment TEXT NOT NULL, key TEXT NOT NULL,
    host TEXT NOT NULL, model TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (ledger, experiment, key)
) WITHOUT ROWID"""
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
CREATE TABLE pending (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger TEXT NOT NULL, experiment TEXT NOT NULL, key TEXT NOT NULL,
    failed INTEGER NOT NULL, result TEXT NOT NULL, crc INTEGER NOT NULL,
    UNIQUE (ledger, experiment, key)
);
CREATE TABLE done (
    ledger TEXT NOT NULL, experiment TEXT NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (ledger, experiment, key)
) WITHOUT ROWID;
CREATE TABLE pin (
    ledger TEXT NOT NULL, experiment TEXT NOT NULL, pin TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (ledger, experiment)
) WITHOUT ROWID;
{_LATE_MARKS};
{_UNCHECKED};
PRAGMA journal_mode = WAL;
"""
# A new row, so a new `seq`: who is recording the failure meanwhile does not strike out the success.
_PUT = """
INSERT OR REPLACE INTO pending (ledger, experiment, key, failed, result, crc)
SELECT :ledger, :experiment, :key, :failed, :result, :crc WHERE NOT EXISTS (
    SELECT 1 FROM pending
    WHERE ledger = :ledger AND experiment = :experiment AND key = :key AND failed = 0
)"""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How many results wait for one experiment of one ledger, and how many marks on recorded cells."""

    ledger: str
    experiment: str
    count: int
    marks: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One spooled result; `seq` names this very version of it."""

    seq: int
    ledger: str
    experiment: str
    result: CellResult


@dataclass(frozen=True, kw_only=True)
class UncheckedCell:
    """A stored cell, and the model that generated it. The model's digest was not read again since then."""

    key: str
    host: str
    model: str
    digest: str


class Spool:
    """Opened on first use; may be used by several threads and several processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self._names: dict[str, str] = {}
        self._pinned: dict[tuple[str, str], Pin] = {}
        self._sealed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def seal(self) -> None:
        """Refuse all further writes through this object, so that counts read from now on stay true."""
        with self._lock:
            self._sealed = True

    def put(self, ledger_uri: str, experiment: str, pin: Pin, result: CellResult) -> None:
        """Keep a result: on disk for good when this returns.

        It takes the place of a failure of the same cell that still waits; a success that waits stays.
        """
        ledger = self._stored(ledger_uri)
        text = to_json(result)
        row = {
            "ledger": ledger,
            "experiment": experiment,
            "key": result.cell.key,
            "failed": int(result.error is not None),
            "result": text,
            "crc": zlib.crc32(text.encode()),
        }
        with self._transaction() as db:
            self._keep_pin(db, ledger, experiment, pin)
            db.execute(_PUT, row)
            if result.error is None:
                model = result.cell.model
                cell = (ledger, experiment, result.cell.key, place_checked(result.host))
                db.execute(
                    "INSERT OR REPLACE INTO unchecked VALUES (?, ?, ?, ?, ?, ?)",
                    (*cell, model.name, model.digest),
                )

    def unchecked(self, ledger_uri: str, experiment: str) -> list[UncheckedCell]:
        """The stored cells of an experiment whose models were not read again on their hosts."""
        query = "SELECT key, host, model, digest FROM unchecked WHERE ledger = ? AND experiment = ?"
        with self._reading() as db:
            rows = db.execute(query, (self._stored(ledger_uri), experiment)).fetchall()
        return [UncheckedCell(key=key, host=host, model=model, digest=d) for key, host, model, d in rows]

    def checked(self, ledger_uri: str, experiment: str, keys: Iterable[str]) -> None:
        """Store that the models of these cells were read again."""
        ledger = self._stored(ledger_uri)
        query = "DELETE FROM unchecked WHERE ledger = ? AND experiment = ? AND key = ?"
        with self._transaction() as db:
            db.executemany(query, [(ledger, experiment, key) for key in keys])

    def add_marks(self, ledger_uri: str, experiment: str, marks: Mapping[str, Iterable[str]]) -> None:
        """Keep marks for stored cells, by cell key. They are on disk when this returns."""
        ledger = self._stored(ledger_uri)
        rows = [(ledger, experiment, key, mark) for key, some in marks.items() for mark in some]
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO late_mark VALUES (?, ?, ?, ?)", rows)

    def marks(self, ledger_uri: str, experiment: str) -> dict[str, tuple[str, ...]]:
        """The marks that wait for an experiment, by cell key."""
        query = "SELECT key, mark FROM late_mark WHERE ledger = ? AND experiment = ? ORDER BY key, mark"
        found: dict[str, tuple[str, ...]] = {}
        with self._reading() as db:
            for key, mark in db.execute(query, (self._stored(ledger_uri), experiment)):
                found[key] = (*found.get(key, ()), mark)
        return found

    def waiting_marks(self, ledger_uri: str | None = None, experiment: str | None = None) -> list[Waiting]:
        """How many marks wait for recorded cells, by ledger and experiment. Cells that wait bring theirs."""
        query = (
            "SELECT ledger, experiment, count(*) FROM late_mark AS late WHERE NOT EXISTS ("
            "SELECT 1 FROM pending WHERE ledger = late.ledger AND experiment = late.experiment "
            "AND key = late.key AND failed = 0) GROUP BY ledger, experiment ORDER BY ledger, experiment"
        )
        with self._reading() as db:
            rows = db.execute(query).fetchall()
        only = None if ledger_uri is None else self._stored(ledger_uri)
        return [
            Waiting(ledger=self._shown(ledger), experiment=name, count=0, marks=marks)
            for ledger, name, marks in rows
            if (only is None or ledger == only) and (experiment is None or name == experiment)
        ]

    def waiting(self) -> list[Waiting]:
        """All that waits, by ledger and experiment: results, and marks on recorded cells."""
        marked = {(one.ledger, one.experiment): one for one in self.waiting_marks()}
        found = []
        for one in self.pending():
            marks = marked.pop((one.ledger, one.experiment), None)
            found.append(replace(one, marks=marks.marks) if marks else one)
        return [*found, *marked.values()]

    def marks_recorded(self, ledger_uri: str, experiment: str, marks: Mapping[str, Iterable[str]]) -> None:
        """Delete marks that need not wait any more."""
        ledger = self._stored(ledger_uri)
        rows = [(ledger, experiment, key, mark) for key, some in marks.items() for mark in some]
        query = "DELETE FROM late_mark WHERE ledger = ? AND experiment = ? AND key = ? AND mark = ?"
        with self._transaction() as db:
            db.executemany(query, rows)

    def pending(
        self, ledger_uri: str | None = None, experiment: str | None = None, *, up_to: int | None = None
    ) -> list[Waiting]:
        """What waits, by ledger and experiment, the longest waiting first; nothing newer than `up_to`."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT ledger, experiment, count(*) FROM pending WHERE ? IS NULL OR seq <= ? "
                "GROUP BY ledger, experiment ORDER BY min(seq)",
                (up_to, up_to),
            ).fetchall()
        only = None if ledger_uri is None else self._stored(ledger_uri)
        return [
            Waiting(ledger=self._shown(ledger), experiment=name, count=count)
            for ledger, name, count in rows
            if (only is None or ledger == only) and (experiment is None or name == experiment)
        ]

    def newest(self) -> int:
        """The `seq` of the result that was put last; 0 where no result waits."""
        with self._reading() as db:
            (seq,) = db.execute("SELECT max(seq) FROM pending").fetchone()
        return int(seq or 0)

    def pending_keys(self, ledger_uri: str, experiment: str) -> set[str]:
        """The cells whose success waits to be recorded: they need not be generated again."""
        query = "SELECT key FROM pending WHERE ledger = ? AND experiment = ? AND failed = 0"
        return self._keys(query, ledger_uri, experiment)

    def known_keys(self, ledger_uri: str, experiment: str) -> set[str]:
        """The cells known to be done, recorded or waiting, without asking the ledger."""
        query = "SELECT key FROM done WHERE ledger = ? AND experiment = ?"
        return self._keys(query, ledger_uri, experiment) | self.pending_keys(ledger_uri, experiment)

    def known_pin(self, ledger_uri: str, experiment: str) -> Pin | None:
        """The pin that this machine last knew of an experiment, without asking the ledger."""
        with self._reading() as db:
            return self._pin(db, self._stored(ledger_uri), experiment)

    def remember(self, ledger_uri: str, experiment: str, pin: Pin, done: Iterable[str] = ()) -> None:
        """Keep what the ledger said, for a time when it cannot be reached.

        Its rubric is taken over: a person may have changed the one that the experiment is pinned to.
        """
        ledger = self._stored(ledger_uri)
        with self._transaction() as db:
            self._keep_pin(db, ledger, experiment, pin, same_rubric=False)
            db.executemany(
                "INSERT OR IGNORE INTO done VALUES (?, ?, ?)", ((ledger, experiment, k) for k in done)
            )

    def take(
        self, ledger_uri: str, experiment: str, *, limit: int, after: int = 0, most_bytes: int = 1_000_000
    ) -> list[Entry]:
        """The next results for an experiment in the order they came: `limit`, or about `most_bytes`."""
        ledger = self._stored(ledger_uri)
        entries: list[Entry] = []
        size = 0
        with self._reading() as db:
            rows = db.execute(
                "SELECT seq, key, result, crc FROM pending "
                "WHERE ledger = ? AND experiment = ? AND seq > ? ORDER BY seq LIMIT ?",
                (ledger, experiment, after, limit),
            )
            for seq, key, text, crc in rows:
                result = self._result(key, text, crc)
                entries.append(
                    Entry(seq=seq, ledger=self._shown(ledger), experiment=experiment, result=result)
                )
                size += len(text)
                if size >= most_bytes:
                    break
        return entries

    def recorded(self, entries: Iterable[Entry], *, at: str | None = None) -> None:
        """Strike out what is in the ledger now, and remember which cells are done.

        `at` is the ledger, where it is another one than the entries waited for.
        """
        every = list(entries)
        done = [
            (self._stored(e.ledger if at is None else at), e.experiment, e.result.cell.key)
            for e in every
            if e.result.error is None
        ]
        with self._transaction() as db:
            db.executemany("DELETE FROM pending WHERE seq = ?", ((entry.seq,) for entry in every))
            db.executemany("INSERT OR IGNORE INTO done VALUES (?, ?, ?)", done)
            if at is not None:
                self._moved(db, every, at)

    def _moved(self, db: sqlite3.Connection, entries: Iterable[Entry], at: str) -> None:
        """Store that these results are in the ledger `at` now, and not in the one that they waited for."""
        for entry in entries:
            db.execute(
                "UPDATE OR REPLACE unchecked SET ledger = ? WHERE ledger = ? AND experiment = ? AND key = ?",
                (self._stored(at), self._stored(entry.ledger), entry.experiment, entry.result.cell.key),
            )
        for ledger, experiment in {(entry.ledger, entry.experiment) for entry in entries}:
            self._forget_pin(db, self._stored(ledger), experiment)

    def discard(self, ledger_uri: str, experiment: str) -> int:
        """Delete the results and marks that wait for an experiment of a ledger; return how many results."""
        ledger = self._stored(ledger_uri)
        with self._transaction() as db:
            where = "WHERE ledger = ? AND experiment = ?"
            db.execute(
                f"DELETE FROM unchecked {where} AND key IN (SELECT key FROM pending {where})",  # noqa: S608 - constants
                (ledger, experiment, ledger, experiment),
            )
            db.execute(f"DELETE FROM late_mark {where}", (ledger, experiment))  # noqa: S608
            deleted = db.execute(f"DELETE FROM pending {where}", (ledger, experiment)).rowcount  # noqa: S608
            self._forget_pin(db, ledger, experiment)
        return deleted

    def _forget_pin(self, db: sqlite3.Connection, ledger: str, experiment: str) -> None:
        """Delete the pin of an experiment that has no cell left, so that its texts may change."""
        where = "WHERE ledger = :ledger AND experiment = :experiment"
        db.execute(
            f"DELETE FROM pin {where} AND NOT EXISTS (SELECT 1 FROM done {where}) "  # noqa: S608 - constants
            f"AND NOT EXISTS (SELECT 1 FROM pending {where})",
            {"ledger": ledger, "experiment": experiment},
        )
        self._pinned.pop((ledger, experiment), None)

    def _keys(self, query: str, ledger_uri: str, experiment: str) -> set[str]:
        with self._reading() as db:
            return {key for (key,) in db.execute(query, (self._stored(ledger_uri), experiment))}

    def _result(self, key: str, text: str, crc: int) -> CellResult:
        if zlib.crc32(text.encode()) != crc:
            raise self._damaged(f"the result of cell {key} does not match its checksum")
        try:
            return result_from_json(text)
        except (KeyError, TypeError, ValueError):
            raise SpoolUnusable(
                f"the spool {self.path} holds results of a newer tipbench; use that one"
            ) from None

    def _keep_pin(
        self, db: sqlite3.Connection, ledger: str, experiment: str, pin: Pin, *, same_rubric: bool = True
    ) -> None:
        """Widen the pin by what is new. A text that changed under its id is refused here at the latest."""
        if self._pinned.get((ledger, experiment)) is pin:
            return
        held = self._pin(db, ledger, experiment)
        before = held if held is None or same_rubric else with_rubric_of(held, pin)
        merged = merge_pins(experiment, before, pin) if before else pin
        if merged != held:
            text = to_json(merged)
            db.execute(
                "INSERT OR REPLACE INTO pin VALUES (?, ?, ?, ?)",
                (ledger, experiment, text, zlib.crc32(text.encode())),
            )
        self._pinned[ledger, experiment] = pin

    def _pin(self, db: sqlite3.Connection, ledger: str, experiment: str) -> Pin | None:
        query = "SELECT pin, crc FROM pin WHERE ledger = ? AND experiment = ?"
        row = db.execute(query, (ledger, experiment)).fetchone()
        if row is None:
            return None
        if zlib.crc32(row[0].encode()) != row[1]:
            raise self._damaged(f"the pin of experiment {experiment!r} does not match its checksum")
        return pin_from_json(row[0])

    def _stored(self, ledger_uri: str) -> str:
        """The embedded store is the one beside the spool, wherever both are moved to: an empty address."""
        if ledger_uri not in self._names:
            public = public_uri(ledger_uri, home=self.path.parent)
            self._names[ledger_uri] = "" if public == self._shown("") else public
        return self._names[ledger_uri]

    def _shown(self, ledger: str) -> str:
        return public_uri(ledger, home=self.path.parent)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block or none of it, and on disk when it ends."""
        with self._reading() as db:
            if self._sealed:
                raise SpoolUnusable(f"this command has ended and changes {self.path} no more")
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                self._pinned.clear()
                raise
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._db is None:
                    self._db = self._opened()
                yield self._db
            except (OSError, sqlite3.OperationalError) as error:
                raise SpoolUnusable(
                    f"the spool {self.path} cannot be written ({error}); see that its disk is not full, "
                    "or set TIPBENCH_HOME to a folder that you may write to"
                ) from None
            except sqlite3.Error as error:
                raise self._damaged(str(error)) from None

    def _opened(self) -> sqlite3.Connection:
        if not self.path.exists():
            self._make()
        narrow_database(self.path)
        db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")  # macOS: past the drive's own cache
        self._check(db)
        return db

    def _make(self) -> None:
        """Make the file beside its place and move it there whole, so that an empty one is never ours."""
        with file_lock(self.path.with_name(f"{self.path.name}.lock"), patience_s=30):
            if self.path.exists():
                return
            fresh = self.path.with_name(f".{self.path.name}.new")
            for leftover in self.path.parent.glob(f"{fresh.name}*"):
                leftover.unlink()
            make_file(fresh)
            with closing(sqlite3.connect(fresh)) as db:
                db.executescript(_SCHEMA)
            fresh.replace(self.path)

    def _check(self, db: sqlite3.Connection) -> None:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            db.close()
            raise self._damaged("it is empty, or the file of another program")
        if version in _OLDER_VERSIONS:
            version = _converted(db)
        if version != _VERSION:
            db.close()
            raise SpoolUnusable(f"the spool {self.path} was made by a newer tipbench; use that one")

    def _damaged(self, reason: str) -> SpoolUnusable:
        return SpoolUnusable(
            f"the spool {self.path} is damaged ({reason}); restore it, or move it away: "
            "cells that are only in it are then generated again"
        )


def _converted(db: sqlite3.Connection) -> int:
    """Add the tables that older versions lack, in one transaction. Returns the version."""
    db.execute("BEGIN IMMEDIATE")
    if db.execute("PRAGMA user_version").fetchone()[0] in _OLDER_VERSIONS:
        db.execute(_LATE_MARKS)
        db.execute(_UNCHECKED)
        db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def place_checked(host: Host) -> str:
    """The host whose models are read again. The embedded engine has another address each time."""
    return host.kind if host.kind == "embedded" else host.url
