"""Ridge regression that learns one observation at a time, for one model or for many side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"  # of float64, but where said otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class Ridge:
    """What ridge regression remembers. Every array may have leading axes: one model for each place in them.

    Learning returns a new Ridge and leaves this one as it was, so that whoever reads it meanwhile, or must
    go back to it because a commit failed, holds a whole one.
    """

    inverse: Array  # (…, D, D): (λI + Σ xxᵀ)⁻¹
    moment: Array  # (…, D): Σ r·x
    weights: Array  # (…, D): inverse @ moment, kept because every score needs it
    seen: Array  # (…): how many observations; a float, so that it can be discounted

    @classmethod
    def fresh(cls, dims: int, *, penalty: float, shape: tuple[int, ...] = ()) -> Ridge:
        """Nothing seen yet: all weights 0, and every direction as uncertain as the penalty says."""
        inverse = np.broadcast_to(np.eye(dims) / penalty, (*shape, dims, dims)).copy()
        nothing = np.zeros((*shape, dims))
        return cls(inverse=inverse, moment=nothing, weights=nothing.copy(), seen=np.zeros(shape))

    @property
    def dims(self) -> int:
        return int(self.moment.shape[-1])

    def mean(self, x: Array) -> Array:
        """The expected reward of each candidate: x is (…, K, D), the answer (…, K)."""
        # A column, not a vector: the same routine then runs for one model as for many, to the last bit.
        return (x @ self.weights[..., None])[..., 0]

    def spread(self, x: Array) -> Array:
        """How uncertain each expected reward is, in standard deviations for a noise of 1: (…, K)."""
        spread: Array = np.sqrt(np.maximum(((x @ self.inverse) * x).sum(axis=-1), 0.0))
        return spread

    def learn(self, x: Array, reward: Array, *, penalty: float, discount: float = 1.0) -> Ridge:
        """After one more observation for every model: x is (…, D), reward (…).

        With a discount below 1 what is old weighs less, and the penalty does not: else directions that are
        no longer seen would lose it, and their weights grow without bound.
        """
        if discount < 1.0:
            return self._discounted(x, reward, penalty=penalty, discount=discount)
        gain = (self.inverse @ x[..., None])[..., 0]
        scale = 1.0 + (gain * x).sum(axis=-1)
        surprise = (reward - (self.weights * x).sum(axis=-1)) / scale
        step = gain / np.sqrt(scale)[..., None]
        return Ridge(
            inverse=self.inverse - step[..., :, None] * step[..., None, :],
            moment=self.moment + reward[..., None] * x,
            weights=self.weights + surprise[..., None] * gain,
            seen=self.seen + 1.0,
        )

    def _discounted(self, x: Array, reward: Array, *, penalty: float, discount: float) -> Ridge:
        kept = discount * np.linalg.inv(self.inverse) + x[..., :, None] * x[..., None, :]
        inverse = np.linalg.inv(kept + (1.0 - discount) * penalty * np.eye(self.dims))
        inverse = (inverse + np.swapaxes(inverse, -1, -2)) / 2.0
        moment = discount * self.moment + reward[..., None] * x
        return Ridge(
            inverse=inverse,
            moment=moment,
            weights=(inverse @ moment[..., None])[..., 0],
            seen=discount * self.seen + 1.0,
        )

    def widened(self, dims: int, *, penalty: float) -> Ridge:
        """The same model with more dimensions that it has never seen: every weight stays exactly as it is."""
        grown = Ridge.fresh(dims, penalty=penalty, shape=self.moment.shape[:-1])
        grown.inverse[..., : self.dims, : self.dims] = self.inverse
        grown.moment[..., : self.dims] = self.moment
        grown.weights[..., : self.dims] = self.weights
        return Ridge(inverse=grown.inverse, moment=grown.moment, weights=grown.weights, seen=self.seen.copy())

    def at(self, *place: Any) -> Ridge:  # noqa: ANN401 - whatever an array takes as an index
        """The models at a place of the leading axes."""
        return Ridge(
            inverse=self.inverse[place],
            moment=self.moment[place],
            weights=self.weights[place],
            seen=self.seen[place],
        )
