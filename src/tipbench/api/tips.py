"""The routes that an app calls for every tip: a bare ASGI application that stands before the rest.

A decision takes some 20 µs and a framework's way to a handler ten times that, so these few routes are found
by their path, and decoded and encoded without one. Everything else goes on to the rest of the service.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tipbench.api.bodies import JsonBody, tip_body
from tipbench.api.errors import error_response
from tipbench.bandit.asked import RecommendRequest, RewardRequest, ScoreRequest
from tipbench.bandit.asks import Score
from tipbench.errors import NotFound, TipbenchError
from tipbench.workflows.access import NotAllowed, check_host, check_origin
from tipbench.workflows.service_state import Service, now_ms
from tipbench.workflows.tip_desk import ROUTES, TipDesk

Headers: TypeAlias = list[tuple[bytes, bytes]]

TIP_PATHS = (
    "/recommend",
    "/reward",
    *(f"/score/{route}" for route in ROUTES),
    *(f"/reward/{route}" for route in ROUTES),
)
_NEARLY = ("/score", "/reward", "/recommend")
_ROLES = frozenset({"service", "admin"})
_REMEMBERED_S = 1.0
_MOST_REMEMBERED = 1000
# Sent by whoever refuses; the other headers are those of every answer.
_OWN_WORDS = ("www-authenticate", "retry-after")


class Door:
    """Checks requests to the serving routes: a service's or an admin's token, or none on this machine."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._hosts: set[str] = set()
        self._known: dict[str, float] = {}

    def check(self, scope: Scope) -> None:
        """Raise NotAllowed, with the reason, if the caller may not use the serving routes."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self._hosts:
            check_host(host, allowed=self._service.config.known_as)
            if len(self._hosts) >= _MOST_REMEMBERED:
                self._hosts.clear()
            self._hosts.add(host)
        if b"origin" in headers or b"sec-fetch-site" in headers:
            _check_page(headers, host)
        given = headers.get(b"authorization", b"").decode("latin-1")
        if given or self._service.needs_token(scope):
            self._check_token(given)

    def _check_token(self, given: str) -> None:
        """Accept a token that was right a moment ago: the database takes longer than the decision."""
        now = time.monotonic()
        if self._known.get(given, 0.0) > now:
            return
        principal = self._service.access.principal(authorization=given, cookie="", now_ms=now_ms())
        if principal is None:
            raise NotAllowed("send a service's token: Authorization: Bearer TOKEN", status=401)
        if principal.role not in _ROLES:
            raise NotAllowed(f"this is for service and admin, not for {principal.role}", status=403)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[given] = now + _REMEMBERED_S


def _check_page(headers: Mapping[bytes, bytes], host: str) -> None:
    check_origin(
        origin=headers.get(b"origin", b"").decode("latin-1"),
        referer=headers.get(b"referer", b"").decode("latin-1"),
        fetch_site=headers.get(b"sec-fetch-site", b"").decode("latin-1"),
        host=host,
        must_say=False,
    )


class TipRoutes:
    """The tip routes in front of another application, which gets whatever is not theirs."""

    def __init__(self, app: ASGIApp, *, desk: TipDesk, door: Door, headers: Mapping[str, str]) -> None:
        self._rest = app
        self._desk = desk
        self._door = door
        self._headers = [(b"content-type", b"application/json")]
        self._headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._handlers: dict[str, Callable[[bytes], Awaitable[msgspec.Struct]]] = {
            "/recommend": self._recommend,
            "/reward": partial(self._reward, None),
            **{f"/score/{route}": partial(self._score, policy) for route, policy in ROUTES.items()},
            **{f"/reward/{route}": partial(self._reward, policy) for route, policy in ROUTES.items()},
        }
        self._score_body = JsonBody(ScoreRequest)
        self._reward_body = JsonBody(RewardRequest)
        self._recommend_body = JsonBody(RecommendRequest)
        self._encode = msgspec.json.Encoder().encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" else None
        if handler is None:
            await self._pass_on(scope, receive, send)
            return
        try:
            _check_method(scope["method"])
            self._door.check(scope)
            body = await tip_body(receive)
            await self._desk.opened()
            answer = self._encode(await handler(body))
        except (TipbenchError, ClientDisconnect) as error:
            await self._refuse(error, send)
            return
        except Exception as error:
            await self._refuse(error, send)
            raise
        await self._answer(200, answer, self._headers, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_NEARLY):
            there = ", ".join(self._handlers)
            await self._refuse(NotFound(f"there is no {scope['path'][:100]}; there are {there}"), send)
            return
        await self._rest(scope, receive, send)

    async def _score(self, policy: str, body: bytes) -> msgspec.Struct:
        return await self._desk.counter.ask(Score(policy=policy, request=self._score_body.read(body)))

    async def _reward(self, policy: str | None, body: bytes) -> msgspec.Struct:
        return await self._desk.reward(policy, self._reward_body.read(body))

    async def _recommend(self, body: bytes) -> msgspec.Struct:
        return await self._desk.recommend(self._recommend_body.read(body))

    async def _answer(self, status: int, body: bytes, headers: Headers, send: Send) -> None:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _refuse(self, error: Exception, send: Send) -> None:
        told = error_response(error)
        headers = [
            *self._headers,
            *((name.encode(), told.headers[name].encode()) for name in _OWN_WORDS if name in told.headers),
        ]
        if told.status_code == 405:
            headers.append((b"allow", b"POST"))
        await self._answer(told.status_code, bytes(told.body), headers, send)


def _check_method(method: str) -> None:
    if method != "POST":
        raise NotAllowed("this is asked with POST", status=405)
