from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ordinal_world import World
from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow, rank
from tipbench.compare.recommendation import recommend
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from tipbench.compare.scores import Row


def rows_of(values: dict[str, list[float | None]]) -> list[Row]:
    """Rows from each model's values on scenarios s0, s1, …"""
    return [(m, "p", f"s{s:02}", value) for m, row in values.items() for s, value in enumerate(row)]


def sampled(truth: list[float], *, scenarios: int, seed: int, tips: int = 5) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [*World.of(truth, rng=rng).rows(scenarios, tips=tips, rng=rng)]


def by_model(board: Leaderboard) -> dict[str, LeaderboardRow]:
    return {row.model: row for row in board.rows}


def means_of(rows: list[Row], model: str) -> np.ndarray[Any, Any]:
    scenarios = sorted({scenario for _, _, scenario, _ in rows})
    values = [[v for m, _, s, v in rows if (m, s) == (model, one)] for one in scenarios]
    return np.array([np.mean(np.array(value, dtype=float)) for value in values])


def test_agrees_with_scipys_paired_test() -> None:
    """Means, intervals and paired p are those of scipy; the interval of a gap covers scipy's."""
    rows = sampled([9.5, 10, 10.5, 11.5], scenarios=8, seed=2)
    board = rank(rows)
    top = means_of(rows, board.rows[0].model)
    for row in board.rows[1:]:
        own = means_of(rows, row.model)
        paired, alone = stats.ttest_rel(top, own), stats.ttest_1samp(own, 0)
        low, high = paired.confidence_interval(0.95)
        assert row.p_values["paired"] == pytest.approx(paired.pvalue)
        assert row.p_value == max(row.p_values.values())
        assert (row.behind_low or 0) <= low + 1e-9
        assert (row.behind_high or 0) >= high - 1e-9
        assert (row.low, row.high) == pytest.approx(tuple(alone.confidence_interval(0.95)))
        assert row.mean == pytest.approx(own.mean())
        assert row.behind == pytest.approx((board.rows[0].estimate or 0) - (row.estimate or 0))
    assert board.rows[0].p_value == max(row.p_value or 0 for row in board.rows[1:])


def test_rows_go_from_best_to_worst() -> None:
    """The order is by mean, and every row says how much stands behind it."""
    board = rank(rows_of({"a": [1, 2, 3], "b": [7, 8, 8], "c": [4, 6, 5]}))
    assert [row.model for row in board.rows] == ["b", "c", "a"]
    assert {(row.n_scenarios, row.n_judged, row.n_unjudged) for row in board.rows} == {(3, 3, 0)}
    assert board.rows[0].behind == 0
    assert board.rows[0].behind_low is None


def test_a_clear_winner_is_named_and_recommended() -> None:
    """A combination that beats all others beyond luck is the winner, whatever the others cost."""
    board = rank(sampled([8, 8.5, 13], scenarios=8, seed=1), cost={("m00", "p"): (1,), ("m02", "p"): (9,)})
    assert board.winner == ("m02", "p")
    assert board.recommended == board.winner
    assert board.recommended_because == "winner"
    assert board.scenarios_needed is None
    assert [row.tied_for_first for row in board.rows] == [True, False, False]


def test_a_winner_must_beat_every_other() -> None:
    """One rival that cannot be told apart is enough for there to be no winner."""
    board = rank(sampled([8, 8.5, 12.6, 12.6], scenarios=8, seed=1))
    assert board.winner is None
    assert [row.tied_for_first for row in board.rows] == [True, True, False, False]
    assert board.scenarios_needed is not None
    assert board.scenarios_needed > 8


def test_the_tie_group_is_dunnetts() -> None:
    """With twelve cells on eight scenarios a cell is tied up to 3.09 standard errors behind the top."""
    noise = np.array([-1, 1, -1, 1, -1, 1, -1, 1]) * np.sqrt(7 / 8)
    error = 1 / np.sqrt(8)
    values: dict[str, list[float | None]] = {"top": [10.0] * 8}
    for cell, t in enumerate([3.08, 3.11, 4, 5, 6, 7, 8, 9, 10, 11, 12]):
        values[f"c{cell:02}"] = [float(x) for x in 10 - t * error + noise]
    tied = {name for name, row in by_model(rank(rows_of(values))).items() if row.tied_for_first}
    assert tied == {"top", "c00"}


