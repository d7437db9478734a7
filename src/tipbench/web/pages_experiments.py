"""The list of experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from tipbench.compare import figures
from tipbench.text import without_login
from tipbench.web.guard import need
from tipbench.web.pages_jobs import at_work
from tipbench.web.paging import paged
from tipbench.web.render import address, ago, page, part
from tipbench.workflows.access import Principal
from tipbench.workflows.browse import experiments
from tipbench.workflows.service_state import Service, now_ms

if TYPE_CHECKING:
    from tipbench.records import ExperimentSummary

router = APIRouter(include_in_schema=False)

_SIZE = 50


@dataclass(frozen=True, kw_only=True)
class ExperimentRow:
    """An experiment in the list: how much of it is judged, and how old it is."""

    name: str
    suite_id: str
    done: int
    failed: int
    newest_ms: int | None
    age: str
    percent: int
    judged_words: str
    waits: bool
    url: str | None


@router.get("/experiments")
def the_experiments(request: Request, number: int = 1, _who: Principal = need("admin")) -> Response:
    """Every experiment that holds cells, the newest first."""
    service: Service = request.app.state.service
    settings = service.settings()
    found = sorted(experiments(settings), key=lambda one: -(one.newest_ms or 0))
    paging = paged(found, number=number, size=_SIZE, link=lambda at: address("experiments", number=at))
    now = now_ms()
    return page(
        request,
        "experiments.html.j2",
        rows=[experiment_row(one, now) for one in paging.shown],
        paging=paging,
        ledger=without_login(settings.mlflow_url) or "the embedded store",
        running=at_work(service),
        airflow=_airflow(service),
    )


def _airflow(service: Service) -> dict[str, str] | None:
    """What the dialog offers of Airflow, where there is one: the hosts that are known here."""
    if not service.config.airflow_url:
        return None
    known = dict.fromkeys(without_login(url) for url in service.config.ollama_urls)
    return {"hosts": ", ".join(known)}


def experiment_row(one: ExperimentSummary, now: int) -> ExperimentRow:
    judged = one.done - one.pending
    words = f"{one.pending} of {figures.count(one.done, 'cell')} to judge" if one.done else "nothing to judge"
    words += f", {one.judged} judged" if one.judged else ""
    return ExperimentRow(
        name=one.name,
        suite_id=one.suite_id,
        done=one.done,
        failed=one.failed,
        newest_ms=one.newest_ms,
        age=ago(one.newest_ms, now),
        percent=part(judged, one.done),
        judged_words=f"all judged ({one.judged})" if one.done and not one.pending else words,
        waits=one.pending > 0,
        url=one.url,
    )
