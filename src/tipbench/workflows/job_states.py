"""The state of a job: what its row says, set right by a look at its process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.workflows.job_outcome import end_state
from tipbench.workflows.job_process import JobFolder, Started

if TYPE_CHECKING:
    from tipbench.store import Job, State
    from tipbench.store.jobs import Jobs as JobRows

QUEUED: tuple[State, ...] = ("queued",)
LIVE: tuple[State, ...] = ("queued", "running")
_MOST_LIVE = 1000


class JobStates:
    """Jobs as they are now. Any number may look at once: a row is changed once, from what was seen."""

    def __init__(self, rows: JobRows, *, grace_s: float) -> None:
        self._rows = rows
        self._grace_s = grace_s

    def get(self, job_id: str) -> Job:
        """The job as it is now; NotFound where there is none of that id."""
        return self.now(self._row(job_id))

    def live(self) -> list[Job]:
        """Every job that was said to run, as it is now."""
        return [self.now(job) for job in self._rows.page(states=LIVE, limit=_MOST_LIVE)]

    def now(self, job: Job) -> Job:
        """The job after a look at its process, its row changed where that has ended."""
        if job.state not in LIVE:
            return job
        folder = JobFolder(Path(job.folder))
        process = process_of(job) or folder.announced()
        if folder.left() is None and folder.runs(process):
            return self._looked_after(job, folder, process)
        left = folder.left()  # asked again: it may have ended between the two looks
        self._rows.change(
            job.job_id,
            (job.state,),
            revision=job.revision,
            state=end_state(left, cancelled=folder.cancelled, kind=job.kind),
            exit_code=left.code if left else None,
            ended_ms=left.ended_ms if left else now_ms(),
        )
        return self._row(job.job_id)

    def _looked_after(self, job: Job, folder: JobFolder, process: Started | None) -> Job:
        """A job that runs: what a service that ended meanwhile had begun with it is brought to its end."""
        if folder.cancelled:
            folder.cancel(process, grace_s=self._grace_s)
        if job.state == "running" or process is None:
            return job
        self._rows.change(
            job.job_id,
            QUEUED,
            revision=job.revision,
            state="running",
            pid=process.pid,
            pid_started=process.at,
            started_ms=int(process.at * 1000),
        )
        return self._row(job.job_id)

    def _row(self, job_id: str) -> Job:
        job = self._rows.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id!r}")
        return job


def process_of(job: Job) -> Started | None:
    if job.pid is None or job.pid_started is None:
        return None
    return Started(pid=job.pid, at=job.pid_started)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
