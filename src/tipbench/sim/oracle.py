"""A policy that knows the world and errs a little: the control that every gate must let through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tipbench.sim.trace import Trace
from tipbench.sim.world import CONTRACT

if TYPE_CHECKING:
    from tipbench.sim.draws import Draws

NOISE = 0.05
_STREAM = 7


def noisy_oracle(draws: Draws, *, noise: float = NOISE) -> Trace:
    """Picks the candidate whose probability of a reward, seen with this much normal noise, is highest."""
    blurred = np.empty(draws.expected.shape)
    for place, seed in enumerate(draws.seeds):
        rng = np.random.default_rng([CONTRACT, seed, _STREAM])
        blurred[:, place] = draws.expected[:, place] + noise * rng.standard_normal(blurred[:, place].shape)
    chosen = blurred.argmax(axis=-1)
    return Trace(
        policy="noisy oracle", version="1", draws=draws, chosen=chosen, propensity=np.ones(chosen.shape)
    )
