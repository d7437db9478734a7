"""The service as one ASGI application: the API and the pages, behind the same checks."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders

from tipbench import api, web
from tipbench.api.connections import LimitedProtocol, Limits
from tipbench.bandit.opening import check_place
from tipbench.compare.figures import count
from tipbench.errors import BadInput, Interrupted, TipbenchError, Unavailable
from tipbench.workflows.access import COOKIE, NotAllowed, check_fetch_site, check_host, check_origin
from tipbench.workflows.service_state import Service, is_exposed, now_ms
from tipbench.workflows.serving_state import location
from tipbench.workflows.tokens import create_first_token, os_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import FrameType

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tipbench.workflows.service_state import ServiceConfig

LARGEST_BODY = 25_000_000
_LARGEST_LOGIN = 100_000
_LAST_ANSWERS_S = 3.0
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL)
_COLLECT_AT = (10_000, 20, 100)
_OPEN_ROUTES = (
    "Programs on this machine need no token for /recommend, /score, /reward, /stats, /signals and /reset. "
    "Behind a proxy, start with --require-token."
)
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
_TIP_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(service: Service, *, only_tips: bool = False) -> FastAPI:
    """The application over a service; nothing is started but what a request asks for."""
    app = _Application(
        title="tipbench",
        summary="Which small local model and which prompt should I ship?",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_tips_lifespan if only_tips else _lifespan,
    )
    app.state.service = service
    on_airflow = api.airflow_routers() if service.config.airflow_url else []
    for router in api.tip_routers() if only_tips else (*api.routers(), *on_airflow, *web.routers()):
        app.include_router(router)
    api.handle_errors(app)
    if not only_tips:
        web.mount_static(app)
        web.handle_errors(app)
    app.add_middleware(_Guard)
    app.tips = api.TipRoutes(app.rest, desk=service.desk, door=api.Door(service), headers=_TIP_HEADERS)
    api.describe_tips(app)
    return app


class _Application(FastAPI):
    """Tips are served before anything of the framework runs: that would cost more than the tip."""

    tips: api.TipRoutes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.tips(scope, receive, send)

    async def rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """See what became of the jobs of an earlier service; deliver webhooks for as long as this one runs."""
    service: Service = app.state.service
    service.jobs.reconcile()
    async with api.background(service), _tips_lifespan(app):
        yield


@asynccontextmanager
async def _tips_lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Jobs and webhooks belong to the service that has them, which may run beside this one."""
    yield
    await run_in_threadpool(app.state.service.desk.stop)


class _Guard:
    """Every request passes here: whose name is used, who is asking, and from which page.

    What is sent is passed on as it is: Starlette's own kind of middleware hands every piece of a stream from
    one task to another, which for many who watch costs more than all the rest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message), request)
            await send(message)

        await self._answering(request)(scope, receive, send_with_headers)

    def _answering(self, request: Request) -> ASGIApp:
        request.state.principal = None
        try:
            if request.scope["path"] != "/health":
                _check(request)
        except TipbenchError as refusal:
            return api.error_response(refusal)
        return self._app


def _add_headers(headers: MutableHeaders, request: Request) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    if request.state.principal is not None and "cache-control" not in headers:
        headers["Cache-Control"] = "private, no-cache"


def _check(request: Request) -> None:
    service: Service = request.app.state.service
    host = request.headers.get("host", "")
    check_host(host, allowed=service.config.known_as)
    _check_length(request)
    request.state.principal = service.access.principal(
        authorization=request.headers.get("authorization", ""),
        cookie=request.cookies.get(COOKIE, ""),
        now_ms=now_ms(),
        ip=request.client.host if request.client else "",
    )
    _check_where_from(request, host)


def _check_length(request: Request) -> None:
    length = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers and not length:
        raise NotAllowed("a request must say how long it is (Content-Length)", status=411)
    most = _LARGEST_LOGIN if request.scope["path"] == "/login" else LARGEST_BODY
    if length.isdecimal() and int(length[:20]) > most:
        raise NotAllowed(f"a request may hold {most / 1_000_000:g} MB at most", status=413)


def _check_where_from(request: Request, host: str) -> None:
    """A change must not come from another's page; nor, with a cookie, a question to the API."""
    fetch_site = request.headers.get("sec-fetch-site", "")
    if request.method not in _SAFE:
        check_origin(
            origin=request.headers.get("origin", ""),
            referer=request.headers.get("referer", ""),
            fetch_site=fetch_site,
            host=host,
            must_say=_by_browser(request),
        )
    elif _by_browser(request) and request.scope["path"].startswith("/api/"):
        check_fetch_site(fetch_site)


def _by_browser(request: Request) -> bool:
    """Whether a browser may have been made to send this: only what counts by its cookie, or asks for one."""
    principal = request.state.principal
    if principal is not None and principal.via == "bearer":
        return False
    return bool(request.cookies.get(COOKIE)) or request.scope["path"] == "/login"


