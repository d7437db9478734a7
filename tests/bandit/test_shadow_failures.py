"""Shadows that fail: each is counted by its reason, and nobody else notices."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

import misbehaving_policies
from shadow_world import BRISK, Reported, bad, decision, running, settled, until
from tipbench.bandit.shadow import Limits, Shadows, ShadowSpec

if TYPE_CHECKING:
    from pathlib import Path

SMALL = replace(BRISK, memory_mb=128, deadline_s=10.0)


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("sleeps", "slow", "longer than 1 s"),
        ("spins", "slow", "longer than 1 s"),
        ("holds_the_interpreter", "slow", "longer than 1 s"),
        ("leaves_a_process", "slow", "longer than 1 s"),
        ("raises", "broken", "RuntimeError: no idea"),
        ("exits", "broken", "status 3"),
        ("exits_at_once", "broken", "status 4"),
        ("wrong_shape", "broken", "scores of shape (2,) for 3 candidates"),
        ("wrong_propensities", "broken", "sum to 2.0"),
        ("not_finite", "broken", "not finite"),
        ("nothing_at_all", "broken", "AttributeError"),
        ("chatters", "broken", "cannot be read"),
        ("cannot_be_made", "broken", "no licence"),
        ("no_such_factory", "broken", "cannot be loaded"),
    ],
)
def test_a_failure_is_counted_by_its_reason_and_harms_no_other(name: str, reason: str, words: str) -> None:
    """Every decision is accounted for, the last trouble is said, and the other shadow decides them all."""
    reported = Reported()
    with running([bad(name), bad("good")], reported, limits=BRISK) as shadows:
        for number in range(2):
            shadows.offer(decision(number))
        settled(shadows, "good")
        settled(shadows, name)
        counts = shadows.counts()
    assert (counts[name].dropped, counts[name].decided) == ({reason: 2}, 0)
    assert words in counts[name].trouble
    assert (counts["good"].decided, counts["good"].starts) == (2, 1)
    assert not reported.results(name)


def test_a_policy_that_only_raises_costs_no_restart() -> None:
    """An exception is an answer like another: the process goes on."""
    with running([bad("raises")]) as shadows:
        for number in range(50):
            shadows.offer(decision(number))
        settled(shadows, "raises")
        counts = shadows.counts()["raises"]
    assert (counts.dropped, counts.starts) == ({"broken": 50}, 1)


@pytest.mark.parametrize("name", ["prints", "reads_input"])
def test_what_a_policy_prints_or_reads_is_nobodys(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither blocks it, nor reaches the service's own output, nor is taken for an answer."""
    with running([bad(name)]) as shadows:
        for number in range(5):
            shadows.offer(decision(number))
        settled(shadows, name)
        assert shadows.counts()[name].decided == 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the bound is the system's")  # noqa: PTH110
def test_a_policy_that_allocates_without_end_meets_a_bound() -> None:
    """Its process ends long before the machine's memory does, and before its deadline."""
    with running([bad("allocates"), bad("good")], limits=SMALL) as shadows:
        for number in range(2):
            shadows.offer(decision(number))
        settled(shadows, "allocates")
        settled(shadows, "good")
        counts = shadows.counts()
    assert counts["allocates"].dropped == {"broken": 2}
    assert "more memory than it may" in counts["allocates"].trouble
    assert counts["good"].decided == 2


def test_a_policy_that_leaks_is_replaced_in_time() -> None:
    """What grows with every decision is ended at the bound; a new process serves the decisions after it."""
    with running([bad("leaks")], limits=SMALL) as shadows:
        for number in range(8):
            shadows.offer(decision(number))
        settled(shadows, "leaks")
        counts = shadows.counts()["leaks"]
    assert set(counts.dropped) == {"broken"}
    assert counts.decided >= 4
    assert counts.starts >= 2


@pytest.mark.parametrize(("name", "reason"), [("trips", "slow"), ("falls", "broken")])
def test_only_the_decision_at_fault_is_dropped(name: str, reason: str) -> None:
    """What was handed over with it is decided by the next process, in its order and once."""
    reported = Reported()
    with running([bad(name)], reported, limits=BRISK) as shadows:
        for number in range(20):
            shadows.offer(decision(number, marked=number in {7, 8}))
        settled(shadows, name)
        counts = shadows.counts()[name]
    decided = [one.decision_id for one in reported.results(name)]
    assert decided == [f"d{number}" for number in range(20) if number not in {7, 8}]
    assert (counts.dropped, counts.starts) == ({reason: 2}, 3)


def test_a_policy_that_is_slow_to_load_is_given_up_and_tried_again() -> None:
    """What waited for it is dropped as slow; another shadow does not wait for it."""
    limits = replace(BRISK, start_s=3.0)
    with running([bad("slow_to_make")], limits=limits) as shadows:
        shadows.offer(decision(1))
        settled(shadows, "slow_to_make")
        until(lambda: shadows.counts()["slow_to_make"].starts >= 2)
        counts = shadows.counts()["slow_to_make"]
    assert counts.dropped == {"slow": 1}
    assert "not loaded within 3 s" in counts.trouble


