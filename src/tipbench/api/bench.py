"""Experiments and what came of them, and the start of a new collection."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.errors import documented
from tipbench.api.fields import (
    ExperimentName,
    SettingRow,
    checked_settings,
    collection_settings,
    experiment_settings,
    run_request,
    setting_rows,
)
from tipbench.api.jobs import Started, started
from tipbench.compare.recommendation import Preferences
from tipbench.judge.scoring import parse_weights
from tipbench.records import ExperimentSummary
from tipbench.workflows.browse import experiments
from tipbench.workflows.estimate import check_collection, estimate
from tipbench.workflows.hosts import installed_models
from tipbench.workflows.run_views import Wanted, page_of_runs, run_in_full

if TYPE_CHECKING:
    from tipbench.records import Event

    RunRequest = BaseModel
else:
    RunRequest = run_request()


def _ignore(_event: Event) -> None:
    """Drop a notice: the job repeats it in its own events."""


router = APIRouter(
    prefix="/api/bench", tags=["bench"], route_class=GuardedRoute, responses=documented(404, 422, 503)
)
_MOST_PAGES = 1_000_000


class Experiment(BaseModel):
    """An experiment in numbers. `url` is its page in MLflow, where there is a server."""

    name: str
    suite: str
    rubric: str
    done: int
    failed: int = Field(description="cells that failed in the engine; their count is not `n_failed`")
    pending: int = Field(description="cells that wait for a judge")
    judged: int = Field(description="candidates with scores, as the leaderboard counts them")
    judged_share: float | None = Field(description="of the cells that are done; null where there are none")
    newest_ms: int | None
    url: str | None


class InstalledModel(BaseModel):
    """A model that the host has. `too_large` says why it would be refused, null where it would not."""

    name: str
    parameters: int | None
    size_bytes: int
    too_large: str | None
    resident: bool


class ModelPlan(BaseModel):
    name: str
    digest: str
    parameters: int | None
    cells: int
    minutes: float
    needs_bytes: int
    measured: bool


class LongPromptAnswer(BaseModel):
    """A prompt that with its reply comes near the context length, or passes it. `tokens` is an estimate."""

    prompt: str
    scenario: str
    tokens: int
    num_predict: int
    num_ctx: int
    model: str = Field(description="the model whose own context length this is, else empty")


class PowerAnswer(BaseModel):
    """What the planned leaderboard will be able to tell, in points."""

    n_scenarios: int
    n_variants: int
    detectable: float | None
    more_scenarios: int
    with_more: float
    basis: str


class Plan(BaseModel):
    """What a collection would take. `notices` are remarks made on the way."""

    experiment: str
    cells: int
    skipped: int
    calls: int
    minutes: float
    basis: str
    peak_bytes: int
    free_bytes: int
    models: list[ModelPlan]
    long_prompts: list[LongPromptAnswer]
    power: PowerAnswer | None
    notices: list[str]


class RunSummary(BaseModel):
    """A cell without its long texts. `judged` is null where it holds nothing to judge."""

    run_id: str
    key: str
    status: str
    model: str
    digest: str
    parameters: int | None
    prompt_id: str
    scenario_id: str
    repeat: int
    n_tips: int
    suite_id: str
    rubric_id: str
    host: str
    host_kind: str
    host_version: str
    machine: str = Field(description="empty for a host whose address says which machine it is")
    hardware: str = Field(description="of the machine, where it is known")
    vram_share: float | None = Field(description="how much of the model was in the memory of graphics cards")
    how: str
    cut: str | None
    error: str | None
    judge_pending: bool
    judged: bool | None
    started_ms: int
    n_candidates: int
    marks: list[str] = Field(description="engine faults and other facts that a reader of the numbers needs")
    size_assumed: str = Field(description="option or tag where the host did not give the size, else empty")
    overlong_by: str = Field(description="who set the metric `overlong`: code, or judges by tip")
    metrics: dict[str, float | None]


class RunPage(BaseModel):
    """Cells that match, oldest first; pages are counted from 1."""

    total: int
    page: int
    size: int
    runs: list[RunSummary]


class VerdictAnswer(BaseModel):
    """One judge's scores; `counts` is false for one that was given under an earlier rubric."""

    judge: str
    kind: str
    batch: str
    at_ms: int
    scores: dict[str, float]
    overlong: bool | None
    note: str
    adjudicated: bool
    counts: bool


class CandidateAnswer(BaseModel):
    text: str
    overlong: bool = Field(description="the flag that counts: the judges' if they set one, else the code's")
    overlong_by: str = Field(description="code, or the names of the judges who set the flag")
    verdicts: list[VerdictAnswer]


class RunInFull(BaseModel):
    """A cell with its prompt as sent, its raw reply, the rubric of its scores, and the judges' verdicts."""

    run: RunSummary
    prompt: str
    raw: str
    rubric: str
    candidates: list[CandidateAnswer]


