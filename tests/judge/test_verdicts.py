from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_samples import AGENT, AI, HUMAN, OTHER, PROXY, RUBRIC, RUN, key, quality, run_of, verdict
from tipbench.errors import BadInput
from tipbench.judge.scoring import cell_rows, slot_values
from tipbench.judge.verdicts import (
    OverlongFlag,
    choose_ground,
    counted,
    judged,
    latest,
    marks,
    overlong_flags,
    pending,
    wanted,
)

if TYPE_CHECKING:
    import random

    from tipbench.records import Judge, JudgeKind, Mark, Verdict


def scores(*verdicts: Verdict, kind: JudgeKind = "human") -> dict[str, float]:
    found = counted(verdicts, rubric_hash="rh", kind=kind)
    return {candidate: one["quality"] for candidate, one in found.items()}


def test_judges_are_averaged() -> None:
    """A candidate with several judges has the mean of what they gave, on each scale."""
    two = [verdict("c", {"use": 1, "tone": 4}), verdict("c", {"use": 2, "tone": 5}, OTHER)]
    assert counted(two, rubric_hash="rh", kind="human") == {"c": {"use": 1.5, "tone": 4.5}}


def test_only_a_judges_latest_verdict_counts() -> None:
    """A changed mind replaces, in whatever order verdicts are read; of one moment the last counts."""
    assert scores(verdict("c", 5, at=2), verdict("c", 1, at=1)) == {"c": 5}
    assert scores(verdict("c", 5, at=1), verdict("c", 1, at=1)) == {"c": 1}
    assert scores(verdict("c", 5, at=1), verdict("c", 1, OTHER, at=9), verdict("c", 3, at=2)) == {"c": 2}


def test_another_model_under_a_judges_name_is_the_same_judge() -> None:
    """A judge is known by name and kind, so that an updated agent does not count twice."""
    newer = replace(AGENT, model="newer")
    assert scores(verdict("c", 5, AGENT), verdict("c", 1, newer, at=1), kind="agent") == {"c": 1}


def test_verdicts_under_another_rubric_do_not_count() -> None:
    """A rubric whose text changed is another rubric; what was judged under it is kept and not counted."""
    assert scores(verdict("c", 5, rubric="old"), verdict("d", 2)) == {"d": 2}
    assert scores(verdict("c", 2), verdict("c", 5, at=9, rubric="old")) == {"c": 2}


def test_kinds_are_never_pooled() -> None:
    """Each kind has its own scores, even for judges of one name."""
    alike = replace(AGENT, id=HUMAN.id)
    all_kinds = [verdict("c", 5), verdict("c", 4, alike), verdict("c", 2, AI), verdict("c", 1, PROXY)]
    found = [scores(*all_kinds, kind=kind) for kind in ("human", "agent", "ai", "proxy")]
    assert found == [{"c": 5}, {"c": 4}, {"c": 2}, {"c": 1}]


ANN, BOB, EVE = (replace(HUMAN, id=name) for name in ("ann", "bob", "eve"))


@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        ({ANN: None}, None),
        ({ANN: True}, (True, ("ann",))),
        ({ANN: False}, (False, ("ann",))),
        ({ANN: True, BOB: None}, None),
        ({ANN: False, BOB: None}, None),
        ({ANN: True, BOB: True}, (True, ("ann", "bob"))),
        ({ANN: False, BOB: False}, (False, ("ann", "bob"))),
        ({ANN: True, BOB: None, EVE: None}, None),
        ({ANN: False, BOB: None, EVE: None}, None),
        ({ANN: True, BOB: None, EVE: True}, (True, ("ann", "eve"))),
        ({ANN: None, BOB: False, EVE: False}, (False, ("bob", "eve"))),
        ({ANN: None, BOB: None, EVE: None}, None),
        ({EVE: True, ANN: True, BOB: False}, (True, ("ann", "eve"))),
        ({ANN: True, BOB: False}, None),
        ({ANN: True, BOB: False, EVE: None}, None),
        ({ANN: None, AGENT: True}, None),
    ],
)
def test_more_than_half_of_the_judges_set_overlong(
    flags: dict[Judge, bool | None], counts: tuple[bool, tuple[str, ...]] | None
) -> None:
    """One judge decides alone; of two or three, two must agree. A null is a vote for the code's value, a tie
    leaves the flag to the code, and other kinds of judges have no vote.
    """
    found = overlong_flags(
        [replace(verdict("c", 3, judge), overlong=flag) for judge, flag in flags.items()],
        rubric_hash="rh",
        kind="human",
    )
    assert found == ({} if counts is None else {"c": OverlongFlag(value=counts[0], by=counts[1])})


def test_the_latest_adjudicated_verdict_sets_overlong() -> None:
    """It decides against the majority; its null leaves the flag to the code; an earlier one is replaced."""
    votes = [replace(verdict("c", 3, judge), overlong=True) for judge in (ANN, BOB)]
    first = replace(verdict("c", 3, EVE, at=5, adjudicated=True), overlong=False)
    later = replace(verdict("c", 3, EVE, at=6, adjudicated=True), overlong=None)

    def flags(*verdicts: Verdict) -> dict[str, OverlongFlag]:
        return overlong_flags(verdicts, rubric_hash="rh", kind="human")

    assert flags(*votes, first) == {"c": OverlongFlag(value=False, by=("eve (adjudicated)",))}
    assert flags(*votes, first, later) == {}
    assert flags(*votes, later, replace(first, at_ms=7))["c"].value is False


