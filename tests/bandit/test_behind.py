"""Rows that are written behind: whoever appends, puts in place or removes them, all find the same."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tipbench.bandit import behind
from tipbench.bandit.books import EVERYBODY, Changes, Entry
from tipbench.bandit.sqlite_books import SqliteBooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tipbench.bandit.books import Reading, Transaction

    Open = Callable[[], SqliteBooks]

USERS = [f"user-{number}" for number in range(12)]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the file once more, as another process would; after some rows they are put in place."""
    for name, little in (("_MANY", 20), ("_MOST", 60), ("_TOGETHER", 4)):
        monkeypatch.setattr(behind, name, little)
    all_opened: list[SqliteBooks] = []

    def open_() -> SqliteBooks:
        all_opened.append(SqliteBooks(tmp_path / "tips.db"))
        return all_opened[-1]

    yield open_
    for one in all_opened:
        one.close()


def rows(books: SqliteBooks, table: str) -> int:
    db = sqlite3.connect(books.path)
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a test's table
    finally:
        db.close()


class Model:
    """What ought to be found."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.profiles: dict[str, bytes] = {}
        self.log: dict[int, Entry] = {}

    def act(self, books: SqliteBooks) -> None:
        """One transaction of some kind; one in ten fails at its end."""
        before = dict(self.profiles), dict(self.log)
        try:
            with books.transaction() as tx:
                if self.chance.random() < 0.1:
                    self._drop(tx)
                else:
                    tx.write(self._changes())
                self._compare(tx)
                1 / (self.chance.random() > 0.1)
        except ZeroDivisionError:
            self.profiles, self.log = before

    def look(self, books: SqliteBooks) -> None:
        with books.reading() as reading:
            self._compare(reading)

    def _compare(self, reading: Reading) -> None:
        served = {one.decision_id: one for one in self.log.values() if one.signal == "serve"}
        asked = [id_of(seq) for seq in range(1, max(self.log, default=0) + 2)]
        found = reading.decisions([*asked, "feed", "nobody's"])
        assert {one: past.entry for one, past in found.items()} == served
        assert reading.profiles(USERS) == self.profiles

    def _changes(self) -> Changes:
        forgotten = frozenset([self.chance.choice([EVERYBODY, *USERS])] if self.chance.random() < 0.1 else [])
        profiles = {user: self.chance.randbytes(9) for user in self.chance.sample(USERS, 3)}
        kept = {user: body for user, body in self.profiles.items() if not forgotten & {EVERYBODY, user}}
        self.profiles = kept | profiles
        entries = [
            Entry(
                seq, 1, self.chance.choice(["serve", "serve", "shadow:x"]), id_of(seq), "u", "egreedy", b"x"
            )
            for seq in range(
                max(self.log, default=0) + 1, max(self.log, default=0) + self.chance.randrange(1, 5)
            )
        ]
        self.log |= {one.seq: one for one in entries}
        return Changes(entries=entries, profiles=profiles, forgotten=forgotten)

    def _drop(self, tx: Transaction) -> None:
        limit = self.chance.randrange(1, 9)
        gone = [seq for seq in sorted(self.log)[:limit] if seq < max(self.log)]
        assert tx.drop(upto=max(self.log, default=0), limit=limit) == len(gone)
        for seq in gone:
            del self.log[seq]


def id_of(seq: int) -> str:
    """Most are like those that are made, some like nothing."""
    return f"{seq:032x}" if seq % 5 else f"decision {seq}"


@pytest.mark.parametrize("seed", range(30))
def test_the_same_is_found_whoever_asks(opened: Open, seed: int) -> None:
    """Processes write and read in turn, fail, forget, drop, come late and start anew: all agree."""
    model = Model(seed)
    places = [opened(), opened()]
    for _ in range(120):
        model.act(model.chance.choice(places))
        if model.chance.random() < 0.2:
            model.look(model.chance.choice(places))
        if model.chance.random() < 0.05:
            model.chance.choice(places).close()
        if model.chance.random() < 0.02:
            places.append(opened())
    for one in (*places, opened()):
        model.look(one)
    assert rows(places[0], "served") > 0
    assert rows(places[0], "fresh") <= 60


def test_what_is_appended_does_not_pile_up(opened: Open) -> None:
    """One user who comes again and again has no row for every time; nor has a process that ends soon."""
    books = opened()
    for number in range(2000):
        with books.transaction() as tx:
            tx.write(Changes(profiles={"anna": b"%d" % number}))
    assert rows(books, "fresh") < 60
    for number in range(200):
        books = opened()
        with books.transaction() as tx:
            tx.write(Changes(profiles={f"user-{number}": b"x"}))
        books.close()
    assert rows(books, "fresh") <= 60
    with opened().reading() as reading:
        assert reading.profiles(["anna"]) == {"anna": b"1999"}


def test_whoever_was_away_finds_what_was_put_in_place_meanwhile(opened: Open) -> None:
    """A reader and a writer that had read everything come back when all of it was removed."""
    away, here = opened(), opened()
    with away.transaction() as tx:
        tx.write(Changes(profiles={"anna": b"old", "bert": b"old"}))
    with away.reading() as reading:
        assert reading.profiles(["anna"]) == {"anna": b"old"}
    for number in range(200):
        with here.transaction() as tx:
            tx.write(Changes(profiles={"anna": b"new", f"user-{number}": b"x"}))
    with away.reading() as reading:
        assert reading.profiles(["anna", "bert"]) == {"anna": b"new", "bert": b"old"}
    with away.transaction() as tx:
        assert tx.profiles(["anna", "bert", "user-7"]) == {"anna": b"new", "bert": b"old", "user-7": b"x"}


def test_numbers_go_on_when_all_is_put_in_place_at_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest row is never removed: whoever comes next counts from it, and is heard."""
    monkeypatch.setattr(behind, "_PACE", 8)
    books = opened()
    with books.transaction() as tx:
        tx.write(Changes(profiles={f"user-{number}": b"old" for number in range(200)}))
    assert (rows(books, "profiles"), rows(books, "fresh")) == (200, 1)
    other = opened()
    with other.transaction() as tx:
        tx.write(Changes(profiles={"user-1": b"new"}))
    with books.transaction() as tx:
        assert tx.profiles(["user-1", "user-2"]) == {"user-1": b"new", "user-2": b"old"}


