"""Off-policy estimates: known answers, measured coverage, and silence where there is too little."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tipbench.sim.intervals import clustered
from tipbench.sim.ope import Logged, effective_size, estimate, snips

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True)
class Log:
    """Decisions by a policy that explores, and the true mean reward of the one in question on them."""

    decisions: list[Logged]
    truth: float


def log(seed: int, *, users: int = 40, each: int = 20, epsilon: float = 0.5, worse: bool = False) -> Log:
    """Users differ in their liking; the policy in question likes what is good, or what is bad."""
    rng = np.random.default_rng(seed)
    decisions, truths = [], []
    for user in range(users):
        taste = rng.normal(0, 0.1)
        for _ in range(each):
            x = np.concatenate([np.ones((3, 1)), rng.random((3, 2))], axis=1)
            expected = np.clip(0.2 + 0.5 * x[:, 1] + taste, 0, 1)
            logged = np.full(3, epsilon / 3)
            logged[np.argmax(x[:, 2])] += 1 - epsilon
            target = np.full(3, 0.1 / 3)
            target[(np.argmin if worse else np.argmax)(x[:, 1])] += 0.9
            chosen = int(rng.choice(3, p=logged))
            decisions.append(
                Logged(
                    user=f"u{user}",
                    x=x,
                    chosen=chosen,
                    propensity=float(logged[chosen]),
                    reward=float(rng.random() < expected[chosen]),
                    target=target,
                )
            )
            truths.append(float(target @ expected))
    return Log(decisions=decisions, truth=float(np.mean(truths)))


def test_known_answers_of_snips() -> None:
    """Two users, two decisions each, reckoned by hand."""
    weights, rewards = np.array([2.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    found = snips(weights, rewards, np.array([0, 0, 1, 1]), level=0.05)
    assert found.mean == pytest.approx(0.75)
    assert effective_size(weights) == pytest.approx(16 / 6)
    # deviations w(r - v): .5, 0, -.75, .25 → by user .5 and -.5
    assert found.high - found.mean == pytest.approx(12.706 * np.sqrt(2 * 0.5) / 4, rel=1e-3)


def test_a_policy_judged_by_its_own_log_earns_what_it_earned() -> None:
    """With weights of one SNIPS is the mean, the sample counts whole, and there is no gain."""
    own = [
        Logged(
            user=d.user,
            x=d.x,
            chosen=d.chosen,
            propensity=0.4,
            reward=d.reward,
            target=np.array([0.4, 0.4, 0.2]),
        )
        for d in log(0).decisions
        if d.chosen < 2
    ]
    found = estimate(own)
    assert found.snips is not None
    assert found.logged is not None
    assert found.snips.mean == pytest.approx(found.logged.mean)
    assert found.effective == pytest.approx(len(own))


@pytest.mark.parametrize("which", ["snips", "doubly_robust"])
def test_intervals_hold_the_truth(which: str) -> None:
    """Over 200 logs the 95 % interval holds the truth at least 90 % of the time, and is right on average."""
    held, errors = [], []
    for seed in range(200):
        made = log(seed, users=20, each=10)
        found = getattr(estimate(made.decisions), which)
        held.append(found.low <= made.truth <= found.high)
        errors.append(found.mean - made.truth)
    assert np.mean(held) >= 0.9
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(200)


def test_clusters_widen_the_interval() -> None:
    """Values that are the same within a user are worth one value a user, not many."""
    rng = np.random.default_rng(0)
    per_user = rng.standard_normal(30)
    values: Array = np.repeat(per_user, 50)
    users = np.repeat(np.arange(30), 50)
    together = clustered(values, users, level=0.05)
    alone = clustered(per_user, np.arange(30), level=0.05)
    assert together.high - together.low == pytest.approx(alone.high - alone.low)
    assert clustered(per_user, np.zeros(30, dtype=int), level=0.05).high == np.inf


def test_users_of_whom_some_come_far_more_often() -> None:
    """The interval holds the truth as often as it says, also where a few users are most of the log."""
    rng, held, tries = np.random.default_rng(5), 0, 400
    for _ in range(tries):
        often = np.minimum(1 + rng.pareto(1.2, size=20) * 7, 800).astype(int)
        users = np.repeat(np.arange(20), often)
        values = rng.normal(0, 1, size=20)[users] + rng.normal(0, 1, size=len(users))
        found = clustered(values, users, level=0.05)
        held += found.low <= 0 <= found.high
    assert held / tries >= 0.92


def test_one_user_who_is_nearly_all_of_the_log_leaves_nothing_to_say() -> None:
    """An interval over users needs others, of some weight."""
    users = np.append(np.zeros(999, dtype=int), 1)
    assert clustered(np.ones(1000), users, level=0.05).low == -np.inf


def test_a_log_of_nearly_one_user_is_silent() -> None:
    """No veto and no number that JSON does not have: nothing can be said of other users."""
    many = log(3, users=1, each=3000, worse=True).decisions
    few = [replace(each, user=f"v{place}") for place, each in enumerate(log(4, users=12, each=1).decisions)]
    for decisions in (many, [*many, *few]):
        found = estimate(decisions)
        assert found.stance == "neutral"
        assert "nearly all that was logged is of one user" in found.reason
        assert found.as_dict()["gain"]["high"] is None
        json.dumps(found.as_dict(), allow_nan=False)


def test_a_policy_that_is_worse_is_vetoed() -> None:
    """With enough of a sample the log speaks against a policy that shows the worst, not against the best."""
    worse, better = (estimate(log(3, each=60, worse=worse).decisions) for worse in (True, False))
    assert worse.stance == "veto"
    assert "lower" in worse.reason
    assert better.stance == "no objection"
    assert better.gain is not None
    assert better.gain.low > 0


def test_a_small_sample_says_nothing() -> None:
    """However bad it looks: with few effective decisions, few users or none at all the stance is neutral."""
    few = log(3, users=40, each=6, epsilon=0.02, worse=True)
    found = estimate(few.decisions)
    assert found.effective < 100
    assert found.stance == "neutral"
    assert estimate(log(3, users=4, each=600, worse=True).decisions).stance == "neutral"
    assert estimate([]).stance == "neutral"
    assert estimate(few.decisions[:1]).stance == "neutral"
