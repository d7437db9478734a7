from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ordinal_world import World
from tipbench.compare.baseline import BaselineReport, compare_to_baseline
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from tipbench.compare.scores import Row

Values = dict[str, list[float | None]]


def rows_of(values: Values) -> list[Row]:
    """Rows from each model's values on scenarios s0, s1, …"""
    return [(m, "p", f"s{s:02}", value) for m, row in values.items() for s, value in enumerate(row)]


def compared(now: Values, then: Values, *, margin: float = 0.5) -> BaselineReport:
    return compare_to_baseline(rows_of(now), rows_of(then), margin=margin)


STEADY: list[float | None] = [10, 11, 9, 12, 10, 11, 10, 9]
FALLEN: list[float | None] = [8, 8, 7, 9, 7, 9, 8, 6]
NOISY: list[float | None] = [8, 12, 7, 12, 10, 10, 11, 12]


def test_a_drop_beyond_the_margin_blocks() -> None:
    """Nearly three points less on every scenario: BLOCK says which row, by how much, and which scenarios."""
    found = compared({"a": FALLEN, "b": STEADY}, {"a": STEADY, "b": STEADY})
    assert (found.result, found.passed) == ("BLOCK", False)
    assert found.sentences[0] == (
        "BLOCK: dropped by more than the margin of 0.5 beyond chance: a with p by 2.5 points (p < .001)."
    )
    assert "Scenarios that became worse: a with p: s01 (-3.0), s03 (-3.0), s04 (-3.0), " in " ".join(
        found.sentences
    )
    assert [(row.model, row.result) for row in found.rows] == [("a", "BLOCK"), ("b", "PASS")]
    assert found.suspicious == (("a", "p"),)


def test_nothing_dropped_passes_with_a_word_on_power() -> None:
    """No drop found is not no drop: the smallest that would have blocked stands beside it."""
    found = compared({"a": STEADY, "b": NOISY}, {"a": STEADY, "b": STEADY})
    assert found.result == "PASS"
    assert (
        found.sentences[0]
        == "PASS: None of the 2 rows has dropped by more than the margin of 0.5 beyond chance."
    )
    assert (
        f"a true drop of about {found.detectable:.1f} points would block four times in five"
        in found.sentences[1]
    )
    only = compared({"a": STEADY}, {"a": STEADY})
    assert only.sentences[0].startswith("PASS: The only row has not dropped")


def test_a_certain_drop_within_the_margin_warns() -> None:
    """A drop that is certain, but perhaps within the margin, warns and passes."""
    found = compared({"a": FALLEN}, {"a": STEADY}, margin=2.4)
    assert (found.result, found.passed) == ("WARN", True)
    assert found.rows[0].p_value < 0.001
    assert found.rows[0].p_beyond > 0.05
    assert compared({"a": FALLEN}, {"a": STEADY}, margin=1.5).result == "BLOCK"


def test_a_large_drop_within_chance_warns() -> None:
    """A drop that looks larger than the margin but may be chance warns and passes."""
    noisy: list[float | None] = [2, 14, 3, 13, 2, 12, 10, 9]
    found = compared({"a": noisy}, {"a": STEADY})
    assert (found.result, found.passed) == ("WARN", True)
    assert found.rows[0].p_value > 0.05
    assert "Look at a with p (-2.1 points, p " in found.sentences[1]


def test_few_shared_scenarios_are_inconclusive() -> None:
    """Seven shared scenarios can block, but they cannot pass."""
    seven = compared({"a": STEADY[:7]}, {"a": STEADY})
    assert (seven.result, seven.passed) == ("INCONCLUSIVE", False)
    assert seven.sentences[1] == "Cannot be judged: a with p (7 shared scenarios, 8 are needed)."
    assert compared({"a": FALLEN[:7]}, {"a": STEADY}).result == "BLOCK"


def test_a_rise_is_no_drop() -> None:
    """Better by as much passes."""
    found = compared({"a": STEADY}, {"a": FALLEN})
    assert found.result == "PASS"
    assert found.rows[0].p_value > 0.99


def test_the_numbers_agree_with_scipy_and_statsmodels() -> None:
    """Means, interval and one-sided p on shared scenarios; p is corrected by Holm's method."""
    rng = np.random.default_rng(4)
    truth = [9.0, 10.0, 11.0, 12.0]
    now = World.of([7.0, 8.0, 10.0, 12.5], rng=rng).rows(8, tips=2, rng=rng)
    then = World.of(truth, rng=rng).rows(10, tips=2, rng=rng)
    found = {row.model: row for row in compare_to_baseline(now, then).rows}
    plain: list[float] = []
    for model in sorted(found):
        pairs = [
            [np.mean([v for m, _, s, v in rows if (m, s) == (model, f"s{at:02}")]) for at in range(8)]
            for rows in (now, then)
        ]
        one_sided = stats.ttest_rel(*pairs, alternative="less")
        low, high = stats.ttest_rel(*pairs).confidence_interval(0.95)
        row = found[model]
        assert (row.n_scenarios, row.mean, row.baseline_mean) == (
            8,
            *map(pytest.approx, np.mean(pairs, axis=1)),
        )
        assert (row.low, row.high) == pytest.approx((low, high))
        plain.append(one_sided.pvalue)
    assert sum(p < 0.1 for p in plain) >= 2
    assert [found[model].p_value for model in sorted(found)] == pytest.approx(
        multipletests(plain, method="holm")[1].tolist()
    )


