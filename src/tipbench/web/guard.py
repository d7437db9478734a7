"""Who may see a page, and what they see where something is wrong."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from tipbench.errors import BadInput, CheckFailed, NotFound, TipbenchError, Unavailable
from tipbench.web.render import address, page
from tipbench.workflows.access import NotAllowed, Principal, Role

TITLES = {
    401: "Log in first",
    403: "Not for you",
    404: "Nothing here",
    405: "Not like that",
    409: "Not now",
    422: "That does not fit",
    503: "Out of reach",
}
_STATUS: tuple[tuple[type[TipbenchError], int], ...] = (
    (NotFound, 404),
    (BadInput, 422),
    (CheckFailed, 409),
    (Unavailable, 503),
)
_SENTENCES = {
    404: "there is no page at this address",
    405: "this address is not used in this way",
    422: "the address asks for something that cannot be",
    500: "something went wrong in the service; its log says what",
}
# What is not for people: its errors are told by the API.
_PROGRAMS = (
    "/api",
    "/health",
    "/openapi.json",
    "/static",
    "/score",
    "/reward",
    "/recommend",
    "/stats",
    "/reset",
    "/signals",
)

Handler = Callable[[Request, Any], Response | Awaitable[Response]]


def need(*roles: Role) -> Any:  # noqa: ANN401 - a default that FastAPI replaces by a Principal
    """For the default of a page's argument: whoever asks, who must have one of these roles."""

    def found(request: Request) -> Principal:
        who: Principal | None = request.state.principal
        if who is None:
            raise NotAllowed("log in to see this page", status=401)
        if who.role not in roles:
            raise NotAllowed(f"the token of a {who.role} does not open this page", status=403)
        return who

    return Depends(found)


def handle_errors(app: FastAPI) -> None:
    """Let errors of pages be pages. Errors of all else stay with who told them before."""
    for kind in (TipbenchError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _told_by(app.exception_handlers.get(kind)))


def _told_by(before: Handler | None) -> Handler:
    async def told(request: Request, error: Exception) -> Response:
        if before is None or not _is_program(request):
            return refusal(request, error)
        answer = before(request, error)
        return await answer if inspect.isawaitable(answer) else answer

    return told


def _is_program(request: Request) -> bool:
    path = request.url.path
    return any(path == one or path.startswith(f"{one}/") for one in _PROGRAMS)


def refusal(request: Request, error: Exception) -> Response:
    """The page for an error; one that needs a login leads there and back."""
    status = _status(error)
    if status == 401 and request.method == "GET":
        path = quote(request.scope["path"]) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(address("login", next="" if path == "/" else path), status_code=303)
    message = str(error) if isinstance(error, TipbenchError) else _SENTENCES.get(status, _SENTENCES[500])
    return page(
        request,
        "error.html.j2",
        status=status,
        title=TITLES.get(status, "Something went wrong"),
        sentence=as_sentence(message),
    )


def as_sentence(text: str) -> str:
    """With a capital and a full stop; an address or a name at its beginning stays as it is written."""
    word = re.match(r"[a-z]+(?=[\s,;'’]|:\s|$)", text)
    return f"{text[:1].upper() if word else text[:1]}{text[1:].rstrip('.')}."


def _status(error: Exception) -> int:
    if isinstance(error, NotAllowed):
        return error.status
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RequestValidationError):
        return 422
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
