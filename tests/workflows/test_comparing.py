"""What a comparison says of an experiment: who is first, on whose word, and what must be known before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compared_worlds import AHEAD, BIG, CLOSE, OTHER, SMALL, UNSURE, cut_off, flat, judged, report, world
from tipbench.compare.recommendation import Preferences
from tipbench.errors import BadSetting, CheckFailed
from tipbench.workflows.comparing import NOT_CHECKED
from verdict_planting import ANNA, BEN, CODY, PROXY, ROBOT, anchor, by_scenario, judge

if TYPE_CHECKING:
    from tipbench.compare.recommendation import CostName
    from tipbench.compare.report import Report
    from tipbench.compare.scores import Combination
    from tipbench.ledger.memory import MemoryLedger
    from tipbench.records import CellResult, Judge, Run
    from verdict_planting import Points


def test_a_winner_is_named_and_recommended() -> None:
    """Four points ahead on four scenarios is beyond luck: a winner, and the advice to ship it."""
    found = report(judged(AHEAD))
    assert found.board.winner == found.board.recommended == BIG
    assert found.board.rows[0].mean == 16.5
    assert [row.n_judged for row in found.board.rows] == [8, 8]
    assert found.board.recommended_because == "winner"
    assert "a-big:1b with v1 is the best of 2: on 4 scenarios it beats" in found.sentences[0]
    assert "Ship a-big:1b with v1: it is at most 0.75 points worse than the best with" in found.sentences[0]
    assert (found.ground, found.rubric_id, found.lowest, found.highest) == ("human", "tip-v1", 2, 17)
    assert "Judged by anna (human), under the rubric tip-v1." in found.notes


def test_a_tie_recommends_the_smallest_then_the_fastest() -> None:
    """Within the margin the report recommends the fewest parameters, then the lowest latency."""
    found = report(judged(CLOSE))
    assert found.board.winner is None
    assert found.board.recommended == SMALL
    assert found.board.rows[0].combination == BIG
    assert "No winner: 2 of 2 variants are tied for first" in found.sentences[0]
    assert (
        "Ship b:500m with v1: it is the cheapest variant that is close enough to the best, at most 0.75 "
        "points worse than the best with 81 % probability." in found.sentences[0]
    )

    def faster(one: CellResult) -> CellResult:
        took = 90.0 if one.cell.prompt_id == "v1" else 80.0
        return replace(one, completion=one.completion and replace(one.completion, latency_ms=took))

    place = world(SMALL, OTHER, changed=faster)
    judge(place, "x", ANNA, by_scenario({SMALL: CLOSE[BIG], OTHER: CLOSE[SMALL]}))
    assert report(place).board.recommended == OTHER


def test_a_best_guess_is_no_advice_to_ship() -> None:
    """No variant is close enough to the best with enough probability: the sentence has the lowest one."""
    found = report(judged(UNSURE))
    assert (found.board.recommended, found.board.recommended_because) == (BIG, "best guess")
    assert "is the best guess: with 39 % probability it is more than 0.75 points worse" in found.sentences[0]
    assert "Ship" not in found.sentences[0]


def test_of_variants_with_the_same_scores_the_cheapest_is_the_best_guess() -> None:
    """Equal scores on every scenario leave nothing to choose by but the cost."""
    found = report(judged({BIG: (12,), SMALL: (12,)}))
    assert (found.board.recommended, found.board.recommended_because) == (SMALL, "best guess")
    assert "b:500m with v1 is the best guess, as no variant has a higher mean." in found.sentences[0]


def test_the_margin_and_the_cost_decide_what_is_recommended() -> None:
    """Without any loss the dearer first row is advised; a large loss accepts the smaller model; seconds and
    memory replace parameters.
    """

    def measured(one: CellResult) -> CellResult:
        big = one.cell.model.name == BIG[0]
        completion = one.completion and replace(one.completion, latency_ms=100.0 if big else 900.0)
        return replace(one, completion=completion, memory_bytes=2_000_000 if big else 1_000_000)

    place = world(changed=measured)
    judge(place, "x", ANNA, by_scenario(CLOSE))

    def recommended(cost: CostName = "parameters", accept_loss: float | None = None) -> Combination | None:
        preferences = Preferences(cost=cost, accept_loss=accept_loss)
        return report(place, preferences=preferences).board.recommended

    assert recommended() == SMALL
    assert recommended(cost="memory") == SMALL
    assert recommended(cost="seconds") == BIG
    assert recommended(accept_loss=0.2) == BIG
    winner = report(judged(AHEAD), preferences=Preferences(accept_loss=6.0))
    assert (winner.board.winner, winner.board.recommended) == (BIG, SMALL)
    assert "a-big:1b with v1 is the best of 2" in winner.sentences[0]
    assert "Ship b:500m with v1: it is the cheapest variant" in winner.sentences[0]
    assert "at most 6 points worse" in winner.sentences[0]


def test_a_note_names_the_people_that_scenarios_share() -> None:
    """The built-in suite has two scenarios for each persona: intervals hold for these people."""
    place = world(n_scenarios=8)
    judge(place, "x", ANNA, flat(12))
    found = report(place)
    assert found.board.n_clusters == 4
    assert (
        "The 8 scenarios are of 4 people: intervals of means hold for other scenarios of these people, not "
        "for other people." in found.notes
    )
    assert not any("people" in note for note in report(judged(AHEAD)).notes)


def test_nothing_judged_is_said_and_is_no_error() -> None:
    """No winner, no recommendation, and the number of candidates that wait."""
    found = report(world())
    assert (found.board.winner, found.board.recommended, found.ground) == (None, None, None)
    assert [row.mean for row in found.board.rows] == [None, None]
    assert found.sentences == (
        "Nothing is judged yet, so nothing can be said.",
        "To say more, judge the 16 candidates waiting.",
    )
    assert found.first == ()


def test_failed_replies_do_not_lead_while_nothing_is_judged() -> None:
    """A combination that was always cut off has no place before anybody is judged, nor do its slots wait."""
    found = report(world(BIG, SMALL, changed=cut_off(BIG)), weights={"tone": 2})
    assert [(row.model, row.mean) for row in found.board.rows] == [(SMALL[0], None)]
    assert found.sentences[1] == "To say more, judge the 8 candidates waiting."
    counted = "Each counts as the lowest score on every scale: 3 points."
    assert found.notes == (f"4 of 8 replies could not be used: 4 truncated. {counted}",)
    assert found.exploration is not None
    assert found.exploration.sentence == "Nothing is ranked, so other weights change nothing."
    nothing = report(world(BIG, changed=cut_off(BIG)))
    assert nothing.sentences[1] == "Collect some cells and judge them first."


def test_failed_replies_count_once_somebody_judges() -> None:
    """Every slot of a reply that was cut off is worth the rubric's failure value."""
    place = world(BIG, SMALL, changed=cut_off(BIG))
    judge(place, "x", ANNA, by_scenario({SMALL: (9, 10)}))
    first, last = report(place).board.rows
    assert (first.combination, last.combination) == (SMALL, BIG)
    assert (last.mean, last.n_judged) == (3.0, 0)


