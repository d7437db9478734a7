from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tipbench.compare import statistics
from tipbench.compare.statistics import Summary


def summary_of(values: list[float]) -> Summary:
    data = np.array(values, dtype=float)
    return statistics.grouped(
        np.zeros(len(data), dtype=int), data, count=1, scale=float(np.abs(data).max(initial=0))
    )[0]


@pytest.mark.parametrize(("scenarios", "expected"), [(4, 4.33), (8, 3.09), (16, 2.74), (24, 2.64)])
def test_dunnett_for_twelve_cells(scenarios: int, expected: float) -> None:
    """The critical values for twelve cells are the published design's."""
    assert statistics.dunnett_critical(11, scenarios - 1, 0.05) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("others", "df", "expected"),
    [(2, 5, 2.44), (4, 10, 2.47), (9, 20, 2.60), (3, 60, 2.10), (5, 120, 2.26)],
)
def test_dunnett_as_in_the_printed_tables(others: int, df: int, expected: float) -> None:
    """One-sided 5 % values agree with Dunnett's tables to their two digits."""
    assert statistics.dunnett_critical(others, df, 0.05) == pytest.approx(expected, abs=0.0055)


@pytest.mark.parametrize("df", [1, 2, 7, 50, 5000])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.4])
def test_dunnett_against_one_other_is_students_t(df: int, alpha: float) -> None:
    """With one comparison there is nothing to correct for."""
    expected = stats.t.ppf(1 - alpha, df)
    assert statistics.dunnett_critical(1, df, alpha) == pytest.approx(expected, rel=1e-3)


def test_dunnett_by_simulation() -> None:
    """The value is exceeded in 5 % of simulated worlds in which all cells are equal."""
    rng = np.random.default_rng(11)
    size, others, df = 200_000, 7, 7
    shared = rng.standard_normal((size, 1))
    spread = np.sqrt(rng.chisquare(df, (size, 1)) / df)
    statistic = (rng.standard_normal((size, others)) + shared) / math.sqrt(2) / spread
    exceeded = (statistic.max(axis=1) > statistics.dunnett_critical(others, df, 0.05)).mean()
    assert exceeded == pytest.approx(0.05, abs=0.002)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30).filter(lambda x: np.std(x) > 1e-3))
def test_intervals_and_p_agree_with_scipy(values: list[float]) -> None:
    """The t interval and the test against zero are the ones everybody computes."""
    found = summary_of(values)
    expected = stats.ttest_1samp(values, 0)
    assert statistics.two_sided_p(found) == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    low_high = statistics.interval(found, alpha=0.05)
    assert low_high == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-6, abs=1e-8)


def test_one_value_has_no_interval() -> None:
    """One scenario says nothing about others."""
    one = summary_of([3.0])
    assert statistics.interval(one, alpha=0.05) is None
    assert statistics.two_sided_p(one) is None
    assert statistics.not_ruled_out(one, others=3, alpha=0.05) is None
    assert statistics.scenarios_to_separate(one, alpha=0.05) is None


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (4, 0.125), (8, 2 / 256), (2000, 0.0)])
def test_equal_differences_are_no_certainty(n: int, p: float) -> None:
    """Where all differences are the same, p is that of the sign-flip test and there is no interval."""
    same = summary_of([1.5] * n)
    assert same.flat
    assert statistics.interval(same, alpha=0.05) is None
    assert statistics.two_sided_p(same) == pytest.approx(p, abs=1e-300)


def test_rounding_is_not_spread() -> None:
    """Differences that are equal but for the last bit count as equal."""
    assert summary_of([0.1 + 0.2, 0.3, 0.3]).flat


def test_no_difference_is_no_evidence() -> None:
    """Differences of exactly zero give p = 1, and nothing is ruled out."""
    none = summary_of([0.0] * 5)
    assert statistics.two_sided_p(none) == 1
    assert statistics.not_ruled_out(none, others=3, alpha=0.05)
    assert statistics.scenarios_to_separate(none, alpha=0.05) is None


def test_equal_differences_rule_out_only_with_enough_scenarios() -> None:
    """Always one point behind rules a cell out at eight scenarios, not at three."""
    assert statistics.not_ruled_out(summary_of([1.0] * 3), others=3, alpha=0.05)
    assert not statistics.not_ruled_out(summary_of([1.0] * 8), others=3, alpha=0.05)
    assert statistics.not_ruled_out(summary_of([-1.0] * 8), others=3, alpha=0.05)


def test_detectable_difference_has_the_power_it_claims() -> None:
    """A true difference of that size is found about four times in five."""
    rng = np.random.default_rng(5)
    size = statistics.detectable_difference(2.0, n=8, alpha=0.05)
    samples = rng.normal(size, 2.0, (4000, 8))
    assert (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.03)


def test_scenarios_to_separate_known_answer() -> None:
    """((1.96 + 0.84) * 2 / 0.8) squared is 49.05, so 50."""
    behind = Summary(n=8, mean=0.8, sd=2.0)
    assert statistics.scenarios_to_separate(behind, alpha=0.05) == 50


def test_scenarios_to_separate_is_always_more_than_there_are() -> None:
    """What was not enough will not be enough."""
    assert statistics.scenarios_to_separate(Summary(n=30, mean=5.0, sd=1.0), alpha=0.05) == 31
    assert statistics.scenarios_to_separate(Summary(n=4, mean=1.0, sd=0.0), alpha=0.05) == 6
    assert 2 / 2**6 < 0.05 <= 2 / 2**5
