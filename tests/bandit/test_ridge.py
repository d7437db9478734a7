"""Ridge regression, one observation at a time, against its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipbench.bandit.ridge import Ridge

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


def observed(dims: int, rounds: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 1.0, (rounds, dims)), rng.random(rounds)


def learned(x: Array, rewards: Array, *, penalty: float, discount: float = 1.0) -> Ridge:
    ridge = Ridge.fresh(x.shape[-1], penalty=penalty)
    for row, reward in zip(x, rewards, strict=True):
        ridge = ridge.learn(row, reward, penalty=penalty, discount=discount)
    return ridge


@settings(max_examples=60)
@given(
    dims=st.integers(1, 12),
    rounds=st.integers(0, 60),
    seed=st.integers(0, 2**32 - 1),
    penalty=st.sampled_from([0.1, 1.0, 10.0]),
    discount=st.sampled_from([1.0, 0.98, 0.5]),
)
def test_learning_one_by_one_equals_solving_at_once(
    dims: int, rounds: int, seed: int, penalty: float, discount: float
) -> None:
    """Inverse and weights are those of λI + Σ γ^age xxᵀ and Σ γ^age r·x, solved plainly."""
    x, rewards = observed(dims, rounds, seed)
    ridge = learned(x, rewards, penalty=penalty, discount=discount)
    ages = discount ** np.arange(rounds - 1, -1, -1)
    gram = penalty * np.eye(dims) + (x.T * ages) @ x
    assert ridge.inverse == pytest.approx(np.linalg.inv(gram), abs=1e-9)
    assert ridge.weights == pytest.approx(np.linalg.solve(gram, x.T @ (ages * rewards)), abs=1e-9)
    assert float(ridge.seen) == pytest.approx(ages.sum())
    assert (ridge.inverse == ridge.inverse.T).all()


def test_what_is_expected_and_how_surely() -> None:
    """Mean is x·w and spread √(xᵀA⁻¹x), for candidates and for one at a time."""
    ridge = learned(*observed(5, 20, 1), penalty=1.0)
    x = observed(5, 4, 2)[0]
    assert ridge.mean(x) == pytest.approx(x @ ridge.weights)
    assert ridge.spread(x) == pytest.approx(np.sqrt(np.einsum("kd,de,ke->k", x, ridge.inverse, x)))
    assert ridge.expected(x[2]) == ridge.mean(x)[2]


def test_ten_thousand_rounds_do_not_drift() -> None:
    """Rounding does not add up: after many rounds the weights are still those of a plain solve."""
    x, rewards = observed(12, 10_000, 3)
    ridge = learned(x, rewards, penalty=1.0)
    assert ridge.weights == pytest.approx(np.linalg.solve(np.eye(12) + x.T @ x, x.T @ rewards), abs=1e-10)


@pytest.mark.parametrize("discount", [1.0, 0.9998, 0.98])
@pytest.mark.parametrize("times", [1, 400, 6000])
def test_large_features_spoil_nothing_else(discount: float, times: int) -> None:
    """However often the largest features were seen, what lies across them is learned as without them."""
    rng = np.random.default_rng(6)
    x, rewards = rng.uniform(-1.0, 1.0, (100, 12)), rng.random(100)
    x -= x.mean(axis=-1, keepdims=True)
    ridge = learned(x[:50], rewards[:50], penalty=1.0, discount=discount)
    for _ in range(times):
        ridge = ridge.learn(np.full(12, 1e6), np.float64(1.0), penalty=1.0, discount=discount)
    for row, reward in zip(x[50:], rewards[50:], strict=True):
        ridge = ridge.learn(row, reward, penalty=1.0, discount=discount)
    ages = discount ** np.concatenate([np.arange(99 + times, 49 + times, -1), np.arange(49, -1, -1)])
    gram = np.eye(12) + (x.T * ages) @ x
    assert x @ ridge.weights == pytest.approx(x @ np.linalg.solve(gram, x.T @ (ages * rewards)), abs=1e-6)
    assert ridge.variance(x) == pytest.approx(np.vecdot(x, np.linalg.solve(gram, x.T).T), abs=1e-6)
    assert np.linalg.eigvalsh(ridge.inverse)[0] > -1e-12


def test_forgetting_lets_no_error_grow() -> None:
    """A direction that rounding left below certain is at most certain, and comes back as others do."""
    sure = Ridge.fresh(3, penalty=1.0)
    sure.inverse[2, 2] = -1e-12
    beside = Ridge.fresh(3, penalty=1.0, shape=(2,))
    beside.inverse[1] = sure.inverse
    for _ in range(3000):
        sure = sure.learn(np.eye(3)[0], np.float64(0.5), penalty=1.0, discount=0.98)
        beside = beside.learn(np.eye(3)[[0, 0]], np.full(2, 0.5), penalty=1.0, discount=0.98)
        assert 0.0 <= sure.inverse[2, 2] <= 1.0
    assert sure.inverse[2, 2] == pytest.approx(1.0)
    assert beside.at(1).inverse.tobytes() == sure.inverse.tobytes()


@given(rounds=st.integers(0, 40), seed=st.integers(0, 2**32 - 1), penalty=st.sampled_from([0.5, 1.0, 4.0]))
@settings(max_examples=30)
def test_widening_keeps_every_weight(rounds: int, seed: int, penalty: float) -> None:
    """From 7 to 12 dimensions: weights stay to the last bit, new ones are 0 and as unsure as the penalty."""
    narrow = learned(*observed(7, rounds, seed), penalty=penalty)
    wide = narrow.widened(12, penalty=penalty)
    assert wide.weights[:7].tobytes() == narrow.weights.tobytes()
    assert wide.moment[:7].tobytes() == narrow.moment.tobytes()
    assert wide.inverse[:7, :7].tobytes() == narrow.inverse.tobytes()
    assert not wide.weights[7:].any()
    assert not wide.inverse[:7, 7:].any()
    assert (wide.inverse[7:, 7:] == np.eye(5) / penalty).all()
    assert wide.seen == narrow.seen


def test_a_widened_model_goes_on_learning() -> None:
    """After widening, what is learned equals what a wide model would have learned all along."""
    x, rewards = observed(12, 30, 4)
    x[:15, 7:] = 0.0
    ridge = learned(x[:15, :7], rewards[:15], penalty=1.0).widened(12, penalty=1.0)
    for row, reward in zip(x[15:], rewards[15:], strict=True):
        ridge = ridge.learn(row, reward, penalty=1.0)
    assert ridge.weights == pytest.approx(learned(x, rewards, penalty=1.0).weights, abs=1e-12)


def test_models_that_observed_nothing_stay_as_they_are() -> None:
    """`where` leaves the models alone at which it is False."""
    before = Ridge.fresh(3, penalty=1.0, shape=(4,))
    x, rewards = observed(3, 4, 5)
    after = before.learn(x, rewards, penalty=1.0, where=np.array([True, False, True, False]))
    assert after.seen.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert after.at(0).weights.tolist() == learned(x[:1], rewards[:1], penalty=1.0).weights.tolist()
    assert not after.at(1).weights.any()
