"""Every policy × the same promises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easy_world import played
from tipbench.bandit import draws, policies
from tipbench.bandit.features import FEATURES
from tipbench.bandit.policy import Memory, explored, greedy
from tipbench.bandit.ridge_codec import decode_ridge, encode_ridge
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Array, Ridge

EVERY = pytest.mark.parametrize("name", policies.NAMES)
LEARNING = pytest.mark.parametrize("name", [name for name in policies.NAMES if name != "random"])


def some_x(policy: Policy, *shape: int, seed: int = 1) -> Array:
    dims = FEATURES[policy.features].dims
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (*shape, dims))


def taught(policy: Policy, *, rounds: int = 30, seed: int = 5) -> Memory:
    """What one user's rounds leave behind."""
    memory, rng = policy.fresh(), np.random.default_rng(seed)
    for x in some_x(policy, rounds, seed=seed):
        memory = policy.learn(memory, x, np.float64(rng.random() < 0.5))
    return memory


def parts(memory: Memory) -> list[Ridge]:
    return [part for part in (memory.own, memory.pooled) if part is not None]


def numbers(memory: Memory) -> list[bytes]:
    """All that is remembered, to the last bit."""
    return [
        np.ascontiguousarray(array).tobytes()
        for part in parts(memory)
        for array in (part.inverse, part.moment, part.weights, part.seen)
    ]


def floor_of(policy: Policy) -> float:
    return float(policy.parameters.get("floor", policy.parameters.get("epsilon", 1.0)))


@EVERY
def test_the_same_rounds_give_the_same_memory_and_choice(name: str) -> None:
    """Two policies made alike remember and choose alike, to the last bit: nothing is drawn inside."""
    one, other = policies.make(name), policies.make(name)
    x = some_x(one, 10)
    first, second = one.weigh(taught(one), x), other.weigh(taught(other), x)
    assert numbers(taught(one)) == numbers(taught(other))
    assert first.propensities.tobytes() == second.propensities.tobytes()
    assert draws.pick_one(first.propensities.tolist(), 0.7) == draws.pick_one(
        second.propensities.tolist(), 0.7
    )


@EVERY
@settings(max_examples=40)
@given(candidates=st.integers(1, 200), rounds=st.integers(0, 12), seed=st.integers(0, 2**32 - 1))
def test_propensities_are_a_distribution_above_the_floor(
    name: str, candidates: int, rounds: int, seed: int
) -> None:
    """They sum to 1 and none is below floor / K, for any number of candidates and whatever was learned."""
    policy = policies.make(name)
    weighed = policy.weigh(taught(policy, rounds=rounds, seed=seed), some_x(policy, candidates, seed=seed))
    assert weighed.scores.shape == weighed.propensities.shape == (candidates,)
    assert weighed.propensities.sum() == pytest.approx(1.0, abs=1e-12)
    assert weighed.propensities.min() >= floor_of(policy) / candidates * (1.0 - 1e-12)
    assert np.isfinite(weighed.scores).all()


@LEARNING
def test_a_snapshot_goes_on_as_if_nothing_had_happened(name: str) -> None:
    """Memory that was encoded and decoded is the same to the last bit, also after it learned more."""
    policy = policies.make(name)
    memory = taught(policy)
    again = Memory(
        own=decode_ridge(encode_ridge(memory.mine), dims=memory.mine.dims, what="own"),
        pooled=memory.pooled
        and decode_ridge(encode_ridge(memory.shared), dims=memory.shared.dims, what="pooled"),
    )
    x, reward = some_x(policy), np.float64(1.0)
    assert numbers(again) == numbers(memory)
    assert numbers(policy.learn(again, x, reward)) == numbers(policy.learn(memory, x, reward))


@LEARNING
def test_an_easy_world_is_learned(name: str) -> None:
    """With rewards that are linear in the features, regret falls far below that of picking at random."""
    learned = played(policies.make(name), seed=2)
    control = played(policies.make("random"), seed=2)
    assert learned.late < 0.4 * control.late
    assert learned.mean < 0.6 * control.mean


def test_the_control_does_not_learn() -> None:
    """`random` remembers nothing, gives every tip the same chance, and never counts as exploring."""
    policy = policies.make("random")
    weighed = policy.weigh(taught(policy), some_x(policy, 4))
    assert taught(policy) == Memory()
    assert weighed.propensities.tolist() == [0.25] * 4
    assert not explored(weighed, 2)


