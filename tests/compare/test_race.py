from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ordinal_world import World
from race_world import false_winners, raced
from tipbench.compare.leaderboard import rank
from tipbench.compare.race import is_settled, raced_out, stays_first

if TYPE_CHECKING:
    from tipbench.compare.scores import Row


def rows_of(values: dict[str, list[float | None]]) -> list[Row]:
    """Rows from each model's values on scenarios s0, s1, …"""
    return [(m, "p", f"s{s:02}", value) for m, row in values.items() for s, value in enumerate(row)]


def out(values: dict[str, list[float | None]]) -> set[str]:
    return {cell.model for cell in raced_out(rows_of(values))}


GOOD: list[float | None] = [12, 11, 13, 12]
NEAR: list[float | None] = [11, 12, 11, 13]
BAD: list[float | None] = [5, 6, 5, 4]


def test_what_is_clearly_behind_is_out() -> None:
    """After four scenarios a combination far behind needs no more judging, and it is said why."""
    found = raced_out(rows_of({"good": GOOD, "near": NEAR, "bad": BAD}))
    assert list(found) == [("bad", "p")]
    why = found["bad", "p"]  # type: ignore[index]
    assert (why.best, why.behind, why.n_scenarios) == (("good", "p"), 7, 4)
    paired = stats.ttest_rel([12, 11, 13, 12], [5, 6, 5, 4], alternative="greater")
    assert why.p_value == pytest.approx(paired.pvalue)


def test_three_scenarios_are_too_few() -> None:
    """Before the fourth scenario nothing is left out, however bad it looks."""
    assert out({"good": GOOD[:3], "near": NEAR[:3], "bad": BAD[:3]}) == set()
    assert out({"good": [*GOOD[:3], None], "near": NEAR, "bad": BAD}) == {"bad"}
    assert out({"good": GOOD, "bad": [None, *BAD[:3]], "near": NEAR}) == set()


def test_scenarios_must_be_shared() -> None:
    """Four scenarios each are not enough if they are others."""
    apart = rows_of({"good": GOOD, "near": NEAR}) + [
        ("bad", "p", f"t{n}", value) for n, value in enumerate(BAD)
    ]
    assert raced_out(apart) == {}


def wave(middle: float, size: float = 1.0, phase: int = 0) -> list[float | None]:
    """Twelve values that go up and down around the middle."""
    return [middle + (size if (at + phase) % 2 else -size) for at in range(12)]


MANY: dict[str, list[float | None]] = {"good": [9.0] * 12, "near": wave(8.9, phase=1), "bad": wave(7.95)}


def test_more_combinations_make_the_bound_narrower() -> None:
    """A combination that is out among three may stay in among twelve; the unjudged count too."""
    found = raced_out(rows_of(MANY))
    assert {cell.model for cell in found} == {"bad"}
    assert 0.05 / 11 < found["bad", "p"].p_value < 0.0125  # type: ignore[index]
    assert out({**MANY, **{f"x{n}": [None] * 12 for n in range(9)}}) == set()


def test_leaving_some_out_widens_the_bound_for_the_rest() -> None:
    """What is not out among many may be once most of them are."""
    hopeless: dict[str, list[float | None]] = {f"h{n}": wave(2 + n / 10, phase=n) for n in range(9)}
    assert out({**MANY, **hopeless}) == {*hopeless, "bad"}


def test_the_last_rival_needs_a_smaller_p() -> None:
    """With two left the bound is one-sided .005, so that a race seldom ends on a lucky first row."""
    pair: dict[str, list[float | None]] = {"good": [9.0] * 12, "bad": wave(8.1)}
    paired = stats.ttest_rel([9.0] * 12, wave(8.1), alternative="greater")
    assert 0.005 < paired.pvalue < 0.0125
    assert out(pair) == set()
    clear: dict[str, list[float | None]] = {"good": [9.0] * 12, "bad": wave(7.5)}
    assert out(clear) == {"bad"}
    assert is_settled(rows_of(clear))