def test_repeats_and_tips_are_no_new_scenarios() -> None:
    """Writing every row three times changes nothing but the count of judgements."""
    rows = sampled([10, 11], scenarios=6, seed=4, tips=1)
    once, thrice = rank(rows), rank(rows * 3)
    assert thrice.rows[0].n_judged == 3 * once.rows[0].n_judged
    for one, other in zip(once.rows, thrice.rows, strict=True):
        assert (one.low, one.p_value, one.estimate) == pytest.approx(
            (other.low, other.p_value, other.estimate)
        )


def test_alpha_sets_the_width() -> None:
    """A smaller alpha gives wider intervals; nonsense is refused."""
    rows = sampled([10, 11], scenarios=6, seed=4)
    wide, narrow = rank(rows, alpha=0.01).rows[0], rank(rows, alpha=0.2).rows[0]
    assert (wide.high or 0) > (narrow.high or 0)
    for alpha in (0, 1, -0.05, float("nan")):
        with pytest.raises(BadInput, match="alpha is"):
            rank(rows, alpha=alpha)


# --- little or nothing to go on


def test_no_rows() -> None:
    """Nothing judged is an empty board, not an error."""
    board = rank([])
    assert board.rows == ()
    assert (board.winner, board.recommended, board.detectable, board.scenarios_needed) == (None,) * 4


def test_only_unjudged_rows() -> None:
    """What waits to be judged is listed and counted, and claims nothing."""
    board = rank([("m", "p", "s1", None), ("m", "p", "s2", None)])
    assert board.n_unjudged == 2
    assert board.rows[0].mean is None
    assert not board.rows[0].tied_for_first
    assert board.recommended is None


def test_one_scenario_has_no_intervals() -> None:
    """From one scenario nothing is concluded, and everybody may still be the best."""
    board = rank(rows_of({"a": [9], "b": [3]}), cost={("a", "p"): (9,), ("b", "p"): (1,)})
    for row in board.rows:
        assert (row.low, row.high, row.behind_low, row.p_value, row.p_best, row.estimate) == (None,) * 6
        assert row.tied_for_first
    assert board.winner is None
    assert board.recommended == ("a", "p")


def test_one_cell_has_nobody_to_beat() -> None:
    """A single combination is recommended, but is no winner and has no P(best)."""
    board = rank(rows_of({"a": [9, 8, 7]}))
    assert board.winner is None
    assert board.recommended == ("a", "p")
    assert board.rows[0].p_best is None
    assert board.rows[0].low is not None


def test_all_values_the_same() -> None:
    """Nothing is claimed where everything is equal: no winner, no chances, no interval of width zero."""
    board = rank(rows_of({name: [7, 7, 7, 7] for name in "abcd"}))
    assert board.winner is None
    assert {row.p_value for row in board.rows} == {1.0}
    assert {(row.low, row.p_best, row.p_loss, row.tied_for_first) for row in board.rows} == {
        (None, None, None, True)
    }
    assert board.recommended_because == "best guess"
    assert (board.detectable, board.scenarios_needed) == (None, None)


def test_a_constant_difference_is_not_certainty() -> None:
    """Always one point better says little after three scenarios and enough after eight."""
    few, many = (rank(rows_of({"a": [6] * n, "b": [5] * n})) for n in (3, 8))
    assert few.winner is None
    assert few.rows[1].p_value == 0.25
    assert few.scenarios_needed == 7
    assert many.winner == ("a", "p")
    assert {row.low for row in (*few.rows, *many.rows)} == {None}


def test_an_unjudged_combination_holds_back_the_winner() -> None:
    """No winner is named while a combination has no score at all; gaps do not matter."""
    rows = sampled([8, 13], scenarios=8, seed=1)
    assert rank(rows).winner == ("m01", "p")
    assert rank([*rows, ("new", "p", "s00", None)]).winner is None
    assert rank([*rows, ("m00", "p", "s00", None)]).winner == ("m01", "p")


