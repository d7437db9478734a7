"""Acknowledged means durable: processes are killed at any moment, and several serve the same users."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import tips_process
from tipbench.bandit.opening import open_books as open_at
from tipbench.bandit.profiles import Profile
from tips_world import make_tips, reward, seen, told

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.bandit.books import Books

USERS = [f"u{n}" for n in range(tips_process.USERS)]


def start(location: str, name: str, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, tips_process.__file__, location, name, name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(location: str, name: str, after_s: float) -> set[str]:
    """What a process acknowledged before it was killed, so long after it had begun."""
    process = start(location, name, 10_000)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    process.kill()
    said = process.stdout.read()
    process.wait()
    process.stdout.close()
    whole, _, _ = said.rpartition("\n")
    return set(whole.split())


def check(books: Books, acknowledged: set[str]) -> None:
    """Nothing acknowledged is lost, nothing is counted twice, and all counts agree with each other."""
    with books.reading() as reading:
        found = reading.decisions([*acknowledged])
        assert {one for one, past in found.items() if past.outcome is not None} == acknowledged
        decisions = reading.served(after=0, limit=10**6)
        entries = reading.entries(after=0, limit=10**6)
        profiles = {u: Profile.decode(body) for u, body in reading.profiles(USERS).items()}
        totals = reading.totals()
    assert [one.seq for one in entries] == [*range(1, len(entries) + 1)]
    ended = [past for past in decisions if past.outcome is not None]
    assert sum(total.decisions for total in totals) == len(decisions)
    assert sum(total.rewards for total in totals) == len(ended)
    for user in USERS:
        mine = [past for past in ended if past.entry.user_id == user]
        assert seen(books, user) == len(mine)
        if user in profiles:
            assert profiles[user].total.ended == len(mine)
            assert profiles[user].total.shown == sum(past.entry.user_id == user for past in decisions)


def survives(location: str, *, trials: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - when a process is killed
    acknowledged: set[str] = set()
    for trial in range(trials):
        acknowledged |= killed(location, f"trial-{trial}", chance.uniform(0.0, 0.3))
        books = open_at(location)
        check(books, acknowledged)
        books.close()
    assert acknowledged


def test_a_killed_process_loses_and_doubles_nothing(location: str) -> None:
    """Three times in a row on the same state, in the middle of its work."""
    survives(location, trials=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_killed_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    """At a hundred random moments, from the first transaction on."""
    survives(str(tmp_path / "tips.db"), trials=100, seed=2)


def test_two_processes_on_the_same_users_lose_nothing(location: str) -> None:
    """Both serve and reward the same few users at the same time; every reward is learned once."""
    both = [start(location, name, 15) for name in ("one", "two")]
    said = [process.communicate(timeout=120)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    acknowledged = {line for lines in said for line in lines if line != "ready"}
    assert len(acknowledged) == 2 * 15 * 8
    books = open_at(location)
    check(books, acknowledged)
    assert sum(seen(books, user) for user in USERS) == len(acknowledged)
    books.close()


def test_what_was_not_acknowledged_can_be_sent_again(location: str) -> None:
    """After a kill the client sends everything once more; each is learned once in the end."""
    killed(location, "first", 0.2)
    books = open_at(location)
    tips = make_tips(books, expire_ms=10**15)
    with books.reading() as reading:
        past = reading.served(after=0, limit=10**6)
    for one in past:
        again = told(tips, reward(one.entry.decision_id, f"r-{one.entry.decision_id}"))
        assert again.learned == (one.outcome is None)
    check(books, {one.entry.decision_id for one in past})
    books.close()
