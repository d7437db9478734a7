"""Whether the service is alive, and whether what it needs is."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.errors import documented
from tipbench.workflows.doctor import examine

router = APIRouter(tags=["health"], route_class=GuardedRoute)
alive = APIRouter(tags=["health"], route_class=GuardedRoute)
_SHOWN = ("tipbench", "mlflow-skinny", "fastapi", "uvicorn", "ollama", "xllamacpp")


class Alive(BaseModel):
    status: Literal["ok"]


class FindingAnswer(BaseModel):
    """One thing that was looked at; `fix` is what to do, empty where there is nothing to do."""

    name: str
    state: Literal["ok", "warn", "bad"]
    detail: str
    fix: str = Field(examples=["ollama serve"])


@alive.get("/health")
async def health() -> Alive:
    """The service answers. It looks at nothing else."""
    return Alive(status="ok")


@router.get("/api/health", responses=documented(503))
def full_health(service: TheService, _who: Admin) -> list[FindingAnswer]:
    """Ollama, MLflow, disk, memory, versions: each with a state and what to do."""
    findings = [FindingAnswer(**asdict(one)) for one in examine(service.settings())]
    return [*findings, FindingAnswer(name="versions", state="ok", detail=_versions(), fix="")]


def _versions() -> str:
    return ", ".join(f"{name} {found}" for name in _SHOWN if (found := _version(name)))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
