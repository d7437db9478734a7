"""The pages: an address for each, made on the server; scripts only where something moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.web import (
    assets,
    pages_docs,
    pages_experiment,
    pages_experiments,
    pages_jobs,
    pages_judge,
    pages_login,
    pages_policies,
    pages_run,
    pages_system,
)
from tipbench.web.guard import handle_errors

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

__all__ = ["handle_errors", "mount_static", "routers"]


def routers() -> list[APIRouter]:
    """All pages."""
    pages = (
        pages_login,
        pages_experiments,
        pages_experiment,
        pages_run,
        pages_jobs,
        pages_judge,
        pages_policies,
        pages_system,
        pages_docs,
    )
    return [page.router for page in pages]


def mount_static(app: FastAPI) -> None:
    """The files that pages load."""
    app.include_router(assets.router)