def test_what_is_dropped_from_the_log_leaves_no_row(opened: Open) -> None:
    """Of a thousand decisions that are gone, and all found until then, nothing is kept but the newest."""
    books = opened()
    for seq in range(1, 1001):
        with books.transaction() as tx:
            tx.write(Changes(entries=[Entry(seq, 1, "serve", id_of(seq), "u", "egreedy", b"x")]))
    assert rows(books, "served") > 900
    with books.transaction() as tx:
        assert tx.drop(upto=1000, limit=1000) == 999
    for number in range(200):
        with books.transaction() as tx:
            tx.write(Changes(profiles={"anna": b"%d" % number}))
    assert rows(books, "served") == 1
    with books.reading() as reading:
        assert [*reading.decisions([id_of(seq) for seq in range(1, 1001)])] == [id_of(1000)]


def test_nothing_is_remembered_of_a_file_that_was_closed(opened: Open, tmp_path: Path) -> None:
    """Another one may be in its place: what holds is what that says."""
    books, other = opened(), SqliteBooks(tmp_path / "other.db")
    for one, user in ((books, "anna"), (other, "bert")):
        with one.transaction() as tx:
            tx.write(Changes(profiles={user: b"x"}))
        one.close()
    other.path.replace(books.path)
    with books.transaction() as tx:
        assert tx.profiles(["anna", "bert"]) == {"bert": b"x"}


def test_a_file_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    """With an index where there are rows now: its decisions and profiles are found, by two at once too."""
    path = tmp_path / "tips.db"
    made = SqliteBooks(path)
    entries = [Entry(seq, 1, "serve", id_of(seq), "anna", "egreedy", b"x") for seq in range(1, 300)]
    made.close()
    db = sqlite3.connect(path)
    db.executescript(
        """DROP TABLE served; DROP TABLE fresh; DROP TABLE profiles;
        CREATE TABLE profiles (user_id TEXT PRIMARY KEY, body BLOB NOT NULL);
        CREATE UNIQUE INDEX log_served ON log (decision_id) WHERE signal = 'serve';
        INSERT INTO profiles VALUES ('bert', x'02'), ('anna', x'01');
        PRAGMA user_version = 1;"""
    )
    db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
    db.commit()
    db.close()
    program = "import sys, pathlib\nfrom tipbench.bandit.sqlite_books import SqliteBooks\n"
    program += "print(SqliteBooks(pathlib.Path(sys.argv[1])).seed().hex())"
    command = [sys.executable, "-c", program, str(path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {one.communicate(timeout=60)[0].strip() for one in started} == {made.seed().hex()}
    books = SqliteBooks(path)
    with books.reading() as reading:
        assert reading.profiles(["anna", "bert"]) == {"anna": b"\1", "bert": b"\2"}
        found = reading.decisions([one.decision_id for one in entries])
        assert [past.entry for past in found.values()] == entries
    books.close()
