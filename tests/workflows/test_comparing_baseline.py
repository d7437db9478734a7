"""One experiment against an earlier one: what passes, what fails, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compared_worlds import AHEAD, BIG, OTHER, SMALL, cut_off, flat, judged, world
from tipbench.errors import BadInput, CheckFailed
from tipbench.workflows.comparing import report_on
from tipbench.workflows.judged import read_judged
from verdict_planting import ANNA, CODY, PROXY, by_scenario, judge

if TYPE_CHECKING:
    from compared_worlds import Given
    from tipbench.compare.report import Report


def against(
    now: Given,
    then: Given,
    **how: Any,  # noqa: ANN401 - as `report_on` takes
) -> Report:
    place = world(*now, name="now")
    world(*then, name="then", into=place)
    judge(place, "now", how.pop("judge_now", ANNA), by_scenario(now), batch_id="n")
    judge(place, "then", how.pop("judge_then", ANNA), by_scenario(then), batch_id="t")
    return report_on(read_judged(place, "now"), before=read_judged(place, "then"), **how)


def test_a_baseline_is_passed_where_nothing_dropped() -> None:
    """The same or better passes, and the power of the comparison is stated."""
    found = against({**AHEAD, OTHER: (9, 9)}, {BIG: (14, 14, 14, 13), SMALL: (10, 11, 10, 11)}).baseline
    assert found is not None
    assert found.passed
    assert [one.model for one in found.new] == [OTHER[0]]
    assert "would be found four times in five" in " ".join(found.sentences)


def test_a_real_drop_beyond_the_margin_fails_the_baseline() -> None:
    """Significant and larger than the margin fails; the same drop within a larger margin does not."""
    now, then = {BIG: (10, 11, 10, 10)}, {BIG: (13, 13, 13, 14)}
    found = against(now, then).baseline
    assert found is not None
    assert (found.passed, found.dropped) == (False, (BIG,))
    assert "Dropped beyond chance and by more than the margin of 0.5" in found.sentences[0]
    within = against(now, then, margin=4.0).baseline
    assert within is not None
    assert within.passed


def test_a_missing_cell_fails_the_baseline() -> None:
    """Nobody knows how a combination is that was not collected or not judged again."""
    gone = against({BIG: (14, 15)}, AHEAD).baseline
    assert gone is not None
    assert not gone.passed
    assert "b:500m with v1 (not in this experiment)" in " ".join(gone.sentences)


def test_failures_alone_are_no_comparison_with_a_baseline() -> None:
    """Where nothing is judged now, replies that were cut off do not stand for a drop: all is missing."""
    place = world(BIG, name="now", changed=cut_off(BIG))
    world(BIG, name="then", into=place)
    judge(place, "then", ANNA, flat(12))
    found = report_on(read_judged(place, "now"), before=read_judged(place, "then")).baseline
    assert found is not None
    assert (found.passed, found.rows, found.dropped) == (False, (), ())


def test_a_baseline_on_other_ground_is_refused() -> None:
    """People's scores are not compared with an agent's, and a machine's need insisting there too."""
    with pytest.raises(BadInput, match="by kind human and 'then' by kind agent"):
        against(AHEAD, AHEAD, judge_then=CODY)
    with pytest.raises(CheckFailed, match="'then' would stand on proxy alone"):
        against(AHEAD, AHEAD, judge_then=PROXY)


def test_a_baseline_under_another_rubric_is_refused() -> None:
    """Scores under two rubrics are not the same thing."""
    place = judged(AHEAD)
    world(*AHEAD, name="then", into=place)
    pin = place.pinned("then")
    assert pin is not None
    text = f"{pin.rubric_text}\nOne more line.\n"
    place.change_rubric("then", rubric_id="tip-v1", rubric_hash="e" * 64, rubric_text=text)
    with pytest.raises(BadInput, match="their scores cannot be compared"):
        report_on(read_judged(place, "x"), before=read_judged(place, "then"))