def test_one_combination_has_nothing_to_be_compared_with() -> None:
    """It is shown with its mean and interval, and no winner is made of it."""
    found = report(judged({BIG: (15, 14, 13, 14)}))
    assert found.board.winner is None
    assert found.board.rows[0].low is not None
    assert "is the only variant" in found.sentences[0]


def test_one_scenario_has_no_intervals() -> None:
    """One scenario is exploratory: intervals, p and the detectable difference are None."""
    place = world(n_scenarios=1)
    judge(place, "x", ANNA, by_scenario(AHEAD))
    found = report(place)
    for row in found.board.rows:
        assert (row.low, row.high, row.behind_low, row.p_value) == (None, None, None, None)
    assert (found.board.winner, found.board.detectable, found.board.exploratory) == (None, None, True)
    assert "Exploratory: 1 scenario cannot name a winner." in found.sentences[0]
    assert "is the best guess, as no variant has a higher mean" in found.sentences[0]


def test_unjudged_slots_are_left_out_and_counted() -> None:
    """Half of a cell judged gives it the mean of that half; the rest is counted as waiting."""
    place = world()
    judge(place, "x", ANNA, by_scenario(AHEAD), only=lambda _run, slot: slot == 0)
    found = report(place)
    assert [(row.n_judged, row.n_unjudged) for row in found.board.rows] == [(4, 4), (4, 4)]
    assert found.board.rows[0].mean == 16.5
    assert "(8 candidates still unjudged)" in found.sentences[1]


