"""What a policy has learned, as bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipbench.bandit.ridge import Ridge
from tipbench.bandit.ridge_codec import decode_ridge, encode_ridge
from tipbench.errors import BadState


def learned(dims: int, rounds: int, seed: int = 1, discount: float = 1.0) -> Ridge:
    ridge, rng = Ridge.fresh(dims, penalty=0.7), np.random.default_rng(seed)
    for _ in range(rounds):
        x, reward = rng.uniform(-1.0, 1.0, dims), np.float64(rng.random())
        ridge = ridge.learn(x, reward, penalty=0.7, discount=discount)
    return ridge


@settings(max_examples=40)
@given(
    dims=st.integers(1, 30),
    rounds=st.integers(0, 30),
    seed=st.integers(0, 2**32 - 1),
    discount=st.sampled_from([1.0, 0.9]),
)
def test_what_is_decoded_is_what_was_encoded(dims: int, rounds: int, seed: int, discount: float) -> None:
    """Every number comes back to the last bit, in the same shape."""
    ridge = learned(dims, rounds, seed, discount)
    again = decode_ridge(encode_ridge(ridge), dims=dims, what="it")
    for name in ("inverse", "moment", "weights", "seen"):
        assert getattr(again, name).tobytes() == getattr(ridge, name).tobytes()
        assert getattr(again, name).shape == getattr(ridge, name).shape
    assert encode_ridge(again) == encode_ridge(ridge)


def test_a_user_takes_less_than_a_kilobyte() -> None:
    """Twelve dimensions of one user fit in 840 bytes, so 100,000 users fit in 84 MB."""
    assert len(encode_ridge(learned(12, 5))) <= 840


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_damaged_byte_is_noticed(place: int, flip: int) -> None:
    """Whichever byte is changed, decoding names what is damaged."""
    data = bytearray(encode_ridge(learned(7, 5)))
    data[place % len(data)] ^= flip
    with pytest.raises(BadState, match=r"^what egreedy learned of user 'u' cannot be read: "):
        decode_ridge(bytes(data), dims=7, what="what egreedy learned of user 'u'")


@given(length=st.integers(0, 10_000))
def test_any_cut_is_noticed(length: int) -> None:
    """However much is missing, or added, decoding refuses."""
    data = encode_ridge(learned(7, 5))
    with pytest.raises(BadState):
        decode_ridge(data[: length % len(data)], dims=7, what="it")
    with pytest.raises(BadState):
        decode_ridge(data + b"\0" * (1 + length % 9), dims=7, what="it")


def test_other_dimensions_are_refused() -> None:
    """The state of v1 is never read as that of v2."""
    with pytest.raises(BadState, match="it has 7 dimensions, and 12 are needed"):
        decode_ridge(encode_ridge(learned(7, 5)), dims=12, what="it")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    """Weights that are not finite are an error, even where the checksum is right."""
    ridge = learned(7, 5)
    weights = ridge.weights.copy()
    weights[3] = bad
    with pytest.raises(BadState, match="not finite"):
        decode_ridge(encode_ridge(replace(ridge, weights=weights)), dims=7, what="it")


def test_many_models_are_not_encoded_as_one() -> None:
    """An array of models is refused instead of being flattened."""
    with pytest.raises(ValueError, match="one model is encoded at a time"):
        encode_ridge(Ridge.fresh(3, penalty=1.0, shape=(2,)))
