"""What every kind of books promises: one suite, a file and a real PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tipbench.bandit.books import (
    EVERYBODY,
    POOLED,
    Changes,
    Entry,
    Event,
    Outcome,
    Past,
    ShadowTotal,
    Total,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.books import Books

    OpenBooks = Callable[[], Books]

ODD_IDS = ["../../x", "😀 and ünï", "x" * 200, "'; DROP TABLE log; --", "%s ? %%", " ", "\x01\x7f", "A", "a"]


def entry(seq: int, *, signal: str = "serve", user: str = "anna", ms: int = 0, body: bytes = b"x") -> Entry:
    return Entry(seq, ms or seq, signal, f"d{seq}", user, "egreedy", body)


def write(books: Books, changes: Changes) -> None:
    with books.transaction() as tx:
        tx.write(changes)


def write_and_fail(books: Books, changes: Changes) -> None:
    with books.transaction() as tx:
        tx.write(changes)
        raise ZeroDivisionError


def test_a_log_is_read_from_a_cursor(books: Books) -> None:
    """Entries come in their order, from behind a number, no more than asked for."""
    write(
        books,
        Changes(entries=[entry(n, signal="shadow:s" if n % 3 == 0 else "serve") for n in range(1, 151)]),
    )
    with books.reading() as reading:
        assert reading.last_seq() == 150
        assert [one.seq for one in reading.entries(after=100, limit=10)] == [*range(101, 111)]
        assert reading.entries(after=150, limit=10) == []
        assert [past.entry.seq for past in reading.served(after=0, limit=3)] == [1, 2, 4]
        assert reading.entries(after=0, limit=1) == [entry(1)]


def test_what_was_said_of_a_decision_is_found(books: Books) -> None:
    """Under its signal, behind the decision and no further on than asked for."""
    served, said = entry(2), entry(5, signal="shadow:s")._replace(decision_id="d2")
    others = [entry(3, signal="shadow:s"), said._replace(seq=4, signal="shadow:t")]
    write(books, Changes(entries=[said._replace(seq=1), served, *others, said]))
    with books.reading() as reading:
        assert reading.said("shadow:s", of=served, within=3) == said
        assert reading.said("shadow:s", of=served, within=2) is None
        assert reading.said("shadow:s", of=entry(7), within=9) is None


@pytest.mark.parametrize("many", [1, 2, 3, 63, 64, 65, 200])
def test_any_number_of_rows_goes_in_and_comes_out(books: Books, many: int) -> None:
    """Whatever the size of a batch, all of it is written and found."""
    numbers = range(1, many + 1)
    write(
        books,
        Changes(
            entries=[entry(n, body=bytes([n % 256]) * n) for n in numbers],
            events=[Event(n, "r", "completed", 1.0, None, 5, 1) for n in numbers],
            outcomes=[Outcome(n, n / 1000, "completed", 5) for n in numbers],
            profiles={f"u{n}": b"p%d" % n for n in numbers},
            memories={(f"u{n}", "egreedy"): b"m%d" % n for n in numbers},
        ),
    )
    with books.reading() as reading:
        found = reading.decisions([f"d{n}" for n in range(many + 50)])
        assert found == {
            f"d{n}": Past(entry(n, body=bytes([n % 256]) * n), Outcome(n, n / 1000, "completed", 5))
            for n in numbers
        }
        asked = [(n, which) for n in range(many + 50) for which in ("r", "other")]
        assert reading.repeats(asked) == {(n, "r") for n in numbers}
        assert reading.profiles([f"u{n}" for n in range(many + 50)]) == {f"u{n}": b"p%d" % n for n in numbers}
        keys = [(f"u{n}", policy) for n in range(many + 50) for policy in ("egreedy", "linucb")]
        assert reading.memories(keys) == {(f"u{n}", "egreedy"): b"m%d" % n for n in numbers}


def test_to_ask_for_nothing_is_no_error(books: Books) -> None:
    """Empty books answer, and so do empty questions."""
    write(books, Changes())
    with books.reading() as reading:
        assert reading.last_seq() == 0
        assert reading.decisions([]) == {}
        assert reading.repeats([]) == set()
        assert (reading.totals(), reading.shadows(), reading.choices()) == ([], [], {})


def test_ids_are_keys(books: Books) -> None:
    """Whatever an id looks like, it is one user's and no other's."""
    write(
        books,
        Changes(
            profiles={user: user.encode() for user in ODD_IDS},
            memories={(user, user): user.encode() for user in ODD_IDS},
            events=[Event(1, user, user, None, 2.5, 1, 0) for user in ODD_IDS],
        ),
    )
    with books.reading() as reading:
        assert reading.profiles(ODD_IDS) == {user: user.encode() for user in ODD_IDS}
        assert reading.memories([(user, user) for user in ODD_IDS]) == {
            (user, user): user.encode() for user in ODD_IDS
        }
        assert reading.repeats([(1, user) for user in ODD_IDS]) == {(1, user) for user in ODD_IDS}


def test_counts_add_up_and_values_are_replaced(books: Books) -> None:
    """Totals grow by what is written; profiles, memories and choices are the last that was."""
    for turn in (1, 2):
        write(
            books,
            Changes(
                totals=[Total("a", 1, turn, 2, 0.25), Total("b", 5, 0, 0, 0.0)],
                shadows=[ShadowTotal("shadow:x", 1, turn, 3)],
                choices={"active": f"p{turn}"},
                profiles={"u": b"%d" % turn},
            ),
        )
    with books.reading() as reading:
        assert reading.totals() == [Total("a", 2, 3, 4, 0.5), Total("b", 10, 0, 0, 0.0)]
        assert reading.shadows() == [ShadowTotal("shadow:x", 2, 3, 6)]
        assert reading.choices() == {"active": "p2"}
        assert reading.profiles(["u"]) == {"u": b"2"}


def test_a_transaction_is_whole_or_nothing(books: Books, open_books: OpenBooks) -> None:
    """What fails on the way leaves nothing behind, for us and for others."""
    with pytest.raises(ZeroDivisionError):
        write_and_fail(books, Changes(entries=[entry(1)], profiles={"u": b"p"}))
    for one in (books, open_books()):
        with one.reading() as reading:
            assert (reading.last_seq(), reading.profiles(["u"])) == (0, {})
    write(books, Changes(entries=[entry(1)]))
    with books.reading() as reading:
        assert reading.last_seq() == 1


def test_whoever_wrote_in_between_is_noticed(books: Books, open_books: OpenBooks) -> None:
    """`stale` is True on the first transaction, after another's, and after one that failed; else False."""
    other = open_books()

    def stale(one: Books) -> bool:
        with one.transaction() as tx:
            tx.write(Changes(totals=[Total("a", 1, 0, 0, 0.0)]))
            return tx.stale

    assert stale(books)
    assert not stale(books)
    with books.reading() as reading:
        reading.last_seq()
    books.tidy()
    assert not stale(books)
    assert stale(other)
    assert stale(books)
    assert not stale(books)
    with pytest.raises(ZeroDivisionError), books.transaction():
        raise ZeroDivisionError
    assert stale(books)