# --- uneven grids


def test_an_uneven_grid_is_ordered_by_cell_effects() -> None:
    """A combination judged only where it is easy does not lead by its mean."""
    values: dict[str, list[float | None]] = {
        "a": [4, 5, 12, 13],
        "b": [5.5, 6, 13, 14.5],
        "lucky": [None, None, 11, 12],
    }
    board = rank(rows_of(values))
    assert [row.model for row in board.rows] == ["b", "a", "lucky"]
    lucky = board.rows[2]
    assert lucky.mean == 11.5
    assert lucky.behind == pytest.approx(2.25, abs=0.1)
    assert (lucky.n_scenarios, lucky.n_unjudged) == (2, 2)
    assert lucky.estimate is not None
    assert lucky.estimate < 10


def test_pairs_are_compared_on_shared_scenarios() -> None:
    """The paired p of a cell with gaps is that of the test on what both have."""
    rows = [
        row
        for row in sampled([9, 11.5, 10], scenarios=10, seed=6)
        if row[:3:2] not in {("m02", "s03"), ("m01", "s07")}
    ]
    board = rank(rows)
    top, other = means_of_present(rows, "m01"), means_of_present(rows, "m02")
    shared = sorted(set(top) & set(other))
    expected = stats.ttest_rel([top[s] for s in shared], [other[s] for s in shared])
    assert board.rows[0].model == "m01"
    assert len(shared) == 8
    assert by_model(board)["m02"].p_values["paired"] == pytest.approx(expected.pvalue)


def means_of_present(rows: list[Row], model: str) -> dict[str, float]:
    scenarios = {s for m, _, s, _ in rows if m == model}
    return {
        s: float(np.mean([v for m, _, t, v in rows if (m, t) == (model, s) and v is not None]))
        for s in scenarios
    }


def test_one_shared_scenario_is_no_comparison() -> None:
    """With fewer than two shared scenarios there is no p, no winner, and no recommendation by cost."""
    values: dict[str, list[float | None]] = {"a": [9, 9.5, 8, None], "b": [None, None, 3, 2]}
    board = rank(rows_of(values), cost={("a", "p"): (9,), ("b", "p"): (1,)})
    other = board.rows[1]
    assert (other.behind, other.behind_low, other.p_value) == (5, None, None)
    assert board.rows[0].p_value is None
    assert board.winner is None
    assert board.recommended == ("a", "p")


def test_cells_that_share_no_scenario() -> None:
    """Nothing at all in common is stated as not known."""
    board = rank([("a", "p", "s1", 5), ("a", "p", "s2", 6), ("b", "p", "t1", 1), ("b", "p", "t2", 3)])
    assert [row.model for row in board.rows] == ["a", "b"]
    assert board.rows[1].behind is None
    assert board.winner is None


# --- the recommendation


TIED = sampled([10.5, 10.5, 10.5, 4.0], scenarios=30, seed=3)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ({"m00": (3, 9), "m01": (1, 9), "m02": (1, 5), "m03": (0, 0)}, "m02"),
        ({"m00": (None, 1), "m01": (7, 9), "m02": (None, 0)}, "m01"),
        ({"m00": (3, None), "m01": (3, 20), "m02": (4, 1)}, "m01"),
        ({"m01": (3,)}, "m01"),
    ],
)
def test_the_cheapest_within_the_margin_is_recommended(
    cost: dict[str, tuple[float | None, ...]], expected: str
) -> None:
    """Fewest parameters, then lowest latency, of those close enough; unknown costs more than any number."""
    board = rank(TIED, accept_loss=2, cost={(model, "p"): numbers for model, numbers in cost.items()})
    row = by_model(board)[expected]
    assert board.recommended == (expected, "p")
    assert board.recommended_because == "cheapest"
    assert row.p_loss is not None
    assert row.p_loss <= board.accepted_p_loss


