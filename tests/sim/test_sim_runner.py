"""Policies in a world: common random numbers, known answers, and the serving half's own numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sim_samples import STREAM, drawn
from tipbench.bandit import policies
from tipbench.bandit.policies.egreedy import EpsilonGreedy
from tipbench.bandit.policy import Memory, Weighed
from tipbench.sim.oracle import noisy_oracle
from tipbench.sim.runner import simulate
from tipbench.sim.trace import compared
from tipbench.workflows.simulating import curves_of

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array
    from tipbench.sim.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Always:
    """Shows the candidate at one place, remembers what it saw, learns nothing."""

    place: int = 0
    name: str = "always"
    features: str = "v1"
    seen: list[Any] = field(default_factory=list)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"place": self.place}

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:  # noqa: ARG002
        return Memory()

    def weigh(self, memory: Memory, x: Array) -> Weighed:  # noqa: ARG002
        self.seen.append(x)
        scores = np.zeros(x.shape[:-1])
        scores[..., self.place] = 1.0
        return Weighed(scores=scores, propensities=scores)

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:  # noqa: ARG002
        return memory


def ran(name: str, world: str = "tip", stream: bytes = STREAM, **size: int) -> Trace:
    return simulate(policies.make(name), drawn(world, **size), serve_seed=stream)


def test_known_regret() -> None:
    """A policy that always shows the first candidate has the regret of the first candidate."""
    draws = drawn()
    trace = simulate(Always(), draws, serve_seed=STREAM)
    assert np.array_equal(trace.regret, draws.expected.max(axis=-1) - draws.expected[..., 0])
    assert np.array_equal(trace.reward, draws.rewarded[..., 0])
    assert (trace.propensity == 1).all()


def test_policies_that_choose_alike_earn_alike() -> None:
    """The reward of a decision depends on what was shown, not on who showed it."""
    one, other = ran("egreedy"), ran("hybrid")
    same = one.chosen == other.chosen
    assert 0.1 < same.mean() < 1
    assert np.array_equal(one.reward[same], other.reward[same])
    assert np.array_equal(one.regret[same], other.regret[same])


def test_the_same_policy_under_another_name_does_the_same() -> None:
    """An identical policy on the same stream makes the very same choices; on another stream it does not."""
    draws = drawn()
    renamed = simulate(EpsilonGreedy(name="twin"), draws, serve_seed=STREAM)
    assert np.array_equal(ran("egreedy").chosen, renamed.chosen)
    assert not np.array_equal(ran("egreedy").chosen, ran("egreedy", stream=b"other").chosen)


@pytest.mark.parametrize("name", policies.NAMES)
def test_a_seed_does_not_feel_the_others(name: str) -> None:
    """What a policy does in one seed is the same whether other seeds run beside it or not."""
    among, alone = ran(name), ran(name, seeds=1, first=2)
    assert np.array_equal(among.chosen[:, 2:], alone.chosen)
    assert np.array_equal(among.propensity[:, 2:], alone.propensity)


@pytest.mark.parametrize("name", [name for name in policies.NAMES if name != "random"])
def test_policies_learn(name: str) -> None:
    """In `tip` every policy that learns has less regret than chance, on every seed."""
    learned, chance = (ran(each, users=12, rounds=120) for each in (name, "random"))
    assert (learned.by_seed() < chance.by_seed()).all()


def test_regret_of_chance_is_that_of_the_average_candidate() -> None:
    """`random` has the regret of a candidate taken blindly, within four standard errors."""
    draws = drawn(users=40, rounds=60)
    blind = draws.expected.max(axis=-1) - draws.expected.mean(axis=-1)
    regret = simulate(policies.make("random"), draws, serve_seed=STREAM).regret
    error = np.std(regret - blind) / np.sqrt(regret.size)
    assert abs(float(np.mean(regret - blind))) < 4 * error


@pytest.mark.parametrize("name", policies.NAMES)
def test_nobody_wins_in_the_null_world(name: str) -> None:
    """Where all tips are alike there is no regret, and no policy earns more than chance beyond noise."""
    trace, chance = (ran(each, "null", users=40, rounds=60) for each in (name, "random"))
    assert (trace.regret == 0).all()
    difference = trace.reward.astype(float) - chance.reward
    assert abs(difference.mean()) < 4 * max(difference.std(), 0.1) / np.sqrt(difference.size)


def test_drift_hurts_those_who_cannot_forget_more() -> None:
    """After people have changed, a policy that forgets has less regret than the same one that does not."""
    draws = drawn("drift", seeds=6, users=12, rounds=240)
    keeps, forgets = (
        simulate(policies.make("egreedy", discount=discount), draws, serve_seed=STREAM).regret[140:].mean()
        for discount in (1.0, 0.97)
    )
    assert forgets < keeps


def test_hybrid_forgets_enough_to_follow_people_who_change() -> None:
    """By its defaults it loses less after tastes have changed than one that forgets nothing."""
    draws = drawn("drift", seeds=4, users=20, rounds=200)
    forgets, never = (
        simulate(policies.make("hybrid", **how), draws, serve_seed=STREAM).regret[100:].mean()
        for how in ({}, {"discount": 1.0, "own_discount": 1.0})
    )
    assert forgets < never - 0.002


def test_the_oracle_is_nearly_perfect() -> None:
    """The noisy oracle has a little regret, far less than any policy; without noise it has none."""
    draws = drawn()
    noisy = noisy_oracle(draws).by_seed()
    assert (noisy > 0).all()
    assert (noisy < 0.2 * ran("hybrid").by_seed()).all()
    assert (noisy_oracle(draws, noise=0.0).regret == 0).all()


def test_features_known_beforehand_reach_only_those_who_read_them() -> None:
    """A policy of v1 sees 7 numbers; one of v2 sees 5 more, from the start for users that are known."""
    draws, first, second = drawn(), Always(), Always(features="v2")
    simulate(first, draws, serve_seed=STREAM)
    simulate(second, draws, serve_seed=STREAM)
    assert first.seen[0].shape == (3, 8, 5, 7)
    assert np.array_equal(second.seen[0][..., :7], first.seen[0])
    known = draws.before.known
    assert (np.abs(second.seen[0][known][..., 7:]).sum(axis=(-1, -2)) > 0).all()
    assert (second.seen[0][~known][..., 7:] == 0).all()


def test_a_trace_by_seed_persona_and_round() -> None:
    """Means by seed are those of the personas weighed by their users; the curve ends at the mean."""
    trace = ran("egreedy")
    by_persona = np.stack(list(trace.by_persona().values()))
    assert np.allclose(by_persona.mean(axis=0), trace.by_seed())
    end, mean, low, high = trace.curve()[-1]
    assert end == 30
    assert mean == pytest.approx(trace.by_seed().mean())
    assert low is not None
    assert high is not None
    assert low < mean < high
    assert trace.summary() is not None
    assert [point[0] for point in trace.curve(points=4)] == [1, 11, 20, 30]


def test_one_seed_has_no_interval() -> None:
    """Neither over all rounds nor at any of them: a band without width would look certain."""
    trace = ran("egreedy", seeds=1)
    assert trace.summary() is None
    assert {(low, high) for _, _, low, high in trace.curve()} == {(None, None)}
    assert list(curves_of(trace.curve())) == ["regret_so_far"]


def test_comparisons_are_paired() -> None:
    """The gain is the champion's regret less the challenger's, seed by seed and persona by persona."""
    old, new = ran("random"), ran("hybrid")
    gain = compared("hybrid", new, old)
    assert np.array_equal(gain.overall, old.by_seed() - new.by_seed())
    assert np.array_equal(gain.personas["carl"], old.by_persona()["carl"] - new.by_persona()["carl"])
