from __future__ import annotations

from dataclasses import replace

import pytest

from judge_samples import QUALITY, RUBRIC, RUN, Sum, key, quality, run_of
from tipbench.compare.leaderboard import rank
from tipbench.errors import BadInput
from tipbench.judge.scoring import cell_rows, is_failure, labels, parse_weights, slot_values, weighted
from tipbench.records import Candidate, Run
from tipbench.suite import load_suite
from tipbench.suite.rubric import Scale


def test_judged_slots_have_the_composite_and_missing_ones_fail() -> None:
    """Two of three tips: each counts with its own flags, and the third slot is a failure."""
    assert slot_values(RUN, quality(a=4, bb=4), rubric=RUBRIC) == [6, 5, 1]


def test_unjudged_slots_are_none() -> None:
    """What nobody judged is neither a failure nor a zero; a missing slot needs no judge."""
    assert slot_values(RUN, quality(bb=3), rubric=RUBRIC) == [None, 4, 1]
    assert slot_values(RUN, {}, rubric=RUBRIC) == [None, None, 1]


def test_a_bad_format_costs_every_tip() -> None:
    """The format belongs to the reply; a run that does not tell it is not given the benefit of the doubt."""
    scores = quality(a=4, bb=4)
    assert slot_values(replace(RUN, metrics={"format_ok": 0.0}), scores, rubric=RUBRIC) == [4, 3, 1]
    assert slot_values(replace(RUN, metrics={}), scores, rubric=RUBRIC) == [4, 3, 1]


def test_overlong_is_what_the_rubric_in_use_says() -> None:
    """The flag stored with a run may be of an older limit; the text is measured anew."""
    stale = replace(
        RUN, candidates=(Candidate(text="a", overlong=True), Candidate(text="bb", overlong=False))
    )
    assert slot_values(stale, quality(a=4, bb=4), rubric=RUBRIC) == [6, 5, 1]


@pytest.mark.parametrize(
    "run",
    [
        replace(RUN, how="none", candidates=()),
        replace(RUN, cut="reply"),
        replace(RUN, cut="prompt"),
    ],
    ids=["unreadable", "reply cut", "prompt cut"],
)
def test_a_failed_reply_fails_in_every_slot(run: Run) -> None:
    """An unreadable, empty or cut-off reply is a failure throughout, even where its text was judged."""
    assert is_failure(run)
    assert slot_values(run, quality(a=5, bb=5), rubric=RUBRIC) == [1, 1, 1]
    assert rank(cell_rows([run], {}, rubric=RUBRIC)).rows[0].mean == 1


def test_tips_beyond_the_slots_are_not_scored() -> None:
    """More tips than asked for gain nothing and cost nothing."""
    assert slot_values(replace(RUN, n_tips=1), quality(a=3, bb=5), rubric=RUBRIC) == [5]


def test_fewer_tips_per_cell_than_slots() -> None:
    """Only the first slots are looked at, whether the others are judged, unjudged or missing."""
    scores = quality(a=3, bb=5)
    assert slot_values(RUN, scores, rubric=RUBRIC, tips_per_cell=1) == [5]
    assert slot_values(RUN, scores, rubric=RUBRIC, tips_per_cell=9) == [5, 6, 1]
    assert [row[3] for row in cell_rows([RUN], scores, rubric=RUBRIC, tips_per_cell=1)] == [5]


def test_a_failure_of_the_engine_is_missing() -> None:
    """An engine that could not be reached says nothing about the model."""
    failed = replace(RUN, status="failed", how="none", candidates=(), error="no route")
    assert slot_values(failed, {}, rubric=RUBRIC) == []
    assert cell_rows([failed], {}, rubric=RUBRIC) == []


def test_scores_of_another_scenario_do_not_count() -> None:
    """The same text under another scenario is another candidate; case and spaces make no difference."""
    run = run_of("Walk  Now", n_tips=1)
    assert slot_values(run, {key("walk now"): {"quality": 4}}, rubric=RUBRIC) == [5]
    assert slot_values(run, {key("walk now", "s2"): {"quality": 4}}, rubric=RUBRIC) == [None]


def test_rows_average_slots_then_repeats() -> None:
    """A repeat with fewer judged slots weighs as much as another, and slots are still counted."""
    full = replace(RUN, n_tips=2)
    again = replace(run_of("c", "d", n_tips=2), run_id="r2", repeat=1)
    row = rank(cell_rows([full, again], quality(a=4, bb=2, c=1), rubric=RUBRIC)).rows[0]
    assert (row.model, row.prompt, row.n_scenarios) == ("qwen", "v1", 1)
    assert row.mean == ((6 + 3) / 2 + 3) / 2
    assert (row.n_judged, row.n_unjudged) == (3, 1)