@EVERY
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e7, -1e300])
def test_features_that_cannot_be_reckoned_with_are_refused(name: str, bad: float) -> None:
    """NaN, infinities and huge numbers are refused when weighing and when learning, and change nothing."""
    policy = policies.make(name)
    memory = taught(policy)
    before, x = numbers(memory), some_x(policy, 3)
    x[1, 2] = bad
    with pytest.raises(BadInput, match="between -1000000 and 1000000"):
        policy.weigh(memory, x)
    with pytest.raises(BadInput, match="not finite"):
        policy.learn(memory, x[1], np.float64(1.0))
    assert numbers(memory) == before


@EVERY
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.01, 1.01])
def test_rewards_outside_0_to_1_are_refused(name: str, bad: float) -> None:
    """A reward that is no number from 0 to 1 is refused, and changes nothing."""
    policy = policies.make(name)
    memory = taught(policy)
    before = numbers(memory)
    with pytest.raises(BadInput, match="from 0 to 1"):
        policy.learn(memory, some_x(policy), np.float64(bad))
    assert numbers(memory) == before


@EVERY
def test_vectors_of_another_feature_set_are_refused(name: str) -> None:
    """A vector with too many or too few dimensions is refused by name."""
    policy = policies.make(name)
    wrong = np.zeros((3, FEATURES[policy.features].dims - 1))
    with pytest.raises(BadInput, match=f"feature set {policy.features} has"):
        policy.weigh(policy.fresh(), wrong)
    with pytest.raises(BadInput, match=f"feature set {policy.features} has"):
        policy.learn(policy.fresh(), wrong[0], np.float64(1.0))


@EVERY
def test_the_largest_numbers_allowed_leave_a_sound_memory(name: str) -> None:
    """A thousand rounds up to the limit of what is allowed leave finite weights, and scores of small ones."""
    policy, rng = policies.make(name), np.random.default_rng(3)
    memory = policy.fresh()
    for x in some_x(policy, 1000):
        large = x * 10.0 ** rng.integers(-3, 7, x.shape)
        memory = policy.learn(memory, large, np.float64(rng.random() < 0.5))
    weighed = policy.weigh(memory, some_x(policy, 5))
    assert all(np.isfinite(part.inverse).all() and np.isfinite(part.weights).all() for part in parts(memory))
    assert np.isfinite(weighed.scores).all()


@EVERY
def test_learning_leaves_the_old_memory_whole(name: str) -> None:
    """Whoever holds the memory of before a reward still holds exactly that."""
    policy = policies.make(name)
    memory = taught(policy)
    before = numbers(memory)
    policy.learn(memory, some_x(policy), np.float64(1.0))
    assert numbers(memory) == before


CHANGED: dict[str, dict[str, Any]] = {
    "egreedy": {"epsilon": 0.2, "penalty": 2.0, "discount": 0.9},
    "egreedy-v2": {"epsilon": 0.3, "penalty": 0.5, "discount": 0.95},
    "linucb": {"alpha": 0.9, "floor": 0.2, "penalty": 2.0, "discount": 0.9},
    "hybrid": {
        "alpha": 0.9,
        "floor": 0.2,
        "penalty": 2.0,
        "own_penalty": 4.0,
        "discount": 0.9,
        "own_discount": 0.8,
    },
    "thompson": {"noise": 0.7, "samples": 50, "floor": 0.1, "penalty": 2.0, "discount": 0.9},
    "random": {},
}


@EVERY
def test_parameters_survive_cloning(name: str) -> None:
    """A policy made from another one's parameters equals it; no parameter is lost or goes by position."""
    policy = policies.make(name, **CHANGED[name])
    assert set(policy.parameters) == set(CHANGED[name])
    assert policies.make(name, **policy.parameters) == policy
    assert policies.version(policies.make(name, **policy.parameters)) == policies.version(policy)
    with pytest.raises(TypeError):
        type(policy)("another")  # type: ignore[call-arg]


@EVERY
def test_every_parameter_is_part_of_the_version(name: str) -> None:
    """Whatever changes how a policy behaves changes its version."""
    plain = policies.make(name)
    versions = {policies.version(policies.make(name, **{key: value})) for key, value in CHANGED[name].items()}
    assert len(versions | {policies.version(plain)}) == len(CHANGED[name]) + 1


