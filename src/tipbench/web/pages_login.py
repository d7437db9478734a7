"""Log in and log out. A token is traded for a cookie; the pages never see the token again.

The cookie is SameSite=Lax, so that a link in a mail opens its page. Changes check Origin and Sec-Fetch-Site.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from tipbench.web.guard import as_sentence
from tipbench.web.render import page
from tipbench.workflows.access import COOKIE, SESSION_MS, NotAllowed, Principal
from tipbench.workflows.service_state import Service, now_ms

router = APIRouter(include_in_schema=False)

_LONGEST = 2000


@router.get("/")
def start(request: Request) -> Response:
    who: Principal | None = request.state.principal
    return RedirectResponse("/judge" if who and who.role == "judge" else "/experiments", status_code=303)


@router.get("/login")
def login(request: Request, next: str = "") -> Response:  # noqa: A002 - the word in the address
    """The form; whoever is logged in already goes on."""
    if request.state.principal:
        return RedirectResponse(own_address(next), status_code=303)
    return page(request, "login.html.j2", next=next, problem="")


@router.post("/login")
def log_in(
    request: Request,
    token: Annotated[str, Form(max_length=_LONGEST)] = "",
    next: Annotated[str, Form(max_length=_LONGEST)] = "",  # noqa: A002 - as above
) -> Response:
    """Trade the token for a cookie, or show the form again with what is wrong."""
    service: Service = request.app.state.service
    address = request.client.host if request.client else ""
    try:
        principal, cookie = service.access.log_in(token, address=address, now_ms=now_ms())
    except NotAllowed as error:
        # Whoever is kept out for a while could fill the log by going on.
        if error.status != 429:
            service.audit(None, "login.refused", detail=str(error), ip=address)
        refused = page(
            request, "login.html.j2", status=error.status, next=next, problem=as_sentence(str(error))
        )
        if error.retry_after_s:
            refused.headers["retry-after"] = str(error.retry_after_s)
        return refused
    service.audit(principal, "login")
    answer = RedirectResponse(own_address(next), status_code=303)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=SESSION_MS // 1000,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    service: Service = request.app.state.service
    if request.state.principal is not None:
        service.access.log_out(request.state.principal, now_ms=now_ms())
        service.audit(request.state.principal, "logout")
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="lax")
    return answer


def own_address(asked: str) -> str:
    """A path of this service; anything else would lead people elsewhere after they logged in."""
    plain = asked.startswith("/") and asked.isprintable()
    return asked if plain and not asked.startswith("//") and "\\" not in asked else "/"
