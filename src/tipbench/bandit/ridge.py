"""Ridge regression that learns one observation at a time, for one model or for many side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"  # of float64, but where said otherwise

_LEAST = 1e-15  # of the largest uncertainty: what is less cannot be told from 0


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
        return means(x, self.weights)

    def spread(self, x: Array) -> Array:
        """How uncertain each expected reward is, in standard deviations for a noise of 1: (…, K)."""
        spread: Array = np.sqrt(self.variance(x))
        return spread

    def variance(self, x: Array) -> Array:
        """The square of the spread: (…, K)."""
        return variances(x, self.inverse)

    def expected(self, x: Array) -> Array:
        """The expected reward of one candidate for every model: x is (…, D), the answer (…)."""
        expected: Array = np.vecdot(self.weights, x)
        return expected

    def learn(
        self, x: Array, reward: Array, *, penalty: float, discount: float = 1.0, where: Array | None = None
    ) -> Ridge:
        """After one more observation for every model: x is (…, D), reward (…).

        With a discount below 1 what is old weighs less, and the penalty does not: else directions that are
        no longer seen would lose it, and their weights grow without bound. Models at which `where` is False
        observed nothing and stay as they are.
        """
        before = self if discount == 1.0 else faded(self, penalty=penalty, discount=discount)
        after = added(before, x, reward)
        return after if where is None else self._replaced(after, where)

    def learn_in_turn(
        self, x: Array, reward: Array, *, penalty: float, discount: float = 1.0, where: Array | None = None
    ) -> tuple[Ridge, Array]:
        """As `learn`, and what was expected of each observation just before it was learned.

        Where an axis of this model has length 1 and one of the observations is longer, they all teach the one
        model, one after the other in their order.
        """
        lengths = zip(self.seen.shape, reward.shape, strict=True)
        axis = next((place for place, (mine, theirs) in enumerate(lengths) if mine < theirs), None)
        if axis is None:
            after = self.learn(x, reward, penalty=penalty, discount=discount, where=where)
            return after, self.expected(x)
        model, expected = self, np.empty(reward.shape)
        for turn in range(reward.shape[axis]):
            here = (*[slice(None)] * axis, slice(turn, turn + 1))
            model, expected[here] = model.learn_in_turn(
                x[here],
                reward[here],
                penalty=penalty,
                discount=discount,
                where=None if where is None else where[here],
            )
        return model, expected

    def _replaced(self, after: Ridge, where: Array) -> Ridge:
        return Ridge(
            inverse=np.where(where[..., None, None], after.inverse, self.inverse),
            moment=np.where(where[..., None], after.moment, self.moment),
            weights=np.where(where[..., None], after.weights, self.weights),
            seen=np.where(where, after.seen, self.seen),
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


def added(ridge: Ridge, x: Array, reward: Array) -> Ridge:
    """After one more observation (Sherman and Morrison)."""
    gain = np.vecdot(ridge.inverse, x[..., None, :])
    # Never below 1 but by rounding, of which numbers far from 1 bring some.
    scale = np.maximum(1.0 + np.vecdot(gain, x), 1.0)
    surprise = (reward - ridge.expected(x)) / scale
    step = gain / np.sqrt(scale)[..., None]
    return Ridge(
        inverse=ridge.inverse - step[..., :, None] * step[..., None, :],
        moment=ridge.moment + reward[..., None] * x,
        weights=ridge.weights + surprise[..., None] * gain,
        seen=ridge.seen + 1.0,
    )


def faded(ridge: Ridge, *, penalty: float, discount: float) -> Ridge:
    """What is left of it before the next observation.

    (γA + (1 - γ)λI)⁻¹ is (γI + (1 - γ)λA⁻¹)⁻¹ A⁻¹, and the weights go the same way. What is inverted has
    eigenvalues from γ to 1: no digits are lost on features of very unlike sizes. To invert the inverse would
    lose all of them in time, and with them the model that everybody shares.
    """
    inverse = _not_below_certain(ridge.inverse)
    share = np.linalg.inv(discount * _eye(ridge.dims) + (1.0 - discount) * penalty * inverse)
    inverse = share @ inverse
    return Ridge(
        inverse=(inverse + np.swapaxes(inverse, -1, -2)) / 2.0,
        moment=discount * ridge.moment,
        weights=discount * np.vecdot(share, ridge.weights[..., None, :]),
        seen=discount * ridge.seen,
    )


@lru_cache(maxsize=8)
def _eye(dims: int) -> Array:
    return np.eye(dims)


def _not_below_certain(inverse: Array) -> Array:
    """The same, without directions that rounding has left below 0: whatever is forgotten, they would grow.

    Each model by itself: whoever is beside it must not change it.
    """
    try:
        np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        if inverse.ndim > 2:
            return np.array([_not_below_certain(one) for one in inverse])
        values, directions = np.linalg.eigh(inverse)
        kept: Array = (directions * np.maximum(values, _LEAST * values[-1])) @ directions.T
        return kept
    return inverse


def means(x: Array, weights: Array) -> Array:
    """The expected reward of candidates x (…, K, D) under weights (…, D): (…, K).

    Each candidate by itself: a matrix product may round the same row otherwise at another place, and
    candidates that are alike would no longer tie.
    """
    expected: Array = np.vecdot(x, weights[..., None, :])
    return expected


def variances(x: Array, inverse: Array) -> Array:
    """How uncertain they are for a noise of 1, under an inverse (…, D, D); each candidate by itself, too."""
    gains = np.vecmat(x, inverse[..., None, :, :])
    uncertain: Array = np.maximum(np.vecdot(gains, x), 0.0)
    return uncertain
