"""Policies as a stranger might write them, for shadows to run: each fails in a way of its own."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tipbench.bandit import policies
from tipbench.bandit.policy import Weighed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.policy import Memory, Policy
    from tipbench.bandit.ridge import Array

SPEC = "misbehaving_policies:"
_HELD: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """ε-greedy without chance, but for what it does before it weighs, and to what it returns."""

    before: Callable[[Array], object] = len
    after: Callable[[Weighed], Any] = lambda weighed: weighed
    teach: Callable[[Array], object] = len

    @property
    def _inner(self) -> Policy:
        return policies.make("egreedy", epsilon=0.0)

    @property
    def name(self) -> str:
        return "wrapped"

    @property
    def features(self) -> str:
        return "v1"

    @property
    def parameters(self) -> dict[str, Any]:
        return {}

    def fresh(self, **axes: tuple[int, ...]) -> Memory:
        return self._inner.fresh(**axes)

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        self.before(x)
        weighed: Weighed = self.after(self._inner.weigh(memory, x))
        return weighed

    def learn(self, memory: Memory, x: Array, reward: Array) -> Memory:
        self.teach(x)
        return self._inner.learn(memory, x, reward)


def _marked(x: Array) -> bool:
    """Requests with a first feature of 13 are the ones that some policies trip over."""
    return bool(x[0, 0] == 13.0)


def good() -> Wrapped:
    return Wrapped()


def sleeps() -> Wrapped:
    return Wrapped(before=lambda _: time.sleep(3600))


def spins() -> Wrapped:
    def spin(_: Array) -> None:
        while True:
            pass

    return Wrapped(before=spin)


def holds_the_interpreter() -> Wrapped:
    """Hangs below Python, where no thread of the process gets a turn any more."""
    return Wrapped(before=lambda _: re.match(r"(a+)+$", "a" * 64 + "b"))


def raises() -> Wrapped:
    def fail(_: Array) -> None:
        raise RuntimeError("no idea")

    return Wrapped(before=fail)


def allocates() -> Wrapped:
    def grow(_: Array) -> None:
        while True:
            _HELD.append(np.ones(2**20))

    return Wrapped(before=grow)


def leaks() -> Wrapped:
    """Keeps some 40 MB of every decision."""
    return Wrapped(before=lambda _: _HELD.append(np.ones(5 * 2**20)))


def prints() -> Wrapped:
    def shout(_: Array) -> None:
        print("x" * 100_000)  # noqa: T201 - the point
        sys.stderr.write("y" * 100_000)
        os.write(1, b"z" * 100_000)

    return Wrapped(before=shout)


def reads_input() -> Wrapped:
    return Wrapped(before=lambda _: sys.stdin.read())


def exits() -> Wrapped:
    return Wrapped(before=lambda _: sys.exit(3))


def exits_at_once() -> Wrapped:
    return Wrapped(before=lambda _: os._exit(4))


def wrong_shape() -> Wrapped:
    return Wrapped(after=lambda was: Weighed(scores=was.scores[:-1], propensities=was.propensities))


def wrong_propensities() -> Wrapped:
    return Wrapped(after=lambda was: Weighed(scores=was.scores, propensities=was.propensities * 2))


def not_finite() -> Wrapped:
    return Wrapped(after=lambda was: Weighed(scores=was.scores * np.nan, propensities=was.propensities))


def nothing_at_all() -> Wrapped:
    return Wrapped(after=lambda _: None)


def chatters() -> Wrapped:
    """Writes into every connection that it finds open."""

    def chatter(_: Array) -> None:
        for descriptor in range(3, 4096):
            try:
                os.write(descriptor, b"\xff" * 64)
            except OSError:
                continue

    return Wrapped(before=chatter)


def trips() -> Wrapped:
    """Hangs on marked requests only."""
    return Wrapped(before=lambda x: time.sleep(3600) if _marked(x) else None)


def falls() -> Wrapped:
    """Exits on marked requests only."""
    return Wrapped(before=lambda x: os._exit(5) if _marked(x) else None)


def cannot_learn() -> Wrapped:
    return Wrapped(teach=lambda _: os._exit(6))


def cannot_be_made() -> Wrapped:
    raise RuntimeError("no licence")


def slow_to_make() -> Wrapped:
    time.sleep(3600)
    return Wrapped()


def leaves_a_process() -> Wrapped:
    """Starts a process beside it that would go on for an hour."""

    def fork(_: Array) -> None:
        if os.fork() == 0:
            time.sleep(3600)
            os._exit(0)
        time.sleep(3600)

    return Wrapped(before=fork)


BAD = (
    sleeps,
    spins,
    holds_the_interpreter,
    raises,
    allocates,
    prints,
    reads_input,
    exits,
    exits_at_once,
    wrong_shape,
    wrong_propensities,
    not_finite,
    nothing_at_all,
    chatters,
    cannot_be_made,
    slow_to_make,
    leaves_a_process,
)
