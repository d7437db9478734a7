"""Progress folded from events: by model, over several runs of one job, and whatever order they come in."""

from __future__ import annotations

from typing import Any

from tipbench.workflows.job_progress import Fold


def folded(*events: dict[str, Any], ended: bool = False) -> Any:  # noqa: ANN401 - compared field by field
    fold = Fold()
    for event in events:
        fold.add(event)
    return fold.progress(ended=ended)


def plan(planned: int, **models: int) -> dict[str, Any]:
    return {"event": "plan", "planned": planned, "skipped": planned - sum(models.values()), "models": models}


def cell(model: str, status: str = "done", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - metrics
    return {"event": "cell", "model": model, "status": status, **more}


def test_models_are_counted_one_by_one() -> None:
    """Cells done and failed, speed over all of a model's cells, memory as the host told it."""
    progress = folded(
        plan(10, a=3, b=4),
        {"event": "model_start", "model": "a", "cells": 3},
        {"event": "model_loaded", "model": "a", "load_s": 1.0, "bytes": 100},
        cell("a", output_tokens=100, tokens_per_s=10),
        cell("a", output_tokens=100, tokens_per_s=30),
        cell("a", "failed", prompt="v1", scenario="s1", error="no luck"),
        {"event": "resident", "models": ["a"], "bytes": 120, "at": "2026"},
    )
    first, second = progress.models
    assert (first.done, first.failed, first.total, first.state, first.bytes) == (2, 1, 3, "running", 120)
    assert first.tokens_per_s == 15
    assert (second.done, second.total, second.state, second.tokens_per_s) == (0, 4, "waiting", None)
    assert (progress.planned, progress.skipped, progress.done, progress.failed) == (10, 3, 2, 1)
    assert (progress.resident, progress.resident_bytes, progress.last_at) == (("a",), 120, "2026")
    assert progress.notices == ("a × v1 × s1 failed: no luck",)


def test_a_second_run_counts_on() -> None:
    """What was done stays done, what failed is open again, and the total is the same as before."""
    first = [plan(6, a=2, b=4), cell("a"), cell("a"), cell("b"), cell("b", "failed")]
    progress = folded(*first, {"event": "summary", "unrecorded": 0}, plan(6, b=3))
    a, b = progress.models
    assert (a.done, a.total, a.state) == (2, 2, "done")
    assert (b.done, b.failed, b.total, b.state) == (1, 0, 4, "waiting")
    assert (progress.planned, progress.skipped, progress.summary) == (6, 0, None)


def test_of_a_job_that_has_ended_nothing_is_in_memory() -> None:
    """Killed in the middle, the last thing it told was a loaded model, which is gone with it."""
    events = [plan(2, a=2), {"event": "model_loaded", "model": "a", "bytes": 5}]
    assert folded(*events).resident == ("a",)
    progress = folded(*events, ended=True)
    assert (progress.resident, progress.resident_bytes, progress.models[0].state) == ((), 0, "waiting")


def test_the_end_of_a_model_and_of_the_run() -> None:
    """Unloaded with all its cells it is done; one that could not be loaded has failed, with the reason."""
    progress = folded(
        plan(2, a=1, b=1),
        {"event": "model_failed", "model": "a", "error": "too big"},
        cell("a", "failed"),
        {"event": "model_unloaded", "model": "a"},
        cell("b"),
        {"event": "model_unloaded", "model": "b"},
        {"event": "recording", "total": 2, "left": 1},
        {"event": "summary", "at": "x", "unrecorded": 0, "calls": 2},
    )
    assert [(model.state, model.error) for model in progress.models] == [("failed", "too big"), ("done", "")]
    assert (progress.recording_left, progress.summary) == (0, {"unrecorded": 0, "calls": 2})


def test_notices_are_sentences_and_the_oldest_go() -> None:
    """Retries, evictions and notices are worded; of thousands the last hundred are kept."""
    worded = folded(
        {"event": "notice", "message": "hear"},
        {"event": "retry", "what": "a", "error": "stumbled", "pause_s": 2},
        {"event": "evict", "model": "b", "ours": True},
        {"event": "who knows"},
    )
    assert worded.notices == (
        "hear",
        "a: stumbled; trying again in 2 s",
        "unloading b, left over from an earlier run",
    )
    many = folded(*({"event": "notice", "message": str(n)} for n in range(3000)))
    assert many.notices == tuple(map(str, range(2900, 3000)))


def test_a_judging_tells_how_far_it_is() -> None:
    """The last word counts."""
    progress = folded(
        {"event": "judged", "done": 5, "total": 20, "unread": 0},
        {"event": "judged", "done": 9, "total": 20, "unread": 1},
    )
    assert (progress.judged, progress.to_judge, progress.unread) == (9, 20, 1)


def test_a_simulation_is_counted_by_policy_and_round() -> None:
    """What is to be simulated is there from the beginning; begun anew, nothing of before counts."""
    begun = {"event": "to_simulate", "policies": ["egreedy", "random"], "total": 60}
    done = {"event": "simulated", "policy": "egreedy", "done": 60, "total": 60}
    progress = folded(begun, done)
    assert [(one.name, one.done, one.total, one.state) for one in progress.models] == [
        ("egreedy", 60, 60, "done"),
        ("random", 0, 60, "waiting"),
    ]
    assert [one.done for one in folded(begun, done, begun).models] == [0, 0]


def test_a_simulation_with_strange_events_goes_on() -> None:
    """Events without what they should have change nothing."""
    strange: list[dict[str, Any]] = [
        {"event": "to_simulate", "policies": 3},
        {"event": "simulated", "done": "x"},
        {"event": "simulated"},
    ]
    assert folded(*strange, {"event": "simulated", "policy": "a", "done": 1, "total": 2}).models[-1].done == 1