def test_a_smaller_margin_recommends_less() -> None:
    """Within 2 points the cheap row is recommended; within 0 points no row is, and the first is a guess."""
    cheap = {("m00", "p"): (9.0,), ("m01", "p"): (9.0,), ("m02", "p"): (9.0,), ("m03", "p"): (9.0,)}
    last = rank(TIED).rows[2].combination
    assert rank(TIED, accept_loss=2, cost={**cheap, last: (1.0,)}).recommended == last
    guess = rank(TIED, accept_loss=0, cost={**cheap, last: (1.0,)})
    assert (guess.recommended, guess.recommended_because) == (guess.rows[0].combination, "best guess")
    assert (guess.margin, guess.margin_from) == (0, "given")


def test_a_cheaper_row_than_the_winner_may_be_recommended() -> None:
    """The winner is named, and a cheaper row within the margin is recommended."""
    rows = sampled([10.5, 11.5], scenarios=60, seed=2)
    board = rank(rows, accept_loss=2, cost={("m00", "p"): (1,), ("m01", "p"): (9,)})
    assert board.winner == ("m01", "p")
    assert (board.recommended, board.recommended_because) == (("m00", "p"), "cheapest")
    strict = rank(rows, accept_loss=0.2, cost={("m00", "p"): (1,), ("m01", "p"): (9,)})
    assert (strict.recommended, strict.recommended_because) == (("m01", "p"), "winner")


def test_the_margin_is_five_percent_of_the_scale() -> None:
    """Of the bounds where they are given, else of the range that was seen; the board says which."""
    rows = rows_of({"a": [4, 6, 8, 10], "b": [6, 8, 10, 14]})
    seen, bounded = rank(rows), rank(rows, bounds=(2, 17))
    assert (seen.margin_from, bounded.margin_from) == ("observed", "scale")
    assert (seen.margin, bounded.margin) == pytest.approx((0.5, 0.75))


def test_the_probability_of_a_loss_is_the_sampled_one() -> None:
    """With two rows and hardly any prior, it is the t probability that the gap exceeds the margin."""
    rows = sampled([10, 12], scenarios=40, seed=5)
    board = rank(rows, accept_loss=1.5)
    gap = means_of(rows, "m01") - means_of(rows, "m00")
    t = (gap.mean() - 1.5) / (gap.std(ddof=1) / 40**0.5)
    assert by_model(board)["m00"].p_loss == pytest.approx(stats.t.cdf(t, 39), abs=0.02)
    assert (by_model(board)["m01"].p_loss or 0) < 0.02


def test_without_costs_the_first_row_is_recommended() -> None:
    """The highest mean is all there is to go by; costs may also be given later."""
    board = rank(TIED, accept_loss=2)
    assert board.recommended == board.rows[0].combination
    assert board.recommended_because == "within margin"
    last = board.rows[2].combination
    assert recommend(board, {last: (1.0,)}).recommended == last


# --- the winner's tests, the scale, clusters


def test_bounds_keep_intervals_inside_the_scale() -> None:
    """Near the top of the scale no interval leaves it, and a row without any spread borrows some."""
    values: dict[str, list[float | None]] = {
        "top": [17, 17, 17, 17, 17],
        "near": [17, 16, 17, 13, 17],
        "low": [2, 3, 2, 9, 2],
    }
    board = rank(rows_of(values), bounds=(2, 17))
    for row in board.rows:
        assert row.low is not None
        assert row.high is not None
        assert row.mean is not None
        assert 2 <= row.low < row.high <= 17
        assert row.low <= row.mean <= row.high
    assert {row.low for row in rank(rows_of(values)).rows if row.model == "top"} == {None}


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"bounds": (2, 2)}, "bounds is"),
        ({"bounds": (float("nan"), 3)}, "bounds is"),
        ({"bounds": (2, 5)}, "outside the bounds 2 to 5"),
        ({"accept_loss": -1}, "accept_loss is -1"),
        ({"accept_loss": float("nan")}, "accept_loss is nan"),
    ],
)
def test_impossible_options_are_refused(how: dict[str, Any], says: str) -> None:
    """A scale that is none, a score outside it, a negative margin: one sentence names the option."""
    with pytest.raises(BadInput, match=says):
        rank(rows_of({"a": [4, 6], "b": [6, 8]}), **how)


