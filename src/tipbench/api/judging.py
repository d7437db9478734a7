"""Judging: a batch to score, stroke by stroke, or as a file; and a model that does it."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, GuardedRoute, JudgeOrAdmin, TheService
from tipbench.api.bodies import FILE_OR_FORM, uploaded_file
from tipbench.api.errors import BadFields, documented
from tipbench.api.fields import ExperimentName, Strict, Text, experiment_settings
from tipbench.api.jobs import Started, started
from tipbench.workflows.hints import ledger_options
from tipbench.workflows.judging_room import JudgingRoom
from tipbench.workflows.judging_views import status_for, to_judge
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.releasing import release_batch
from tipbench.workflows.uploads import apply_upload

router = APIRouter(
    prefix="/api/judge", tags=["judging"], route_class=GuardedRoute, responses=documented(404, 422, 503)
)


class ToJudge(BaseModel):
    """An experiment with something to judge. Before a judge a name that tells of models is a made-up one."""

    experiment: str
    rubric: str
    cells: int
    cells_pending: int
    open_batch: str | None = Field(description="the batch that is yours and not handed in yet")


class ScaleAnswer(BaseModel):
    name: str
    low: int
    high: int


class ItemAnswer(BaseModel):
    """One text to score. Who wrote it is not told."""

    id: str
    number: int
    scenario: str
    context: str
    tip: str
    answer: dict[str, Any] | None = Field(description="what you gave so far")


class BatchAnswer(BaseModel):
    """A batch and what was scored in it so far. `rejected` says why it was, where it was handed in before."""

    batch: str
    scales: list[ScaleAnswer]
    rubric: str
    items: list[ItemAnswer]
    left: int
    seconds_each: float
    rejected: str | None


class StrokeAnswer(BaseModel):
    batch: str
    item: str
    left: int = Field(description="items of the batch that are not scored on every scale yet")


class SubmitRequest(Strict):
    """How to hand a batch in."""

    partial: bool = Field(default=False, description="hand it in although some items are not scored")


class DriftAnswer(BaseModel):
    """The result of the checks in words. Numbers would be hints to the hidden items."""

    state: str = Field(description="unchecked for a part of a batch, else off, unchecked, ok or warn")
    reason: str
    accepted: bool


class AgreementWords(BaseModel):
    """How far people agree on the texts that at least two of them have scored, without a number."""

    word: str | None = Field(description="good, tolerable or poor; null where it is unknown")
    enough: bool = Field(description="at least 60 texts have scores of two people")


class AgreementAnswer(AgreementWords):
    """The same with numbers, for admins: Krippendorff's alpha by scale, over `n_items` texts."""

    n_items: int
    alpha: dict[str, float | None]


class AppliedAnswer(BaseModel):
    """What was recorded of a batch, or of a file with several."""

    batch: str
    batches: list[str] = Field(description="the recorded batches; a file may hold several")
    experiment: str
    judge: str
    new: int
    changed: int
    unchanged: int
    skipped: int
    cells_pending: int
    drift: DriftAnswer
    agreement: AgreementWords


class ReleasedAnswer(BaseModel):
    """A batch that can be submitted again."""

    batch: str
    experiment: str
    judge: str


class DriftPoint(BaseModel):
    batch_id: str
    z: float
    ewma: float
    limit: float
    accepted: bool
    beyond: bool


class ScaleCalibration(BaseModel):
    """An AI judge or the proxy against people on one scale. `alpha` is Krippendorff's."""

    alpha: float | None
    bias: float | None = Field(description="above zero: the judge is too generous")
    correlation: float | None
    swap_alpha: float | None = Field(description="alpha between the judge's scores in two orders")
    top_bonus: float | None = Field(description="what a text gains where it stands nearer to the top")
    length: float | None = Field(description="rank correlation of the judge's scores with the length")
    length_people: float | None = Field(description="the same of people's scores")


class CalibrationAnswer(BaseModel):
    """An AI judge or the proxy against people, under its present weights, prompt and rubric."""

    people: str | None
    version: str = Field(description="the weights and the prompt")
    n: int
    n_swapped: int = Field(description="how many of them have scores in two orders")
    least_alpha: float | None = Field(description="Krippendorff's alpha on the scale where they agree least")
    scales: dict[str, ScaleCalibration]


class JudgeAnswer(BaseModel):
    """One judge. `trusted_alone` is null for people, who need not be compared with people.

    `severity` is null before a judge, and where no other judge has scored the same texts.
    """

    id: str
    kind: str
    verdicts: int
    batches: int
    last_ms: int
    objections: int
    severity: float | None
    chart: list[DriftPoint]
    trusted_alone: bool | None
    calibration: CalibrationAnswer | None = Field(default=None, description="for admins; null for people")
    inconsistent: int = Field(default=0, description="texts left out: reason and score named other levels")


class OpenBatchAnswer(BaseModel):
    batch_id: str
    judge: str
    created_ms: int
    items: int
    judged: int


class RejectedSubmissionAnswer(BaseModel):
    """One rejected submission. `forgiven` is true for one before an admin released the batch."""

    judge: str
    at_ms: int
    reason: str
    drift_z: float | None
    shift: float | None
    foils_failed: int
    forgiven: bool


class RejectedBatchAnswer(BaseModel):
    """A batch with rejected submissions. `closed` ones take no more; `replaced_by` is empty or a batch."""

    batch_id: str
    judge: str
    closed: bool
    replaced_by: str
    released: int
    rejections: list[RejectedSubmissionAnswer]