def test_an_incomplete_grid_is_ordered_by_what_is_shared() -> None:
    """A cell judged only where all do well is not put first for that."""
    hard = {BIG: (12, 12, 5, 5), SMALL: (11, 11, 4, 4)}
    place = world()
    judge(place, "x", ANNA, by_scenario(hard), only=lambda run, _slot: run.model == BIG[0])
    easy = list(dict.fromkeys(run.scenario_id for run in place.runs("x")))[:2]
    judge(
        place,
        "x",
        ANNA,
        by_scenario(hard),
        only=lambda run, _: run.model == SMALL[0] and run.scenario_id in easy,
    )
    rows = report(place).board.rows
    assert [row.combination for row in rows] == [BIG, SMALL]
    assert (rows[0].mean, rows[1].mean) == (10.5, 13.0)
    assert rows[0].estimate is not None
    assert rows[1].estimate is not None
    assert rows[1].behind == rows[0].estimate - rows[1].estimate > 0


def test_cells_that_failed_in_the_engine_are_missing_and_named() -> None:
    """They lower no mean; the row has fewer scenarios, and a note says how many failed."""

    def failing(one: CellResult) -> CellResult:
        first = one.cell.model.name == BIG[0] and one.started_ms == 1_700_000_000_000
        return replace(one, error="HTTP 500", completion=None, reading=None, candidates=()) if first else one

    place = world(changed=failing)
    judge(place, "x", ANNA, flat(12))
    found = report(place)
    assert {row.model: (row.n_scenarios, row.mean) for row in found.board.rows} == {
        BIG[0]: (3, 14.0),
        SMALL[0]: (4, 14.0),
    }
    assert "1 cell failed in the engine: missing, not scored." in found.notes
    assert found.facts[BIG].n_failed == 1  # type: ignore[index]


def test_two_digests_under_one_name_are_two_models() -> None:
    """They are told apart by the beginning of their digests and never pooled."""
    place = world(SMALL)

    def pulled_again(one: CellResult) -> CellResult:
        model = replace(one.cell.model, digest="sha256:feedbeef" + "0" * 56)
        return replace(one, cell=replace(one.cell, model=model))

    world(SMALL, into=place, changed=pulled_again, seed=1)
    judge(place, "x", ANNA, flat(12))
    names = [row.model for row in report(place).board.rows]
    assert "b:500m@feedbeef" in names
    assert len(names) == 2


def test_slow_combinations_can_be_left_out() -> None:
    """They are not ranked, explored or shown, and a note names them; none left is said as such."""
    found = report(judged(AHEAD), max_latency_ms=450, weights={"tone": 2})
    assert [row.combination for row in found.board.rows] == [SMALL]
    assert list(found.facts) == [SMALL]
    assert found.notes[-1] == "Left out as slower than 450 ms: a-big:1b with v1 (500 ms)."
    assert found.exploration is not None
    assert len(found.exploration.board.rows) == 1
    assert report(judged(AHEAD), max_latency_ms=500).board.winner == BIG
    none = report(judged(AHEAD), max_latency_ms=1, weights={"tone": 2})
    assert none.board.rows == ()
    assert (
        none.sentences[0] == "Every combination is slower than --max-latency-ms allows, so nothing is ranked."
    )


