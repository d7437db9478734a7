"""What a policy is: one contract, kept by every file under `policies/` and checked by one suite of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.bandit.ridge import Array, Ridge


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What a policy has learned: about one user, and about all of them. A part it does not keep is None.

    Arrays may have leading axes: the simulation runs many users and seeds side by side with the very code
    that serves one. `pooled` may have axes of length 1 where `own` has many: they are shared.
    """

    own: Ridge | None = None
    pooled: Ridge | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighed:
    """What a policy makes of the candidates of a decision, in their order: (…, K) each."""

    scores: Array
    propensities: Array


class Policy(Protocol):
    """A rule that picks a tip, as pure functions of what it remembers.

    Chance enters at one place only, and not here: `draws.pick` turns the propensities and one number into a
    choice. So the propensity that is logged is the one the tip was drawn with, and decisions can be replayed.
    """

    @property
    def name(self) -> str:
        """Under which its state and its decisions are kept."""

    @property
    def features(self) -> str:
        """The version of the feature set it reads: `v1` or `v2`."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The keyword arguments that make an equal policy."""

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:
        """A memory of nothing, with these leading axes."""

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        """Scores and propensities of the candidates, x being (…, K, D)."""

    def learn(self, memory: Memory, x: Array, reward: Array) -> Memory:
        """What is remembered after the candidate x (…, D) earned this reward (…)."""


def greedy(scores: Array, *, floor: float) -> Array:
    """Propensities that favour the best score (ties share), and give every candidate floor / K at least."""
    best = scores >= scores.max(axis=-1, keepdims=True)
    share = best / best.sum(axis=-1, keepdims=True)
    propensities: Array = floor / scores.shape[-1] + (1.0 - floor) * share
    return propensities


def explored(weighed: Weighed, chosen: int) -> bool:
    """Whether the tip that was picked is not one of those with the best score."""
    return bool(weighed.scores[chosen] < np.max(weighed.scores))
