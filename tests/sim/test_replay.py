"""A log replayed for a policy that did not write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim_samples import STREAM, drawn
from tipbench.bandit import policies
from tipbench.bandit.features import FEATURES
from tipbench.sim.ope import estimate
from tipbench.sim.replay import Served, replay
from tipbench.sim.runner import Run

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


class Writing(Run):
    """A simulation that writes down what was served, as the log of a service would have it."""

    def written(self) -> list[Served]:
        self.served: list[tuple[int, int, int, Array, Array]] = []
        u = self.draws.exploration(STREAM)
        for round_ in range(len(u)):
            self.decide(round_, u[round_])
            self.learn(round_)
        return [self._one(*each) for each in self.served]

    def weigh(self, round_: int, x: Array) -> Array:
        shares = super().weigh(round_, x)
        places = np.ndindex(x.shape[:2])
        self.served += [(round_, seed, user, x[seed, user], shares[seed, user]) for seed, user in places]
        return shares

    def _one(self, round_: int, seed: int, user: int, x: Array, shares: Array) -> Served:
        at = (round_, seed, user)
        chosen, kinds = int(self.chosen[at]), self.scenery.kind[self.draws.tips[at]]
        heard = self.draws.due[at] >= 0
        return Served(
            user=f"{seed}-{user}",
            features=self.policy.features,
            x=x,
            kinds=tuple(self.scenery.world.kinds[kind].id for kind in kinds),
            hour=float(self.scenery.hour[self.draws.context[at]]),
            chosen=chosen,
            propensity=float(shares[chosen]),
            reward=float(self.draws.rewarded[(round_, seed, user, chosen)]) if heard else None,
            event="completed" if self.draws.rewarded[(round_, seed, user, chosen)] else "dismissed",
        )


def written(name: str, **size: int) -> list[Served]:
    return Writing(policies.make(name), drawn(**size)).written()


def test_only_the_newer_part_is_judged() -> None:
    """Half of the decisions with a reward teach, the other half is judged, in order; no others are."""
    served = written("egreedy")
    heard = [each for each in served if each.reward is not None]
    judged = replay(policies.make("linucb"), served)
    assert len(heard) < len(served)
    assert [each.reward for each in judged] == [each.reward for each in heard[len(heard) // 2 :]]
    assert all(np.isclose(each.target.sum(), 1) for each in judged)


def test_a_policy_is_frozen_while_it_is_judged() -> None:
    """A policy that may learn from nothing would do the same everywhere: judging teaches nothing."""
    judged = replay(policies.make("egreedy"), written("random"), learn_share=0.0)
    assert all(np.allclose(each.target, 0.2) for each in judged)


def test_what_a_log_lacks_is_rebuilt() -> None:
    """From a log of v1 the first seven numbers are kept and the others counted from the log itself."""
    served = written("egreedy")
    judged = replay(policies.make("egreedy-v2"), served, learn_share=0.5)
    assert {each.x.shape[1] for each in judged} == {FEATURES["v2"].dims}
    assert all((np.abs(each.x[:, 7:]).sum(axis=0)[[0, 1, 4]] > 0).all() for each in judged[-20:])
    first = {each.x.shape[1] for each in replay(policies.make("egreedy"), written("hybrid"))}
    assert first == {FEATURES["v1"].dims}


def test_a_replayed_policy_is_judged_rightly() -> None:
    """On a log that explores fully, a policy that learns is estimated to beat the log."""
    served = written("random", seeds=4, users=12, rounds=120)
    found = estimate(replay(policies.make("hybrid"), served))
    assert found.effective > 100
    assert found.stance == "no objection"
    assert found.gain is not None
    assert found.gain.low > 0
