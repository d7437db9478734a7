from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tipbench.compare.leaderboard import rank
from tipbench.errors import BadInput
from tipbench.judge.scoring import cell_rows, is_failure, labels, slot_values
from tipbench.records import Candidate, Run

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A rubric whose composite is `quality + 2*format_ok - overlong`."""

    failure: float = 1.0

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float:
        return scores["quality"] + 2 * flags["format_ok"] - flags["overlong"]


RUBRIC = Sum()
RUN = Run(
    run_id="r1",
    experiment="x",
    key="k",
    status="done",
    model="qwen",
    digest="sha256:aaaabbbbcccc",
    parameters=500_000_000,
    prompt_id="v1",
    prompt_hash="1111",
    scenario_id="s1",
    scenario_hash="h1",
    repeat=0,
    n_tips=3,
    suite_id="tip",
    rubric_id="tip-v1",
    rubric_hash="rh",
    host="h",
    how="strict",
    cut=None,
    error=None,
    judge_pending=True,
    started_ms=0,
    metrics={"format_ok": 1.0},
    candidates=(Candidate(text="a", overlong=False), Candidate(text="b", overlong=True)),
)


def quality(*values: int | None) -> list[dict[str, int] | None]:
    return [None if value is None else {"quality": value} for value in values]


def test_judged_slots_have_the_composite_and_missing_ones_fail() -> None:
    """Two of three tips: each counts with its own flags, and the third slot is a failure."""
    assert slot_values(RUN, quality(4, 4), rubric=RUBRIC) == [6, 5, 1]


def test_unjudged_slots_are_none() -> None:
    """What nobody judged is neither a failure nor a zero; a missing slot needs no judge."""
    assert slot_values(RUN, quality(None, 3), rubric=RUBRIC) == [None, 4, 1]
    assert slot_values(RUN, [], rubric=RUBRIC) == [None, None, 1]


def test_a_bad_format_costs_every_tip() -> None:
    """The format belongs to the reply; a run that does not tell it is not given the benefit of the doubt."""
    assert slot_values(replace(RUN, metrics={"format_ok": 0.0}), quality(4, 4), rubric=RUBRIC) == [4, 3, 1]
    assert slot_values(replace(RUN, metrics={}), quality(4, 4), rubric=RUBRIC) == [4, 3, 1]


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
    """An unreadable, empty or cut-off reply is a failure throughout, even where it was judged."""
    assert is_failure(run)
    assert slot_values(run, quality(5, 5)[: len(run.candidates)], rubric=RUBRIC) == [1, 1, 1]


def test_tips_beyond_the_slots_are_not_scored() -> None:
    """More tips than asked for gain nothing and cost nothing."""
    assert slot_values(replace(RUN, n_tips=1), quality(3, 5), rubric=RUBRIC) == [5]


def test_a_failure_of_the_engine_is_missing() -> None:
    """An engine that could not be reached says nothing about the model."""
    failed = replace(RUN, status="failed", how="none", candidates=(), error="no route")
    assert slot_values(failed, [], rubric=RUBRIC) == []
    assert cell_rows([(failed, [])], rubric=RUBRIC) == []


def test_more_scores_than_candidates_is_an_error() -> None:
    """Scores that belong to nothing are refused with the run's name."""
    with pytest.raises(BadInput, match="run r1 has 3 scores for 2 candidates"):
        slot_values(RUN, quality(1, 2, 3), rubric=RUBRIC)


def test_rows_average_slots_then_repeats() -> None:
    """A repeat with fewer judged slots weighs as much as another, and slots are still counted."""
    full = replace(RUN, n_tips=2)
    again = replace(full, run_id="r2", repeat=1)
    rows = cell_rows([(full, quality(4, 2)), (again, quality(1, None))], rubric=RUBRIC)
    row = rank(rows).rows[0]
    assert (row.model, row.prompt, row.n_scenarios) == ("qwen", "v1", 1)
    assert row.mean == ((6 + 3) / 2 + 3) / 2
    assert (row.n_judged, row.n_unjudged) == (3, 1)


def test_rows_keep_scenarios_and_cells_apart() -> None:
    """Each combination has each of its scenarios once."""
    runs = [
        replace(RUN, run_id=f"{p}{s}", prompt_id=p, prompt_hash=p, scenario_id=s)
        for p in ("v1", "v2")
        for s in ("s1", "s2")
    ]
    board = rank(cell_rows([(run, quality(4, 4)) for run in runs], rubric=RUBRIC))
    assert {(row.prompt, row.n_scenarios, row.n_judged) for row in board.rows} == {("v1", 2, 6), ("v2", 2, 6)}


def test_two_digests_under_one_name_are_two_models() -> None:
    """A model that changed under its name is shown with its digest and never pooled."""
    other = replace(RUN, run_id="r2", digest="sha256:ddddeeeeffff")
    assert set(labels([RUN, other]).values()) == {("qwen@aaaabbbb", "v1"), ("qwen@ddddeeee", "v1")}
    assert len(rank(cell_rows([(RUN, quality(4)), (other, quality(2))], rubric=RUBRIC)).rows) == 2


def test_one_digest_needs_no_digest_in_its_name() -> None:
    """Names are for display: the same weights under two names are one model."""
    alias = replace(RUN, run_id="r2", model="qwen:latest")
    assert len(set(labels([RUN, alias]).values())) == 1
    assert labels([RUN]) == {("sha256:aaaabbbbcccc", "1111"): ("qwen", "v1")}
    changed = replace(RUN, prompt_hash="22223333444")
    assert set(labels([RUN, changed]).values()) == {("qwen", "v1@1111"), ("qwen", "v1@22223333")}