def test_missing_slots_count_once_something_is_judged() -> None:
    """A run that waits for a judge has no value yet, however many slots are missing; then they all count."""
    waiting = rank(cell_rows([RUN], {}, rubric=RUBRIC)).rows[0]
    assert (waiting.mean, waiting.n_judged, waiting.n_unjudged) == (None, 0, 2)
    begun = rank(cell_rows([RUN], quality(a=4), rubric=RUBRIC)).rows[0]
    assert (begun.mean, begun.n_judged, begun.n_unjudged) == ((6 + 1) / 2, 2, 1)


def test_rows_keep_scenarios_and_cells_apart() -> None:
    """Each combination has each of its scenarios once."""
    runs = [
        replace(RUN, run_id=f"{p}{s}", prompt_id=p, prompt_hash=p, scenario_id=s)
        for p in ("v1", "v2")
        for s in ("s1", "s2")
    ]
    scores = {**quality(a=4, bb=4), **quality("s2", a=4, bb=4)}
    board = rank(cell_rows(runs, scores, rubric=RUBRIC))
    assert {(row.prompt, row.n_scenarios, row.n_judged) for row in board.rows} == {("v1", 2, 6), ("v2", 2, 6)}


def test_two_digests_under_one_name_are_two_models() -> None:
    """A model that changed under its name is shown with its digest and never pooled."""
    other = replace(RUN, run_id="r2", digest="sha256:ddddeeeeffff")
    assert set(labels([RUN, other]).values()) == {("qwen@aaaabbbb", "v1"), ("qwen@ddddeeee", "v1")}
    assert len(rank(cell_rows([RUN, other], quality(a=4), rubric=RUBRIC)).rows) == 2


def test_one_digest_needs_no_digest_in_its_name() -> None:
    """Names are for display: the same weights under two names are one model."""
    alias = replace(RUN, run_id="r2", model="qwen:latest")
    assert len(set(labels([RUN, alias]).values())) == 1
    assert labels([RUN]) == {RUN.variant: ("qwen", "v1")}
    changed = replace(RUN, prompt_hash="22223333444")
    assert set(labels([RUN, changed]).values()) == {("qwen", "v1@1111"), ("qwen", "v1@22223333")}


def test_weights_add_to_the_composite() -> None:
    """A weight of 2 counts a scale once more, 0 takes it out, and failures move by the lowest scores."""
    flags = {"format_ok": True, "overlong": False}
    double = weighted(RUBRIC, {"quality": 2})
    assert (double.score({"quality": 4}, flags), double.failure) == (4 + 2 + 4, 1 + 1)
    none = weighted(RUBRIC, {"quality": 0})
    assert (none.score({"quality": 4}, flags), none.failure) == (2, 0)
    assert weighted(RUBRIC, {}).score({"quality": 4}, flags) == 6
    assert double.is_overlong("bb")
    assert slot_values(RUN, quality(a=4), rubric=double) == [10, None, 2]


def test_weights_on_the_rubric_that_ships() -> None:
    """On `tip-v1` with relevance doubled, a perfect tip is worth 22 and a failure 4."""
    rubric = weighted(load_suite("tip").rubric, parse_weights("relevance=2"))
    best = rubric.score(
        {"relevance": 5, "actionability": 5, "tone": 5}, {"format_ok": True, "overlong": False}
    )
    assert (best, rubric.failure) == (22, 4)
    assert [scale.name for scale in rubric.scales] == ["relevance", "actionability", "tone"]


def test_weights_are_read_from_an_option() -> None:
    """Names and numbers, with or without spaces."""
    assert parse_weights("relevance=2, tone = 0.5") == {"relevance": 2, "tone": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qualty=2", "the rubric has no scale 'qualty'; did you mean 'quality'"),
        ("x=2", "the rubric has no scale 'x'; it has quality"),
        ("quality", "'quality' is not SCALE=NUMBER"),
        ("", "'' is not SCALE=NUMBER"),
        ("quality=2,", "'' is not SCALE=NUMBER"),
        ("=2", "'=2' is not SCALE=NUMBER"),
        ("quality=two", "'quality' is 'two'; give a number such as 2"),
        ("quality=nan", "'quality' is 'nan'; give a number such as 2"),
        ("quality=inf", "'quality' is 'inf'"),
        ("quality=-1", "'quality' is -1; give a number from 0 to 1000"),
        ("quality=1e9", "'quality' is 1e.09; give a number from 0 to 1000"),
        ("quality=1,quality=2", "'quality' is there twice"),
    ],
)
def test_bad_weights_are_named(text: str, message: str) -> None:
    """What is wrong with weights is said in one sentence that names the option."""
    with pytest.raises(BadInput, match=f"^--weights: {message}"):
        weighted(RUBRIC, parse_weights(text))


def test_a_rubric_of_several_scales_takes_some_weights() -> None:
    """Scales without a weight stay as they are."""
    two = Sum(scales=(QUALITY, Scale(name="tone", low=0, high=3)))
    flags = {"format_ok": False, "overlong": False}
    assert weighted(two, {"tone": 3}).score({"quality": 4, "tone": 2}, flags) == 4 + 2 * 2
    assert weighted(two, {"tone": 3}).failure == 1
