"""The service's JSON API: each handler parses, calls one workflow, and answers with plain values."""

from __future__ import annotations

from fastapi import APIRouter

from tipbench.api import bench, health, hooks, jobs, judging, tokens
from tipbench.api.errors import error_response, handle_errors, refused
from tipbench.api.hooks import background

__all__ = ["background", "error_response", "handle_errors", "refused", "routers"]


def routers() -> list[APIRouter]:
    return [module.router for module in (health, tokens, bench, jobs, judging, hooks)]
