"""What is done to books now and then: state copied to another policy, old entries dropped.

Both go in small transactions between those of whoever serves, so nobody need stop for them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.bandit.books import Changes
from tipbench.bandit.features import FEATURES
from tipbench.bandit.ridge_codec import decode_ridge, encode_ridge
from tipbench.bandit.suites import owner_of_state, state_key
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.bandit.books import Books, Transaction
    from tipbench.bandit.policy import Policy

_AT_A_TIME = 500
# For its first tenth of a second, whoever waits for SQLite's lock looks again at least this often.
_REST_S = 0.03


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """How many users' memories were copied, and how many had one of the new policy already."""

    copied: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class Widening:
    """From one policy's memory to another's with more dimensions: each weight stays as it is."""

    source: str
    target: str
    dims: int
    wider: int
    penalty: float

    @classmethod
    def between(cls, source: Policy, target: Policy) -> Widening:
        mine, theirs = source.fresh().own, target.fresh().own
        if source.name == target.name:
            raise BadInput(f"{source.name} cannot be copied into itself: name two policies")
        if mine is None or theirs is None:
            raise BadInput(
                f"{source.name} cannot be copied into {target.name}: both must keep state of users"
            )
        if mine.dims != FEATURES[source.features].dims or theirs.dims != FEATURES[target.features].dims:
            raise BadInput(
                f"{source.name} cannot be copied into {target.name}: one keeps only what is left over"
            )
        names = FEATURES[source.features].names
        if FEATURES[target.features].names[: len(names)] != names:
            raise BadInput(
                f"{target.name} (features {target.features}) does not begin with what {source.name} "
                f"(features {source.features}) reads"
            )
        return cls(
            source=source.name,
            target=target.name,
            dims=mine.dims,
            wider=theirs.dims,
            penalty=float(target.parameters.get("penalty", 1.0)),
        )

    def of(self, user: str, body: bytes) -> bytes:
        ridge = decode_ridge(body, dims=self.dims, what=f"what {self.source} has learned about user {user!r}")
        return encode_ridge(ridge.widened(self.wider, penalty=self.penalty))


def migrate(books: Books, source: Policy, target: Policy, *, replace: bool = False) -> Migrated:
    """Copy what a policy has learned into another, for every user who has nothing there yet.

    With `replace`, for every user: what the other has learned from them is then gone. Copies the state of
    the suite in use.
    """
    widening = Widening.between(source, target)
    with books.reading() as reading:
        suite = owner_of_state(reading.choices())
    copied = kept = 0
    after: str | None = None
    while True:
        with _resting_after(books), books.transaction() as tx:
            users = tx.memories_of(state_key(widening.source, suite), after=after, limit=_AT_A_TIME)
            some = _copied(tx, widening, users, state_key(widening.target, suite), replace=replace)
        if not users:
            return Migrated(copied=copied, kept=kept)
        copied, kept, after = copied + some, kept + len(users) - some, users[-1][0]


@contextmanager
def _resting_after(books: Books) -> Iterator[None]:
    """After the block a rest as long as it took: others would not have a turn before the next one."""
    began = time.monotonic()
    yield
    books.tidy()
    time.sleep(max(time.monotonic() - began, _REST_S))


def _copied(
    tx: Transaction, widening: Widening, users: list[tuple[str, bytes]], key: str, *, replace: bool
) -> int:
    there = {} if replace else tx.memories([(user, key) for user, _ in users])
    memories = {(user, key): widening.of(user, body) for user, body in users if (user, key) not in there}
    tx.write(Changes(memories=memories))
    return len(memories)


def compact(books: Books, *, before_ms: int, tell: Callable[[int, int], None] | None = None) -> int:
    """Drop what the log holds from before a moment; how many entries that were.

    What was learned from them, profiles and totals stay. `tell` hears how far it is.
    """
    with books.reading() as reading:
        many, upto = reading.count_before(before_ms)
    gone = 0
    while many:
        with _resting_after(books), books.transaction() as tx:
            some = tx.drop(upto=upto, limit=_AT_A_TIME)
        gone += some
        if tell is not None:
            tell(gone, many)
        if not some:
            break
    more = True  # whatever was dropped now: whoever was here before may have been stopped before this
    while more:
        with _resting_after(books):
            more = books.shrink()
    return gone
