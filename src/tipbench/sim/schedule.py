"""In which order outcomes are learned: by user, and for each user by the round of the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Wave:
    """Decisions whose outcomes can be learned at once: (n) each, no user of a seed twice."""

    round: Array  # of the decision
    seed: Array
    user: Array

    @property
    def place(self) -> tuple[Array, Array, Array]:
        """The index of these decisions in arrays (R, S, U)."""
        return self.round, self.seed, self.user


def waves(due: Array, *, apart: bool) -> list[list[Wave]]:
    """For each round what is due at its end; `due` is (R, S, U), -1 where nothing is ever heard.

    With `apart` no two users of a seed are in one wave: what they share is taught by one after the other.
    Seeds are worlds of their own and never need to wait for each other.
    """
    round_, seed, user = np.nonzero((due >= 0) & (due < len(due)))
    at = due[round_, seed, user]
    order = np.lexsort((round_, user, seed, at))
    round_, seed, user, at = round_[order], seed[order], user[order], at[order]
    rank = _rank(np.stack([at, seed] if apart else [at, seed, user]))
    key = np.stack([at, rank])
    by_key = np.lexsort((seed, *key[::-1]))
    round_, seed, user, at, key = round_[by_key], seed[by_key], user[by_key], at[by_key], key[:, by_key]
    cuts = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + 1
    found: list[list[Wave]] = [[] for _ in due]
    for some in np.split(np.arange(len(at)), cuts):
        if len(some):
            found[at[some[0]]].append(Wave(round=round_[some], seed=seed[some], user=user[some]))
    return found


def _rank(key: Array) -> Array:
    """How many of the same key (…, n) come before, the keys being sorted."""
    n = key.shape[1]
    new = np.ones(n, dtype=bool)
    new[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    starts = np.maximum.accumulate(np.where(new, np.arange(n), 0))
    rank: Array = np.arange(n) - starts
    return rank
