"""The write-ahead log of SQLite's books: it stays short, and what fails about it fails nobody's request."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tipbench.bandit.books import Changes, Entry
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.bandit.upkeep import compact
from tipbench.errors import StateUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MB = 1_000_000


@pytest.fixture
def books(tmp_path: Path) -> Iterator[SqliteBooks]:
    books = SqliteBooks(tmp_path / "tips.db")
    yield books
    books.close()


def write(books: SqliteBooks, name: str, size: int = 10) -> None:
    with books.transaction() as tx:
        tx.write(Changes(profiles={name: bytes(size)}))


def log_size(books: SqliteBooks) -> int:
    return books.path.with_name("tips.db-wal").stat().st_size


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that is full for whatever grows past this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_log_that_a_long_reader_made_grow_is_short_again(books: SqliteBooks) -> None:
    """While somebody reads it cannot start anew; afterwards it does, and gives the disk its space back."""
    write(books, "anna")
    reader = sqlite3.connect(books.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM profiles").fetchone()
    for number in range(30):
        write(books, f"u{number}", MB)
        books.tidy()
    assert log_size(books) > 30 * MB
    reader.execute("COMMIT")
    reader.close()
    for number in range(3):
        books.tidy()
        write(books, f"v{number}")
    assert log_size(books) < 20 * MB


def test_what_was_committed_is_not_refused_when_the_log_cannot_be_brought_over(books: SqliteBooks) -> None:
    """The commit fits into the log that is there, and the file cannot grow: whoever tidies tells that."""
    write(books, "large", 10 * MB)
    books.tidy()  # the log is long now: the next commit brings the rest of it over, the one after begins anew
    write(books, "anna")
    write(books, "larger", 9 * MB)
    with no_file_longer_than(books.path.stat().st_size):
        books._bring_over = True
        write(books, "bert")
        with pytest.raises(StateUnusable, match="cannot be used"):
            books.tidy()
    with books.reading() as reading:
        assert set(reading.profiles(["anna", "bert"])) == {"anna", "bert"}
    write(books, "carl")


def test_space_that_a_stopped_compaction_has_left_is_given_back_by_the_next(books: SqliteBooks) -> None:
    """It has dropped everything and was killed then; the next one finds nothing to drop."""
    entries = [Entry(seq, 0, "serve", str(seq), "anna", "egreedy", bytes(8000)) for seq in range(1, 502)]
    with books.transaction() as tx:
        tx.write(Changes(entries=entries))
    with books.transaction() as tx:
        assert tx.drop(upto=500, limit=500) == 500
    books.tidy()
    assert books.path.stat().st_size > 4 * MB
    assert compact(books, before_ms=0) == 0
    assert books.path.stat().st_size < MB


def test_others_have_their_turn_while_a_log_is_compacted(
    books: SqliteBooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each piece it rests, with nothing locked, and what it wrote has been brought over.

    Pieces are dropped, and then given back to the disk.
    """
    entries = [Entry(seq, 0, "serve", str(seq), "anna", "egreedy", bytes(8000)) for seq in range(1, 1202)]
    with books.transaction() as tx:
        tx.write(Changes(entries=entries))
    books.tidy()
    assert books.path.stat().st_size > 9 * MB
    serving = SqliteBooks(tmp_path / "tips.db")
    rests: list[float] = []

    def rest(seconds: float) -> None:
        turn = serving.begin()
        assert turn is not None
        turn.roll_back()
        db = sqlite3.connect(books.path)
        _, log, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        db.close()
        assert log == moved
        rests.append(seconds)

    monkeypatch.setattr("time.sleep", rest)
    try:
        assert compact(books, before_ms=1) == 1200
    finally:
        serving.close()
    assert len(rests) >= 3 + 4
    assert min(rests) > 0.0
    assert books.path.stat().st_size < 3 * MB