def test_three_scenarios_are_exploratory() -> None:
    """However clear they look, three scenarios name no winner, no detectable difference, only a guess."""
    rows = rows_of({"a": [12, 13, 12.5], "b": [3, 4, 3.6]})
    board = rank(rows, bounds=(2, 17))
    assert (board.exploratory, board.winner, board.detectable) == (True, None, None)
    assert board.recommended_because == "best guess"
    assert not rank(rows_of({"a": [12, 13, 12.5, 12], "b": [3, 4, 3.6, 3]})).exploratory


def test_the_pooled_test_holds_back_a_lucky_winner() -> None:
    """Differences that agree by luck pass the paired test; the spread of the board's other rows does not."""
    noise = np.random.default_rng(3).normal(0, 3, (4, 12))
    values: dict[str, list[float | None]] = {f"m{n}": [*(8 + row)] for n, row in enumerate(noise)}
    base = np.random.default_rng(4).normal(10, 3, 12)
    values["first"] = [*(base + 0.5 + np.linspace(-0.05, 0.05, 12))]
    values["second"] = [*base]
    board = rank(rows_of(values))
    second = by_model(board)["second"]
    assert board.rows[0].model == "first"
    assert second.p_values["paired"] < 0.001
    assert second.p_values["pooled"] > 0.2
    assert board.winner is None


def test_a_lead_with_few_people_is_no_winner() -> None:
    """Twelve scenarios of three people: a lead that comes from one person fails the test by clusters."""
    lead = [3, 2.5, 3.5, 2.8, 0.1, -0.1, 0.2, 0.0, 0.1, -0.2, 0.0, 0.2]
    base = [10, 9, 11, 10.5, 9.5, 10, 8, 9, 10, 11, 9.5, 10.2]
    rows = rows_of({"a": [one + more for one, more in zip(base, lead, strict=True)], "b": [*base]})
    people = {f"s{n:02}": f"person {n // 4}" for n in range(12)}
    assert rank(rows).winner == ("a", "p")
    board = rank(rows, clusters=people)
    assert (board.winner, board.n_clusters) == (None, 3)
    assert board.rows[1].p_values["clusters"] > 0.05
    assert (board.rows[1].clusters_ahead, board.rows[1].n_clusters) == (3, 3)
    assert rank(rows, clusters={f"s{n:02}": "one" for n in range(12)}).n_clusters is None


def test_failed_replies_ask_for_the_stricter_level() -> None:
    """A value at the bottom of the scale that nothing else explains lowers the level from .05 to .02."""
    sound = rows_of({"a": [12.0 + n % 3 for n in range(14)], "b": [10.5 + n % 2 for n in range(14)]})
    assert {row.level for row in rank(sound, bounds=(2, 17)).rows} == {0.05}
    failed = [(m, p, s, 3.0 if (m, s) == ("b", "s04") else v) for m, p, s, v in sound]
    assert [row.level for row in rank(failed, bounds=(2, 17)).rows] == pytest.approx([0.02, 0.02])
    few = [row for row in sound if row[2] < "s08"]
    assert rank(few, bounds=(2, 17)).level == pytest.approx(0.02)


def test_no_difference_larger_than_the_scale_is_detectable() -> None:
    """On four noisy scenarios the detectable difference would exceed the scale: it is not known."""
    rows = rows_of({"a": [17, 2, 17, 2], "b": [2, 17, 3, 16]})
    assert rank(rows, bounds=(2, 17)).detectable is None
    assert rank(rows).detectable is not None


# --- invariants


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), keep=st.sampled_from([1.0, 0.7]))
def test_the_order_of_rows_does_not_matter(seed: int, keep: float) -> None:
    """Shuffled rows give the very same board."""
    shuffler = random.Random(seed)  # noqa: S311 - a shuffle, not a secret
    rows = [row for row in sampled([9, 10, 11], scenarios=5, seed=seed, tips=2) if shuffler.random() < keep]
    assert rank(shuffler.sample(rows, len(rows))) == rank(rows)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