def test_a_self_check_is_the_first_note() -> None:
    """It splits the judged candidates of the experiment, and stands beside the report's numbers."""
    found = report(judged(CLOSE), check_self=True)
    assert found.self_check is not None
    assert found.self_check.rate == 0.0
    assert found.notes[0] == str(found.self_check)
    assert found.as_dict()["self_check"] == {"rate": 0.0, "splits": 200}
    assert report(judged(CLOSE)).self_check is None


def test_other_weights_show_whether_the_answer_hangs_on_them() -> None:
    """The board itself stays; the exploration is a board of its own with one sentence on what changes."""
    same = report(judged(AHEAD), weights={"relevance": 2, "tone": 0.5})
    assert same.board == report(judged(AHEAD)).board
    assert same.exploration is not None
    assert same.exploration.sentence == (
        "With these weights nothing changes: the winner is a-big:1b with v1."
    )
    changed = report(judged(AHEAD), weights={"relevance": 0, "actionability": 0, "tone": 0})
    assert changed.exploration is not None
    assert changed.exploration.board.winner is None
    assert changed.exploration.sentence == (
        "With these weights there is no single winner and b:500m with v1 is recommended; "
        "as the rubric weighs, the winner is a-big:1b with v1."
    )


@pytest.mark.parametrize(
    ("weights", "words"),
    [({"tome": 2.0}, "no scale 'tome'; did you mean 'tone'?"), ({"tone": -1.0}, "from 0 to")],
)
def test_weights_that_cannot_be_are_refused(weights: dict[str, float], words: str) -> None:
    """An unknown scale gets a suggestion, a weight below zero its bounds."""
    with pytest.raises(BadSetting, match="--weights") as refused:
        report(judged(AHEAD), weights=weights)
    assert words in str(refused.value)


@pytest.mark.parametrize("who", [PROXY, ROBOT])
def test_a_machine_is_no_ground_unless_insisted_on(who: Judge) -> None:
    """Alone it fails the check; insisted on, the first line says so and nothing is recommended."""
    place = judged(AHEAD, who)
    with pytest.raises(CheckFailed, match=f"would stand on {who.id} alone") as refused:
        report(place)
    assert "--insist" in str(refused.value)
    found = report(place, insist=True, weights={"tone": 2})
    robot = f"Ranked by {who.id} alone, with --insist: "
    rules = "Scores come from simple word rules (the proxy judge). Do not ship on them."
    assert found.first[0].startswith(rules if who is PROXY else robot)
    assert found.board.winner == BIG
    assert (found.advise, found.board.recommended, found.board.recommended_because) == (False, None, None)
    assert "ship" not in found.sentences[0]
    assert found.exploration is not None
    assert found.exploration.sentence == "With these weights nothing changes: the winner is a-big:1b with v1."


def varied(run: Run, slot: int) -> int:
    return 3 + (sum(run.scenario_id.encode()) + 5 * slot + len(run.model)) % 13


def robot_beside(people: Judge, n_tips: int, points: Points = varied) -> MemoryLedger:
    """An experiment that an AI judge judged throughout, with scores that people share or not."""
    place = world(n_scenarios=8, n_tips=n_tips)
    judge(place, "x", ROBOT, varied, at_ms=1)
    judge(place, "x", people, points, at_ms=2)
    return place


def test_an_ai_judge_that_agrees_with_people_is_a_ground() -> None:
    """On 60 shared candidates or more with agreement on every scale it may rank, and its advice is given."""
    found = report(robot_beside(ANNA, 4), ground="ai")
    assert found.ground == "ai"
    assert not any("insisted" in line for line in found.first)
    assert found.advise
    assert found.board.recommended is not None


