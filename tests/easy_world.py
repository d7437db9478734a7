"""A world that any policy which learns should master: rewards are linear in the candidate's features."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tipbench.bandit import draws
from tipbench.bandit.features import FEATURES

if TYPE_CHECKING:
    from tipbench.bandit.policy import Policy

_WEIGHTS = np.array([0.5, 0.3, 0.0, -0.2, 0.0, 0.1, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0])


class Regret(NamedTuple):
    """How much was missed per round: over all, and in the last quarter."""

    mean: float
    late: float


def played(policy: Policy, *, seed: int, users: int = 20, rounds: int = 200, candidates: int = 5) -> Regret:
    """What a policy misses in this world; policies that are given the same seed meet the same draws."""
    rng = np.random.default_rng(seed)
    dims = FEATURES[policy.features].dims
    memory, missed = policy.fresh(own=(users,), pooled=(1,)), np.empty(rounds)
    for turn in range(rounds):
        x = rng.uniform(-1.0, 1.0, (users, candidates, 12))[..., :dims]
        x[..., 0] = 1.0
        chances = np.clip(x[..., :7] @ _WEIGHTS[:7], 0.0, 1.0)
        chosen = draws.pick(policy.weigh(memory, x).propensities, rng.random(users))
        everyone = np.arange(users)
        missed[turn] = (chances.max(axis=-1) - chances[everyone, chosen]).mean()
        reward = (rng.random(users) < chances[everyone, chosen]) * 1.0
        memory = policy.learn(memory, x[everyone, chosen], reward)
    return Regret(float(missed.mean()), float(missed[-rounds // 4 :].mean()))
