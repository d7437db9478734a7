from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from judge_world import JUDGE, NAMES, SCALES, batch_of, rejected
from tipbench.judge.gate import (
    Drift,
    Past,
    check_drift,
    ewma_series,
    history_of,
    visibility_sentence,
    visible_drift,
)
from tipbench.records import Application, Item, Judge
from tipbench.suite.rubric import Scale

if TYPE_CHECKING:
    from tipbench.records import Batch, Role


def item(number: int, *, role: Role = "anchor", by_people: bool = True, n_references: int = 4) -> Item:
    reference = dict.fromkeys(NAMES, 3.0) if role == "anchor" else {}
    return Item(
        id=f"{role}{number}",
        role=role,
        scenario_id="s",
        text="t",
        reference=reference,
        n_references=n_references if role == "anchor" else 0,
        by_people=by_people,
    )


BATCH = batch_of((*(item(n) for n in range(8)), item(0, role="foil"), item(1, role="foil")))


def anchors(*sums: float) -> dict[str, dict[str, float]]:
    """Scores for the first anchors that are these many points above their references, all on relevance."""
    return {
        f"anchor{n}": {"relevance": 3 + high, "actionability": 3.0, "tone": 3.0}
        for n, high in enumerate(sums)
    }


def foils(*relevance: float) -> dict[str, dict[str, float]]:
    return {f"foil{n}": dict.fromkeys(NAMES, one) for n, one in enumerate(relevance)}


def checked(
    scores: dict[str, dict[str, float]],
    *,
    batch: Batch = BATCH,
    judge: Judge = JUDGE,
    history: list[Past] | None = None,
    accept_drift: bool = False,
) -> Drift:
    return check_drift(
        batch,
        judge=judge,
        scores_by_item_id=scores,
        history=history or [],
        scales=SCALES,
        accept_drift=accept_drift,
    )


def test_the_numbers_are_those_of_the_formula() -> None:
    """The shift is the mean deviation of the sum, z the same in standard errors of .83·√((1+1/4)/8)."""
    found = checked(anchors(1, 1, 0, 0, 0, 0, -1, 1))
    assert found.n_anchors == 8
    assert found.shift == pytest.approx(0.25)
    assert found.abs_shift == pytest.approx(0.5)
    assert found.z == pytest.approx(0.25 / (0.83 * (1.25 / 8) ** 0.5))
    assert found.ewma == pytest.approx(0.3 * (found.z or 0))
    assert found.ewma_limit == pytest.approx(0.9)
    assert (found.state, found.provisional, found.accepted) == ("ok", False, False)
    assert found.reason == (
        "Scores of the 8 hidden anchors are on average 0.2 points higher than their references (z 0.8), "
        "which is within chance."
    )


def test_a_large_shift_is_rejected_with_what_to_do() -> None:
    """Scores that are beyond chance away from their references are not taken in, and the reason says why."""
    found = checked(anchors(*[1.2] * 8))
    assert found.state == "reject"
    assert found.reason == (
        "Scores of the 8 hidden anchors are on average 1.2 points higher than their references (z 3.7): "
        "judge this batch again with the rubric's examples beside you, or accept it with --accept-drift."
    )
    assert "1.2 points lower" in checked(anchors(*[-1.2] * 8)).reason


def test_a_middling_shift_is_taken_in_with_a_warning() -> None:
    """Between two and three standard errors the batch counts, and the judge is told."""
    found = checked(anchors(*[0.8] * 8))
    assert found.state == "warn"
    assert "0.8 points higher" in found.reason
    assert "--accept-drift" not in found.reason


def test_a_shift_that_does_not_matter_is_not_rejected_by_itself() -> None:
    """Very many anchors make a small shift certain; below half a point it is not worth a new round."""
    many = batch_of(tuple(item(n, n_references=1000) for n in range(40)))
    history = [Past(batch_id=f"b-{n}", z=0.0) for n in range(2)]
    found = checked(anchors(*[0.45] * 40), batch=many, history=history)
    assert abs(found.z or 0) > 3
    assert found.state == "warn"


def test_scores_all_over_the_place_are_rejected() -> None:
    """Deviations that cancel in the mean still show that the tips were not read."""
    found = checked(anchors(*[2, -2, 2, -2, 2.4, -2, 2, -2.4]))
    assert found.z == pytest.approx(0)
    assert found.state == "reject"
    assert "2.1 points away from their references" in found.reason
    assert checked(anchors(*[2, -2] * 4)).state == "ok"


