"""A collection on a team's Airflow: there only where the service was started with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.errors import documented
from tipbench.api.fields import airflow_request, airflow_settings
from tipbench.api.jobs import Started, started

if TYPE_CHECKING:
    from pydantic import BaseModel

    AirflowRequest = BaseModel
else:
    AirflowRequest = airflow_request()

router = APIRouter(
    prefix="/api/bench", tags=["bench"], route_class=GuardedRoute, responses=documented(404, 422, 503)
)


@router.post("/run-on-airflow", status_code=202)
def run_on_airflow(service: TheService, who: Admin, body: AirflowRequest) -> Started:
    """Start a collection on Airflow and follow it: the job tells how its DAG run fares."""
    settings, asked = airflow_settings(service, body.model_dump())
    return started(service, who, service.jobs.start_on_airflow(settings, asked, by=who.name))
