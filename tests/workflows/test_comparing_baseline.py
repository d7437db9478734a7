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


BEFORE = (13, 14, 13, 13, 14, 13, 13, 13)


def against(
    now: Given,
    then: Given,
    **how: Any,  # noqa: ANN401 - as `report_on` takes
) -> Report:
    n_scenarios = max(len(points) for points in (*now.values(), *then.values()))
    place = world(*now, name="now", n_scenarios=n_scenarios)
    world(*then, name="then", into=place, n_scenarios=n_scenarios)
    judge(place, "now", how.pop("judge_now", ANNA), by_scenario(now), batch_id="n")
    judge(place, "then", how.pop("judge_then", ANNA), by_scenario(then), batch_id="t")
    return report_on(read_judged(place, "now"), before=read_judged(place, "then"), **how)


def test_a_baseline_is_passed_where_nothing_dropped() -> None:
    """The same or better passes, and the sentences have the smallest drop that would block."""
    then = {BIG: BEFORE, SMALL: (10, 11, 10, 11, 10, 10, 10, 11)}
    now = {BIG: (14, 14, 14, 13, 14, 14, 13, 14), SMALL: (11, 10, 11, 11, 10, 11, 10, 11), OTHER: (9, 9)}
    found = against(now, then).baseline
    assert found is not None
    assert (found.result, found.passed) == ("PASS", True)
    assert [one.model for one in found.new] == [OTHER[0]]
    assert "would block four times in five; smaller ones may go unseen" in " ".join(found.sentences)


def test_a_real_drop_beyond_the_margin_fails_the_baseline() -> None:
    """Significant beyond the margin blocks; the same drop within a larger margin is only a warning."""
    now, then = {BIG: (10, 11, 10, 10, 11, 10, 10, 9)}, {BIG: BEFORE}
    found = against(now, then).baseline
    assert found is not None
    assert (found.result, found.passed, found.suspicious) == ("BLOCK", False, (BIG,))
    assert found.sentences[0].startswith(
        "BLOCK: dropped by more than the margin of 0.5 beyond chance: a-big:1b with v1 by 3.1 points"
    )
    assert "Scenarios that became worse: a-big:1b with v1: carl-closing-time (-4.0)" in " ".join(
        found.sentences
    )
    within = against(now, then, margin=4.0).baseline
    assert within is not None
    assert (within.result, within.passed) == ("WARN", True)
    assert "Look at a-big:1b with v1 (-3.1 points, p < .001)" in " ".join(within.sentences)


def test_fewer_than_8_shared_scenarios_are_inconclusive() -> None:
    """An equal score on 7 scenarios is not shown to be no drop; on 8 scenarios it passes."""
    few = against({BIG: BEFORE[:7]}, {BIG: BEFORE[:7]}).baseline
    assert few is not None
    assert (few.result, few.passed) == ("INCONCLUSIVE", False)
    assert "a-big:1b with v1 (7 shared scenarios, 8 are needed)" in " ".join(few.sentences)
    enough = against({BIG: BEFORE}, {BIG: BEFORE}).baseline
    assert enough is not None
    assert enough.result == "PASS"


def test_a_missing_cell_is_inconclusive() -> None:
    """A row of the baseline that was not collected again cannot pass; the row that is there does not drop."""
    gone = against({BIG: BEFORE}, {BIG: BEFORE, SMALL: BEFORE}).baseline
    assert gone is not None
    assert (gone.result, gone.passed) == ("INCONCLUSIVE", False)
    assert [row.result for row in gone.rows] == ["PASS"]
    assert "b:500m with v1 (not in this experiment)" in " ".join(gone.sentences)


def test_failures_alone_are_no_comparison_with_a_baseline() -> None:
    """Where nothing is judged now, replies that were cut off do not stand for a drop: all is missing."""
    place = world(BIG, name="now", changed=cut_off(BIG))
    world(BIG, name="then", into=place)
    judge(place, "then", ANNA, flat(12))
    found = report_on(read_judged(place, "now"), before=read_judged(place, "then")).baseline
    assert found is not None
    assert (found.result, found.passed, found.rows, found.suspicious) == ("INCONCLUSIVE", False, (), ())


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