def test_one_stray_anchor_is_not_scatter() -> None:
    """A first part of a batch with one or two anchors judged is held to the shift alone."""
    assert checked(anchors(2.3)).state == "warn"
    assert checked(anchors(2.3)).reason.startswith("The score of one hidden anchor is 2.3 points higher")
    assert checked(anchors(2.3, -2.3)).state == "ok"
    assert checked(anchors(2.3, -2.3, 2.3)).state == "reject"


def test_drift_can_be_accepted_and_says_so() -> None:
    """A person's word takes a drifted batch in; without drift there is nothing to accept."""
    found = checked(anchors(*[1.5] * 8), accept_drift=True)
    assert (found.state, found.accepted) == ("warn", True)
    assert found.reason.endswith("; accepted all the same.")
    assert not checked(anchors(*[0.1] * 8), accept_drift=True).accepted


def test_what_was_accepted_need_not_be_accepted_twice() -> None:
    """The rest of a batch may follow without asking again, unless its anchors say something new."""
    first = checked(anchors(*[1.5] * 8), accept_drift=True)
    history = [Past(batch_id=BATCH.batch_id, z=first.z or 0, accepted=True)]
    assert checked(anchors(*[1.5] * 8), history=history).state == "warn"
    assert checked(anchors(*[1.5] * 7, 2.5), history=history).state == "reject"
    elsewhere = [replace(history[0], batch_id="b0")]
    assert checked(anchors(*[1.5] * 8), history=elsewhere).state == "reject"


def test_small_drifts_add_up_over_batches() -> None:
    """A drift that no batch shows alone is rejected once several in a row have it."""
    history = [Past(batch_id=f"b-{n}", z=2.0) for n in range(2)]
    found = checked(anchors(*[0.65] * 8), history=history)
    assert abs(found.z or 0) < 2
    assert abs(found.ewma or 0) > (found.ewma_limit or 9)
    assert found.state == "reject"
    assert "have crept above their references" in found.reason
    assert checked(anchors(*[0.65] * 8)).state == "ok"
    accepted = [*history[:-1], replace(history[-1], accepted=True)]
    assert checked(anchors(*[0.65] * 8), history=accepted).state == "ok"


@drawn(st.lists(st.floats(-2.9, 2.9), max_size=12))
def test_a_batch_without_shift_is_never_rejected_for_the_past(zs: list[float]) -> None:
    """Whoever was let through before and is now right is let through again."""
    history: list[Past] = []
    for number, z in enumerate(zs):
        point = ewma_series([*history, Past(batch_id=str(number), z=z)])[-1]
        if not point.beyond:
            history.append(Past(batch_id=str(number), z=z))
    assert checked(anchors(*[0.0] * 8), history=history).state == "ok"


def test_the_chart_has_each_batch_once() -> None:
    """A batch applied in parts is one point with its last z; accepted drift starts the average anew."""
    history = [
        Past(batch_id="a", z=9.0),
        Past(batch_id="a", z=1.0),
        Past(batch_id="b", z=4.0, accepted=True),
        Past(batch_id="c", z=1.0),
    ]
    points = ewma_series(history)
    assert [point.batch_id for point in points] == ["a", "b", "c"]
    assert [point.ewma for point in points] == pytest.approx([0.3, 0.7 * 0.3 + 1.2, 0.3])
    assert [point.limit for point in points] == pytest.approx(
        [0.9, 3 * (0.3 / 1.7 * (1 - 0.7**4)) ** 0.5, 0.9]
    )
    assert [point.beyond for point in points] == [False, True, False]
    assert ewma_series([]) == []
    again = ewma_series([*history[:3], Past(batch_id="a", z=2.0)])
    assert [(point.batch_id, point.z) for point in again] == [("b", 4.0), ("a", 2.0)]


def test_later_parts_of_a_batch_replace_its_earlier_ones() -> None:
    """A drifted beginning that was taken in with few anchors does not count twice."""
    history = [Past(batch_id=BATCH.batch_id, z=2.9)]
    found = checked(anchors(*[0.65] * 8), history=history)
    assert found.ewma == pytest.approx(0.3 * (found.z or 0))


