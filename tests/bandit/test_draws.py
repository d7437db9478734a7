"""Chance that can be replayed."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.bandit import draws

CHANCES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30).filter(lambda chances: sum(chances) > 0.1)


def test_a_request_has_its_number() -> None:
    """The same seed and request give the same number, any other one another."""
    assert draws.uniform(b"seed", "r") == draws.uniform(b"seed", "r")
    assert len({draws.uniform(seed, name) for seed in (b"a", b"b") for name in ("r", "q", "ü")}) == 6


def test_any_bytes_of_the_environment_are_a_seed() -> None:
    """Such as 32 that were drawn at random, which are hardly ever UTF-8."""
    seeds = {draws.seed_of(os.fsdecode(given)) for given in (b"\xff", b"\xfe", "ü".encode())}
    assert [len(seed) for seed in seeds] == [32] * 3


def test_the_numbers_are_uniform() -> None:
    """Ten thousand requests fill ten drawers evenly, within what chance allows (χ², p > 0.0001)."""
    numbers = [draws.uniform(b"seed", str(request)) for request in range(10_000)]
    counts, _ = np.histogram(numbers, bins=10, range=(0.0, 1.0))
    assert min(numbers) >= 0.0
    assert max(numbers) < 1.0
    assert ((counts - 1000) ** 2 / 1000).sum() < 33.7


def test_a_decision_has_one_id() -> None:
    """Ids differ by policy, user and request, also where these only divide the same letters differently."""
    asked = [("a", "b", "cd"), ("a", "bc", "d"), ("ab", "c", "d"), ("a", "b\0c", "d"), ("a\0b", "c", "d")]
    ids = {
        draws.decision_id(b"seed", policy=policy, user_id=user, request_id=request)
        for policy, user, request in asked
    }
    assert len(ids) == len(asked)


@given(chances=CHANCES, u=st.floats(0.0, 1.0, exclude_max=True))
def test_one_and_many_pick_alike(chances: list[float], u: float) -> None:
    """The quick way for one decision and the way for many pick the same candidate, which has a chance."""
    propensities = np.array(chances) / sum(chances)
    chosen = draws.pick_one(propensities.tolist(), u)
    assert chosen == int(draws.pick(propensities, u)) == int(draws.pick(propensities[None], np.array([u]))[0])
    assert propensities[chosen] > 0.0


def test_candidates_are_picked_as_often_as_their_propensities_say() -> None:
    """Over an even grid of numbers, each candidate is picked by its propensity."""
    propensities = np.array([0.1, 0.0, 0.65, 0.25])
    grid = (np.arange(10_000) + 0.5) / 10_000
    picked = draws.pick(np.broadcast_to(propensities, (10_000, 4)), grid)
    assert np.bincount(picked, minlength=4) / 10_000 == pytest.approx(propensities, abs=1e-3)