@LEARNING
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "much", True, None])
def test_parameters_that_cannot_be_are_refused(name: str, bad: object) -> None:
    """A parameter that is no fitting number is refused by its name."""
    for parameter in policies.make(name).parameters:
        with pytest.raises(BadInput, match=f"^{parameter} is "):
            policies.make(name, **{parameter: bad})


@EVERY
@pytest.mark.parametrize("discount", [1.0, 0.95])
def test_many_side_by_side_are_as_one_at_a_time(name: str, discount: float) -> None:
    """Users learned and weighed in one array have the numbers, to the last bit, of each by itself."""
    chosen = {} if name == "random" else {"discount": discount}
    policy = policies.make(name, **chosen)
    rng, shape = np.random.default_rng(8), (2, 3)
    together = policy.fresh(own=shape, pooled=shape)
    alone = {place: policy.fresh() for place in np.ndindex(shape)}
    for turn in range(12):
        x, reward = some_x(policy, *shape, 6, seed=turn), (rng.random(shape) < 0.5) * 1.0
        weighed = policy.weigh(together, x)
        for place in np.ndindex(shape):
            mine = policy.weigh(alone[place], x[place])
            assert weighed.scores[place].tobytes() == mine.scores.tobytes()
            assert weighed.propensities[place].tobytes() == mine.propensities.tobytes()
            alone[place] = policy.learn(alone[place], x[place][1], reward[place])
        together = policy.learn(together, x[..., 1, :], reward)
    for place in np.ndindex(shape):
        assert numbers(alone[place]) == [
            whole for part in parts(together) for whole in numbers(Memory(own=part.at(*place)))
        ]


@EVERY
def test_users_who_share_a_pool_teach_it_in_turn(name: str) -> None:
    """A round of many users in one array equals their rewards one after the other; some have none."""
    policy, rng = policies.make(name), np.random.default_rng(4)
    together = policy.fresh(own=(5,), pooled=(1,))
    own: list[Ridge | None] = [policy.fresh().own for _ in range(5)]
    pooled = policy.fresh().pooled
    for turn in range(8):
        x, reward, where = some_x(policy, 5, seed=turn), rng.random(5), rng.random(5) < 0.7
        together = policy.learn(together, x, reward, where=where)
        for user in np.flatnonzero(where).tolist():
            after = policy.learn(Memory(own=own[user], pooled=pooled), x[user], reward[user])
            own[user], pooled = after.own, after.pooled
    if together.own is not None:
        for user in range(5):
            assert numbers(Memory(own=together.own.at(user))) == numbers(Memory(own=own[user]))
    if together.pooled is not None:
        assert numbers(Memory(pooled=together.pooled.at(0))) == numbers(Memory(pooled=pooled))


@EVERY
@settings(max_examples=40)
@given(
    alike=st.integers(2, 40), rounds=st.integers(0, 10), seed=st.integers(0, 2**32 - 1), last=st.booleans()
)
def test_ties_share(name: str, alike: int, rounds: int, seed: int, *, last: bool) -> None:
    """Candidates that are alike have the same score and chance, wherever they stand."""
    policy = policies.make(name)
    other, same = some_x(policy, 3, seed=seed), np.repeat(some_x(policy, 1, seed=seed + 1), alike, axis=0)
    x = np.concatenate([other, same] if last else [same, other])
    weighed = policy.weigh(taught(policy, rounds=rounds, seed=seed), x)
    here = slice(3, None) if last else slice(0, alike)
    assert len(set(weighed.scores[here].tolist())) == 1
    assert weighed.propensities[here] == pytest.approx([weighed.propensities[here][0]] * alike, abs=1e-12)


@EVERY
def test_one_candidate_is_certain(name: str) -> None:
    """A decision between one tip is shown with probability 1."""
    policy = policies.make(name)
    assert policy.weigh(taught(policy), some_x(policy, 1)).propensities.tolist() == pytest.approx([1.0])


@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=30), floor=st.floats(0.0, 1.0))
def test_greedy_shares_between_the_best(scores: list[float], floor: float) -> None:
    """The best share what the floor leaves; every other candidate has exactly floor / K."""
    propensities = greedy(np.array(scores), floor=floor)
    best = [score == max(scores) for score in scores]
    expected = [floor / len(scores) + (1.0 - floor) * (here / sum(best)) for here in best]
    assert propensities.tolist() == expected
