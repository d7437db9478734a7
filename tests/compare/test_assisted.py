"""Means from people's and a judge's scores: never wider than people alone, and honest."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.compare.assisted import Assisted, assist

SCORE = st.floats(2, 17).map(lambda value: round(value, 2))


def world(seed: int, *, n: int, every: int, correlation: float) -> tuple[dict[str, float], dict[str, float]]:
    """People's scores of `n` scenarios, with a true mean of 9, and a generous judge's of all."""
    rng = random.Random(seed)  # noqa: S311 - a world that is the same each time
    people, judge = {}, {}
    for at in range(every):
        true = rng.gauss(0, 1)
        noise = math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
        judge[f"s{at}"] = 10 + 1.3 * (correlation * true + noise)
        if at < n:
            people[f"s{at}"] = 9 + true
    return people, judge


def made(people: dict[str, float], judge: dict[str, float]) -> Assisted:
    found = assist(people, judge)
    assert found is not None
    return found


@given(
    people=st.dictionaries(st.integers(0, 30).map(str), SCORE, min_size=2),
    scores=st.lists(SCORE, min_size=31, max_size=31),
    bounded=st.booleans(),
)
def test_never_wider_than_people_alone(
    people: dict[str, float], scores: list[float], *, bounded: bool
) -> None:
    """Whatever the judge gave, and whether or not the interval ends at the scale."""
    judge = {str(at): score for at, score in enumerate(scores)}
    found = assist(people, judge, bounds=(2, 17)) if bounded else assist(people, judge)
    if found is not None:
        assert found.ratio <= 1
        assert not bounded or 2 <= found.low <= found.mean <= found.high <= 17


@pytest.mark.parametrize("every", [12, 48])
def test_a_useless_judge_changes_nothing(every: int) -> None:
    """A judge whose scores are unrelated: the ratio is at most 1, and 1 in nearly all worlds."""
    ratios = [made(*world(seed, n=12, every=every, correlation=0)).ratio for seed in range(200)]
    assert max(ratios) <= 1
    assert sum(ratio == 1 for ratio in ratios) >= 180


def test_a_judge_that_scores_against_people_does_not_count() -> None:
    """A negative relation is no reason to trust the judge."""
    people, judge = world(1, n=12, every=48, correlation=-0.9)
    found = made(people, judge)
    assert (found.weight, found.mean, found.low) == (0, found.alone_mean, found.alone_low)


def test_a_good_judge_makes_the_interval_narrower() -> None:
    """At a correlation of .95 and four times as many scenarios, by a quarter or more on average."""
    ratios = [made(*world(seed, n=12, every=48, correlation=0.95)).ratio for seed in range(100)]
    assert sum(ratios) / len(ratios) < 0.75


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
@pytest.mark.parametrize(("n", "every"), [(6, 24), (12, 24), (16, 64)])
def test_the_interval_covers_the_truth(n: int, every: int, correlation: float) -> None:
    """In 95 of 100 worlds; 1,000 worlds show it within .02, with a margin for chance."""
    runs = [made(*world(seed, n=n, every=every, correlation=correlation)) for seed in range(1000)]
    assert sum(one.low <= 9 <= one.high for one in runs) / len(runs) >= 0.93


def test_with_few_scenarios_people_count_alone() -> None:
    """Five scenarios do not show whether the judge can be trusted."""
    assert made(*world(3, n=5, every=48, correlation=0.95)).weight == 0


def test_a_given_interval_of_people_is_the_limit() -> None:
    """The leaderboard's own interval may be narrower than the t interval; it is not exceeded."""
    people, judge = world(4, n=12, every=48, correlation=0.6)
    found = assist(people, judge, alone=(8.9, 9.1))
    assert found is not None
    assert (found.low, found.high, found.weight) == (8.9, 9.1, 0)


def test_where_nothing_can_be_told() -> None:
    """One scenario, equal scores, or a scenario that the judge has not scored: there is no estimate."""
    judge = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert assist({"a": 1.0}, judge) is None
    assert assist({"a": 5.0, "b": 5.0}, judge) is None
    assert assist({"a": 5.0, "z": 6.0}, judge) is None


def test_people_who_scored_everything_need_no_judge() -> None:
    """The result is their own interval."""
    people, judge = world(5, n=12, every=12, correlation=0.9)
    assert made(people, judge).weight == 0
