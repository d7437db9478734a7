"""Challengers that decide on live traffic and can change nothing.

Each shadow runs in a process of its own, behind a bounded line and a thread. The service's part in it is one
append per shadow, after the reply was sent; whatever a shadow then does, another shadow does not notice:

| what it does | what becomes of it |
| --- | --- |
| is slower than the traffic | what finds its line full is dropped: `full` |
| hangs, in Python or below it | its process is killed at the deadline, and started again: `slow` |
| raises, exits, answers with NaN or another shape | `broken`; an exception alone costs no restart |
| takes memory without end | its process meets a bound and ends: `broken` |
| prints | is not read by anybody |

A process that fails again and again is started after longer and longer rests.

The memory bound is a limit of the address space where the system has one (Linux). Elsewhere (macOS) a process
is ended by the deadline, or after the decision that took it past the bound.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tipbench.bandit.shadow.challenger import Challenger
from tipbench.bandit.shadow.messages import REASONS, Decide, Teach
from tipbench.bandit.shadow.notebook import EVERYBODY, Archive, Logged
from tipbench.bandit.shadow.outcomes import (
    Limits,
    Outcome,
    ShadowCounts,
    ShadowDropped,
    ShadowLesson,
    ShadowResult,
    ShadowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "EVERYBODY",
    "REASONS",
    "Archive",
    "Decide",
    "Limits",
    "Logged",
    "Outcome",
    "ShadowCounts",
    "ShadowDropped",
    "ShadowLesson",
    "ShadowResult",
    "ShadowSpec",
    "Shadows",
    "Teach",
]


class Shadows:
    """All shadows of a service. `offer`, `teach` and `forget` may be called by any thread, and only append.

    `report` gets what shadows decided, learned and dropped, in lists, on their threads; it must not wait.
    `archive` is read on their threads too, and never for a shadow that is no apprentice.
    """

    def __init__(
        self,
        specs: Sequence[ShadowSpec],
        *,
        report: Callable[[list[Outcome]], None],
        archive: Archive | None = None,
        limits: Limits | None = None,
    ) -> None:
        kept = limits or Limits()
        self._all = tuple(Challenger(spec, limits=kept, report=report, archive=archive) for spec in specs)

    def offer(self, ask: Decide) -> None:
        """A decision that was served, after the reply was sent. Costs an append for each shadow."""
        for one in self._all:
            one.offer(ask)

    def teach(self, ask: Teach) -> None:
        """A reward that the served policy learned from. Only apprentices get it."""
        for one in self._all:
            one.teach(ask)

    def forget(self, user_id: str | None) -> None:
        """A user was reset, or everybody (None): apprentices begin anew with them."""
        for one in self._all:
            one.forget(user_id)

    def unlearn(self, lesson: ShadowLesson, *, again: bool) -> None:
        """What an apprentice learned was not kept; `again`: it is to learn it from what is."""
        for one in self._all:
            if one.spec.name == lesson.name:
                one.unlearn(lesson.user_id)
                if again:
                    one.teach(Teach(decision_id=lesson.decision_id, reward=lesson.reward))

    def counts(self) -> dict[str, ShadowCounts]:
        """By the shadow's name."""
        return {one.spec.name: one.counts() for one in self._all}

    def pids(self) -> dict[str, int | None]:
        """The processes that run now, by the shadow's name."""
        return {one.spec.name: one.pid for one in self._all}

    def stop(self, within_s: float = 10.0) -> bool:
        """Ends every shadow without waiting for its work; True when all processes are gone."""
        for one in self._all:
            one.stop()
        deadline = time.monotonic() + within_s
        return all(one.join(max(0.0, deadline - time.monotonic())) for one in self._all)
