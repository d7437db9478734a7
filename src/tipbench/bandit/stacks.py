"""Memories of many users side by side, as the policies take them, and apart again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit.policy import Memory
from tipbench.bandit.ridge import Ridge
from tipbench.bandit.ridge_codec import encode_ridges

if TYPE_CHECKING:
    from collections.abc import Sequence


def stacked(memories: Sequence[Memory]) -> Memory:
    """Each user's own part at its place; the part that all share, which is the same in each, once."""
    first = memories[0]
    own = None if first.own is None else _stack([memory.mine for memory in memories])
    return Memory(own=own, pooled=None if first.pooled is None else _stack([first.pooled]))


def apart(stack: Ridge) -> list[tuple[Ridge, bytes]]:
    """Each of them by itself, with the bytes of it."""
    # Copies: a view into the stack would keep all of it in memory for as long as one user is remembered.
    rows = zip(stack.inverse, stack.moment, stack.weights, stack.seen, encode_ridges(stack), strict=True)
    return [
        (
            Ridge(
                inverse=inverse.copy(), moment=moment.copy(), weights=weights.copy(), seen=np.asarray(seen)
            ),
            body,
        )
        for inverse, moment, weights, seen, body in rows
    ]


def _stack(ridges: Sequence[Ridge]) -> Ridge:
    return Ridge(
        inverse=np.array([ridge.inverse for ridge in ridges]),
        moment=np.array([ridge.moment for ridge in ridges]),
        weights=np.array([ridge.weights for ridge in ridges]),
        seen=np.array([ridge.seen for ridge in ridges]),
    )
