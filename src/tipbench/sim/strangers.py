"""Policies may be anybody's code: what they raise, or give that cannot be, is told as their own failure."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tipbench.errors import PolicyFailed, TipbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.bandit.policy import Memory, Policy
    from tipbench.bandit.ridge import Array

_NEAR = 1e-6  # how far from 1 probabilities may sum up


@contextmanager
def theirs(policy: Policy) -> Iterator[None]:
    """PolicyFailed for whatever the policy raises in here."""
    try:
        yield
    except TipbenchError:
        raise
    except Exception as error:
        raise PolicyFailed(f"the policy {policy.name} failed: {type(error).__name__}: {error}") from error


def weighed(policy: Policy, memory: Memory, x: Array) -> Array:
    """(…, K): the propensities of the candidates x (…, K, D), once they have been seen to be some."""
    with theirs(policy):
        scores, shares = policy.weigh(memory, x)
        if shares.shape == x.shape[:-1] and np.isfinite(scores).all() and _are_chances(shares):
            return shares
    raise PolicyFailed(
        f"the policy {policy.name} gave scores that are not finite, or probabilities that are none"
    )


def _are_chances(shares: Array) -> bool:
    return bool((shares >= 0.0).all() and (np.abs(shares.sum(axis=-1) - 1.0) < _NEAR).all())
