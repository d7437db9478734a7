"""What stands beside a rank: speed, scales, what each slot held and what judges said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compared_worlds import AHEAD, BIG, CLOSE, SMALL, cut_off, flat, judged, report, world
from tipbench.compare.scores import Combination
from tipbench.suite import load_suite
from tipbench.workflows.facts import bounds_of, clusters_of, combinations
from tipbench.workflows.judged import read_judged
from tipbench.workflows.places import costs
from verdict_planting import ANNA, BEN, by_scenario, judge

if TYPE_CHECKING:
    from tipbench.compare.report import Facts
    from tipbench.ledger.memory import MemoryLedger
    from tipbench.records import CellResult


def facts(place: MemoryLedger, name: tuple[str, str] = BIG) -> Facts:
    return report(place).facts[Combination(*name)]


def test_speed_is_the_median_and_memory_the_most() -> None:
    """One slow cell does not make a model slow; memory is what it took at its worst; unknown is None."""

    def measured(one: CellResult) -> CellResult:
        at = one.started_ms % 10
        took = one.completion and replace(one.completion, latency_ms=9000.0 if at == 0 else 100.0 + at)
        return replace(one, completion=took, memory_bytes=1000 + at, diversity=at / 10)

    found = facts(world(BIG, changed=measured))
    assert (found.latency_ms, found.memory_bytes, found.tokens_per_s) == (102.5, 1003, 80)
    assert (found.format_ok, found.parameters) == (1.0, 1_000_000_000)
    assert found.diversity is not None
    assert abs(found.diversity - 0.15) < 1e-9
    plain = facts(world(BIG))
    assert (plain.memory_bytes, plain.diversity) == (None, None)


def test_a_cell_that_failed_has_no_speed_and_no_slots() -> None:
    """What the engine never answered is counted as failed and adds nothing else."""

    def failing(one: CellResult) -> CellResult:
        return replace(one, error="HTTP 500", completion=None, reading=None, candidates=())

    found = facts(world(BIG, changed=failing))
    assert (found.n_failed, found.latency_ms, found.tokens_per_s, found.format_ok) == (4, None, None, None)
    assert (found.candidates, found.scales, found.by_scenario) == ((), {}, {})


def test_scales_and_scenarios_are_what_was_ranked() -> None:
    """The mean of each scale, and for each scenario the value that the rank is made of."""
    found = facts(judged(AHEAD))
    assert found.scales == {"relevance": 5.0, "actionability": 5.0, "tone": 4.5}
    assert list(found.by_scenario.values()) == [17.0, 16.0, 17.0, 16.0]


def test_scales_leave_out_what_does_not_count() -> None:
    """Where only the first tip of each cell counts, a verdict on the second is shown and not averaged in."""
    place = world(BIG)
    judge(place, "x", ANNA, lambda _run, slot: 15 if slot == 0 else 3, tips_per_cell=1)
    found = facts(place)
    assert found.scales == {"relevance": 5.0, "actionability": 5.0, "tone": 5.0}
    assert set(found.by_scenario.values()) == {17.0}
    assert [one.value for one in found.candidates[:2]] == [17.0, 5.0]


def test_every_slot_is_shown_with_what_it_counts() -> None:
    """A judged slot with its scores, an unjudged one without a value, an empty one with the failure value."""

    def one_missing(one: CellResult) -> CellResult:
        return replace(one, candidates=one.candidates[:2])

    place = world(BIG, n_tips=3, n_scenarios=1, changed=one_missing)
    judge(place, "x", ANNA, flat(12), only=lambda _run, slot: slot == 0)
    first, second, third = facts(place).candidates
    assert (first.slot, first.value, first.scores["tone"]) == (0, 14.0, 4)
    assert (second.value, dict(second.scores), bool(second.text)) == (None, {}, True)
    assert (third.value, third.text, third.slot) == (3.0, "", 2)


def test_a_reply_that_was_cut_off_keeps_its_texts() -> None:
    """All its slots count the failure value, and show what was written and why it does not count."""
    place = world(BIG, SMALL, changed=cut_off(BIG))
    judge(place, "x", ANNA, by_scenario({SMALL: (9,)}))
    shown = facts(place).candidates
    assert {(bool(one.text), one.problem, one.value) for one in shown} == {(True, "truncated", 3.0)}


def test_an_overlong_tip_is_marked_and_costs_a_point() -> None:
    """The code sets the flag from the length where no judge sets it."""

    def longer(one: CellResult) -> CellResult:
        texts = [replace(each, text=f"{each.text} {'more ' * 40}") for each in one.candidates]
        return replace(one, candidates=tuple(texts))

    place = world(BIG, n_scenarios=1, changed=longer)
    judge(place, "x", ANNA, flat(12))
    assert {(one.overlong, one.value) for one in facts(place).candidates} == {(True, 13.0)}


def test_notes_are_shown_with_their_judges() -> None:
    """Whoever wrote a note is named before it; notes under an earlier rubric are not shown."""
    place = world(BIG, n_scenarios=1)
    judge(place, "x", ANNA, flat(9), note="too vague", at_ms=1)
    judge(place, "x", BEN, flat(9), note="fine", at_ms=2)
    judge(place, "x", BEN, flat(9), note="old", at_ms=3, rubric_hash="f" * 64)
    assert facts(place).candidates[0].notes == ("anna: too vague", "ben: fine")


def test_costs_are_parameters_and_then_latency() -> None:
    """Two digests of one name have costs of their own."""
    state = read_judged(judged(CLOSE), "x")
    assert costs(combinations(state.runs)) == {BIG: (1_000_000_000, 500.0), SMALL: (500_000_000, 400.0)}


def test_the_bounds_are_those_of_the_rubric() -> None:
    """The least is all ones with a point off for length, the most all fives in the right form."""
    assert bounds_of(read_judged(world(BIG), "x")) == (2.0, 17.0)


def test_scenarios_of_the_built_in_suite_share_people() -> None:
    """Two scenarios of each persona have the same cluster, and clusters are called people."""
    clusters, called = clusters_of(read_judged(world(BIG), "x"))
    assert called == "people"
    names = [scenario.id for scenario in load_suite("tip").scenarios]
    assert list(clusters) == names
    assert [len({clusters[name] for name in some}) for some in (names[:4], names)] == [4, 4]
    assert clusters["maya-monday-morning"] == clusters["maya-thursday-evening"]


def test_scenarios_of_an_unknown_suite_share_nothing() -> None:
    """Without the suite's texts the leaderboard takes scenarios as independent."""
    place = world(BIG)
    pin = place.pinned("x")
    assert pin is not None
    place._pins["x"] = replace(pin, suite_id="somebodys-own")
    assert clusters_of(read_judged(place, "x")) == ({}, "clusters")


def test_scenarios_have_titles_in_the_suites_order() -> None:
    """A suite that ships gives both, in whichever order its cells were generated."""
    names = [scenario.id for scenario in load_suite("tip").scenarios[:4]]
    place = world(BIG, changed=lambda one: replace(one, started_ms=-one.started_ms))
    assert [run.scenario_id for run in place.runs("x")] == names[::-1]
    titles = report(place).titles
    assert list(titles) == names
    assert all(title and title != name for name, title in titles.items())


def test_scenarios_of_any_other_suite_have_the_titles_that_judges_saw() -> None:
    """The first line of what was exported; the id where nothing was."""
    place = world(BIG)
    pin = place.pinned("x")
    assert pin is not None
    place._pins["x"] = replace(pin, suite_id="somebodys-own")
    first, *others = [scenario.id for scenario in load_suite("tip").scenarios[:4]]
    judge(place, "x", ANNA, flat(9), only=lambda run, _slot: run.scenario_id == first)
    assert report(place).titles == {first: f"About {first}", **{name: name for name in others}}