def test_a_changed_mind_on_overlong_counts() -> None:
    """A judge's latest verdict replaces the flag; verdicts under another rubric set none."""
    true = replace(verdict("c", 3), overlong=True)
    assert overlong_flags([true], rubric_hash="rh", kind="human")["c"].value
    assert not overlong_flags([true, verdict("c", 3, at=2)], rubric_hash="rh", kind="human")
    assert not overlong_flags([true], rubric_hash="another", kind="human")


def test_a_judges_overlong_changes_the_value_of_a_slot() -> None:
    """A judge can add the flag and take the code's away; a candidate without scores stays unjudged."""
    run = run_of("a", "bb", "c")
    values = slot_values(
        run, quality(a=4, bb=4), rubric=RUBRIC, overlong={key("a"): True, key("bb"): False, key("c"): True}
    )
    assert values == [5, 6, None]


def test_a_failed_reply_has_no_judged_overlong() -> None:
    """The candidates of a reply that was cut are not judged in it, so their flags stay with the code."""
    cut = replace(run_of("a"), cut="reply", metrics={"format_ok": 1.0, "overlong": 0.0})
    flags = {key("a"): OverlongFlag(value=True, by=("ann",))}
    mark = marks([cut], {}, rubric=RUBRIC, waiting=(), overlong=flags)["r1"]
    assert (mark.overlong_by, "overlong" in mark.metrics) == (None, False)


def test_an_adjudicated_verdict_replaces() -> None:
    """What was settled stands, also against a later verdict, until it is settled anew."""
    settled = verdict("c", 3, OTHER, at=5, adjudicated=True)
    assert scores(verdict("c", 5), settled, verdict("c", 1, at=9)) == {"c": 3}
    assert scores(settled, verdict("c", 4, at=6, adjudicated=True)) == {"c": 4}


def test_who_may_adjudicate() -> None:
    """A judge of the ground's kind may, and any human; a ground that says nothing has nothing to settle."""
    human = verdict("c", 3, at=5, adjudicated=True)
    agent = verdict("c", 2, AGENT, at=5, adjudicated=True)
    assert scores(verdict("c", 5, AGENT), human, kind="agent") == {"c": 3}
    assert scores(verdict("c", 5, AGENT), agent, kind="agent") == {"c": 2}
    assert scores(verdict("c", 5), agent) == {"c": 5}
    assert scores(human, kind="agent") == {}
    assert scores(human) == {"c": 3}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), st.integers(0, 50)), max_size=12),
    st.randoms(),
)
def test_the_order_of_verdicts_does_not_matter(
    given_: list[tuple[str, int, int]], rng: random.Random
) -> None:
    """Verdicts of different moments give the same scores however they are read."""
    moments = {at: verdict(c, score, at=at) for c, score, at in given_}
    ordered = list(moments.values())
    assert scores(*rng.sample(ordered, len(ordered))) == scores(*ordered)


@pytest.mark.parametrize(
    ("verdicts", "ground"),
    [
        ([], None),
        ([verdict("c", 1, rubric="old")], None),
        ([verdict("c", 1, PROXY)], "proxy"),
        ([verdict("c", 1, PROXY), verdict("d", 1, PROXY), verdict("c", 1, AI)], "ai"),
        ([verdict("c", 1, AI), verdict("d", 1, AI), verdict("c", 1, AGENT)], "agent"),
        ([verdict("c", 1), verdict("c", 1, AGENT)], "human"),
        ([verdict("c", 1), verdict("c", 1, AGENT), verdict("d", 1, AGENT)], "agent"),
        ([verdict("c", 1), verdict("c", 2, OTHER), verdict("d", 1), verdict("c", 1, AGENT)], "human"),
    ],
)
def test_the_ground_is_whoever_judged_most(verdicts: list[Verdict], ground: str | None) -> None:
    """People before machines; of humans and agents those who judged more candidates, humans when even."""
    assert choose_ground(verdicts, "rh") == ground


def test_a_ground_can_be_asked_for() -> None:
    """The person's choice holds; a kind that does not exist is named with what was meant."""
    assert choose_ground([verdict("c", 1)], "rh", "proxy") == "proxy"
    with pytest.raises(
        BadInput, match=r"^--ground: there is no kind of judge 'humans'; did you mean 'human'"
    ):
        choose_ground([], "rh", "humans")
    with pytest.raises(BadInput, match="give one of human, agent, ai, proxy"):
        choose_ground([], "rh", "zzz")


def test_what_is_wanted_of_a_run() -> None:
    """The candidates in its slots, in order, at most as many as are wanted per cell."""
    run = run_of("a", "b", "c", "d")
    assert wanted([run]) == {"r1": [key("a"), key("b"), key("c")]}
    assert wanted([run], tips_per_cell=2) == {"r1": [key("a"), key("b")]}
    assert wanted([run], tips_per_cell=8) == wanted([run])


