"""Rows that are written behind: whoever appends, puts in place or removes them, all find the same."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tipbench.bandit import behind, sqlite_books
from tipbench.bandit.books import EVERYBODY, Changes, Entry
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import StateUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tipbench.bandit.books import Reading, Transaction

    Open = Callable[[], SqliteBooks]

USERS = [f"user-{number}" for number in range(12)]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the file once more, as another process would; after some rows they are put in place."""
    for name, little in (("_MANY", 20), ("_TOO_MANY", 50), ("_MOST", 60), ("_TOGETHER", 4)):
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


def test_many_that_append_are_no_slower_than_all_of_them(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each puts in place a little for what it appends itself; with many that is too little, so they hurry."""
    monkeypatch.setattr(behind, "_MOST", 10**6)
    places = [opened() for _ in range(6)]
    for number in range(1200):
        with places[number % 6].transaction() as tx:
            tx.write(Changes(profiles={f"user-{number}": b"x"}))
    assert rows(places[0], "fresh") < 120
    with opened().reading() as reading:
        assert len(reading.profiles([f"user-{number}" for number in range(1200)])) == 1200


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
    assert (rows(books, "profiles"), rows(books, "fresh")) == (199, 1)
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


def test_a_reader_remembers_nothing(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be many at once: of some megabytes that were appended, each takes what it asks for."""
    for name in ("_MANY", "_MOST"):
        monkeypatch.setattr(behind, name, 10**6)
    books = opened()
    with books.transaction() as tx:
        tx.write(Changes(profiles={f"user-{number}": bytes(10_000) for number in range(400)}))
    tracemalloc.start()
    try:
        with books.reading() as reading:
            assert reading.profiles(["user-7", "nobody"]) == {"user-7": bytes(10_000)}
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_reader_finds_who_came_after_everybody_was_forgotten(opened: Open) -> None:
    """However many are asked for at once, and in whichever piece of them it is noticed."""
    books, users = opened(), [f"user-{number:03}" for number in range(200)]
    with books.transaction() as tx:
        tx.write(Changes(profiles=dict.fromkeys(users, b"old")))
    with books.transaction() as tx:
        tx.write(Changes(forgotten=frozenset([EVERYBODY]), profiles=dict.fromkeys(users[::3], b"new")))
    with books.reading() as reading:
        assert reading.profiles(users) == dict.fromkeys(users[::3], b"new")


def test_a_reader_of_one_heeds_that_everybody_was_forgotten(opened: Open) -> None:
    """What was appended before that is still there, and no longer holds."""
    books = opened()
    with books.transaction() as tx:
        tx.write(Changes(profiles={"anna": b"old", "bert": b"old"}))
    with books.transaction() as tx:
        tx.write(Changes(forgotten=frozenset([EVERYBODY]), profiles={"bert": b"new"}))
    assert rows(books, "fresh") == 4
    with books.reading() as reading:
        assert reading.profiles(["anna"]) == {}
        assert reading.profiles(["bert"]) == {"bert": b"new"}


def test_a_row_that_cannot_be_read_keeps_nobody_from_writing(opened: Open) -> None:
    """Each who begins is told of it, no transaction is left open, and once it is gone all goes on."""
    books = opened()
    with books.transaction() as tx:
        tx.write(Changes(profiles={"anna": b"x"}))
    db = sqlite3.connect(books.path, timeout=0, isolation_level=None)
    db.execute("INSERT INTO fresh VALUES (2, 'nowhere', 'anna', x'00')")
    for _ in range(2):
        with pytest.raises(StateUnusable, match="a row of fresh"), books.transaction():
            pass
    with pytest.raises(StateUnusable, match="a row of fresh"):
        books.begin()
    db.execute("DELETE FROM fresh WHERE n = 2")
    db.close()
    with books.transaction() as tx:
        assert tx.profiles(["anna"]) == {"anna": b"x"}


def first_version(path: Path, entries: list[Entry]) -> bytes:
    """Make a file as the first version did, with two profiles; the seed in it."""
    made = SqliteBooks(path)
    made.close()
    db = sqlite3.connect(path)
    db.executescript(
        """PRAGMA auto_vacuum = NONE; VACUUM;
        DROP TABLE served; DROP TABLE fresh; DROP TABLE profiles;
        CREATE TABLE profiles (user_id TEXT PRIMARY KEY, body BLOB NOT NULL);
        CREATE UNIQUE INDEX log_served ON log (decision_id) WHERE signal = 'serve';
        INSERT INTO profiles VALUES ('bert', x'02'), ('anna', x'01');
        PRAGMA user_version = 1;"""
    )
    db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
    db.commit()
    db.close()
    return made.seed()


def gives_back(path: Path) -> bool:
    """Whether the file becomes shorter when something was dropped from it."""
    db = sqlite3.connect(path)
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    db.close()
    return bool(mode == 2)


def test_a_file_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    """With an index where there are rows now: its decisions and profiles are found, by three at once too.

    Whoever is first keeps it open, and those who come too late to take it over go on all the same.
    """
    path = tmp_path / "tips.db"
    entries = [Entry(seq, 1, "serve", id_of(seq), "anna", "egreedy", b"x") for seq in range(1, 300)]
    seed = first_version(path, entries)
    assert not gives_back(path)
    program = "import sys, pathlib\nfrom tipbench.bandit.sqlite_books import SqliteBooks\n"
    program += "books = SqliteBooks(pathlib.Path(sys.argv[1]))\nwith books.transaction(): pass\n"
    program += "print(books.seed().hex(), flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert {one.stdout.readline().strip() for one in started if one.stdout} == {seed.hex()}
    for one in started:
        one.communicate(timeout=60)
    books = SqliteBooks(path)
    with books.reading() as reading:
        assert reading.profiles(["anna", "bert"]) == {"anna": b"\1", "bert": b"\2"}
        found = reading.decisions([one.decision_id for one in entries])
        assert [past.entry for past in found.values()] == entries
    books.close()
    assert gives_back(path)


def test_a_file_that_an_older_one_still_uses_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on writing as it always did, and what it acknowledges would not be found."""
    monkeypatch.setattr(sqlite_books, "_BUSY_S", 0.0)
    path = tmp_path / "tips.db"
    first_version(path, [])
    older = sqlite3.connect(path)
    older.execute("SELECT * FROM profiles").fetchall()
    with pytest.raises(StateUnusable, match="still uses it"):
        SqliteBooks(path)
    assert older.execute("PRAGMA user_version").fetchone() == (1,)
    older.close()
    books = SqliteBooks(path)
    with books.reading() as reading:
        assert reading.profiles(["anna"]) == {"anna": b"\1"}
    books.close()
