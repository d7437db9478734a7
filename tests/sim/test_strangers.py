"""Policies of somebody else's that fail, in a simulation and on a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sim_samples import STREAM, drawn
from tipbench.bandit import policies
from tipbench.bandit.policies.hybrid import Hybrid
from tipbench.bandit.policy import Weighed
from tipbench.errors import BadInput, PolicyFailed
from tipbench.sim.replay import Served, replay
from tipbench.sim.runner import simulate

if TYPE_CHECKING:
    from tipbench.bandit.policy import Memory
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Odd(Hybrid):
    """Hybrid, but for what it is told to do wrong."""

    name: str = "odd"
    wrong: str = ""

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        scores, shares = Hybrid.weigh(self, memory, x)
        match self.wrong:
            case "raises":
                raise ZeroDivisionError("by nothing")
            case "no numbers":
                return Weighed(scores=scores, propensities=shares * np.nan)
            case "too much":
                return Weighed(scores=scores, propensities=shares * 2.0)
            case "too few":
                return Weighed(scores=scores[..., 1:], propensities=shares[..., 1:])
        return Weighed(scores=scores, propensities=shares)


class Reader:
    """Reads features that there are not."""

    features = "v9"


def breaks() -> Hybrid:
    raise OSError("no such thing")


@pytest.mark.parametrize("wrong", ["raises", "no numbers", "too much", "too few"])
def test_a_policy_that_fails_is_named(wrong: str) -> None:
    """One sentence instead of a traceback, or of a verdict on what are no probabilities."""
    policy = Odd(wrong=wrong)
    with pytest.raises(PolicyFailed, match=r"^the policy odd "):
        simulate(policy, drawn(seeds=1, users=4, rounds=2), serve_seed=STREAM)
    logged = Served(
        user="a",
        features="v2",
        x=np.zeros((3, 12)),
        kinds=("a", "b", "c"),
        hour=9.0,
        chosen=0,
        propensity=0.5,
        reward=1.0,
    )
    with pytest.raises(PolicyFailed, match=r"^the policy odd "):
        replay(policy, [logged, logged])


@pytest.mark.parametrize(
    ("factory", "says"), [("Reader", "reads the features 'v9'"), ("breaks", "OSError: no such")]
)
def test_a_policy_that_cannot_be_is_refused_at_once(factory: str, says: str) -> None:
    """Before anything is simulated, and by the name it was asked for."""
    with pytest.raises(BadInput, match=says):
        policies.make(f"{__name__}:{factory}")