def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever the system lacks for it: what waited is counted as broken, and later it is there again."""
    with monkeypatch.context() as lacking:
        lacking.setattr(sys, "executable", str(tmp_path / "not-there"))
        with running([bad("good")]) as shadows:
            shadows.offer(decision(1))
            settled(shadows, "good")
            counts = shadows.counts()["good"]
            lacking.undo()
            until(lambda: shadows.pids()["good"] is not None)
            shadows.offer(decision(2))
            until(lambda: shadows.counts()["good"].decided == 1)
    assert counts.dropped == {"broken": 1}
    assert counts.trouble == "its process cannot be started (No such file or directory)"


def test_the_line_is_bounded_in_number() -> None:
    """While a shadow hangs, what finds the line full is dropped and counted, and nothing is kept of it."""
    limits = replace(BRISK, waiting=10, deadline_s=60.0)
    with running([bad("sleeps")], limits=limits) as shadows:
        offered = decision(0)
        for _ in range(100_000):
            shadows.offer(offered)
        counts = shadows.counts()["sleeps"]
        assert counts.waiting <= 10
        # Besides those in line, at most a batch is with the process.
        assert counts.dropped["full"] >= 100_000 - 10 - limits.batch
        assert counts.offered == 100_000


def test_the_line_is_bounded_in_bytes() -> None:
    """A few large requests fill it as many small ones do; a small one may still find room."""
    limits = replace(BRISK, waiting_bytes=100_000, deadline_s=60.0, start_s=60.0)
    with running([bad("slow_to_make")], limits=limits) as shadows:
        for number in range(50):
            shadows.offer(decision(number, pad=30_000))
        shadows.offer(decision("small"))
        counts = shadows.counts()["slow_to_make"]
    assert (counts.waiting, counts.dropped) == (4, {"full": 47})


def test_the_services_memory_does_not_grow_with_what_is_dropped() -> None:
    """Ten thousand large requests to a shadow that hangs leave the line and nothing more."""
    limits = replace(BRISK, waiting_bytes=2**20, deadline_s=60.0)
    with running([bad("sleeps")], limits=limits) as shadows:
        shadows.offer(decision("first"))
        before = psutil.Process().memory_info().rss
        for number in range(10_000):
            shadows.offer(decision(number, pad=50_000))
        assert psutil.Process().memory_info().rss - before < 50 * 2**20


@pytest.mark.parametrize("factory", misbehaving_policies.BAD, ids=lambda factory: factory.__name__)
def test_stopping_never_waits_for_a_shadow(factory: object) -> None:
    """Whatever a policy is at, `stop` comes back and leaves no process, and counts what was left."""
    name = getattr(factory, "__name__", "")
    limits = replace(BRISK, deadline_s=600.0, start_s=600.0, rest_s=600.0, longest_rest_s=600.0)
    shadows = Shadows([bad(name)], report=Reported().report, limits=limits)
    until(lambda: shadows.pids()[name] is not None or bool(shadows.counts()[name].trouble))
    for number in range(3):
        shadows.offer(decision(number))
    pid = shadows.pids()[name]
    assert shadows.stop(within_s=20.0)
    assert not (pid and psutil.pid_exists(pid))
    assert shadows.pids() == {name: None}
    counts = shadows.counts()[name]
    assert counts.decided + sum(counts.dropped.values()) + counts.waiting == 3
    assert shadows.stop()


def test_what_a_policy_has_started_ends_with_it() -> None:
    """Its session is killed as a whole."""
    with running([bad("leaves_a_process")], limits=replace(BRISK, deadline_s=600.0)) as shadows:
        shadows.offer(decision(1))
        until(lambda: bool(_children(shadows, "leaves_a_process")))
        left = _children(shadows, "leaves_a_process")
    until(lambda: not any(_alive(child) for child in left))


def _children(shadows: Shadows, name: str) -> list[psutil.Process]:
    pid = shadows.pids()[name]
    return psutil.Process(pid).children() if pid else []


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_many_shadows_fail_side_by_side() -> None:
    """All bad policies at once: the one that ships decides everything."""
    shipped = ShadowSpec(name="egreedy-v2-shadow", policy="egreedy-v2")
    some = [bad(name) for name in ("spins", "exits", "raises", "chatters")]
    with running([*some, shipped], limits=replace(BRISK, deadline_s=5.0)) as shadows:
        for number in range(100):
            shadows.offer(decision(number, features="v2"))
        settled(shadows, shipped.name)
        assert shadows.counts()[shipped.name].decided == 100


def test_the_limits_that_ship_are_finite() -> None:
    """No bound can be switched off by leaving it out."""
    limits = Limits()
    assert 0 < limits.deadline_s < limits.start_s < 60
    assert 0 < limits.waiting < 10_000
    assert 0 < limits.waiting_bytes < 2**26