def test_shifting_and_scaling_the_scores(seed: int, shift: float, scale: float) -> None:
    """Another unit moves means and intervals along, and changes no conclusion."""
    rows = sampled([9, 10, 11, 13], scenarios=6, seed=seed, tips=2)
    before = rank(rows)
    after = rank([(m, p, s, shift + scale * (v or 0)) for m, p, s, v in rows])
    assert after.winner == before.winner
    assert after.scenarios_needed == before.scenarios_needed
    assert after.detectable == pytest.approx(scale * (before.detectable or 0))
    for one, other in zip(before.rows, after.rows, strict=True):
        for name in ("mean", "low", "high", "estimate"):
            assert getattr(other, name) == pytest.approx(
                shift + scale * getattr(one, name), abs=1e-6 * (1 + scale)
            )
        assert other.p_value == pytest.approx(one.p_value, rel=1e-5, abs=1e-9)
        assert other.p_best == pytest.approx(one.p_best, abs=0.002)
        assert other.tied_for_first == one.tied_for_first


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_names_do_not_matter(seed: int) -> None:
    """Renaming models, prompts and scenarios renames the rows and nothing else."""
    rows = [
        (m, p, s, (v or 0) + 0.01 * int(m[1:])) for m, p, s, v in sampled([9, 10, 11], scenarios=5, seed=seed)
    ]
    before = rank(rows)
    after = rank([(f"z{9 - int(m[1:])}", f"{p}!", s[::-1], v) for m, p, s, v in rows])
    for one, other in zip(before.rows, after.rows, strict=True):
        assert other.model == f"z{9 - int(one.model[1:])}"
        assert (other.mean, other.low, other.p_value) == pytest.approx((one.mean, one.low, one.p_value))
        assert other.p_best == pytest.approx(one.p_best, abs=0.03)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from("pq"), st.sampled_from("stuv"),
            st.one_of(st.none(), st.integers(1, 5), st.floats(-1e100, 1e100)),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_any_rows_make_a_sound_board(rows: list[Row]) -> None:
    """Whatever is judged: no warning, no claim without a test, and numbers that fit together."""
    board = rank(rows)
    assert json.loads(json.dumps(board.as_dict(), allow_nan=False))["n_judged"] == board.n_judged
    shares = [row.p_best for row in board.rows if row.p_best is not None]
    assert not shares or sum(shares) == pytest.approx(1)
    if board.winner:
        assert all((row.p_value or 0) < 0.05 for row in board.rows)
    for row in board.rows:
        assert (row.low is None) == (row.high is None)
        assert row.mean is None or row.low is None or row.high is None or row.low <= row.mean <= row.high


def test_the_same_rows_give_the_same_answer() -> None:
    """Without a generator of one's own the answer can be repeated; another generator barely moves it."""
    rows = sampled([10, 10.2, 10.4], scenarios=8, seed=9)
    assert rank(rows) == rank(rows)
    other = rank(rows, rng=np.random.default_rng(99))
    assert [row.p_best for row in other.rows] == pytest.approx(
        [row.p_best for row in rank(rows).rows], abs=0.03
    )


def test_plain_values_for_json() -> None:
    """The dictionary has the board's own names, with the winner as model and prompt."""
    board = rank(sampled([8, 13], scenarios=8, seed=1)).as_dict()
    assert board["winner"] == board["recommended"] == {"model": "m01", "prompt": "p"}
    assert board["rows"][0]["tied_for_first"] is True
    assert json.loads(json.dumps(board)) == board


def test_a_hundred_thousand_rows() -> None:
    """A large table is ranked in seconds of processor time, complete or not."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=100_000).tolist()
    rows: list[Row] = [(f"m{i % 100}", "p", f"s{i // 100 % 100}", value) for i, value in enumerate(values)]
    began = time.process_time()
    assert len(rank(rows).rows) == 100
    assert len(rank(rows[:9_500]).rows) == 100
    assert time.process_time() - began < 10
