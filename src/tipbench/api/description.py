"""The API told to programs: its OpenAPI, for whoever may use it. People read the same at /docs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from tipbench.api.access import Admin, GuardedRoute

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)


@router.get("/openapi.json")
def openapi(request: Request, _who: Admin) -> dict[str, Any]:
    """The OpenAPI of this service."""
    described: dict[str, Any] = request.app.openapi()
    return described