def test_few_scenarios_need_a_smaller_p() -> None:
    """On four scenarios a winner needs p < .02, so a combination is out only at a quarter of that."""
    some: dict[str, list[float | None]] = {"good": [9, 9, 10, 9], "near": [9, 10, 9, 9], "bad": [7, 8, 7, 6]}
    paired = stats.ttest_rel([9, 9, 10, 9], [7, 8, 7, 6], alternative="greater")
    assert 0.005 < paired.pvalue < 0.0125
    assert out(some) == set()
    assert out({**some, "bad": [4, 5, 4, 3]}) == {"bad"}


def test_the_remaining_judgements_are_simulated() -> None:
    """With nothing left to judge the first row stays first; with much left and a small lead it may not."""
    close: dict[str, list[float | None]] = {"good": [9, 9.5, 9, 9.2], "bad": [8.6, 9.4, 8.9, 9.3]}
    rows = rows_of(close)
    more: list[Row] = [(m, "p", f"t{n}", None) for m in close for n in range(36)]
    assert stays_first(rows) == 1.0
    assert 0.5 < stays_first([*rows, *more]) < 0.97
    clear = rows_of({"good": [9, 9, 10, 9], "bad": [4, 5, 4, 3]})
    assert stays_first([*clear, *more]) > 0.99
    assert is_settled([*clear, *more])


def test_differences_that_are_all_the_same_are_not_certain() -> None:
    """Coarse scores may differ by the same amount each time; four times is no proof."""
    flat: dict[str, list[float | None]] = {"a": [9, 9, 9, 9], "b": [9, 8, 9, 9], "c": [5, 5, 5, 5]}
    assert out(flat) == set()
    assert "c" in out({name: values * 3 for name, values in flat.items()})


def test_a_newcomer_does_not_stop_the_race() -> None:
    """One lucky scenario makes nobody the best, and whoever is judged on few stays in."""
    values = {"good": GOOD, "near": NEAR, "bad": BAD, "new": [15.0, None, None, None]}
    assert out(values) == {"bad"}
    assert not is_settled(rows_of(values))


@pytest.mark.parametrize(
    "rows", [[], rows_of({"a": [None] * 5}), rows_of({"a": [1] * 5}), rows_of({"a": [1], "b": [2]})]
)
def test_nothing_to_race(rows: list[Row]) -> None:
    """Without two combinations that are judged enough nobody is out and nothing is settled."""
    assert raced_out(rows) == {}
    assert not is_settled(rows)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), keep=st.floats(0.3, 1), gap=st.floats(0, 4))
def test_the_best_is_never_raced_out(seed: int, keep: float, gap: float) -> None:
    """However rows come and whatever is missing; where one is left alone, it is first on the leaderboard."""
    rng = np.random.default_rng(seed)
    world = World.of([10 + gap, 10, 9.5, 9], rng=rng)
    rows = [row for row in world.rows(8, tips=2, rng=rng) if rng.random() < keep]
    found = raced_out(rows)
    assert all(why.best not in found for why in found.values())
    assert raced_out(list(reversed(rows))) == found
    if is_settled(rows):
        assert rank(rows).rows[0].combination not in found


def test_a_race_saves_judging() -> None:
    """A quick look: about four fifths of the judging, and mostly the same answer."""
    share, same, lost = raced(runs=12, seed=5)
    assert 0.6 < share < 0.95
    assert same >= 0.8
    assert lost <= 0.2


@pytest.mark.slow
def test_a_race_finds_what_the_full_grid_finds() -> None:
    """Measured at 24 scenarios of two tips: two thirds of the judging, the same first row 97 % of the time,
    the true best left out at most 5 % of the time; one tip on 48 scenarios saves more.
    """
    share, same, lost = raced(runs=300, seed=6)
    assert share == pytest.approx(0.67, abs=0.04)
    assert same >= 0.97
    assert lost <= 0.05
    assert raced(runs=60, seed=7, scenarios=48, tips=1)[0] < 0.62


@pytest.mark.slow
def test_a_race_seldom_names_a_false_winner() -> None:
    """Measured: of two equally good combinations one is called the winner at most 8 % of the time."""
    assert false_winners(runs=500, seed=8) <= 0.08
