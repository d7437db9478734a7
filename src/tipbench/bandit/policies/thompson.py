"""Thompson sampling: a tip is shown as often as it is the best of a model drawn from what is believed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tipbench.bandit.features import FEATURES
from tipbench.bandit.policy import (
    Memory,
    Weighed,
    parameters_of,
    refuse_parameter,
    refuse_rewards,
    refuse_vectors,
)
from tipbench.bandit.ridge import Ridge

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

_SEED = 20_11


@dataclass(frozen=True, kw_only=True, slots=True)
class Thompson:
    """A ridge regression for each user, and `samples` models drawn around it by fixed normal numbers.

    The propensity of a tip is the share of those models under which it is best, mixed with the floor. The tip
    is then drawn by that very number: it is no estimate of the probability, it is the probability.
    """

    EDITION: ClassVar[int] = 1

    name: str = "thompson"
    features: str = "v1"
    noise: float = 0.2
    samples: int = 128
    floor: float = 0.05
    penalty: float = 1.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        refuse_parameter("noise", self.noise, least=0.0, most=1e3)
        refuse_parameter("samples", self.samples, least=1, most=10_000)
        refuse_parameter("floor", self.floor, least=0.0, most=1.0)
        refuse_parameter("penalty", self.penalty, least=0.0, most=1e6, above=True)
        refuse_parameter("discount", self.discount, least=0.0, most=1.0, above=True)

    @property
    def parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:  # noqa: ARG002
        return Memory(own=Ridge.fresh(FEATURES[self.features].dims, penalty=self.penalty, shape=own))

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        refuse_vectors(x, self.features)
        scores = memory.mine.mean(x)
        propensities = self.floor / x.shape[-2] + (1.0 - self.floor) * self._wins(memory.mine, x, scores)
        return Weighed(scores=scores, propensities=propensities)

    def _wins(self, ridge: Ridge, x: Array, scores: Array) -> Array:
        """The share of the drawn models under which each candidate is best; ties share: (…, K)."""
        root = _root(ridge.inverse)
        drawn = scores[..., None] + self.noise * ((x @ root) @ _normals(int(self.samples), ridge.dims))
        best = drawn >= drawn.max(axis=-2, keepdims=True)
        share: Array = (best / best.sum(axis=-2, keepdims=True)).mean(axis=-1)
        return share

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        refuse_vectors(x, self.features)
        refuse_rewards(reward)
        return Memory(
            own=memory.mine.learn(x, reward, penalty=self.penalty, discount=self.discount, where=where)
        )


def _root(inverse: Array) -> Array:
    """A matrix whose product with its own transpose is the inverse."""
    try:
        return np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        if inverse.ndim > 2:  # one user's rounding must not change the draws of the others
            return np.array([_root(one) for one in inverse])
        # Features of very unlike sizes leave directions that are certain up to rounding, on either side of 0.
        values, directions = np.linalg.eigh(inverse)
        root: Array = directions * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        return root


@lru_cache(maxsize=8)
def _normals(samples: int, dims: int) -> Array:
    """The same numbers for every decision, user and process: (D, samples), each beside its opposite."""
    half: Array = np.random.default_rng(_SEED).standard_normal((dims, (samples + 1) // 2))
    return np.concatenate([half, -half], axis=-1)[:, :samples]