def test_rules_about_words_are_no_ground_however_they_agree() -> None:
    """The proxy is refused even where its scores are those of people."""
    place = world(n_scenarios=8, n_tips=4)
    judge(place, "x", PROXY, varied, at_ms=1)
    judge(place, "x", ANNA, varied, at_ms=2)
    with pytest.raises(CheckFailed, match="know nothing of meaning"):
        report(place, ground="proxy")


@pytest.mark.parametrize(
    ("n_tips", "points", "why"),
    [
        (2, varied, "people have judged only 32 of its candidates too, where 60 are needed"),
        (4, lambda run, slot: 18 - varied(run, slot), "on the 64 candidates that people judged too"),
    ],
)
def test_an_ai_judge_is_refused_with_the_reason(n_tips: int, points: Points, why: str) -> None:
    """Too few shared candidates is another reason than too little agreement."""
    with pytest.raises(CheckFailed) as refused:
        report(robot_beside(CODY, n_tips, points), ground="ai")
    assert why in str(refused.value)


def test_people_are_the_ground_where_a_machine_judged_too() -> None:
    """The ranking stands on people; what the machine judged is counted in a note and not averaged in."""
    place = judged(AHEAD)
    judge(place, "x", PROXY, flat(3), at_ms=2000)
    found = report(place)
    assert (found.ground, found.board.rows[0].mean) == ("human", 16.5)
    (note,) = [note for note in found.notes if "proxy" in note]
    assert note.startswith("16 candidates also judged by kind proxy, which is never averaged with human")
    assert "(--ground proxy ranks by those)" in note


def test_of_people_and_agents_those_who_judged_more_are_the_ground() -> None:
    """An agent that judged all goes before a person who judged some; --ground turns it round."""
    place = judged(AHEAD, CODY)
    judge(place, "x", ANNA, flat(8), only=lambda _run, slot: slot == 0, at_ms=2000)
    found = report(place)
    assert found.ground == "agent"
    assert "Judged by cody (agent), under the rubric tip-v1." in found.notes
    asked = report(place, ground="human")
    assert (asked.ground, asked.board.rows[0].mean, asked.board.rows[0].n_judged) == ("human", 10.0, 4)


@pytest.mark.parametrize("asked", ["human", "ai", "proxy"])
def test_a_ground_that_nobody_is_of_is_nothing_judged(asked: str) -> None:
    """No winner and no error; the first line says that nobody of that kind judged, a note who did."""
    found = report(judged(AHEAD, CODY), ground=asked)
    assert (found.ground, found.board.winner, found.board.rows[0].mean) == (None, None, None)
    assert found.first == (f"Nobody of kind {asked} has judged anything.",)
    assert found.notes == ("16 candidates judged by kind agent (--ground agent ranks by those).",)


def test_an_unknown_ground_is_refused() -> None:
    """A word that is no kind of judge gets a suggestion."""
    with pytest.raises(BadSetting, match="did you mean 'human'"):
        report(judged(AHEAD), ground="humans")


def test_judges_of_one_kind_are_averaged_and_an_adjudication_replaces_them() -> None:
    """Two people count by their mean, a changed mind by its latest, and an adjudicated verdict by itself."""
    place = world(BIG)
    judge(place, "x", ANNA, flat(6), at_ms=1)
    judge(place, "x", ANNA, flat(9), at_ms=2)
    judge(place, "x", BEN, flat(12), at_ms=3)
    assert report(place).board.rows[0].mean == 12.5
    judge(place, "x", BEN, flat(15), at_ms=4, adjudicated=True)
    assert report(place).board.rows[0].mean == 17.0


def test_drift_that_nobody_checked_is_said_first() -> None:
    """Without anchors every report says so; with anchors by machines the check is provisional."""
    assert report(judged(AHEAD)).first == (NOT_CHECKED,)
    machine, people = ([anchor(n, by_people=by) for n in range(2)] for by in (False, True))
    provisional = report(judged(AHEAD, anchors=machine, drift_z=0.4))
    assert provisional.first == ("The drift check is provisional: no person has judged the anchors yet.",)
    assert report(judged(AHEAD, anchors=people, drift_z=0.4)).first == ()
    accepted = report(judged(AHEAD, anchors=people, drift_z=4.0, drift_accepted=True))
    assert accepted.first == (
        "Drift was accepted in 1 application: see `tipbench judge status --experiment x`.",
    )