def main(
    config: ServiceConfig, *, exposed: bool, only_tips: bool = False, limits: Limits | None = None
) -> None:
    """Serve until stopped. The first start makes an admin token and shows it once."""
    # The addresses that may be reached are on a list; where one of them leads to is not.
    os.environ.setdefault("MLFLOW_ALLOW_HTTP_REDIRECTS", "false")
    check_place(location())  # what can be no place for the tips is told now, not to everybody who asks
    service = Service(config)
    check_reach(config.host, exposed=exposed, has_token=bool(service.store.tokens.list()))
    with _listening(config) as listening:
        if only_tips:
            _ = service.desk.now  # there is nothing else to serve: what cannot be read is told now
        address = f"http://{_shown(config.host)}:{listening.getsockname()[1]}"
        server_config = uvicorn.Config(
            create_app(service, only_tips=only_tips),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            loop="uvloop",
            http=LimitedProtocol.with_limits(limits or Limits()),
            ws="none",
            # Without this, any caller on this machine could forge an address for each wrong login.
            proxy_headers=config.behind_proxy,
        )
        _rarely_collect()
        _Server(server_config, service, address=address, only_tips=only_tips).run(sockets=[listening])


def _rarely_collect() -> None:
    """Look for garbage less often, and not among what is there to stay.

    Everybody waits while Python looks through all that is remembered of users, and there is next to nothing
    to be found: what serving leaves behind goes away by itself.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AT)


class _Server(uvicorn.Server):
    """Ends the streams as soon as it is told to end: those who watch a job would watch for ever.

    Where it is found is said when it answers, and can be told to end: a Ctrl-C before that may be lost.
    """

    def __init__(self, config: uvicorn.Config, service: Service, *, address: str, only_tips: bool) -> None:
        super().__init__(config)
        self._service = service
        self._address = address
        self._only_tips = only_tips

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM is how a service is told to end, and is not raised again as an interruption at the end."""
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _first_token(self._service, only_tips=self._only_tips)
            open_routes = f"\n{_OPEN_ROUTES}" if self._service.config.serves_without_token else ""
            _say(f"tipbench is at {self._address}{open_routes}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.jobs.stop_watching()
        self._service.desk.end_streams()
        for server in self.servers:
            server.close()
        late = await self._late()
        if late:
            # They wait in threads for somebody who does not answer, and Python would wait for them.
            await self._leave(f"; {count(late, 'request')} had no answer yet")
        await super().shutdown(sockets)
        if self.force_exit:  # by a second Ctrl-C: uvicorn has not told the rest of us to end
            await self._leave()

    async def _leave(self, why: str = "") -> NoReturn:
        print(f"tipbench: interrupted{why}", file=sys.stderr, flush=True)  # noqa: T201
        await self._put_away()
        os._exit(Interrupted.exit_code)

    async def _put_away(self) -> None:
        """End what tips are made with, as far as that takes no time: a model must not stay in memory."""
        stopping = threading.Thread(target=self._service.desk.stop, daemon=True)
        stopping.start()
        await asyncio.to_thread(stopping.join, _LAST_ANSWERS_S)

    async def _late(self) -> int:
        """How many requests are not answered after a while."""
        tasks = list(self.server_state.tasks)
        return len((await asyncio.wait(tasks, timeout=_LAST_ANSWERS_S))[1]) if tasks else 0


def _listening(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise _not_heard(config, error) from None
    # asyncio does this only for sockets that name their protocol, which this one does not; without it the end
    # of every answer waits 40 ms for the client to say that it has seen the beginning.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _not_heard(config: ServiceConfig, error: OSError) -> Unavailable:
    """Why, and what to give instead: where an address is not this machine's, no other port helps."""
    said = str(error.strerror).partition(" (while")[0]  # Python repeats the address there
    instead = "choose another --port"
    if error.errno == errno.EADDRNOTAVAIL or error.errno in _NO_SUCH_NAME:
        instead = "give --host an address of this machine"
    return Unavailable(f"cannot listen on {_shown(config.host)}:{config.port} ({said}); {instead}")


def check_reach(host: str, *, exposed: bool, has_token: bool) -> None:
    """Refuse to be reached from elsewhere unless that was spelled out and there is a token to ask for."""
    if not is_exposed(host):
        return
    if not exposed:
        raise BadInput(f"--host {host} lets other machines in; if you mean it, add --expose-to-the-network")
    if not has_token:
        raise BadInput(f"--host {host} needs a token first: tipbench token create --role admin --name NAME")


def _first_token(service: Service, *, only_tips: bool) -> None:
    plain = create_first_token(service.store, by=os_user())
    if plain is not None:
        use = "send it to the API as 'Authorization: Bearer TOKEN'" if only_tips else "log in with it"
        _say(f"This admin token is shown once; {use}, and keep it:")
        _say(plain)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what the person who starts it must see
