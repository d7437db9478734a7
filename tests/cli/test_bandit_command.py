"""`bandit`: statistics, export, migration and compaction from the command line."""

from __future__ import annotations

import csv
import io
import json
import time
from typing import TYPE_CHECKING

import pytest

from command import tipbench
from on_terminal import on_terminal
from tipbench.bandit.sqlite_books import SqliteBooks
from tips_world import Clock, decided, make_tips, reward, score, seen, told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tipbench.bandit.books import Books


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
    """As a table, as JSON, and of one user with weights by name."""
    shown = tipbench("bandit", "stats")
    assert shown.code == 0, shown.err
    assert "egreedy-v2" in shown.out
    found = json.loads(tipbench("bandit", "stats", "--json").out)
    (egreedy,) = [one for one in found["policies"] if one["policy"] == "egreedy"]
    assert (egreedy["decisions"], egreedy["rewards"], egreedy["mean_reward"]) == (2, 2, 0.5)
    anna = tipbench("bandit", "stats", "--user", "anna")
    assert "task_overlap_load" in anna.out


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
