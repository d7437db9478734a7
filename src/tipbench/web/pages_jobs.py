"""Jobs: the list, and one as it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from tipbench.compare import figures
from tipbench.web.guard import as_sentence, need
from tipbench.web.render import address, ago, page
from tipbench.workflows.access import Principal
from tipbench.workflows.job_states import LIVE
from tipbench.workflows.jobs import RESUMABLE
from tipbench.workflows.service_state import Service, now_ms

if TYPE_CHECKING:
    from tipbench.store import Job
    from tipbench.workflows.job_progress import ModelProgress, Progress

router = APIRouter(include_in_schema=False)

KINDS = {"collect": "collection", "judge": "judging", "sim": "simulation"}
_SIZE = 30
_LOG_LINES = 200


@dataclass(frozen=True, kw_only=True)
class JobRow:
    job: Job
    kind: str
    age: str
    took: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One model of a collection, or a judging: how much of it is done, and what else is known of it."""

    name: str
    done: int
    total: int
    told: str


@router.get("/jobs")
def the_jobs(request: Request, before: str | None = None, _who: Principal = need("admin")) -> Response:
    """What was started here, the newest first."""
    service: Service = request.app.state.service
    found = service.jobs.page(before=before, limit=_SIZE + 1)
    now = now_ms()
    rows = [
        JobRow(job=job, kind=KINDS[job.kind], age=ago(job.created_ms, now), took=_took(job))
        for job in found[:_SIZE]
    ]
    older = address("jobs", before=rows[-1].job.job_id) if len(found) > _SIZE else ""
    return page(request, "jobs.html.j2", rows=rows, older=older, newest=before is None)


@router.get("/jobs/{job_id}")
def the_job(request: Request, job_id: str, _who: Principal = need("admin")) -> Response:
    """One job as it is now; its script keeps it so."""
    service: Service = request.app.state.service
    job, progress = service.jobs.get(job_id), service.jobs.progress(job_id)
    return page(
        request,
        "job.html.j2",
        job=job,
        kind=KINDS[job.kind],
        age=ago(job.created_ms, now_ms()),
        took=_took(job),
        live=job.state in LIVE,
        resumable=job.state in RESUMABLE,
        progress=progress,
        bars=[*map(_bar, progress.models), *_judging(progress)],
        told=told(job, progress, service.jobs.reason(job)),
        log=service.jobs.log(job_id, tail=_LOG_LINES),
    )


def _took(job: Job) -> str:
    if job.started_ms is None or job.ended_ms is None:
        return ""
    seconds = (job.ended_ms - job.started_ms) / 1000
    return figures.duration(1000 * seconds) if seconds < 100 else figures.count(round(seconds / 60), "minute")


def _bar(model: ModelProgress) -> Bar:
    parts = [
        f"{figures.rate(model.tokens_per_s)} tok/s" if model.tokens_per_s else "",
        figures.gigabytes(model.bytes) if model.bytes else "",
        f"{model.failed} failed" if model.failed else "",
        model.error or ("" if model.state in {"running", "done"} else model.state),
    ]
    told = " · ".join(part for part in parts if part)
    return Bar(name=model.name, done=model.done + model.failed, total=model.total, told=told)


def _judging(progress: Progress) -> list[Bar]:
    if progress.to_judge is None:
        return []
    told = f"{progress.unread} not read" if progress.unread else ""
    return [Bar(name="judging", done=progress.judged, total=progress.to_judge, told=told)]


def told(job: Job, progress: Progress, reason: str) -> str:
    """Where the job stands, in plain words."""
    why = f" {as_sentence(reason)}" if reason else ""
    return {
        "queued": "It waits for its turn.",
        "running": f"At work: {_far(progress)}.",
        "done": f"Done: {_far(progress)}.",
        "failed": f"It failed: {_far(progress)}.{why}",
        "cancelled": f"Cancelled: {_far(progress)}. What was done is kept.",
        "interrupted": f"It was broken off: {_far(progress)}. What was done is kept.{why}",
    }[job.state]


def _far(progress: Progress) -> str:
    if progress.to_judge is not None:
        return f"{progress.judged} of {progress.to_judge} judged"
    if progress.planned is None:
        return "nothing generated yet"
    total = sum(model.total for model in progress.models)
    if not total:
        return f"all {progress.planned} cells were there before"
    failed = f", {progress.failed} failed" if progress.failed else ""
    before = f"; {progress.skipped} were there before" if progress.skipped else ""
    return f"{progress.done} of {figures.count(total, 'cell')}{failed}{before}"
