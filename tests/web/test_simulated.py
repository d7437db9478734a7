"""What a job that simulated has found, as its page says it."""

from __future__ import annotations

from typing import Any

import pytest

from tipbench.store.jobs import Job
from tipbench.web.simulated import Result, result_of
from tipbench.workflows.job_progress import Progress


def found(**curves: list[list[Any]]) -> Result:
    """What is shown of a simulation with these curves."""
    rows = [{"policy": policy, "curve": curve} for policy, curve in curves.items()]
    job = Job(
        job_id="j",
        kind="sim",
        title="",
        experiment="",
        params={},
        folder="",
        by="ann",
        created_ms=0,
        state="done",
    )
    nothing: dict[str, Any] = dict.fromkeys(
        ("skipped", "done", "failed", "recording_left", "judged", "unread"), 0
    )
    nothing |= {"planned": None, "models": (), "resident": (), "resident_bytes": 0, "to_judge": None}
    progress = Progress(**nothing, notices=(), last_at="", summary={"rows": rows})
    result = result_of(job, progress)
    assert result is not None
    return result


def test_one_seed_has_lines_and_no_bands() -> None:
    """There is no interval to draw, nor to tell in words."""
    result = found(egreedy=[[1, 0.2, None, None], [2, 0.15, None, None]])
    assert result.sentence == "egreedy has the least regret: 0.1500 per round."
    assert result.curves is not None
    assert "<polyline" in result.curves.svg
    assert "<polygon" not in result.curves.svg
    assert result.curves.legend[0][2] == "0.1500"


@pytest.mark.parametrize(
    ("other", "says"), [(0.0, "All policies have the same regret"), (0.1, "a has the least")]
)
def test_where_nobody_is_better_nobody_is_named(other: float, says: str) -> None:
    """In a world where all tips are alike there is no least regret."""
    assert found(a=[[1, 0.0, 0.0, 0.0]], b=[[1, other, 0.0, 0.2]]).sentence.startswith(says)
