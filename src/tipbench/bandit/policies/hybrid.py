"""Hybrid: what holds for all users, and how each one differs from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tipbench.bandit.features import FEATURES
from tipbench.bandit.policy import (
    Memory,
    Weighed,
    greedy,
    parameters_of,
    refuse_parameter,
    refuse_rewards,
    refuse_vectors,
)
from tipbench.bandit.ridge import Ridge, means, variances

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

_OWN = FEATURES["v1"].dims


@dataclass(frozen=True, kw_only=True, slots=True)
class Hybrid:
    """One ridge regression for everybody, and one for each user of what the first does not explain.

    The user's own reads the first seven dimensions only: the others are about the user already. Both forget,
    the shared one by `discount` with every lesson of anybody, the user's own by `own_discount`.
    """

    EDITION: ClassVar[int] = 1

    name: str = "hybrid"
    features: str = "v2"
    alpha: float = 0.2
    floor: float = 0.02
    penalty: float = 1.0
    own_penalty: float = 50.0
    discount: float = 0.9998
    own_discount: float = 0.997

    def __post_init__(self) -> None:
        refuse_parameter("alpha", self.alpha, least=0.0, most=1e3)
        refuse_parameter("floor", self.floor, least=0.0, most=1.0)
        refuse_parameter("penalty", self.penalty, least=0.0, most=1e6, above=True)
        refuse_parameter("own_penalty", self.own_penalty, least=0.0, most=1e6, above=True)
        refuse_parameter("discount", self.discount, least=0.0, most=1.0, above=True)
        refuse_parameter("own_discount", self.own_discount, least=0.0, most=1.0, above=True)

    @property
    def parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:
        return Memory(
            own=Ridge.fresh(_OWN, penalty=self.own_penalty, shape=own),
            pooled=Ridge.fresh(FEATURES[self.features].dims, penalty=self.penalty, shape=pooled),
        )

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        refuse_vectors(x, self.features)
        weights, inverse = _together(memory.mine, memory.shared)
        scores = means(x, weights) + self.alpha * np.sqrt(variances(x, inverse))
        return Weighed(scores=scores, propensities=greedy(scores, floor=self.floor))

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        refuse_vectors(x, self.features)
        refuse_rewards(reward)
        pooled, expected = memory.shared.learn_in_turn(
            x, reward, penalty=self.penalty, discount=self.discount, where=where
        )
        own = memory.mine.learn(
            x[..., :_OWN],
            reward - expected,
            penalty=self.own_penalty,
            discount=self.own_discount,
            where=where,
        )
        return Memory(own=own, pooled=pooled)


def _together(own: Ridge, pooled: Ridge) -> tuple[Array, Array]:
    """What both say of a candidate: expectations add up, and so do variances, as if they erred apart."""
    shape, dims = own.seen.shape, pooled.dims
    inverse, weights = np.zeros((*shape, dims, dims)), np.zeros((*shape, dims))
    inverse[..., :_OWN, :_OWN] = own.inverse
    weights[..., :_OWN] = own.weights
    inverse += pooled.inverse
    weights += pooled.weights
    return weights, inverse