def test_only_the_check_of_those_who_count_is_told() -> None:
    """An agent whose drift was checked says nothing of the person that the ranking stands on."""
    place = judged(AHEAD)
    judge(place, "x", CODY, flat(9), at_ms=2000, anchors=[anchor(1, by_people=False)], drift_z=0.1)
    assert report(place).first == (NOT_CHECKED,)
    assert report(place, ground="agent").first[0].startswith("The drift check is provisional")


def test_batches_without_anchors_are_counted_beside_checked_ones() -> None:
    """One checked batch does not speak for the others."""
    place = world()
    people = [anchor(n, by_people=True) for n in range(2)]
    judge(place, "x", ANNA, flat(9), only=lambda _run, slot: slot == 0, anchors=people, drift_z=0.1)
    judge(place, "x", ANNA, flat(9), only=lambda _run, slot: slot == 1)
    assert report(place).first == ("Judge drift not checked in 1 of 2 batches: no anchor was judged there.",)


def test_verdicts_under_an_earlier_rubric_are_kept_and_not_counted() -> None:
    """They are counted in a note; nothing is judged under the rubric of now."""
    place = judged(AHEAD, rubric_hash="f" * 64)
    found = report(place)
    assert found.board.winner is None
    assert found.notes == ("16 verdicts under an earlier rubric: kept, not counted.",)


def test_notes_say_how_much_was_judged_on_purpose() -> None:
    """Fewer tips per cell and a race are in the plan of the newest batch, and the report says so."""
    found = report(judged(AHEAD, tips_per_cell=1, race=True))
    assert "Of each cell only the first candidate counts." in found.notes
    assert "Raced out, so judged less than the others: b:500m with v1." in found.notes
    assert [row.n_judged for row in found.board.rows] == [4, 4]


def speeds(*cells: tuple[float, str]) -> Report:
    """The report on one combination of these cells: latency in milliseconds, and a mark or none."""
    numbers = iter(cells)

    def changed(one: CellResult) -> CellResult:
        latency_ms, mark = next(numbers)
        completion = one.completion and replace(one.completion, latency_ms=latency_ms)
        return replace(one, completion=completion, marks=(mark,) if mark else ())

    return report(world(SMALL, n_scenarios=len(cells), changed=changed))


@pytest.mark.parametrize(
    ("cells", "median", "told"),
    [
        (((9000, "first-call"), (400, ""), (500, ""), (600, "")), 500, None),
        (((9000, "first-call"), (400, ""), (600, "")), 500, None),
        (((9000, "first-call"), (400, "")), 4700, "too few other cells remain"),
        (((900, "first-call"), (700, "first-call")), 800, "every call was the first after a load"),
        (((400, ""), (600, "")), 500, None),
    ],
)
def test_first_calls_are_left_out_of_medians(
    cells: tuple[tuple[float, str], ...], median: float, told: str | None
) -> None:
    """Where two other cells remain; else they count, and a note says so."""
    found = speeds(*cells)
    (facts,) = found.facts.values()
    assert facts.latency_ms == median
    notes = [note for note in found.notes if "first calls after a load" in note]
    assert [told in note for note in notes if told] == ([True] if told else [])
    assert bool(notes) == (told is not None)


def test_faults_of_the_engine_are_noted() -> None:
    """A reader of the ranking learns which rows have cells with a mark, and how many."""
    found = speeds((400, "digest-changed"), (500, "digest-changed"), (500, "schema-ignored"))
    assert (
        "The model changed on the host while cells were generated: b:500m with v1 (2 cells)." in found.notes
    )
    assert "The host ignored the schema: b:500m with v1 (1 cell)." in found.notes
