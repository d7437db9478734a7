"""Where the serving half keeps its state: what any kind of database has to offer, and what is kept in it.

Entries of the log are numbered without gaps in the order in which they were committed, by whichever process:
so a reader that remembers the last number it saw misses none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

SERVE, RESET = "serve", "reset"
POOLED = ""  # whose memory it is that all users share; no user is called so
EVERYBODY = ""  # who is forgotten when all are

MemoryKey = tuple[str, str]  # user, policy


class Entry(NamedTuple):
    """A line of the log: a decision that was served, what a shadow would have done, a reset."""

    seq: int
    ms: int
    signal: str
    decision_id: str
    user_id: str
    policy: str
    body: bytes


class Event(NamedTuple):
    """What was told about the decision with this number, as often as it was told something new."""

    decision: int
    reward_id: str
    event: str
    reward: float | None
    dwell_s: float | None
    ms: int
    learned: int


class Outcome(NamedTuple):
    """What came of a decision: its first terminal event."""

    decision: int
    reward: float
    event: str
    ms: int


class Total(NamedTuple):
    """How often a policy decided, and what it earned."""

    policy: str
    decisions: int
    explored: int
    rewards: int
    reward_sum: float

    def plus(self, more: Total) -> Total:
        return Total(
            self.policy,
            self.decisions + more.decisions,
            self.explored + more.explored,
            self.rewards + more.rewards,
            self.reward_sum + more.reward_sum,
        )


class ShadowTotal(NamedTuple):
    """How often a shadow decided, how often as the policy that served, how often it was dropped."""

    signal: str
    decisions: int
    agreed: int
    dropped: int

    def plus(self, more: ShadowTotal) -> ShadowTotal:
        return ShadowTotal(
            self.signal,
            self.decisions + more.decisions,
            self.agreed + more.agreed,
            self.dropped + more.dropped,
        )


class Past(NamedTuple):
    """A decision in the log and what came of it, if anything has."""

    entry: Entry
    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What a transaction writes; whoever is in `forgotten` loses memories and profile before that."""

    entries: list[Entry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    profiles: Mapping[str, bytes] = field(default_factory=dict)
    memories: Mapping[MemoryKey, bytes] = field(default_factory=dict)
    totals: list[Total] = field(default_factory=list)
    shadows: list[ShadowTotal] = field(default_factory=list)
    choices: Mapping[str, str] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()


class Reading(Protocol):
    """What may be read, at one moment. Bodies are handed out as they were written."""

    def last_seq(self) -> int:
        """The number of the newest entry, 0 where there is none."""

    def decisions(self, ids: Sequence[str]) -> dict[str, Past]:
        """Those of these decisions that are in the log."""

    def repeats(self, asked: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        """Those (number of a decision, reward_id) that have been told before."""

    def profiles(self, users: Sequence[str]) -> dict[str, bytes]:
        """The profiles of those of them who have one."""

    def memories(self, keys: Sequence[MemoryKey]) -> dict[MemoryKey, bytes]:
        """Those of these memories that there are."""

    def memories_of(self, policy: str, *, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        """The memories of a policy in the order of their users, from the first one behind `after`."""

    def entries(self, *, after: int, limit: int) -> list[Entry]:
        """What follows the entry with this number, whatever its signal."""

    def served(self, *, after: int, limit: int) -> list[Past]:
        """The decisions that follow the entry with this number, each with what came of it."""

    def ended(self, *, after: int, since_ms: int, limit: int) -> list[Past]:
        """The decisions that follow the entry with this number and came to an end at this moment or later, in
        the order in which they did.
        """

    def logged(self, signal: str, *, after: int, limit: int) -> list[Entry]:
        """The entries with this signal that follow the one with this number."""

    def said(self, signal: str, *, of: Entry, within: int) -> Entry | None:
        """What was said of a decision under this signal, among so many entries that follow it."""

    def totals(self) -> list[Total]: ...

    def shadows(self) -> list[ShadowTotal]: ...

    def choices(self) -> dict[str, str]: ...

    def count_before(self, ms: int) -> tuple[int, int]:
        """How many entries stand before the first from this moment or later; the number of the last."""


class Transaction(Reading, Protocol):
    """The one writer's view: nobody else writes until it ends."""

    @property
    def stale(self) -> bool:
        """Whether somebody else may have written since the last transaction of whoever asks."""

    def write(self, changes: Changes) -> None: ...

    def drop(self, *, upto: int, limit: int) -> int:
        """Remove the oldest entries up to this number, at most so many, with what was told about them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A transaction that has begun. It is ended once, by any thread.

    It is durable when `commit` returns; where that raises, nothing has happened. A True from it asks for
    `tidy_up` to be called when nobody waits for an answer: others have their turn after that.
    """

    tx: Transaction
    commit: Callable[[], bool]
    roll_back: Callable[[], None]
    tidy_up: Callable[[], None]


class Books(Protocol):
    """One place of state. `transaction` is for one thread at a time; `reading` may be used by any."""

    @property
    def where(self) -> str:
        """How people find it, without a password."""

    def seed(self) -> bytes:
        """The server's seed, drawn when the books were made; all processes that serve from them share it."""

    def transaction(self, by: object = None) -> AbstractContextManager[Transaction]:
        """All of the block or none of it; durable when it ends. Processes take turns.

        `by` is whoever remembers what they read: what others wrote through these books is `stale` to them.
        """

    def begin(self, by: object = None) -> Turn | None:
        """As `transaction`, for whoever must not wait: None where it cannot begin at once."""

    def reading(self) -> AbstractContextManager[Reading]: ...

    def tidy(self) -> None:
        """What must be done now and then, off the path of requests, by a thread that serves none."""

    def shrink(self) -> bool:
        """Give some of the space of what was dropped back to the disk; whether there is more of it."""

    def close(self) -> None: ...
