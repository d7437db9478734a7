"""Jobs as a service has them: a real store, real processes, and an end to all that a test left running."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from stand_in import FakeModel, StandIn
from tipbench import runs
from tipbench.settings import Settings
from tipbench.store import Store
from tipbench.workflows.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.store import Job

ENDED = {"done", "failed", "cancelled", "interrupted"}


def open_jobs(home: Path, **how: Any) -> Jobs:  # noqa: ANN401 - whatever Jobs takes
    """What a service makes when it starts."""
    return Jobs(Store(home / "service.db").jobs, home / "jobs", **how)


@contextmanager
def ending_what_runs(home: Path) -> Iterator[None]:
    """After the block, kill the jobs that still run: only those that are seen to be ours."""
    try:
        yield
    finally:
        for job in open_jobs(home).page():
            if job.state == "running" and job.pid is not None:
                process = psutil.Process(job.pid)
                process.kill()
                psutil.wait_procs([process], timeout=10)


def wait_until(condition: Callable[[], object], *, within_s: float = 250) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def ended(jobs: Jobs, job: Job) -> Job:
    """The job once it has ended."""
    wait_until(lambda: jobs.get(job.job_id).state in ENDED)
    return jobs.get(job.job_id)


def events_of(job: Job, kind: str = "cell") -> list[dict[str, Any]]:
    path = Path(job.folder) / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n") and line.endswith("}\n")]
    return [event for event in found if event["event"] == kind]


def settings_on(host: StandIn, **changes: Any) -> Settings:  # noqa: ANN401 - any setting
    names = ",".join(model.name for model in host.models)
    base = {
        "models": names,
        "prompts": "v1,v2-mentor",
        "ollama_url": host.url,
        "engine": "ollama",
        "experiment": "bench",
        "retries": 0,
    }
    return Settings.of(base | changes)


def slow_host(**how: Any) -> StandIn:  # noqa: ANN401 - any of the stand-in's fields
    return StandIn([FakeModel("a:1b")], **{"latency_s": 0.1, **how})


def recorded() -> Counter[str]:
    return Counter(run.key for run in runs("bench") if run.status == "done")
