"""Jobs: the list, and one as it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from tipbench.compare import figures
from tipbench.web import prose
from tipbench.web.dag_sheet import dag_sheet
from tipbench.web.guard import as_sentence, need
from tipbench.web.render import address, ago, page
from tipbench.web.simulated import result_of
from tipbench.workflows.access import Principal
from tipbench.workflows.dag_following import waits_for_judge
from tipbench.workflows.job_states import LIVE
from tipbench.workflows.jobs import RESUMABLE
from tipbench.workflows.service_state import COLLECTIONS, Service, now_ms

if TYPE_CHECKING:
    from tipbench.store import Job
    from tipbench.workflows.job_progress import ModelProgress, Progress

router = APIRouter(include_in_schema=False)

KINDS = {
    "collect": "collection",
    "judge": "judging",
    "sim": "simulation",
    "gate": "gate",
    "airflow": "collection on Airflow",
}
SIMULATED = frozenset({"sim", "gate"})
_SIZE = 30
_LOG_LINES = 200
_AT_WORK = 5


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
        judge_next=_is_to_judge(job, progress),
        simulated=job.kind in SIMULATED,
        result=result_of(job, progress),
        dag=dag_sheet(job, progress),
        numbers=_numbers(progress) if job.state in LIVE else (),
        progress=progress,
        bars=[*(_bar(model, live=job.state in LIVE) for model in progress.models), *_judging(progress)],
        told=told(job, progress),
        why=prose.code(_why(service.jobs.reason(job))),
        log=service.jobs.log(job_id, tail=_LOG_LINES),
    )


def _is_to_judge(job: Job, progress: Progress) -> bool:
    """Whether judging is what comes next: after a collection, and where a run on Airflow waits for it."""
    waits = job.kind == "airflow" and job.state in LIVE and waits_for_judge(progress.summary or {})
    return waits or (job.state == "done" and job.kind in COLLECTIONS)


def _numbers(progress: Progress) -> list[tuple[str, str]]:
    """What the host holds now, and what has not reached the ledger yet."""
    texts = {
        "memory resident": figures.gigabytes(progress.resident_bytes or None) if progress.models else "",
        "loaded": ", ".join(progress.resident),
        "to record": str(progress.recording_left or ""),
    }
    return [(title, text) for title, text in texts.items() if text]


def _took(job: Job) -> str:
    if job.started_ms is None or job.ended_ms is None:
        return ""
    seconds = (job.ended_ms - job.started_ms) / 1000
    return figures.duration(1000 * seconds) if seconds < 100 else figures.count(round(seconds / 60), "minute")


def _bar(model: ModelProgress, *, live: bool) -> Bar:
    """Of a job that has ended, nothing waits any more."""
    quiet = {"running", "done"} if live else {"running", "done", "waiting"}
    parts = [
        f"{figures.rate(model.tokens_per_s)} tok/s" if model.tokens_per_s else "",
        figures.gigabytes(model.bytes) if model.bytes else "",
        f"{model.failed} failed" if model.failed else "",
        model.error or ("" if model.state in quiet else model.state),
    ]
    told = " · ".join(part for part in parts if part)
    return Bar(name=model.name, done=model.done + model.failed, total=model.total, told=told)


def _judging(progress: Progress) -> list[Bar]:
    if progress.to_judge is None:
        return []
    told = f"{progress.unread} not read" if progress.unread else ""
    return [Bar(name="judging", done=progress.judged, total=progress.to_judge, told=told)]


def at_work(service: Service, experiment: str = "") -> list[Job]:
    """The jobs that wait or run now, of one experiment or of all."""
    service.jobs.reconcile()
    live = service.store.jobs.page(states=LIVE)
    return [job for job in live if experiment in {"", job.experiment}][:_AT_WORK]


def _why(reason: str) -> str:
    return as_sentence(reason) if reason else ""


def told(job: Job, progress: Progress) -> str:
    """Where the job stands, in plain words."""
    if job.kind in SIMULATED:
        return _told_of_simulation(job, progress)
    if job.kind == "airflow":
        return _told_of_airflow(job, progress)
    if job.kind == "judge" and job.state == "done" and progress.to_judge is None:
        return "Done."  # rules judge at once: they tell of no tip by itself
    return {
        "queued": "It waits for its turn.",
        "running": f"At work: {_far(progress)}.",
        "done": f"Done: {_far(progress)}.",
        "failed": f"It failed: {_far(progress)}.",
        "cancelled": f"Cancelled: {_far(progress)}. What was done is kept.",
        "interrupted": f"It was broken off: {_far(progress)}. What was done is kept.",
    }[job.state]


def _told_of_airflow(job: Job, progress: Progress) -> str:
    """A job that was broken off may have left its run going."""
    sheet = dag_sheet(job, progress)
    far = sheet.told if sheet else "nothing is known of the DAG run yet"
    return {
        "queued": "It waits for its turn.",
        "running": f"At work: {far}.",
        "done": f"Done: {far}.",
        "failed": f"It failed: {far}.",
        "cancelled": f"Cancelled; when last seen, {far}. What was done is kept.",
        "interrupted": f"Nobody follows it: when last seen, {far}.",
    }[job.state]


def _told_of_simulation(job: Job, progress: Progress) -> str:
    """Half of a simulation is worth nothing, so nothing is said to be kept."""
    done = sum(model.done >= model.total for model in progress.models)
    far = f"{done} of {len(progress.models)} simulated" if progress.models else "nothing done yet"
    return {
        "queued": "It waits for its turn.",
        "running": f"At work: {far}.",
        "done": "Done.",
        "failed": "It failed.",
        "cancelled": f"Cancelled: {far}.",
        "interrupted": f"It was broken off: {far}.",
    }[job.state]


def _far(progress: Progress) -> str:
    if progress.to_judge is not None:
        return f"{progress.judged} of {progress.to_judge} judged"
    if progress.planned is None:
        return "nothing done yet"
    total = sum(model.total for model in progress.models)
    if not total:
        only = progress.planned == 1
        return "its only cell was there before" if only else f"all {progress.planned} cells were there before"
    failed = f", {progress.failed} failed" if progress.failed else ""
    were = "was" if progress.skipped == 1 else "were"
    before = f"; {progress.skipped} {were} there before" if progress.skipped else ""
    return f"{progress.done} of {figures.count(total, 'cell')}{failed}{before}"