def test_writers_take_turns(books: Books, open_books: OpenBooks) -> None:
    """Several that read a number and write the next one never write the same."""
    places = [books, *(open_books() for _ in range(3))]

    def add(one: Books) -> None:
        for _ in range(25):
            with one.transaction() as tx:
                tx.write(Changes(entries=[entry(tx.last_seq() + 1)]))

    threads = [threading.Thread(target=add, args=(one,)) for one in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with books.reading() as reading:
        assert [one.seq for one in reading.entries(after=0, limit=1000)] == [*range(1, 101)]


def test_a_reader_sees_one_moment(books: Books, open_books: OpenBooks) -> None:
    """What is committed while somebody reads is not seen before they read anew."""
    write(books, Changes(entries=[entry(1)]))
    with open_books().reading() as reading:
        assert reading.last_seq() == 1
        write(books, Changes(entries=[entry(2)]))
        assert reading.last_seq() == 1
    with books.reading() as reading:
        assert reading.last_seq() == 2


def test_what_was_written_is_there_for_the_next(books: Books, open_books: OpenBooks) -> None:
    """Closed and opened again, also by another, it is the same state with the same seed."""
    write(books, Changes(entries=[entry(1)], memories={("u", "p"): b"m", (POOLED, "p"): b"all"}))
    books.close()
    again = open_books()
    assert again.seed() == books.seed()
    assert len(again.seed()) == 32
    with again.reading() as reading:
        assert reading.entries(after=0, limit=5) == [entry(1)]
        assert reading.memories_of("p", after=None, limit=5) == [(POOLED, b"all"), ("u", b"m")]
        assert reading.memories_of("p", after=POOLED, limit=5) == [("u", b"m")]
    with books.transaction() as tx:  # closed is not the end: it opens when it is needed
        assert tx.last_seq() == 1


def test_to_forget_comes_before_what_is_written(books: Books) -> None:
    """A user's state goes, of every policy, and what is written in the same transaction stays."""
    both = {"anna": b"a", "bert": b"b"}
    memories = {(user, policy): body for user, body in both.items() for policy in ("p", "q")}
    write(books, Changes(profiles=both, memories={**memories, (POOLED, "p"): b"all"}))
    write(books, Changes(forgotten=frozenset({"anna"}), profiles={"anna": b"new"}))
    with books.reading() as reading:
        assert reading.profiles([*both]) == {"anna": b"new", "bert": b"b"}
        assert reading.memories([*memories, (POOLED, "p")]) == {
            ("bert", "p"): b"b",
            ("bert", "q"): b"b",
            (POOLED, "p"): b"all",
        }
    write(books, Changes(forgotten=frozenset({EVERYBODY})))
    with books.reading() as reading:
        assert reading.profiles([*both]) == {}
        assert reading.memories([*memories, (POOLED, "p")]) == {}


def test_old_entries_are_dropped_with_what_was_told(books: Books) -> None:
    """So many at a time, the oldest first, never the newest entry of all."""
    numbers = range(1, 11)
    write(
        books,
        Changes(
            entries=[entry(n, ms=100 * n) for n in numbers],
            events=[Event(n, "r", "completed", 1.0, None, 5, 1) for n in numbers],
            outcomes=[Outcome(n, 1.0, "completed", 5) for n in numbers],
        ),
    )
    with books.transaction() as tx:
        assert tx.count_before(601) == (6, 6)
        assert tx.drop(upto=6, limit=4) == 4
        assert tx.drop(upto=6, limit=4) == 2
        assert tx.drop(upto=6, limit=4) == 0
    with books.transaction() as tx:
        assert [one.seq for one in tx.entries(after=0, limit=99)] == [7, 8, 9, 10]
        assert tx.repeats([(n, "r") for n in numbers]) == {(n, "r") for n in range(7, 11)}
        assert tx.drop(upto=10, limit=100) == 3
        assert tx.last_seq() == 10
    assert not books.shrink()
    with books.reading() as reading:
        assert reading.last_seq() == 10


def test_two_that_begin_together_make_one(location: str, open_books: OpenBooks) -> None:
    """Processes that open a place where nothing is yet all end up with the same seed."""
    program = (
        "import sys, pathlib; from tipbench.bandit.opening import open_books\n"
        "print(open_books(sys.argv[1]).seed().hex())"
    )
    command = [sys.executable, "-c", program, location]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate(timeout=60)[0].strip() for process in started}
    assert said == {open_books().seed().hex()}
