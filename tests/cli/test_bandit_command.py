"""`bandit`: statistics, export, migration and compaction from the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command import TIPBENCH, tipbench
from on_terminal import on_terminal
from tipbench.bandit.sqlite_books import SqliteBooks
from tips_world import Clock, decided, make_tips, reward, score, seen, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.bandit.books import Books


FULL = Path("/dev/full")


@pytest.fixture
def served(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    """A home where tips have been served, long ago and now."""
    monkeypatch.delenv("TIPBENCH_TIPS_DB", raising=False)
    books = SqliteBooks(fresh_home / "tips.db")
    clock = Clock(now_ms=1_600_000_000_000)
    tips = make_tips(books, clock=clock)
    told(tips, reward(decided(tips, score("anna", "old", "egreedy"))))
    clock.now_ms = time.time_ns() // 1_000_000
    told(tips, reward(decided(tips, score("bert", "new", "egreedy")), event="dismissed"))
    decided(tips, score("anna", "silent"))
    yield books
    books.close()


def test_statistics_are_shown(served: Books) -> None:
    """As a table, as JSON, and of one user; whose the weights are is said."""
    shown = tipbench("bandit", "stats")
    assert shown.code == 0, shown.err
    assert "egreedy-v2" in shown.out
    found = json.loads(tipbench("bandit", "stats", "--json").out)
    (egreedy,) = [one for one in found["policies"] if one["policy"] == "egreedy"]
    assert (egreedy["decisions"], egreedy["rewards"], egreedy["mean_reward"]) == (2, 2, 0.5)
    assert "egreedy: mean weights of 2 users" in shown.out
    anna = tipbench("bandit", "stats", "--user", "anna")
    assert "egreedy: weights of anna" in anna.out
    assert "task_overlap_load" in anna.out


@pytest.mark.parametrize("user", ["", "a" * 201, os.fsdecode(b"\xff")])
def test_no_user_is_called_so(served: Books, user: str) -> None:
    """An id that the service takes from nobody is refused in a sentence."""
    refused = tipbench("bandit", "stats", "--user", user)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("tipbench: --user ")


def test_statistics_of_an_unknown_user_are_refused(served: Books) -> None:
    """Exit code 2 and a sentence for a user without decisions; no sentence for a user who has some."""
    for form in ((), ("--json",)):
        refused = tipbench("bandit", "stats", "--user", "nobody", *form)
        assert (refused.code, refused.out) == (2, "")
        assert "no such user 'nobody'" in refused.err
        assert refused.err.count("\n") == 1
        known = tipbench("bandit", "stats", "--user", "bert", *form)
        assert (known.code, known.err) == (0, "")


def test_an_export_goes_to_a_file_or_a_pipe(served: Books, tmp_path: Path) -> None:
    """Both forms; a file that is there is not replaced unasked."""
    out = tmp_path / "log.csv"
    done = tipbench("bandit", "export", "--format", "csv", "--out", str(out))
    assert (done.code, "3 decisions" in done.err) == (0, True), done.err
    rows = [*csv.DictReader(io.StringIO(out.read_text()))]
    assert [row["reward"] for row in rows] == ["1.0", "0.0", ""]
    assert tipbench("bandit", "export", "--format", "csv", "--out", str(out)).code == 2
    piped = tipbench("bandit", "export", "--policy", "egreedy")
    assert [json.loads(line)["pscore"] > 0 for line in piped.out.splitlines()] == [True, True]
    nobodys = tipbench("bandit", "export", "--policy", "egreedy/v2")
    assert (nobodys.code, nobodys.out, "egreedy-v2" in nobodys.err) == (2, "", True)
    assert "0 decisions" in tipbench("bandit", "export", "--policy", "linucb").err


def test_an_export_never_takes_the_place_of_the_state(served: Books) -> None:
    """Not even with --force, and by whatever path it is named."""
    before = Path(served.where).read_bytes()
    refused = tipbench("bandit", "export", "--force", "--out", f"{Path(served.where).parent}/./tips.db")
    assert (refused.code, "is the state itself" in refused.err) == (2, True)
    assert Path(served.where).read_bytes() == before


ODD_IDS = ["a,b", 'a"b', "a\nb", "a\rb", "a\r\nb", "\u2028 ünï 😀", " =1+1 ", "\x0b\x1c\x85", "NULL"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_odd_ids_come_out_as_they_went_in(
    fresh_home: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends a line elsewhere, and whatever characters a terminal has: a row is a decision."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    books = SqliteBooks(fresh_home / "tips.db")
    tips = make_tips(books)
    for odd in ODD_IDS:
        told(tips, reward(decided(tips, score(odd, odd)), event=odd, worth=1 / 3))
    books.close()
    command = [*TIPBENCH, "bandit", "export", "--format"]
    table, lines = (
        subprocess.run([*command, form], capture_output=True, check=True, timeout=60).stdout.decode()
        for form in ("csv", "jsonl")
    )
    rows = [*csv.DictReader(io.StringIO(table, newline=""))]
    assert [(row["user_id"], row["event"], float(row["reward"])) for row in rows] == [
        (odd, odd, 1 / 3) for odd in ODD_IDS
    ]
    assert [json.loads(line)["user_id"] for line in lines.split("\n")[:-1]] == ODD_IDS


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.usefixtures("served")
def test_an_export_without_room_says_so() -> None:
    """One sentence, for a file and for standard output; a reader that has seen enough is no error."""
    done = tipbench("bandit", "export", "--out", str(FULL), "--force")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "No space left" in done.err
    with FULL.open("w") as full:
        command = [*TIPBENCH, "bandit", "export"]
        piped = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (piped.returncode, piped.stderr.count(b"\n")) == (3, 1), piped.stderr
    assert b"standard output cannot be written (No space left" in piped.stderr
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (0, b"")
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    nowhere = subprocess.run(closed, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (nowhere.returncode, nowhere.stderr.count(b"\n")) == (2, 1), nowhere.stderr


def test_state_is_migrated_and_the_log_compacted(served: Books) -> None:
    """What is copied and dropped is said, and done."""
    migrated = tipbench("bandit", "migrate")
    assert "2 users copied" in migrated.out
    assert seen(served, "bert") == 1
    compacted = tipbench("bandit", "compact", "--keep-days", "30")
    assert compacted.out.strip().endswith(": 1")
    assert tipbench("bandit", "compact", "--keep-days", "0").code == 2
    assert tipbench("bandit", "migrate", "--to", "egredy-v2").code == 2


@pytest.mark.usefixtures("served")
def test_compacting_shows_on_a_terminal_how_far_it_is() -> None:
    """A bar while it works, and then the result alone; piped, the result alone."""
    code, shown = on_terminal("bandit", "compact", "--keep-days", "30")
    assert (code, "dropping" in shown, "100%" in shown) == (0, True, True)
    assert shown.rstrip().endswith("entries of the log that were dropped: 1")
    assert tipbench("bandit", "compact", "--keep-days", "30").err == ""


@pytest.mark.parametrize("command", ["stats", "export", "migrate", "compact"])
def test_where_nothing_was_served_nothing_is_made(fresh_home: Path, command: str) -> None:
    """A home without tips is said to be one, and stays as it is."""
    done = tipbench("bandit", command)
    assert (done.code, "no tip has been served" in done.err) == (2, True), done.err
    assert not (fresh_home / "tips.db").exists()


def test_damaged_state_is_named(served: Books, fresh_home: Path) -> None:
    """Exit 3 with the file's name, for every command."""
    served.close()
    (fresh_home / "tips.db").write_bytes(b"rubbish" * 1000)
    for command in ("stats", "export", "migrate", "compact"):
        done = tipbench("bandit", command)
        assert (done.code, "tips.db" in done.err) == (3, True), (command, done.err)
