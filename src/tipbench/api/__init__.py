"""The service's JSON API: each handler parses, calls one workflow, and answers with plain values."""

from __future__ import annotations

from fastapi import APIRouter

from tipbench.api import (
    airflow,
    bench,
    description,
    health,
    hooks,
    jobs,
    judging,
    policies,
    tip_reports,
    tokens,
)
from tipbench.api.errors import error_response, handle_errors
from tipbench.api.hooks import background
from tipbench.api.tip_description import describe_tips
from tipbench.api.tips import TIP_PATHS, Door, TipRoutes

__all__ = [
    "TIP_PATHS",
    "Door",
    "TipRoutes",
    "airflow_routers",
    "background",
    "describe_tips",
    "error_response",
    "handle_errors",
    "routers",
    "tip_routers",
]


def tip_routers() -> list[APIRouter]:
    """What is served beside the tip routes where nothing but tips is."""
    return [health.alive, tip_reports.router]


def airflow_routers() -> list[APIRouter]:
    """What is served beside all else where there is an Airflow."""
    return [airflow.router]


def routers() -> list[APIRouter]:
    modules = (health, description, tokens, bench, jobs, judging, policies, hooks)
    return [*tip_routers(), *(module.router for module in modules)]
