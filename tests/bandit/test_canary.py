"""The rule of a canary: known answers, and how often it errs when somebody looks after every round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tipbench.bandit.canary import DAY_MS, METRICS, RULE, Rule, Sample, boundary, find, rule_on, variances

if TYPE_CHECKING:
    from tipbench.bandit.canary import Finding, Metric
    from tipbench.bandit.ridge import Array

NO_MARGIN = Rule(reward=0.0, dismissed=0.0, slow=0.0, failed=0.0)


@dataclass(frozen=True, kw_only=True)
class People:
    """Users who differ in what they like (Beta of this mean and concentration) and in how often they come."""

    users: int
    share: float
    mean: float = 0.4
    alike: float = 5.0
    often: float = 1.0
    rounds: int = 150


def lived(people: People, rng: np.random.Generator, *, shift: float = 0.0, rule: Rule = NO_MARGIN) -> Finding:
    """The first finding that was on one side of zero at some look, else the last one."""
    new = rng.permutation(people.users) < max(2, round(people.share * people.users))
    rates = rng.beta(people.alike * people.mean, people.alike * (1 - people.mean), people.users)
    rates = np.clip(rates + shift * new, 0.0, 1.0)
    pace = people.often * rng.gamma(1.0, 1.0, people.users)
    n, total = np.zeros(people.users), np.zeros(people.users)
    for _ in range(people.rounds):
        came = rng.poisson(pace)
        n += came
        total += rng.binomial(came, rates)
        found = find("reward", binary(n, total, new), binary(n, total, ~new), rule)
        if found.low is not None and found.high is not None and (found.low > 0 or found.high < 0):
            break
    return found


def binary(n: Array, total: Array, side: Array) -> Sample:
    seen = side & (n > 0)
    return Sample(n=n[seen], total=total[seen], squares=total[seen])


def erred(found: Finding) -> bool:
    return found.low is not None and found.high is not None and not found.low <= 0.0 <= found.high


@pytest.mark.parametrize(
    "people",
    [
        pytest.param(People(users=40, share=0.1), id="four of forty"),
        pytest.param(People(users=12, share=0.3, often=2.0), id="a dozen"),
        pytest.param(People(users=200, share=0.1, often=0.3), id="many who come seldom"),
        pytest.param(People(users=40, share=0.5, alike=1e6), id="all alike"),
        pytest.param(People(users=100, share=0.2, mean=0.02, often=0.5), id="rarely anything"),
    ],
)
def test_the_interval_holds_at_all_looks_together(people: People) -> None:
    """Both sides get the same: over 60 lives of 150 looks each, at most 3 leave the interval of 98.75 %."""
    rng = np.random.default_rng(6)
    assert sum(erred(lived(people, rng)) for _ in range(60)) <= 3


def test_looking_at_decisions_as_if_they_were_users_would_err() -> None:
    """The control of the tests above: with one mean and variance for all decisions most lives end wrong."""
    rng = np.random.default_rng(7)
    people = People(users=12, share=0.5, often=3.0)

    def naive() -> bool:
        new = rng.permutation(people.users) < 6
        rates = rng.beta(2.0, 3.0, people.users)
        n = np.full(people.users, 500.0)
        p = [float(rng.binomial(500, rates[side]).sum() / n[side].sum()) for side in (new, ~new)]
        spread = math.sqrt(sum(share * (1 - share) / 3000 for share in p))
        return abs(p[0] - p[1]) > 1.96 * spread

    assert sum(naive() for _ in range(40)) > 20


@pytest.mark.parametrize(
    ("people", "shift"),
    [(People(users=60, share=0.3), -0.4), (People(users=300, share=0.2), -0.25)],
)
def test_what_is_much_worse_is_seen(people: People, shift: float) -> None:
    """A loss of most of the reward is noticed in 9 lives of 10."""
    rng = np.random.default_rng(8)
    found = [lived(people, rng, shift=shift, rule=RULE) for _ in range(20)]
    assert sum(one.high is not None and one.high < 0 for one in found) >= 18


@pytest.mark.slow
def test_false_rollbacks_are_rare() -> None:
    """By the rule as it is, an identical policy is rolled back in at most 5 % of 300 lives, at any look."""
    rng = np.random.default_rng(9)
    rolled = 0
    for _ in range(300):
        rolled += _rolled_back(
            rng, users=int(rng.integers(20, 120)), share=float(rng.choice([0.1, 0.2, 0.5]))
        )
    assert rolled <= 15


def _rolled_back(rng: np.random.Generator, *, users: int, share: float) -> bool:
    new = rng.permutation(users) < max(2, round(share * users))
    chances = {
        "reward": rng.beta(2.0, 3.0, users),
        "dismissed": rng.beta(1.0, 2.0, users),
        "slow": np.full(users, 0.01),
        "failed": np.full(users, 0.002),
    }
    n, totals = np.zeros(users), {metric: np.zeros(users) for metric in METRICS}
    for _ in range(100):
        came = rng.poisson(1.0, users)
        n += came
        for metric in METRICS:
            totals[metric] += rng.binomial(came, chances[metric])
        sides = [{m: binary(n, totals[m], side) for m in METRICS} for side in (new, ~new)]
        ruling = rule_on(sides[0], sides[1], elapsed_ms=0).ruling
        if ruling != "wait":
            return ruling == "roll back"
    return False


# -- the rule


def same(users: int, each: int, mean: float, *, spread: float = 0.0) -> Sample:
    """So many users with so many outcomes each; users and outcomes vary by the spread."""
    means = mean + spread * np.linspace(-1, 1, users)
    n = np.full(users, float(each))
    return Sample(n=n, total=n * means, squares=n * (means**2 + spread**2))


def sides(**means: float) -> dict[Metric, Sample]:
    given = {"reward": 0.6, "dismissed": 0.2, "slow": 0.0, "failed": 0.0, **means}
    return {metric: same(20, 40, given[metric], spread=0.02) for metric in METRICS}


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ({"reward": 0.3}, "reward 0.300 against 0.600"),
        ({"dismissed": 0.6}, "dismiss rate"),
        ({"slow": 0.9}, "slow decisions"),
        ({"failed": 0.5}, "failures"),
    ],
)
def test_every_metric_can_roll_back(new: dict[str, float], says: str) -> None:
    """Whichever is worse beyond its margin is named."""
    trial = rule_on(sides(**new), sides(), elapsed_ms=0)
    assert trial.ruling == "roll back"
    assert says in trial.reason


def test_what_is_better_or_the_same_is_completed() -> None:
    """Also when it is much better, or dismissed less."""
    for new in ({}, {"reward": 0.9}, {"dismissed": 0.0}):
        assert rule_on(sides(**new), sides(), elapsed_ms=0).ruling == "complete"


def test_little_is_waited_for_until_the_days_are_over() -> None:
    """Undecided before them; after them what looks the same completes, what looks worse does not, and too few
    outcomes decide nothing however long it takes.
    """

    def ruled(reward: float, *, each: int, days: float) -> str:
        metrics: dict[Metric, Sample] = sides()
        new = {**metrics, "reward": same(4, each, reward, spread=0.3)}
        old = {**metrics, "reward": same(9, each, 0.5, spread=0.3)}
        return rule_on(new, old, elapsed_ms=days * DAY_MS).ruling

    assert ruled(0.5, each=30, days=1) == "wait"
    assert ruled(0.5, each=30, days=8) == "complete"
    assert ruled(0.4, each=30, days=8) == "roll back"
    assert ruled(0.5, each=3, days=100) == "wait"


def test_nothing_seen_is_nothing_said() -> None:
    """Without outcomes, or with one user on a side, there is a number for neither."""
    nobody, one = Sample.of({}), same(1, 50, 0.0)
    for new in (nobody, one):
        found = find("reward", new, same(20, 10, 0.9))
        assert (found.difference, found.low, found.high) == (None, None, None)
        assert not found.worse
    assert (
        rule_on(dict.fromkeys(METRICS, nobody), dict.fromkeys(METRICS, nobody), elapsed_ms=1e15).ruling
        == "wait"
    )


def test_variances_are_those_of_the_world() -> None:
    """Between users and within them, from uneven numbers of outcomes on both sides."""
    rng = np.random.default_rng(3)

    def side(users: int) -> Sample:
        n = rng.integers(1, 40, users).astype(float)
        means = 0.5 + 0.1 * rng.standard_normal(users)
        values = [mean + 0.2 * rng.standard_normal(int(many)) for mean, many in zip(means, n, strict=True)]
        return Sample(
            n=n,
            total=np.array([each.sum() for each in values]),
            squares=np.array([(each**2).sum() for each in values]),
        )

    within, between = variances(side(400), side(100))
    assert within == pytest.approx(0.04, rel=0.05)
    assert between == pytest.approx(0.01, rel=0.2)


def test_one_who_comes_a_thousand_times_is_one_user() -> None:
    """More outcomes of the same few people narrow the interval only so far."""
    few, many = (
        find("reward", same(4, each, 0.5, spread=0.2), same(30, each, 0.5, spread=0.2))
        for each in (100, 100_000)
    )
    assert few.low is not None
    assert many.low is not None
    assert many.low > few.low
    assert many.low < -0.2


def test_the_boundary_is_that_of_the_mixture() -> None:
    """The normal mixture crosses it with exactly the level: e^(S²/2(V+ρ)) · √(ρ/(V+ρ)) is 1/level on it."""
    for information in (1.0, 100.0, 1e5):
        level = 0.0125
        aim = -2 * math.log(level)
        rho = 1 / 0.08**2 / (aim + math.log(aim) + 1)
        s = boundary(information, level=level) * math.sqrt(information)
        wealth = math.exp(s**2 / (2 * (information + rho))) * math.sqrt(rho / (information + rho))
        assert wealth == pytest.approx(1 / level)
