"""What a service would have counted about every user: `bandit.profiles`, for many users side by side.

A test holds the two together: the same events give the same features, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit.profiles import MOST_DWELL_S, RECENT

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


class Tallies:
    """The fields of a Tally as arrays (…), all in one (…, 9): they are read and added to together."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers
        self.shown = numbers[..., 0]
        self.ended = numbers[..., 1]
        self.completed = numbers[..., 2]
        self.dismissed = numbers[..., 3]
        self.dwell_n = numbers[..., 4]
        self.dwell_sum = numbers[..., 5]
        self.hour_n = numbers[..., 6]
        self.hour_cos = numbers[..., 7]
        self.hour_sin = numbers[..., 8]

    @classmethod
    def fresh(cls, shape: tuple[int, ...]) -> Tallies:
        return cls(np.zeros((*shape, 9)))

    def at(self, *place: Array) -> Tallies:
        return Tallies(self.numbers[place])


@dataclass(frozen=True, kw_only=True, eq=False)
class Ended:
    """Outcomes of some decisions: (n) each."""

    kind: Array
    reward: Array
    dismissed: Array
    dwell_s: Array
    cos: Array
    sin: Array


class Histories:
    """Counters of the users (S, U), changed in place; every user is shown one tip a round."""

    def __init__(self, seeds: int, users: int, kinds: int) -> None:
        self.by_kind = Tallies.fresh((seeds, users, kinds))
        self.total = Tallies.fresh((seeds, users))
        self._recent = np.full((RECENT, seeds, users), -1)
        self._counts = np.zeros((seeds, users, kinds))
        self._rounds = 0
        self._places = np.ogrid[:seeds, :users]

    @property
    def recent(self) -> int:
        """How many recent tips everybody has been shown."""
        return min(self._rounds, RECENT)

    def alike(self, kinds: Array) -> Array:
        """(S, U, K): how many of the recent tips were of each candidate's kind."""
        seed, user = self._places
        counts: Array = self._counts[seed[..., None], user[..., None], kinds]
        return counts

    def shown(self, kind: Array) -> None:
        """A tip of this kind (S, U) was shown to everybody."""
        seed, user = self._places
        self.by_kind.shown[seed, user, kind] += 1.0
        self.total.shown[...] += 1.0
        oldest = self._recent[self._rounds % RECENT]
        if self._rounds >= RECENT:
            self._counts[seed, user, oldest] -= 1.0
        self._counts[seed, user, kind] += 1.0
        oldest[...] = kind
        self._rounds += 1

    def ended(self, seed: Array, user: Array, outcome: Ended) -> None:
        """These users, each named once, did something with a tip; how long they looked at it comes first."""
        reward, one, none = outcome.reward, np.ones(len(seed)), np.zeros(len(seed))
        dwell_s = np.minimum(outcome.dwell_s, MOST_DWELL_S)
        hours = (reward, reward * outcome.cos, reward * outcome.sin)
        more = np.stack((none, one, reward, outcome.dismissed, one, dwell_s, *hours), axis=-1)
        self.by_kind.numbers[seed, user, outcome.kind] += more
        self.total.numbers[seed, user] += more