class LeaderboardAnswer(BaseModel):
    """The object that `tipbench compare --format json` prints."""

    model_config = ConfigDict(extra="allow")

    title: str
    made_ms: int
    rubric: str
    ground: str | None
    first: list[str] = Field(description="what must be known before the ranking is believed")
    rows: list[dict[str, Any]]
    winner: dict[str, str] | None
    recommended: dict[str, str] | None
    sentences: list[str]
    notes: list[str]
    exploration: dict[str, Any] | None
    baseline: dict[str, Any] | None
    self_check: dict[str, Any] | None


@router.get("/options")
def options(service: TheService, _who: Admin) -> list[SettingRow]:
    """What a collection can be told, with this service's defaults."""
    return setting_rows(service)


@router.get("/models")
def models(service: TheService, _who: Admin, ollama_url: str | None = None) -> list[InstalledModel]:
    """The models that are installed on a host."""
    settings = checked_settings(service, {"ollama_url": (ollama_url or "").strip() or None})
    return [InstalledModel(**asdict(one)) for one in installed_models(settings)]


@router.post("/estimate", responses=documented(409))
def dry_run(service: TheService, _who: Admin, body: RunRequest) -> Plan:
    """What a collection would take; nothing is generated."""
    notices: list[str] = []

    def listen(event: Event) -> None:
        if event["event"] == "notice":
            notices.append(str(event["message"]))

    plan = estimate(collection_settings(service, body.model_dump()), emit=listen)
    return Plan(**plan.as_json(), notices=notices)


@router.post("/run", status_code=202, responses=documented(409))
def run(service: TheService, who: Admin, body: RunRequest) -> Started:
    """Start a collection. Refuses what `estimate` refuses. 409 names the job that uses the host."""
    settings = collection_settings(service, body.model_dump())
    check_collection(settings, emit=_ignore)
    return started(service, who, service.jobs.start_collect(settings, by=who.name))


@router.get("/experiments")
def list_experiments(service: TheService, _who: Admin) -> list[Experiment]:
    """The experiments that hold cells, the newest first."""
    return [_experiment(one) for one in experiments(service.settings())]


def _experiment(one: ExperimentSummary) -> Experiment:
    return Experiment(
        name=one.name,
        suite=one.suite_id,
        rubric=one.rubric_id,
        done=one.done,
        failed=one.failed,
        pending=one.pending,
        judged=one.judged,
        judged_share=(one.done - one.pending) / one.done if one.done else None,
        newest_ms=one.newest_ms,
        url=one.url,
    )


@router.get("/runs/{experiment}")
def list_runs(
    service: TheService,
    _who: Admin,
    experiment: ExperimentName,
    *,
    model: str | None = None,
    prompt: str | None = None,
    scenario: str | None = None,
    judged: bool | None = None,
    page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1,
    size: Annotated[int, Query(ge=1, le=500)] = 50,
) -> RunPage:
    """The cells of an experiment, a page at a time."""
    wanted = Wanted(model=model, prompt=prompt, scenario=scenario, judged=judged)
    settings = experiment_settings(service, experiment)
    return RunPage.model_validate(page_of_runs(settings, wanted, page=page, size=size))


@router.get("/runs/{experiment}/{run}")
def one_run(service: TheService, _who: Admin, experiment: ExperimentName, run: str) -> RunInFull:
    """One cell with its candidates, its texts and its verdicts. The beginning of its id will do."""
    return RunInFull.model_validate(run_in_full(experiment_settings(service, experiment), run))


@router.get(
    "/leaderboard/{experiment}",
    response_model=LeaderboardAnswer,
    responses={304: {"description": "nothing has changed"}, **documented(409)},
)
def leaderboard(
    service: TheService,
    _who: Admin,
    experiment: ExperimentName,
    *,
    ground: Literal["human", "agent", "ai", "proxy"] | None = None,
    insist: bool = False,
    max_latency_ms: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    weights: Annotated[str | None, Query(description="such as relevance=2,tone=0.5")] = None,
    accept_loss: Annotated[
        float | None,
        Query(
            ge=0, allow_inf_nan=False, description="points worse than the best; 5 % of the scale if missing"
        ),
    ] = None,
    cost: Annotated[
        Literal["parameters", "seconds", "memory"], Query(description="what makes a variant cheap")
    ] = "parameters",
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """What was judged, ranked. 409 where only a judge that is not trusted has judged: see `insist`."""
    name = experiment_settings(service, experiment).experiment
    report = service.report(
        name,
        ground=ground,
        insist=insist,
        max_latency_ms=max_latency_ms,
        weights=None if weights is None else parse_weights(weights),
        preferences=Preferences(accept_loss=accept_loss, cost=cost),
    )
    told = report.as_dict()
    tag = _tag({**told, "made_ms": None})
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in [one.strip() for one in if_none_match.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(json.dumps(told), media_type="application/json", headers=headers)


def _tag(told: dict[str, Any]) -> str:
    return f'W/"{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]}"'
