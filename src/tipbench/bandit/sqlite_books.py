"""Books in one SQLite file, for all threads and processes of one machine.

What was committed is on disk. Moving it from the write-ahead log into the file proper is left to `tidy`, in
a thread that serves nobody: done by a commit, as SQLite does it when left alone, it holds requests up.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from tipbench.bandit.behind import Behind
from tipbench.bandit.books import Turn
from tipbench.bandit.sqlite_rows import TABLES, VERSION, SqliteReading, SqliteTransaction, make, upgrade
from tipbench.errors import NotFound, StateUnusable
from tipbench.private import make_file, narrow_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tipbench.bandit.books import Transaction
    from tipbench.bandit.sql_books import Row, Run

_APPLICATION_ID = 0x54495053  # "TIPS"
_BUSY_S = 30.0
_ALONE_S = 0.2  # for so long somebody waits to be the only one, before they look whether they need be
# In pages of 4 kB. Above the first, the writer brings the last bit of the log over so that it can start
# anew; the second is for those who never call `tidy`.
_LONG_LOG, _LONGEST_LOG = 2_000, 20_000
# What a log is cut to when it starts anew: somebody who read for long has made it grow without end.
_KEPT_LOG = 2 * _LONG_LOG * 4096
_LITTLE = 128
_GIVEN_BACK = 500  # how many free pages are given back to the system together
_GIVES_BACK = "PRAGMA auto_vacuum = INCREMENTAL"
_MOST_IDLE = 4
# Python cannot always say what SQLite has to say: where a table's name is damaged, it is in the sentence.
_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)


class SqliteBooks:
    """The file is made, whole and at once, when it is first opened: one that is empty was damaged.

    Without `make` it is NotFound where there is none.
    """

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self.path = path.expanduser().absolute()
        self._writer: sqlite3.Connection | None = None
        self._tidier: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        self._behind = Behind()
        self._turn = threading.Lock()
        self._tidying = threading.Lock()
        self._version = -1
        self._last_by: object = None
        self._file: tuple[int, int] | None = None
        self._bring_over = False
        self._patience_s = _BUSY_S
        self._seed = self._opening_seed(make=make)

    @property
    def where(self) -> str:
        return str(self.path)

    def seed(self) -> bytes:
        return self._seed

    @contextmanager
    def transaction(self, by: object = None) -> Iterator[Transaction]:
        self._turn.acquire()
        turn = self._begun(by, patience_s=_BUSY_S)
        try:
            yield turn.tx
        except BaseException:
            turn.roll_back()
            raise
        if turn.commit():
            with suppress(StateUnusable):  # what was committed is; whoever tidies says what is wrong
                turn.tidy_up()

    def begin(self, by: object = None) -> Turn | None:
        if not self._turn.acquire(blocking=False):
            return None
        try:
            return self._begun(by, patience_s=0.0)
        except _SomebodyElses:
            return None

    def _begun(self, by: object, *, patience_s: float) -> Turn:
        """A transaction that has begun. Whoever calls has the turn, and keeps it only if this succeeds."""
        try:
            with self._told():
                db = self._writing()
                self._begin(db, patience_s)
        except BaseException:
            self._turn.release()
            raise
        run = self._runner(db)
        try:
            version = int(run("PRAGMA data_version", ())[0][0])
            if version != self._version:
                with self._told():
                    self._behind.catch_up(run)
        except BaseException:  # left open, it would keep everybody else from writing
            self._roll_back()
            raise
        stale = version != self._version or by is not self._last_by
        self._version, self._last_by = version, by
        tx = SqliteTransaction(run, self._behind, stale=stale)
        return Turn(tx=tx, commit=self._commit, roll_back=self._roll_back, tidy_up=self._tidy_up)

    def _commit(self) -> bool:
        """Keeps the turn where the log is to be brought over: only with nobody writing can it start anew."""
        try:
            with self._told():
                self._writing().execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        keep, self._bring_over = self._bring_over, False
        if not keep:
            self._turn.release()
        return keep

    def _roll_back(self) -> None:
        self._version = -1
        self._behind.forget()
        with suppress(sqlite3.Error):  # some errors have ended the transaction already
            self._writing().execute("ROLLBACK")
        self._turn.release()

    def _tidy_up(self) -> None:
        try:
            with self._told():
                self._writing().execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            self._turn.release()

    @contextmanager
    def reading(self) -> Iterator[SqliteReading]:
        with self._told():
            db = self._idle.pop() if self._idle else self._connected()
            try:
                db.execute("BEGIN")
                yield SqliteReading(self._runner(db))
                db.execute("COMMIT")
            except BaseException:
                db.close()
                raise
            self._idle.append(db) if len(self._idle) < _MOST_IDLE else db.close()

    def tidy(self) -> None:
        """Bring what was committed over into the file; writers go on meanwhile."""
        with self._tidying, self._told():
            if self._tidier is None:
                self._tidier = self._connected()
            _, log, moved = self._tidier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._bring_over = log > _LONG_LOG and log - moved < _LITTLE

    def shrink(self) -> bool:
        with self._turn, self._told():
            db = self._writing()
            self._be_patient(db, _BUSY_S)
            before = _free_pages(db)
            # Python's `execute` would take the first step of it only, which is a page.
            db.executescript(f"PRAGMA incremental_vacuum({_GIVEN_BACK})")
            return _GIVEN_BACK <= _free_pages(db) < before

    def close(self) -> None:
        with self._turn, self._tidying:
            for db in (*self._idle, self._tidier, self._writer):
                if db is not None:
                    db.close()
            self._idle, self._tidier, self._writer = [], None, None
            self._version = -1
            self._behind.forget()

    def _begin(self, db: sqlite3.Connection, patience_s: float) -> None:
        # Whoever moves the file away leaves an open one behind that nobody will ever read.
        if _identity(self.path) != self._file:
            raise StateUnusable(f"{self.path} was moved, removed or replaced while in use; start again")
        self._be_patient(db, patience_s)
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if patience_s == 0.0 and "locked" in str(error):
                raise _SomebodyElses from None
            raise

    def _be_patient(self, db: sqlite3.Connection, seconds: float) -> None:
        """Have the writer wait for others for so long."""
        if seconds != self._patience_s:
            db.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
            self._patience_s = seconds

    def _writing(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connected()
            self._patience_s = _BUSY_S
            self._file = _identity(self.path)
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG}")
            self._writer.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG}")
        return self._writer

    def _opening_seed(self, *, make: bool) -> bytes:
        with self._told():
            if not self._is_there():
                if not make:
                    raise NotFound(f"{self.path} is not there: no tip has been served with this home yet")
                self._make()
            narrow_database(self.path)
            self._bring_up_to_date()
            with closing(self._connected()) as db:
                return self._checked(db)

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:  # a folder that is somebody else's
            raise self._unusable(error.strerror or str(error)) from None

    def _connected(self, *, alone: bool = False) -> sqlite3.Connection:
        if not self._is_there():
            raise StateUnusable(f"{self.path} was moved or removed while in use; start again")
        db = sqlite3.connect(
            self.path,
            timeout=_ALONE_S if alone else _BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            for setting in (
                f"locking_mode = {'EXCLUSIVE' if alone else 'NORMAL'}",  # holds only if it is said first
                "synchronous = FULL",
                "fullfsync = ON",  # macOS: past the drive's own cache
                "wal_autocheckpoint = 0",
                "cache_size = -16384",
            ):
                db.execute(f"PRAGMA {setting}")
        except BaseException:
            db.close()
            raise
        return db

    def _made_as(self, db: sqlite3.Connection) -> int:
        """Its version, once the file has shown that it is tipbench's, and not from the future."""
        if self.path.stat().st_size == 0:
            raise self._damaged("it is empty")
        application, version = (
            int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
        )
        if application != _APPLICATION_ID:
            raise self._damaged("it does not say that it is tipbench's")
        if version > VERSION:
            raise StateUnusable(f"{self.path} was made by a newer tipbench; use that one")
        return version

    def _checked(self, db: sqlite3.Connection) -> bytes:
        """The seed, once the file has shown that it is whole."""
        found = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if lost := TABLES - found:
            raise self._damaged(f"it lacks {', '.join(sorted(lost))}")
        seed = db.execute("SELECT value FROM meta WHERE name = 'seed'").fetchone()
        if seed is None or not isinstance(seed[0], bytes) or len(seed[0]) != 32:
            raise self._damaged("it has lost the server's seed")
        return seed[0]

    def _bring_up_to_date(self) -> None:
        """Only while nobody has it open: an older tipbench would go on, and what it writes not be found."""
        until = time.monotonic() + _BUSY_S
        while self._version_of_file() < VERSION:  # another process may be quicker
            try:
                with closing(self._connected(alone=True)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    if self._made_as(db) < VERSION:
                        upgrade(db)
                    db.execute("COMMIT")
                    db.execute(_GIVES_BACK)
                    # That holds for a file that was made before once it is written anew; where there is no
                    # space to, what is freed is used again instead of given back.
                    with suppress(sqlite3.OperationalError):
                        db.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                if time.monotonic() > until and self._version_of_file() < VERSION:
                    raise StateUnusable(
                        f"{self.path} was made by an older tipbench, and a process still uses it; end that "
                        "one, then start again"
                    ) from None
                # Two that try in step keep each other from being the only one, again and again.
                time.sleep(secrets.randbelow(1000) / 1000 * 3 * _ALONE_S)

    def _version_of_file(self) -> int:
        with closing(self._connected()) as db:
            return self._made_as(db)

    def _make(self) -> None:
        """A new file under another name first: under its own it is there whole or not at all."""
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            make_file(new)
            _fill(new)
            with suppress(FileExistsError):  # another process was quicker
                os.link(new, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with suppress(OSError):
                    new.with_name(new.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._meant(error) from None

    def _runner(self, db: sqlite3.Connection) -> Run:
        def run(statement: str, values: Sequence[object]) -> list[Row]:
            try:
                return db.execute(statement, values).fetchall()
            except _ERRORS as error:
                raise self._meant(error) from None

        return run

    def _meant(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> Exception:
        """The error as people can use it. What is a mistake in what was asked, and not in the file, stays."""
        if isinstance(error, UnicodeDecodeError):
            return self._damaged("it holds text that is not UTF-8")
        if isinstance(error, sqlite3.OperationalError):
            return self._unusable(str(error))
        # What is written has been looked up: two of it are there only where looking has missed the first.
        is_damage = type(error) in {sqlite3.DatabaseError, sqlite3.IntegrityError}
        return self._damaged(str(error)) if is_damage else error

    def _unusable(self, reason: str) -> StateUnusable:
        if reason.startswith(("no such", "malformed", "Could not decode")):
            return self._damaged(reason)
        if "locked" in reason:
            return StateUnusable(
                f"another process has held {self.path} for over {_BUSY_S:.0f} seconds; try again"
            )
        return StateUnusable(
            f"{self.path} cannot be used ({reason}); see that its disk is not full and that you may write "
            "there, or set TIPBENCH_HOME to another folder"
        )

    def _damaged(self, reason: str) -> StateUnusable:
        return StateUnusable(
            f"{self.path} is damaged, or the file of another program ({reason}); restore it from a backup, "
            "or move it away: what was learned and is only in it is then gone"
        )


class _SomebodyElses(Exception):
    """Another process is writing."""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _fill(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute(_GIVES_BACK)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        make(db)
        db.execute("INSERT INTO meta VALUES ('seed', ?)", (secrets.token_bytes(32),))
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute("COMMIT")
    finally:
        db.close()  # the last one out brings everything over into the file


def _free_pages(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA freelist_count").fetchone()[0])


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
