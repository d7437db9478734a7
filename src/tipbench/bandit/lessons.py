"""What is learned from rewards, for many users in one go: ten times quicker than one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tipbench.bandit.policy import Memory
from tipbench.bandit.stacks import apart, stacked
from tipbench.errors import PolicyFailed, TipbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.bandit.line_up import Served
    from tipbench.bandit.ridge import Array, Ridge


class Lesson(NamedTuple):
    """What one user's decision teaches the policy that made it."""

    memory: Memory
    x: Array
    reward: float


class Learned(NamedTuple):
    """What is remembered after a lesson, and the bytes of it: the user's own part, and that of all."""

    own: tuple[Ridge, bytes] | None
    pooled: tuple[Ridge, bytes] | None


def learn(served: Served, lessons: Sequence[Lesson]) -> list[Learned | TipbenchError]:
    """What the policy makes of lessons of different users, in their order, as if one came after the other.

    Where that fails, each is tried by itself: one that cannot be learned spoils no other.
    """
    try:
        return [*_together(served, lessons)]
    except TipbenchError as error:
        if len(lessons) == 1:
            return [error]
    return _in_turn(served, lessons)


def _in_turn(served: Served, lessons: Sequence[Lesson]) -> list[Learned | TipbenchError]:
    learned: list[Learned | TipbenchError] = []
    pooled = lessons[0].memory.pooled
    for lesson in lessons:
        memory = Memory(own=lesson.memory.own, pooled=pooled)
        (one,) = learn(served, [lesson._replace(memory=memory)])
        if isinstance(one, Learned) and one.pooled is not None:
            pooled = one.pooled[0]
        learned.append(one)
    return learned


def _together(served: Served, lessons: Sequence[Lesson]) -> Iterator[Learned]:
    x = np.array([lesson.x for lesson in lessons])
    rewards = np.array([lesson.reward for lesson in lessons])
    after = _after(served, stacked([lesson.memory for lesson in lessons]), x, rewards)
    shared = None if after.pooled is None else apart(after.pooled)[0]
    alone = [None] * len(lessons) if after.own is None else apart(after.own)
    return (Learned(one, shared) for one in alone)


def _after(served: Served, memory: Memory, x: Array, rewards: Array) -> Memory:
    try:
        after = served.policy.learn(memory, x, rewards)
    except TipbenchError:
        raise
    except Exception as error:  # a policy may be anybody's code, and others are in this batch
        raise PolicyFailed(f"the policy {served.name} failed: {type(error).__name__}: {error}") from error
    for ridge, was in ((after.own, memory.own), (after.pooled, memory.pooled)):
        if (ridge is None) != (was is None) or (ridge is not None and was is not None and _odd(ridge, was)):
            raise PolicyFailed(
                f"the policy {served.name} learned what is not finite, or of another shape; nothing was kept"
            )
    return after


def _odd(ridge: Ridge, was: Ridge) -> bool:
    """Whether it must not be kept: one number that is not finite would spoil all that follows."""
    return any(
        new.shape != old.shape or not np.isfinite(new).all()
        for new, old in (
            (ridge.inverse, was.inverse),
            (ridge.moment, was.moment),
            (ridge.weights, was.weights),
            (ridge.seen, was.seen),
        )
    )