@pytest.mark.parametrize(
    ("relevance", "state", "failed"), [((4, 4), "reject", 2), ((4, 3.9), "warn", 1), ((3, 1), "ok", 0)]
)
def test_foils_found_relevant(relevance: tuple[float, ...], state: str, failed: int) -> None:
    """Two tips from elsewhere found relevant reject a batch, one is remarked on; nothing overrides that."""
    scores = {**anchors(*[0.0] * 8), **foils(*relevance)}
    found = checked(scores, accept_drift=True)
    assert (found.state, found.foils_failed, found.foils_seen) == (state, failed, 2)
    if failed:
        assert f"{failed} of 2 hidden tips that were written for another scenario" in found.reason
    assert "--accept-drift" not in found.reason


def test_foils_count_without_anchors() -> None:
    """Foils need no references, so a suite without anchors still notices who does not read."""
    bare = batch_of((item(0, role="foil"), item(1, role="foil")))
    assert checked(foils(5, 5), batch=bare).state == "reject"
    assert checked(foils(1, 1), batch=bare).state == "off"


def test_foils_need_a_scale_of_relevance() -> None:
    """A rubric that does not ask for relevance has no use for foils."""
    found = check_drift(
        BATCH,
        judge=JUDGE,
        scores_by_item_id={"foil0": {"use": 3}, "foil1": {"use": 3}},
        scales=[Scale(name="use", low=1, high=3)],
    )
    assert (found.state, found.foils_seen) == ("off", 0)


def test_without_anchors_the_gate_is_off_and_says_so() -> None:
    """No anchors, or none with references on these scales: drift is not checked."""
    found = checked({}, batch=batch_of(()))
    assert (found.state, found.z, found.n_anchors) == ("off", None, 0)
    assert "judge drift not checked" in found.reason.lower()
    blank = batch_of((replace(item(0), reference={"relevance": 3.0}),))
    assert checked(anchors(0), batch=blank).state == "off"


def test_anchors_that_nobody_reached_leave_the_batch_unchecked() -> None:
    """A part without any anchor is taken in and known to be unchecked."""
    found = checked({})
    assert (found.state, found.z, found.provisional) == ("unchecked", None, False)
    assert "none of the hidden anchors is judged" in found.reason


def test_references_that_are_not_by_people_are_provisional() -> None:
    """One anchor in use without a person's reference makes the result provisional; one not yet judged not."""
    mixed = batch_of((item(0), item(1, by_people=False)))
    assert checked(anchors(0, 0), batch=mixed).provisional
    assert not checked(anchors(0), batch=mixed).provisional


@pytest.mark.parametrize("kind", ["ai", "proxy"])
def test_machines_are_measured_and_not_rejected(kind: str) -> None:
    """What bars an AI judge is the comparison with people, so its drift and foils only warn."""
    machine = Judge(id="m", kind=kind)  # type: ignore[arg-type]
    found = checked({**anchors(*[3.0] * 8), **foils(5, 5)}, judge=machine)
    assert (found.state, found.foils_failed, found.accepted) == ("warn", 2, False)
    assert found.z == pytest.approx(3 / (0.83 * (1.25 / 8) ** 0.5))
    assert checked(anchors(*[0.0] * 8), judge=machine).state == "ok"


def test_agents_are_held_to_the_gate_as_people_are() -> None:
    """An agent that takes batches is rejected like anybody."""
    assert checked(anchors(*[1.5] * 8), judge=Judge(id="a", kind="agent")).state == "reject"


def test_other_scales_have_the_same_gate_in_their_own_unit() -> None:
    """Scales from 0 to 100 give the same z and state as scales from 1 to 5, point for point."""
    wide = [Scale(name=name, low=0, high=100) for name in NAMES]
    zoom = tuple(replace(one, reference=dict.fromkeys(NAMES, 50.0)) for one in BATCH.items[:8])
    for high in (0.3, 0.8, 1.2):
        scores = {f"anchor{n}": {**dict.fromkeys(NAMES, 50.0), "tone": 50 + 25 * high} for n in range(8)}
        found = check_drift(batch_of(zoom), judge=JUDGE, scores_by_item_id=scores, scales=wide)
        same = checked(anchors(*[high] * 8))
        assert found.state == same.state
        assert found.z == pytest.approx(same.z)


