"""The service as one ASGI application: the API and the pages, behind the same checks."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from tipbench import api, web
from tipbench.engine.lock import is_loopback
from tipbench.errors import BadInput, Unavailable
from tipbench.workflows.access import COOKIE, NotAllowed, check_host, check_origin
from tipbench.workflows.service_state import Service, now_ms
from tipbench.workflows.tokens import create_first_token, os_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from fastapi import Request, Response

    from tipbench.workflows.service_state import ServiceConfig

LARGEST_BODY = 25_000_000
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def create_app(service: Service) -> FastAPI:
    """The application over a service; nothing is started but what a request asks for."""
    app = FastAPI(
        title="tipbench",
        summary="Which small local model and which prompt should I ship?",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan,
    )
    app.state.service = service
    for router in (*api.routers(), *web.routers()):
        app.include_router(router)
    web.mount_static(app)
    api.handle_errors(app)
    web.handle_errors(app)
    app.middleware("http")(_guard)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """See what became of the jobs of an earlier service; deliver webhooks for as long as this one runs."""
    service: Service = app.state.service
    service.jobs.reconcile()
    async with api.background(service):
        yield


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every request passes here: whose name is used, who is asking, and from which page."""
    try:
        _check(request)
    except NotAllowed as refusal:
        response: Response = api.refused(request, refusal)
    else:
        response = await call_next(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.state.principal is not None and "cache-control" not in response.headers:
        response.headers["Cache-Control"] = "private, no-cache"
    return response


def _check(request: Request) -> None:
    service: Service = request.app.state.service
    request.state.principal = None
    host = request.headers.get("host", "")
    check_host(host, allowed=service.config.known_as)
    length = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers and not length:
        raise NotAllowed("a request must say how long it is (Content-Length)", status=411)
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise NotAllowed(f"a request may hold {LARGEST_BODY // 1_000_000} MB at most", status=413)
    request.state.principal = service.access.principal(
        authorization=request.headers.get("authorization", ""),
        cookie=request.cookies.get(COOKIE, ""),
        now_ms=now_ms(),
    )
    principal = request.state.principal
    by_cookie = principal is None or principal.via == "cookie"
    if request.method not in _SAFE and by_cookie and _by_browser(request):
        check_origin(
            origin=request.headers.get("origin", ""),
            referer=request.headers.get("referer", ""),
            fetch_site=request.headers.get("sec-fetch-site", ""),
            host=host,
        )


def _by_browser(request: Request) -> bool:
    """Whether a browser may have been made to send this: only what carries a cookie, or asks for one."""
    return bool(request.cookies.get(COOKIE)) or request.url.path == "/login"


def main(config: ServiceConfig, *, exposed: bool) -> None:
    """Serve until stopped. The first start makes an admin token and shows it once."""
    service = Service(config)
    check_reach(config.host, exposed=exposed, has_token=bool(service.store.tokens.list()))
    with _listening(config) as listening:
        _first_token(service)
        _say(f"tipbench is at http://{_shown(config.host)}:{listening.getsockname()[1]}")
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(service), log_level="warning", server_header=False, timeout_graceful_shutdown=3
            )
        )
        server.run(sockets=[listening])


def _listening(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {_shown(config.host)}:{config.port} ({error.strerror}); choose another --port"
        ) from None
    # asyncio does this only for sockets that name their protocol, which this one does not; without it the end
    # of every answer waits 40 ms for the client to say that it has seen the beginning.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def check_reach(host: str, *, exposed: bool, has_token: bool) -> None:
    """Refuse to be reached from elsewhere unless that was spelled out and there is a token to ask for."""
    if is_loopback(f"http://{_shown(host)}"):
        return
    if not exposed:
        raise BadInput(f"--host {host} lets other machines in; if you mean it, add --expose-to-the-network")
    if not has_token:
        raise BadInput(f"--host {host} needs a token first: tipbench token create --role admin --name NAME")


def _first_token(service: Service) -> None:
    plain = create_first_token(service.store, by=os_user())
    if plain is not None:
        _say("This admin token is shown once; log in with it, and keep it:")
        _say(plain)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what the person who starts it must see
