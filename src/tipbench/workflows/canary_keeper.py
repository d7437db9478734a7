"""Who sees to a canary while tips are served: looks now and then, and ends it by its rule."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING

from tipbench.bandit import active as actives
from tipbench.bandit.active import Active, Step
from tipbench.bandit.canary_watch import CanaryWatch
from tipbench.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.books import Books
    from tipbench.bandit.canary import Trial
    from tipbench.bandit.counter import Counter
    from tipbench.store import Store

BY_ITSELF = "canary"  # who acts when a canary is ended by its rule
# Looking may take this share of one thread's time, whatever the size of the log.
_SHARE_OF_TIME = 0.02
_PATIENCE_S = 5.0


class CanaryKeeper:
    """Every process that serves has one; of several that see the same, one acts and the others notice."""

    def __init__(self, books: Books, counter: Counter, audit: Callable[[Active], None]) -> None:
        self._books = books
        self._counter = counter
        self._audit = audit
        self._watch: CanaryWatch | None = None
        self._rest_until = 0.0
        self._stood: tuple[int, Trial] | None = None

    def trial(self, active: Active) -> Trial | None:
        """How this canary stood when it was last looked at; None before that."""
        stood = self._stood
        return stood[1] if stood is not None and stood[0] == active.revision else None

    def look(self, was: str | None, active: Active) -> Active:
        """What is active after a look. `was` is how it is written in the books."""
        if not active.on_trial:
            self._watch = None
            return active
        if self._watch is None or self._watch.active.revision != active.revision:
            self._watch, self._rest_until = CanaryWatch(self._books, active), 0.0
        began = time.monotonic()
        if began < self._rest_until:
            return active
        self._watch.catch_up()
        trial = self._watch.trial(now_ms=now_ms())
        self._stood = active.revision, trial
        now = time.monotonic()
        self._rest_until = now + (now - began) / _SHARE_OF_TIME
        return active if trial.ruling == "wait" else self._end(was, ended(active, trial))

    def _end(self, was: str | None, now: Active) -> Active:
        """A Conflict where another process, or a person, was quicker."""
        try:
            self._counter.ask_from_thread(actives.change(was, now)).result(_PATIENCE_S)
        except FutureTimeout:  # whoever works there may be waiting for this very thread to end
            raise Unavailable("a canary was to be ended, but the counter did not answer") from None
        self._audit(now)
        return now


def audited(store: Store, now: Active) -> None:
    """Write down in the service's audit log what a canary has done by itself."""
    step = now.steps[-1]
    store.audit.add(
        who=BY_ITSELF,
        role=BY_ITSELF,
        action=f"tips.canary.{step.what.replace(' ', '_')}",
        target=step.policy,
        detail=f"gate {step.gate}: {step.reason}",
        now_ms=step.ms,
    )


def read_active(books: Books) -> tuple[str | None, Active]:
    """What is in the books, as it is written and as it is meant."""
    with books.reading() as reading:
        was = reading.choices().get(actives.KEY)
    return was, actives.decode(was)


def step_of(what: str, active: Active, who: str, *, reason: str = "") -> Step:
    """Something done now with what is active."""
    return Step(
        ms=now_ms(),
        what=what,
        policy=active.policy,
        against=active.replaced,
        share=active.share,
        by=who,
        gate=active.gate,
        reason=reason,
    )


def ended(active: Active, trial: Trial) -> Active:
    """What follows for a canary by its rule."""
    if trial.ruling == "complete":
        return active.completed(step_of("completed", active, BY_ITSELF, reason=trial.reason))
    return active.rolled_back(step_of("rolled back", active, BY_ITSELF, reason=trial.reason))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
