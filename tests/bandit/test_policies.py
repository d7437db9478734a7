"""Policies by name, and what tells them apart."""

from __future__ import annotations

import numpy as np
import pytest

from tipbench.bandit import policies
from tipbench.bandit.policies.egreedy import EpsilonGreedy
from tipbench.bandit.policy import Memory, explored
from tipbench.errors import BadInput


def own(*, epsilon: float = 0.3) -> EpsilonGreedy:
    """What a stranger's factory may look like."""
    return EpsilonGreedy(name="own", epsilon=epsilon)


def test_every_name_makes_a_policy_of_that_name() -> None:
    """State and decisions are kept under the name that was asked for."""
    assert [policies.make(name).name for name in policies.NAMES] == list(policies.NAMES)


def test_the_feature_sets_that_are_read() -> None:
    """Only `egreedy-v2` and `hybrid` read the profile features."""
    read = {name: policies.make(name).features for name in policies.NAMES}
    assert {name for name, version in read.items() if version == "v2"} == {"egreedy-v2", "hybrid"}


def test_versions_tell_policies_apart() -> None:
    """Every policy has a version of its own, short and of a known form."""
    versions = [policies.version(policies.make(name)) for name in policies.NAMES]
    assert len(set(versions)) == len(versions)
    assert all(len(version) == 10 and version.startswith("1-") for version in versions)


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    """The sentence says what there is, and what may have been meant."""
    with pytest.raises(BadInput, match=r"there is no policy 'xyz'\. There are egreedy, "):
        policies.make("xyz")
    with pytest.raises(BadInput, match=r"policy 'linucb' has no parameter 'xyz'\. It has "):
        policies.make("linucb", xyz=1)
    with pytest.raises(BadInput, match="there is no policy 'linucbb'; did you mean 'linucb'"):
        policies.make("linucbb")


def test_an_unknown_parameter_is_refused_with_a_hint() -> None:
    """Nothing that was asked for is dropped in silence."""
    with pytest.raises(BadInput, match="'egreedy' has no parameter 'epsilom'; did you mean 'epsilon'"):
        policies.make("egreedy", epsilom=0.1)


def test_a_policy_of_ones_own_is_loaded() -> None:
    """`package.module:factory` is called with the parameters."""
    policy = policies.make(f"{__name__}:own", epsilon=0.4)
    assert (policy.name, policy.parameters["epsilon"]) == ("own", 0.4)


@pytest.mark.parametrize(
    "spec", ["nowhere:x", f"{__name__}:nothing", f"{__name__}:__name__", ":x", "x:", ".x:y"]
)
def test_a_policy_that_cannot_be_loaded_is_named(spec: str) -> None:
    """What is not there, or cannot be called, is refused in one sentence that names it."""
    with pytest.raises(BadInput, match=f"^policy '{spec}' "):
        policies.make(spec)


def test_a_factory_that_does_not_take_the_parameters_is_named() -> None:
    """A parameter that a factory does not know is a sentence, not a traceback."""
    with pytest.raises(BadInput, match="cannot be made with"):
        policies.make(f"{__name__}:own", alpha=1.0)


def test_linucb_prefers_what_it_knows_least() -> None:
    """Of two tips that earned the same so far, the one tried less often is favoured."""
    policy = policies.make("linucb", alpha=1.0)
    often, seldom = np.eye(7)[1], np.eye(7)[2]
    memory = policy.fresh()
    for _ in range(20):
        memory = policy.learn(memory, often, np.float64(0.0))
    weighed = policy.weigh(policy.learn(memory, seldom, np.float64(0.0)), np.stack([often, seldom]))
    assert weighed.propensities.tolist() == pytest.approx([0.025, 0.975])
    assert explored(weighed, 0)
    assert not explored(weighed, 1)


def test_thompson_wins_as_often_as_the_normal_distribution_says() -> None:
    """With one tip sure to earn 0 and one of mean 0 and unsure, each wins half of the draws."""
    policy = policies.make("thompson", samples=2000, floor=0.0)
    x = np.zeros((2, 7))
    x[1, 3] = 1.0
    assert policy.weigh(policy.fresh(), x).propensities == pytest.approx([0.5, 0.5], abs=0.01)


def test_thompson_is_surer_after_it_saw_more() -> None:
    """The more often a better tip was rewarded, the closer its propensity comes to what the floor leaves."""
    policy = policies.make("thompson")
    x = np.zeros((2, 7))
    x[0, 1], x[1, 1] = 1.0, -1.0
    memory, chances = policy.fresh(), []
    for _ in range(30):
        chances.append(float(policy.weigh(memory, x).propensities[0]))
        memory = policy.learn(memory, x[0], np.float64(1.0))
    assert chances[0] == pytest.approx(0.5, abs=0.1)
    assert chances[-1] == pytest.approx(0.975)


def test_thompson_draws_alike_beside_a_model_at_the_end_of_its_digits() -> None:
    """A user whose inverse is no longer positive has no other user's chances change."""
    policy = policies.make("thompson")
    x = np.random.default_rng(3).uniform(-1.0, 1.0, (2, 5, 7))
    memory = policy.fresh(own=(2,))
    for turn in range(4):
        memory = policy.learn(memory, x[:, turn], np.array([1.0, 0.0]))
    alone = policy.weigh(Memory(own=memory.mine.at(0)), x[0])
    memory.mine.inverse[1, 6] = memory.mine.inverse[1, :, 6] = 0.0
    memory.mine.inverse[1, 6, 6] = -1e-18
    assert policy.weigh(memory, x).propensities[0].tolist() == alone.propensities.tolist()


def test_hybrid_tells_a_new_user_what_the_others_liked() -> None:
    """Somebody never seen is served by what holds for all, and then by what is different about them."""
    policy, rng = policies.make("hybrid", alpha=0.0, floor=0.0), np.random.default_rng(1)
    memory = policy.fresh(own=(10,), pooled=(1,))
    liked, disliked = np.eye(12)[1], np.eye(12)[2]
    for _ in range(40):
        shows = rng.random(10) < 0.5
        memory = policy.learn(memory, np.where(shows[:, None], liked, disliked), shows * 1.0)
    new = policy.fresh(own=(1,))
    mixed = type(memory)(own=new.own, pooled=memory.pooled)
    both = np.stack([liked, disliked])
    assert policy.weigh(mixed, both[None]).propensities.tolist() == [[1.0, 0.0]]
    for _ in range(60):
        mixed = policy.learn(mixed, liked[None], np.array([0.0]))
        mixed = policy.learn(mixed, disliked[None], np.array([1.0]))
        mixed = type(memory)(own=mixed.own, pooled=memory.pooled)
    assert policy.weigh(mixed, both[None]).propensities.tolist() == [[0.0, 1.0]]