class StatusAnswer(BaseModel):
    """How far judging has come.

    A judge sees their own part of `judges` (without numbers of drift and severity) and of `open_batches`, the
    agreement in words, and of `rejected_batches` nothing.
    """

    experiment: str
    rubric: str
    wanted: int
    judged: int
    pending: int
    cells_pending: int
    minutes_left: int
    seconds_each: float
    settled: bool
    raced_out: list[str]
    judges: list[JudgeAnswer]
    agreement: AgreementAnswer | AgreementWords
    open_batches: list[OpenBatchAnswer]
    rejected_batches: list[RejectedBatchAnswer]
    old_verdicts: int
    notes: list[str]


class AutoRequest(Strict):
    """Which model is to judge."""

    judge: Text = Field(description="proxy, ollama:MODEL or openai:MODEL")
    base_url: Text | None = Field(default=None, description="only the one that the service was started with")
    same_family: bool = Field(default=False, description="allow a judge of a contestant's family")


def the_room(service: TheService, request: Request) -> JudgingRoom:
    """The service's one room; it is made when somebody first enters."""
    state = request.app.state
    if not hasattr(state, "judging_room"):
        state.judging_room = JudgingRoom(service)
    room: JudgingRoom = state.judging_room
    return room


TheRoom = Annotated[JudgingRoom, Depends(the_room)]
Stroke = Annotated[
    dict[str, Any],
    Body(
        description="a whole number or null for each scale; `overlong` (true, false) and `note` if need be",
        examples=[{"relevance": 4, "actionability": 3, "tone": None, "note": "short"}],
    ),
]


@router.get("")
def list_to_judge(service: TheService, who: JudgeOrAdmin) -> list[ToJudge]:
    """The experiments with something to judge."""
    return [ToJudge(**one) for one in to_judge(service, who)]


@router.post("/apply", responses=documented(409, 413), openapi_extra=FILE_OR_FORM)
async def apply(service: TheService, who: JudgeOrAdmin, request: Request) -> AppliedAnswer:
    """Apply a filled-in judge's file. A mistake refuses the whole file. 409 names the batches whose hidden
    items speak against them; the other batches of the file are recorded.
    """
    data = await uploaded_file(request)
    told = await run_in_threadpool(apply_upload, service, data, who=who)
    return AppliedAnswer.model_validate(told)


@router.put("/batches/{batch}/items/{item}", responses=documented(409))
def stroke(room: TheRoom, who: JudgeOrAdmin, batch: str, item: str, body: Stroke) -> StrokeAnswer:
    """Keep what you have for an item, in place of what was there; it need not be complete."""
    return StrokeAnswer(**room.stroke(batch, item, body, who))


@router.post("/batches/{batch}/submit", responses=documented(409))
def submit(room: TheRoom, who: JudgeOrAdmin, batch: str, body: SubmitRequest | None = None) -> AppliedAnswer:
    """Hand a batch in. 409 where it is rejected; your scores are kept then. After three rejections the batch
    is closed (409 `closed`), and your next batch hides other texts.
    """
    told = room.submit(batch, who, partial=body is not None and body.partial)
    return AppliedAnswer.model_validate(told)


@router.post("/batches/{batch}/release", responses=documented(409))
def release(service: TheService, who: Admin, batch: str) -> ReleasedAnswer:
    """Let the judge of a closed batch submit it again. 409 for a batch that is not closed, or is replaced."""
    settings = service.settings()
    released = release_batch(synced_ledger(settings), batch, by=who.name, options=ledger_options(settings))
    service.audit(who, "judge.release", batch)
    return ReleasedAnswer(batch=batch, experiment=released.experiment, judge=released.judge)


@router.get("/{experiment}/status")
def status(service: TheService, who: JudgeOrAdmin, experiment: ExperimentName) -> StatusAnswer:
    """How far the judging of an experiment has come."""
    return StatusAnswer.model_validate(status_for(service, experiment, who))


@router.get("/{experiment}/batch")
def batch(room: TheRoom, who: JudgeOrAdmin, experiment: ExperimentName) -> BatchAnswer:
    """Your open batch, or a new one; 404 where nothing is left to judge."""
    return BatchAnswer.model_validate(room.batch(experiment, who))


@router.get(
    "/{experiment}/export",
    response_class=Response,
    responses={200: {"description": "a judge's file", "content": {"application/json": {}}}},
)
def export(
    room: TheRoom,
    who: JudgeOrAdmin,
    experiment: ExperimentName,
    size: Annotated[int, Query(ge=3, le=60, description="items in a new batch")] = 60,
    tips_per_cell: Annotated[
        int | None, Query(ge=0, le=50, description="of each cell the first so many; for an admin to say")
    ] = None,
) -> Response:
    """Your open batch, or a new one, as a file to fill in and apply."""
    batch_id, text = room.export(experiment, who, size=size, tips_per_cell=tips_per_cell)
    headers = {"Content-Disposition": f'attachment; filename="{batch_id}.json"'}
    return Response(text.encode(), media_type="application/json", headers=headers)


@router.post("/{experiment}/auto", status_code=202, responses=documented(409))
def auto(service: TheService, who: Admin, experiment: ExperimentName, body: AutoRequest) -> Started:
    """Let a model, or the proxy's rules, judge what it has not judged yet."""
    own = os.environ.get("OPENAI_BASE_URL", "")
    if body.base_url and body.base_url.rstrip("/") != own.rstrip("/"):
        raise BadFields({"base_url": "it is set where the service is started, as OPENAI_BASE_URL"})
    settings = service.judging_settings(experiment_settings(service, experiment).experiment)
    job = service.jobs.start_judging(settings, body.judge, by=who.name, same_family=body.same_family)
    return started(service, who, job)
