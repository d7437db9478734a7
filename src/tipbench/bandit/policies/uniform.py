"""Every tip alike: the control that learns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tipbench.bandit.policy import (
    Memory,
    Weighed,
    greedy,
    parameters_of,
    refuse_rewards,
    refuse_vectors,
)

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Uniform:
    """All scores are 0, and ties share."""

    EDITION: ClassVar[int] = 1

    name: str = "random"
    features: str = "v1"

    @property
    def parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:  # noqa: ARG002
        return Memory()

    def weigh(self, memory: Memory, x: Array) -> Weighed:  # noqa: ARG002
        refuse_vectors(x, self.features)
        scores = np.zeros(x.shape[:-1])
        return Weighed(scores=scores, propensities=greedy(scores, floor=0.0))

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:  # noqa: ARG002
        refuse_vectors(x, self.features)
        refuse_rewards(reward)
        return memory