def test_nothing_is_wanted_of_a_failure() -> None:
    """Neither of a reply that failed, nor of a run that the engine failed in, nor of what is raced out."""
    failed = replace(RUN, run_id="r2", status="failed", error="no route")
    cut = replace(RUN, run_id="r3", cut="reply")
    assert list(wanted([RUN, failed, cut])) == ["r1"]
    other = replace(RUN, run_id="r4", prompt_id="v2", prompt_hash="2222")
    assert list(wanted([RUN, other], raced_out={("qwen", "v1")})) == ["r4"]


def test_what_is_pending() -> None:
    """A run waits while one of its wanted candidates has no verdict by anybody under the rubric."""
    done = judged([verdict(key("a"), 3, PROXY), verdict(key("bb"), 3, rubric="old")], rubric_hash="rh")
    assert pending([RUN], done) == {"r1": [key("bb")]}
    assert pending([RUN], done, tips_per_cell=1) == {}
    assert pending([RUN], set(), raced_out=[("qwen", "v1")]) == {}
    assert judged([verdict("c", 3, PROXY)], rubric_hash="rh", kinds=["human"]) == set()


def test_a_text_that_two_cells_wrote_is_judged_once() -> None:
    """The same words in one scenario are one candidate, in another scenario another."""
    same = replace(run_of("A "), run_id="r2", prompt_id="v2", prompt_hash="2222")
    elsewhere = run_of("a", scenario="s2", run_id="r3")
    assert list(pending([run_of("a"), same, elsewhere], {key("a")})) == ["r3"]


def mark(found: dict[str, Mark], run_id: str = "r1") -> tuple[dict[str, float], bool]:
    return dict(found[run_id].metrics), found[run_id].judge_pending


def test_marks_of_a_judged_run() -> None:
    """Scales are means over what was judged; the composite has the missing slot's failure in it."""
    found = marks([RUN], quality(a=4, bb=3), rubric=RUBRIC, waiting=())
    assert mark(found) == ({"n_judged": 2, "quality": 3.5, "composite": (6 + 4 + 1) / 3}, False)


def test_marks_of_a_run_that_waits() -> None:
    """Half judged it has the mean of that half; unjudged it has no value, only a count of none."""
    assert mark(marks([RUN], quality(a=4), rubric=RUBRIC, waiting={"r1"})) == (
        {"n_judged": 1, "quality": 4, "composite": (6 + 1) / 2},
        True,
    )
    assert mark(marks([RUN], {}, rubric=RUBRIC, waiting={"r1"})) == ({"n_judged": 0}, True)


def test_marks_of_failures() -> None:
    """A failed reply has the failure value and nothing judged; a failed engine has no mark at all."""
    cut = replace(RUN, cut="reply")
    assert mark(marks([cut], quality(a=5), rubric=RUBRIC, waiting=())) == (
        {"n_judged": 0, "composite": 1},
        False,
    )
    empty = run_of()
    assert mark(marks([empty], {}, rubric=RUBRIC, waiting=())) == ({"n_judged": 0, "composite": 1}, False)
    assert marks([replace(RUN, status="failed")], {}, rubric=RUBRIC, waiting=()) == {}


def test_marks_look_at_the_wanted_slots_alone() -> None:
    """With fewer tips per cell a run is measured on its first slots, as it is ranked."""
    found = marks([RUN], quality(a=4, bb=3), rubric=RUBRIC, waiting=(), tips_per_cell=1)
    assert mark(found) == ({"n_judged": 1, "quality": 4, "composite": 6}, False)


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "bb", "c", "dd"]), max_size=4, unique=True), min_size=1, max_size=4
    ),
    st.dictionaries(st.sampled_from(["a", "bb", "c", "dd"]), st.integers(1, 5)),
    st.integers(0, 4),
)
def test_marks_and_rows_agree(runs: list[list[str]], given_: dict[str, int], limit: int) -> None:
    """A run's composite is the value that it is ranked with, and is there exactly where a row has one."""
    found = [run_of(*texts, scenario=f"s{n}", run_id=f"r{n}") for n, texts in enumerate(runs)]
    known = {k: v for n in range(len(runs)) for k, v in quality(f"s{n}", **given_).items()}
    marked = marks(found, known, rubric=RUBRIC, waiting=(), tips_per_cell=limit)
    rows = cell_rows(found, known, rubric=RUBRIC, tips_per_cell=limit)
    values = {scenario: value for _, _, scenario, value in rows if value is not None}
    composites = {f"s{name[1:]}": one.metrics.get("composite") for name, one in marked.items()}
    assert values == pytest.approx({name: one for name, one in composites.items() if one is not None})


def test_latest_leaves_adjudications_out() -> None:
    """For comparing judges with each other only what each gave by himself is looked at."""
    found = latest([verdict("c", 5), verdict("c", 2, at=3, adjudicated=True)], rubric_hash="rh")
    assert {judge.id: one.scores for judge, one in found["c"].items()} == {"ann": {"quality": 5}}
