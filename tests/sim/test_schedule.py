"""The order in which outcomes are learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tipbench.sim.schedule import waves

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


@given(
    late=arrays.arrays(int, (6, 2, 3), elements=st.integers(-1, 3)),
    apart=st.booleans(),
)
def test_every_outcome_is_learned_once_and_in_order(*, late: Array, apart: bool) -> None:
    """What is due is in one wave of its round, by user and then by round of the decision."""
    rounds = np.arange(6)[:, None, None]
    due = np.where(late < 0, -1, rounds + late)
    found = waves(due, apart=apart)
    told = [
        (at, *place)
        for at, some in enumerate(found)
        for wave in some
        for place in zip(*wave.place, strict=True)
    ]
    expected = [(int(due[place]), *place) for place in np.ndindex(due.shape) if 0 <= due[place] < 6]
    assert sorted(told) == sorted(expected)
    for seed in range(2):
        mine = [(at, user, round_) for at, round_, which, user in told if which == seed]
        users = [
            [place[2] for place in mine if place[:2] == (at, user)] for at in range(6) for user in range(3)
        ]
        assert all(rounds == sorted(rounds) for rounds in users)
        assert not apart or mine == sorted(mine)


@given(late=arrays.arrays(int, (5, 3, 4), elements=st.integers(-1, 2)), apart=st.booleans())
def test_a_wave_can_be_learned_at_once(*, late: Array, apart: bool) -> None:
    """No user of a seed is twice in a wave; where users share a model, no two of a seed are."""
    due = np.where(late < 0, -1, np.arange(5)[:, None, None] + late)
    for wave in (wave for some in waves(due, apart=apart) for wave in some):
        keys = list(wave.seed) if apart else list(zip(wave.seed, wave.user, strict=True))
        assert len(set(keys)) == len(keys)