def test_few_references_make_the_gate_more_lenient() -> None:
    """A reference of one judgement is less sure than one of four."""
    rough = batch_of(tuple(item(n, n_references=1) for n in range(8)))
    assert checked(anchors(*[1.1] * 8)).state == "reject"
    assert checked(anchors(*[1.1] * 8), batch=rough).state == "warn"


def test_the_history_is_the_judges_own_in_order() -> None:
    """Only applications of that judge and kind with a known z, in the order in which they were made."""

    def applied(at: int, z: float | None, judge: Judge = JUDGE) -> Application:
        return Application(
            application_id=str(at),
            judge=judge,
            at_ms=at,
            verdicts=(),
            hidden={},
            drift_z=z,
            drift_accepted=at == 5,
        )

    other = replace(JUDGE, kind="agent")
    batches = [
        replace(BATCH, batch_id="a", applications=(applied(1, 0.1), applied(5, 0.5))),
        replace(
            BATCH, batch_id="b", applications=(applied(2, None), applied(3, 0.3), applied(4, 9.9, other))
        ),
    ]
    assert history_of(batches, JUDGE) == [
        Past(batch_id="a", z=0.1),
        Past(batch_id="b", z=0.3),
        Past(batch_id="a", z=0.5, accepted=True),
    ]


def test_what_one_batch_cannot_see_is_said() -> None:
    """With eight anchors of four references each, one batch sees drifts of about 1.1 points."""
    assert visible_drift(SCALES) == pytest.approx(1.1, abs=0.05)
    assert visibility_sentence(SCALES).startswith("One batch alone sees only drifts of about 1.1 points")
    assert visible_drift(SCALES, n_anchors=4) > 1.5


@drawn(
    scores=st.lists(st.tuples(*[st.integers(1, 5)] * 3), max_size=8),
    relevance=st.lists(st.integers(1, 5), max_size=2),
    past=st.lists(st.tuples(st.sampled_from("abc"), st.floats(-9, 9), st.booleans()), max_size=6),
    accept=st.booleans(),
)
def test_any_scores_get_a_sound_answer(
    scores: list[tuple[int, ...]], relevance: list[int], past: list[tuple[str, float, bool]], *, accept: bool
) -> None:
    """Whatever is given there is one sentence, and acceptance overrides drift alone."""
    hidden = {f"anchor{n}": dict(zip(NAMES, map(float, one), strict=True)) for n, one in enumerate(scores)}
    history = [Past(batch_id=one, z=z, accepted=yes) for one, z, yes in past]
    found = checked({**hidden, **foils(*relevance)}, history=history, accept_drift=accept)
    assert found.reason.endswith(".")
    assert (found.state == "unchecked") <= (not scores)
    assert (found.state == "reject") <= (not accept or found.foils_failed == 2)
    assert found.accepted <= accept


def test_honest_judges_pass_and_drifting_ones_do_not() -> None:
    """A quick look: few false alarms, and a shift of one point is nearly always caught in four batches."""
    assert rejected(1, shift=0, runs=300, seed=1) <= 0.02
    assert rejected(10, shift=0, runs=120, seed=2) <= 0.12
    assert rejected(4, shift=1, runs=120, seed=3) >= 0.9


@pytest.mark.slow
def test_the_gate_is_as_sharp_as_it_says() -> None:
    """Measured: under .5 % false alarms per batch and 9 % per ten, a shift of one point caught in four
    batches 94 % of the time, one of 1.1 points in one batch two times in three, and parts of a batch rejected
    hardly more often than whole ones.
    """
    assert rejected(1, shift=0, runs=6000, seed=11) <= 0.005
    assert rejected(1, shift=0, runs=6000, seed=12, anchors=1) <= 0.01
    assert rejected(1, shift=0, runs=6000, seed=13, anchors=3) <= 0.01
    assert rejected(10, shift=0, runs=2500, seed=14) <= 0.09
    assert rejected(4, shift=1, runs=1500, seed=15) >= 0.94
    assert rejected(4, shift=-1, runs=1500, seed=16) >= 0.94
    assert rejected(1, shift=visible_drift(SCALES), runs=3000, seed=17) == pytest.approx(2 / 3, abs=0.06)
