"""Jobs: what runs, what ran, its log, and its events as they happen."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.errors import documented
from tipbench.store import Job
from tipbench.workflows.access import COOKIE, Principal
from tipbench.workflows.job_states import LIVE
from tipbench.workflows.jobs import RESUMABLE
from tipbench.workflows.service_state import Service, now_ms

router = APIRouter(
    prefix="/api/jobs", tags=["jobs"], route_class=GuardedRoute, responses=documented(404, 422, 503)
)
_QUIET_S = 5.0
_RETRY_MS = 3000
_MOST_BYTES = 10**15 - 1


class Started(BaseModel):
    """A job that was started, and where to look at it."""

    job_id: str
    url: str


class JobAnswer(BaseModel):
    """A job as it is now. `reason` says why it failed or was broken off."""

    job_id: str
    kind: str
    title: str
    experiment: str
    settings: dict[str, Any] = Field(description="what it was started with, without logins")
    state: str
    exit_code: int | None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    by: str
    reason: str
    resumable: bool


class Log(BaseModel):
    log: str


class ModelProgressAnswer(BaseModel):
    name: str
    state: str
    done: int
    failed: int
    total: int
    tokens_per_s: float | None
    bytes: int | None
    error: str


class ProgressAnswer(BaseModel):
    """How far a job is."""

    planned: int | None
    skipped: int
    done: int
    failed: int
    models: list[ModelProgressAnswer]
    resident: list[str]
    resident_bytes: int
    recording_left: int
    judged: int
    to_judge: int | None
    unread: int
    notices: list[str]
    last_at: str
    last_event: int = Field(
        description="the id of the newest event that is counted here: `after` for the rest"
    )
    summary: dict[str, Any] | None


class JobInFull(JobAnswer):
    progress: ProgressAnswer


def started(service: Service, who: Principal, job: Job) -> Started:
    """Note a job that was started, and say where it is."""
    service.audit(who, f"{job.kind}.start", job.experiment, f"job {job.job_id}: {job.title}")
    return Started(job_id=job.job_id, url=f"/api/jobs/{job.job_id}")


def _told(service: Service, job: Job) -> dict[str, Any]:
    return {
        **{name: getattr(job, name) for name in JobAnswer.model_fields if hasattr(job, name)},
        "settings": dict(job.params.get("settings", {})),
        "reason": service.jobs.reason(job),
        "resumable": job.state in RESUMABLE,
    }


@router.get("")
def list_jobs(
    service: TheService,
    _who: Admin,
    before: Annotated[str | None, Query(max_length=100, description="a job's id")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> list[JobAnswer]:
    """The newest jobs, or those before one of them."""
    return [JobAnswer(**_told(service, job)) for job in service.jobs.page(before=before, limit=limit)]


@router.get("/{job_id}")
def one_job(service: TheService, _who: Admin, job_id: str) -> JobInFull:
    """A job, and how far it is."""
    told = _told(service, service.jobs.get(job_id))
    return JobInFull.model_validate({**told, "progress": asdict(service.jobs.progress(job_id))})


@router.post("/{job_id}/cancel", responses=documented(409))
def cancel(service: TheService, who: Admin, job_id: str) -> JobAnswer:
    """Ask a job to end; what it has done is kept. 409 where it is not running."""
    job = service.jobs.cancel(job_id)
    service.audit(who, "job.cancel", job_id)
    return JobAnswer(**_told(service, job))


@router.post("/{job_id}/resume", status_code=202, responses=documented(409))
def resume(service: TheService, who: Admin, job_id: str) -> Started:
    """Start a job again that was broken off; what it has done is not done again."""
    job = service.jobs.resume(job_id)
    service.audit(who, "job.resume", job_id)
    return Started(job_id=job.job_id, url=f"/api/jobs/{job.job_id}")


@router.get("/{job_id}/log")
def log(
    service: TheService, _who: Admin, job_id: str, tail: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> Log:
    """The last lines that the job wrote."""
    return Log(log=service.jobs.log(job_id, tail=tail))


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={
        200: {"description": "server-sent events", "content": {"text/event-stream": {}}},
        204: {"description": "the job has ended and everything was sent"},
    },
)
async def events(
    request: Request,
    service: TheService,
    _who: Admin,
    job_id: str,
    last_event_id: Annotated[str, Header()] = "",
    after: Annotated[
        int | None, Query(ge=0, le=_MOST_BYTES, description="an event's id, for who connects the first time")
    ] = None,
) -> Response:
    """The job's events as they happen. With `Last-Event-ID`, or else `after`, it goes on after that one.

    Each is a message with a JSON object; a last one of the type `end` has the job's state. A stream that ends
    without it is to be taken up again: the service was stopped, or the caller's token was revoked.
    """
    job = await run_in_threadpool(service.jobs.get, job_id)
    # A browser that connects again repeats its first address: what it has seen since counts more.
    known = re.fullmatch(r"[0-9]{1,15}", last_event_id)
    seen = int(last_event_id) if known else after or 0
    found = service.jobs.follow(job_id, after=seen, quiet_s=_QUIET_S)
    first = [one async for one in _first(found)] if job.state not in LIVE else []
    if (last_event_id or after is not None) and job.state not in LIVE and not first:
        return Response(status_code=204)
    return StreamingResponse(
        _stream(service, job_id, first, found, seen=seen, may=lambda: _may(service, request)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _may(service: Service, request: Request) -> bool:
    """Whether who asked may still ask: a token that was revoked since ends what it began."""
    return (
        service.access.principal(
            authorization=request.headers.get("authorization", ""),
            cookie=request.cookies.get(COOKIE, ""),
            now_ms=now_ms(),
        )
        is not None
    )


async def _first(found: AsyncIterator[tuple[int, Mapping[str, Any]]]) -> AsyncIterator[Any]:
    async for one in found:
        yield one
        return


async def _stream(
    service: Service,
    job_id: str,
    first: list[tuple[int, Mapping[str, Any]]],
    rest: AsyncIterator[tuple[int, Mapping[str, Any]]],
    *,
    seen: int = 0,
    may: Callable[[], bool] = lambda: True,
) -> AsyncIterator[str]:
    """The events in the form that browsers read, a comment whenever nothing came for a while."""
    yield f"retry: {_RETRY_MS}\n\n"
    last, asked = seen, time.monotonic()
    for last, event in first:
        yield _event(last, event)
    async for last, event in rest:
        if time.monotonic() - asked >= _QUIET_S:
            if not await run_in_threadpool(may):
                return
            asked = time.monotonic()
        yield ": quiet\n\n" if event["event"] == "quiet" else _event(last, event)
    job = await run_in_threadpool(service.jobs.get, job_id)
    if job.state not in LIVE:
        yield f"id: {last}\nevent: end\ndata: {json.dumps({'state': job.state})}\n\n"


def _event(number: int, event: Mapping[str, Any]) -> str:
    return f"id: {number}\ndata: {json.dumps(event)}\n\n"
