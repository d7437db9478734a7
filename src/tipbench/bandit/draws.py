"""Chance that can be replayed: a keyed hash of the server's seed and a request's id."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

_STEPS = 2**53


def seed_of(text: str) -> bytes:
    """The seed that a text stands for, whatever its length. One of random bytes need not be UTF-8."""
    return blake2b(text.encode(errors="surrogateescape"), person=b"seed", digest_size=32).digest()


def uniform(seed: bytes, request_id: str) -> float:
    """A number in [0, 1): the same for the same request, and not to be foreseen without the seed."""
    word = blake2b(request_id.encode(), key=seed[:64], person=b"explore", digest_size=8).digest()
    return (int.from_bytes(word, "big") >> 11) / _STEPS


def decision_id(seed: bytes, *, policy: str, user_id: str, request_id: str) -> str:
    """The one decision that this request of this user to this policy can have."""
    said = "\0".join((str(len(policy)), policy, str(len(user_id)), user_id, request_id)).encode()
    return blake2b(said, key=seed[:64], person=b"decision", digest_size=16).hexdigest()


def pick_one(propensities: list[float], u: float) -> int:
    """As `pick`, for one decision and in a third of its time."""
    ends = list(accumulate(propensities))
    return min(bisect_right(ends, u * ends[-1]), len(ends) - 1)


def pick(propensities: Array, u: float | Array) -> Array:
    """The place that u falls on when the propensities (…, K) are laid end to end: (…)."""
    ends = np.cumsum(propensities, axis=-1)
    # The last end may be a hair below 1; u is scaled to it, so that a place always exists.
    inside = np.asarray(u)[..., None] * ends[..., -1:]
    place: Array = np.minimum((ends <= inside).sum(axis=-1), propensities.shape[-1] - 1)
    return place
