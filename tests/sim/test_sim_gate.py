"""The gate's rule, its controls, its levels, and how often it promotes a policy over itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.weightstats import DescrStatsW

from sim_samples import STREAM, drawn, gained, plan
from tipbench.bandit import policies
from tipbench.errors import BadInput
from tipbench.sim.gate import Compared, Verdict, decide, false_pass_rate, rule
from tipbench.sim.intervals import interval
from tipbench.sim.ope import OffPolicy
from tipbench.sim.oracle import noisy_oracle
from tipbench.sim.runner import simulate
from tipbench.sim.trace import compared

SAME = gained(0.0, seed=1)
WORSE = gained(-0.1, seed=2)
ORACLE = gained(0.2, seed=3)


def decided(
    challenger: Compared,
    *,
    twin: Compared = SAME,
    chance: Compared = WORSE,
    oracle: Compared | None = ORACLE,
    off_policy: OffPolicy | None = None,
    **plan_values: float,
) -> Verdict:
    made = plan(**plan_values)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    return decide(made, challenger, twin=twin, chance=chance, oracle=oracle, rng=rng, off_policy=off_policy)


def test_the_interval_is_students() -> None:
    """Mean and bounds are those of the t interval that statsmodels gives."""
    values = np.array([0.1, 0.3, 0.2, 0.7, -0.2])
    found = interval(values, level=0.05)
    assert (found.low, found.high) == pytest.approx(DescrStatsW(values).tconfint_mean(alpha=0.05))


def test_a_clear_gain_passes() -> None:
    """With 20 seeds and a spread of .01, a gain of .01 is proven, and the sentence says so."""
    verdict = decided(gained(0.01, maya=0.01, carl=0.005))
    assert verdict.passed
    assert verdict.reason.startswith("new against old on tip: passed: its regret per round is 0.0100 lower")
    half = 2.0930 * 0.01 / math.sqrt(20)
    assert (verdict.overall.low, verdict.overall.high) == pytest.approx((0.01 - half, 0.01 + half), abs=1e-6)


@pytest.mark.parametrize("mean", [0.0, 0.004, -0.05])
def test_a_gain_that_may_be_none_is_refused(mean: float) -> None:
    """No gain, one within the noise, and a loss are refused."""
    verdict = decided(gained(mean))
    assert verdict.outcome == "refused"
    assert "is not above the margin of 0" in verdict.reason


def test_exactly_the_same_is_refused() -> None:
    """A challenger that did what the champion did on every seed has won nothing, nor has rounding."""
    for tiny in (0.0, 1e-15):
        verdict = decided(Compared(name="new", overall=np.full(20, tiny), personas={"maya": np.zeros(20)}))
        assert verdict.outcome == "refused"
        assert "nothing to gain" in verdict.reason


def test_the_margin_must_be_beaten() -> None:
    """A gain that is proven but smaller than the margin is refused."""
    assert decided(gained(0.02)).passed
    assert decided(gained(0.02), margin=0.01).passed
    assert decided(gained(0.02), margin=0.018).outcome == "refused"


def test_no_persona_may_pay_for_the_others() -> None:
    """Better overall but perhaps worse for one persona beyond the guardrail is refused, by its name."""
    verdict = decided(gained(0.05, maya=0.1, carl=-0.03))
    assert verdict.outcome == "refused"
    assert "for carl its regret may be 0.03" in verdict.reason
    assert decided(gained(0.05, maya=0.1, carl=-0.03), guardrail=0.05).passed


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        ({"twin": gained(0.05)}, "the champion against itself was let through"),
        ({"chance": gained(0.05)}, "picking at random was let through"),
        ({"oracle": gained(0.0)}, "a noisy oracle did not pass"),
    ],
)
def test_a_failed_control_voids_the_gate(control: dict[str, Compared], sentence: str) -> None:
    """Whatever the challenger did, a gate that cannot tell better from worse promotes nobody."""
    verdict = decided(gained(0.1), **control)  # type: ignore[arg-type]
    assert verdict.outcome == "void"
    assert not verdict.passed
    assert sentence in verdict.reason


def test_in_a_null_world_nobody_can_win() -> None:
    """Without an oracle the two other controls are held, and the reason is the world."""
    verdict = decided(gained(0.0), oracle=None)
    assert [control.held for control in verdict.controls] == [True, True]
    assert "no tip is better than another" in verdict.reason


def test_a_margin_that_nobody_can_reach_voids_the_gate() -> None:
    """Where not even the oracle passes, a refusal would say nothing about the challenger."""
    assert decided(gained(0.1), margin=0.5).outcome == "void"


def veto(stance: str) -> OffPolicy:
    return OffPolicy(stance=stance, reason="the log is against it", n=9, users=9, effective=9.0)  # type: ignore[arg-type]


def test_the_log_can_veto_and_never_promote() -> None:
    """A veto refuses a winner; no stance of the log makes a loser pass."""
    assert decided(gained(0.1), off_policy=veto("veto")).outcome == "refused"
    assert "the log is against it" in decided(gained(0.1), off_policy=veto("veto")).reason
    for stance in ("neutral", "no objection"):
        assert decided(gained(0.1), off_policy=veto(stance)).passed
        assert not decided(gained(0.0), off_policy=veto(stance)).passed


def test_every_further_challenger_has_it_harder() -> None:
    """The level falls so fast with every gate that the chance of ever promoting noise stays at 5 %."""
    levels = [plan(number=number).level for number in range(1, 400)]
    assert plan(number=0).level == levels[0] == 0.05
    assert levels == sorted(set(levels), reverse=True)
    assert sum(levels) / 2 <= 0.05
    edge = gained(0.0055)
    assert rule(edge, plan(number=1)).passed
    assert not rule(edge, plan(number=6)).passed


def test_seeds_are_fixed_by_the_plan_and_fresh() -> None:
    """The same plan has the same seeds, whatever its margin; another gate, champion or world has others."""
    first = plan(number=1)
    assert first.seeds == replace(first, margin=0.01).seeds
    others = [plan(number=0), plan(number=2), replace(first, champion="x"), replace(first, world_hash="v")]
    assert all(not set(first.seeds) & set(other.seeds) for other in others)
    assert len(set(first.seeds)) == 20


@pytest.mark.parametrize("values", [{"margin": -0.01}, {"guardrail": 1.0}, {"n": 4}, {"margin": math.nan}])
def test_plans_that_mean_nothing_are_refused(values: dict[str, float]) -> None:
    """A negative margin would promote what is worse, few seeds have no interval worth the name."""
    with pytest.raises(BadInput, match="--"):
        plan(**values)  # type: ignore[arg-type]


@given(
    st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=12),
    st.floats(0, 0.2),
    st.integers(1, 5),
)
def test_a_larger_gain_never_does_worse(gains: list[float], more: float, number: int) -> None:
    """What passes still passes when every seed gains the same amount on top."""
    made = plan(number=number, n=len(gains))
    values = np.array(gains)
    if rule(Compared(name="a", overall=values), made).passed:
        assert rule(Compared(name="a", overall=values + more + 1e-9), made).passed


@given(st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=12))
def test_a_policy_and_its_champion_do_not_both_win(gains: list[float]) -> None:
    """If the challenger passes against the champion, the champion would not have passed against it."""
    values, made = np.array(gains), plan(n=len(gains))
    both = [rule(Compared(name="a", overall=sign * values), made).passed for sign in (1, -1)]
    assert not all(both)


def test_the_stated_rate_of_false_passes() -> None:
    """On twins that do not differ the rule promotes about half of its level, and never without noise."""
    rng = np.random.default_rng(1)
    assert false_pass_rate(gained(0.0, n=30), plan(n=30), rng, flips=20_000) == pytest.approx(
        0.025, abs=0.006
    )
    assert false_pass_rate(gained(0.0, spread=0.0), plan(), rng) == 0.0


def _gate(seed: int, name: str = "egreedy", other: bytes = b"other") -> bool:
    """Whether a small gate on seeds of its own promotes the same policy on another random stream."""
    draws = drawn(seeds=8, users=4, rounds=20, first=1000 + 8 * seed)
    old = simulate(policies.make(name), draws, serve_seed=STREAM)
    new = simulate(policies.make(name), draws, serve_seed=other)
    return rule(compared("twin", new, old), plan(n=8, guardrail=0.5)).passed


@pytest.mark.slow
def test_an_identical_policy_is_rarely_promoted() -> None:
    """Of 400 small gates that hold a policy against itself, at most 5 % promote it."""
    assert sum(_gate(seed) for seed in range(400)) <= 20


def test_controls_in_the_real_world() -> None:
    """In `tip` chance is refused and the oracle passes against a champion that learns, for every persona."""
    draws = drawn(seeds=6, users=8, rounds=60)
    champion = simulate(policies.make("egreedy"), draws, serve_seed=STREAM)
    chance = simulate(policies.make("random"), draws, serve_seed=STREAM)
    made = plan(n=6)
    assert not rule(compared("random", chance, champion), made).passed
    assert rule(compared("oracle", noisy_oracle(draws), champion), made).passed
    assert not rule(compared("same", champion, champion), made).passed
