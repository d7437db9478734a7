"""Shadows for tests: decisions to offer, what came of them, and settings that run every bad policy."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

import misbehaving_policies
from tipbench.bandit.asked import Candidate, Context, ScoreRequest
from tipbench.bandit.shadow import (
    Decide,
    Limits,
    Logged,
    Outcome,
    ShadowLesson,
    ShadowResult,
    Shadows,
    ShadowSpec,
    Teach,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BRISK = Limits(deadline_s=1.0, start_s=20.0, rest_s=0.05, longest_rest_s=0.2)
DIMS = {"v1": 7, "v2": 12}


def environment(*names: str) -> dict[str, str]:
    """The variable that makes a service run these bad policies as shadows; without names: all of them."""
    chosen = names or tuple(factory.__name__ for factory in misbehaving_policies.BAD)
    said = {
        f"{name}-shadow": {"policy": misbehaving_policies.SPEC + name, "enabled": True} for name in chosen
    }
    return {"TIPBENCH_SHADOW_POLICIES": json.dumps(said)}


def bad(name: str, *, apprentice: bool = False) -> ShadowSpec:
    return ShadowSpec(name=name, policy=misbehaving_policies.SPEC + name, apprentice=apprentice)


def row(place: int, dims: int) -> list[float]:
    """A vector of a candidate: the bias and one direction of its own."""
    return [1.0] + [float(place == at) for at in range(dims - 1)]


def decision(
    number: int | str,
    *,
    user: str = "u",
    marked: bool = False,
    served: str = "t0",
    u: float = 0.5,
    features: str = "v1",
    pad: int = 0,
) -> Decide:
    """A served decision among three candidates with features."""
    rows = [row(place, DIMS[features]) for place in range(3)]
    if marked:
        rows[0][0] = 13.0
    candidates = [Candidate(id=f"t{place}", features=made) for place, made in enumerate(rows)]
    context = Context(open_tasks=["x" * pad])
    asked = ScoreRequest(user_id=user, candidates=candidates, context=context)
    return Decide(decision_id=f"d{number}", user_id=user, request=asked, profile=None, u=u, served=served)


def reward(number: int | str, worth: float) -> Teach:
    return Teach(decision_id=f"d{number}", reward=worth)


class Reported:
    """What shadows have reported, and a place where lessons are kept."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.kept: dict[tuple[str, str], bytes] = {}
        self.logged: dict[str, Logged] = {}
        self.recalled: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def report(self, outcomes: list[Outcome]) -> None:
        with self._lock:
            self.outcomes += outcomes
            for lesson in outcomes:
                if isinstance(lesson, ShadowLesson):
                    self._keep(lesson)

    def _keep(self, lesson: ShadowLesson) -> None:
        for user, body in ((lesson.user_id, lesson.own), ("", lesson.pooled)):
            if body is not None:
                self.kept[lesson.name, user] = body

    def memory(self, shadow: str, user_id: str) -> bytes | None:
        self.recalled.append((shadow, user_id))
        return self.kept.get((shadow, user_id))

    def decision(self, shadow: str, decision_id: str) -> Logged | None:  # noqa: ARG002 - there is one only
        return self.logged.get(decision_id)

    def results(self, name: str) -> list[ShadowResult]:
        return [one for one in self.outcomes if isinstance(one, ShadowResult) and one.name == name]

    def lessons(self, name: str) -> list[ShadowLesson]:
        return [one for one in self.outcomes if isinstance(one, ShadowLesson) and one.name == name]


@contextmanager
def running(
    specs: Sequence[ShadowSpec], reported: Reported | None = None, *, limits: Limits = BRISK
) -> Iterator[Shadows]:
    """Shadows that are stopped at the end, with nothing left of them."""
    to = reported or Reported()
    shadows = Shadows(specs, report=to.report, archive=to, limits=limits)
    try:
        yield shadows
    finally:
        pids = [pid for pid in shadows.pids().values() if pid]
        assert shadows.stop()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Waits until something holds; fails when it does not in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


def settled(shadows: Shadows, name: str, *, lessons: int = 0) -> None:
    """Waits until all that was offered to a shadow was decided or dropped."""

    def done() -> bool:
        counts = shadows.counts()[name]
        decided = counts.decided + sum(counts.dropped.values())
        return decided >= counts.offered and counts.learned + sum(counts.lessons_dropped.values()) >= lessons

    until(done)
