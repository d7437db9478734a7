"""The API as people read it: made from the same OpenAPI that programs get."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tipbench.web import prose
from tipbench.web.api_sheet import operations_of
from tipbench.web.guard import need
from tipbench.web.render import page
from tipbench.workflows.access import Principal

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def docs(request: Request, _who: Principal = need("admin")) -> Response:
    """What programs can do, and with which words."""
    origin = str(request.base_url).rstrip("/")
    subjects = operations_of(request.app.openapi())
    return page(request, "docs.html.j2", subjects=subjects, origin=origin, inline=prose.code)
