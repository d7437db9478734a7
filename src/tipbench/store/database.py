"""One SQLite file for several threads and several processes: opened, brought up to date, kept from others.

What was written is on disk when the block that wrote it ends. The file holds a signing key, so it is
for its owner's eyes alone.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.errors import StoreUnusable
from tipbench.private import make_file, narrow_database
from tipbench.store.schema import APPLICATION_ID, STEPS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

Row = dict[str, Any]

_BUSY_S = 30.0
_MOST_IDLE = 8
_LARGEST = 2**63 - 1
# To close any handle of a file lets go of all locks that this process has on it: nobody may connect between
# the making of the file and the closing of the handle that made it.
_MAKING = threading.Lock()


class Database:
    """Connections are opened on first use, kept for the next, and closed with the object at the latest."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._idle: list[sqlite3.Connection] = []
        self._writer = threading.Lock()
        self._mine = threading.local()
        weakref.finalize(self, _close_all, self._idle)

    def close(self) -> None:
        _close_all(self._idle)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Within a `writing` block of the same thread, what it has written so far is seen."""
        held = self._held()
        if held is not None:
            yield held
            return
        with self._told(), self._borrowed() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of the block or none of it, and on disk when it ends. A block in another is a part of it."""
        held = self._held()
        if held is not None:
            yield held
            return
        with self._writer, self._told(), self._borrowed() as db:
            db.execute("BEGIN IMMEDIATE")
            self._mine.held = db
            try:
                yield db
            finally:
                self._mine.held = None
            db.execute("COMMIT")

    def _held(self) -> sqlite3.Connection | None:
        held: sqlite3.Connection | None = getattr(self._mine, "held", None)
        return held

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        """A connection for this block alone. What fails is closed, which also takes back what it wrote."""
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._opened()
        try:
            yield db
        except BaseException:
            db.close()
            raise
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(db)
        else:
            db.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._unusable(str(error)) from None
        except sqlite3.DatabaseError as error:
            # The kinds below it are mistakes in what was asked, not in the file.
            if type(error) is not sqlite3.DatabaseError:
                raise
            raise self._damaged(str(error)) from None

    def _unusable(self, reason: str) -> StoreUnusable:
        if reason.startswith(("no such", "malformed")):
            return self._damaged(reason)
        if "locked" in reason:
            return StoreUnusable(
                f"another process has held {self.path} for over {_BUSY_S:.0f} seconds; try again"
            )
        return StoreUnusable(
            f"{self.path} cannot be used ({reason}); see that its disk is not full and that you may write "
            "there, or set TIPBENCH_HOME to another folder"
        )

    def _damaged(self, reason: str) -> StoreUnusable:
        return StoreUnusable(
            f"{self.path} is damaged, or the file of another program ({reason}); restore it, or move it "
            "away: tokens, jobs and unfinished judging that are only in it are then gone"
        )

    def _opened(self) -> sqlite3.Connection:
        try:
            self._make()
        except OSError as error:
            raise self._unusable(str(error.strerror)) from None
        db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = _as_dict
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # macOS: past the drive's own cache
            self._bring_up(db)
        except BaseException:
            db.close()
            raise
        return db

    def _make(self) -> None:
        """See that there is a file, if only an empty one, and that nobody but its owner may read it."""
        with _MAKING:
            make_file(self.path)
        narrow_database(self.path)

    def _bring_up(self, db: sqlite3.Connection) -> None:
        """Check whose file it is before anything in it is changed, then take the steps that it lacks."""
        if self._version(db) < VERSION:
            with suppress(sqlite3.OperationalError):  # locked by another that does the same
                db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for step in STEPS[self._version(db) :]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")

    def _version(self, db: sqlite3.Connection) -> int:
        """How many steps the file has behind it: none where it is empty."""
        # One statement sees one state of the file, whatever another process does to it meanwhile.
        found = db.execute(
            "SELECT (SELECT application_id FROM pragma_application_id) AS application, "
            "(SELECT user_version FROM pragma_user_version) AS version, "
            "(SELECT count(*) FROM sqlite_master) AS entries"
        ).fetchone()
        if found["application"] == 0 and found["version"] == 0 and found["entries"] == 0:
            return 0
        version = int(found["version"])
        if found["application"] != APPLICATION_ID or version < 1:
            raise self._damaged("it does not say that it is tipbench's")
        if version > VERSION:
            raise StoreUnusable(f"{self.path} was made by a newer tipbench; use that one")
        return version


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def record(kind: type[Record], row: Row) -> Record:
    """The row as a record whose fields are named as its columns; columns that it lacks are left out."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def bounded(number: int) -> int:
    """A number that somebody gave, within what SQLite can compare."""
    return max(-_LARGEST, min(number, _LARGEST))


def storable(text: str) -> str:
    """A text that somebody gave, with what no database takes written out."""
    return text.encode("utf-8", "backslashreplace").decode()