@pytest.mark.parametrize(
    ("now", "then", "reason"),
    [
        ({"b": STEADY}, {"a": STEADY, "b": STEADY}, "not in this experiment"),
        ({"a": [1, None], "b": STEADY}, {"a": [1, 2], "b": STEADY}, "1 judged scenario in common"),
        ({"a": [None, None], "b": STEADY}, {"a": [1, 2], "b": STEADY}, "no judged scenarios in common"),
        ({"a": [1, 2], "b": STEADY}, {"a": [None, None], "b": STEADY}, "not judged in the baseline"),
    ],
)
def test_what_cannot_be_compared_fails(now: Values, then: Values, reason: str) -> None:
    """A combination that went missing, or of which too little is judged, is inconclusive."""
    found = compared(now, then)
    assert found.result == "INCONCLUSIVE"
    assert [(one.model, one.prompt) for one in found.missing] == [("a", "p")]
    assert reason in found.missing[0].reason
    assert any("Cannot be judged: a with p (" in sentence for sentence in found.sentences)
    assert [row.model for row in found.rows] == ["b"]


def test_new_combinations_do_not_matter() -> None:
    """What the baseline has not is named and left alone."""
    found = compared({"a": STEADY, "x": [1, 1, 1, 1, 1, 1]}, {"a": STEADY})
    assert (found.passed, found.new) == (True, (("x", "p"),))
    assert found.sentences[-1] == "Not in the baseline, so not compared: x with p."


@pytest.mark.parametrize(("now", "then"), [({}, {}), ({"a": STEADY}, {}), ({}, {"a": STEADY})])
def test_nothing_to_compare_does_not_pass(now: Values, then: Values) -> None:
    """An empty comparison proves nothing."""
    found = compared(now, then)
    assert not found.passed
    assert found.sentences[0] == "INCONCLUSIVE: nothing can be compared with the baseline."
    assert found.detectable is None


def test_identical_experiments_pass() -> None:
    """The same scores again: no change, no interval, and it is said that nothing varied."""
    found = compared({"a": STEADY}, {"a": STEADY})
    assert (found.passed, found.detectable) == (True, None)
    assert (found.rows[0].change, found.rows[0].low, found.rows[0].result) == (0, None, "PASS")
    assert "do not vary" in found.sentences[1]


def test_the_same_drop_everywhere_is_not_certain_at_once() -> None:
    """Coarse scores may fall by the same point each time; on two it is no proof, on nine it is."""
    assert compared({"a": [8, 8]}, {"a": [9, 9]}).result == "INCONCLUSIVE"
    assert compared({"a": [8] * 9}, {"a": [9] * 9}).result == "BLOCK"


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
def test_a_margin_that_is_none(margin: float) -> None:
    """A margin is a number of points."""
    with pytest.raises(BadInput, match="the margin is"):
        compared({}, {}, margin=margin)
    with pytest.raises(BadInput, match="alpha is 2"):
        compare_to_baseline([], [], alpha=2)


@given(
    *[
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.just("p"),
                st.sampled_from("stuv"),
                st.one_of(st.none(), st.integers(1, 5)),
            ),
            max_size=20,
        )
    ]
    * 2
)
def test_any_rows_make_a_sound_report(now: list[Row], then: list[Row]) -> None:
    """No warning, plain JSON, every combination of the baseline accounted for, and no pass with a failure."""
    found = compare_to_baseline(now, then)
    json.dumps(asdict(found), allow_nan=False)
    assert {row.model for row in found.rows} | {one.model for one in found.missing} == {
        row[0] for row in then
    }
    assert found.passed == (found.result in {"PASS", "WARN"})
    assert not (found.missing and found.passed)
    blocked = [row for row in found.rows if row.result == "BLOCK"]
    assert (found.result == "BLOCK") == bool(blocked)
    assert all(row.change < -found.margin and row.p_beyond < 0.05 for row in blocked)
    assert all(row.p_value <= row.p_beyond + 1e-9 for row in found.rows)


def caught(drop: float, *, runs: int, seed: int) -> tuple[float, float]:
    """How often a drop of one of four combinations blocks, and the mean detectable drop."""
    rng = np.random.default_rng(seed)
    failed, detectable = 0, []
    for _ in range(runs):
        truth = [11.0, 10.5, 10.0, 9.5]
        then = World.of(truth, rng=rng).rows(16, tips=3, rng=rng)
        now = World.of([11.0 - drop, *truth[1:]], rng=rng).rows(16, tips=3, rng=rng)
        found = compare_to_baseline(now, then, margin=0.5)
        failed += found.result == "BLOCK"
        detectable.append(found.detectable or 0)
    return failed / runs, float(np.mean(detectable))


def test_false_alarms_are_few_and_drops_are_found() -> None:
    """A quick look: nothing dropped, hardly an alarm; a drop as large as is called detectable is found."""
    alarms, detectable = caught(0, runs=60, seed=1)
    assert alarms <= 0.05
    assert caught(detectable, runs=60, seed=2)[0] >= 0.6


@pytest.mark.slow
def test_false_alarms_and_power_are_as_stated() -> None:
    """At most 12 alarms in 1,000 unchanged runs; a detectable drop blocks four times in five."""
    alarms, detectable = caught(0, runs=1000, seed=3)
    assert alarms <= 0.012
    assert caught(detectable, runs=800, seed=4)[0] == pytest.approx(0.8, abs=0.06)
