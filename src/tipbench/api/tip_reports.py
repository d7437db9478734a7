"""How the serving half fares, what it served, and how a user is forgotten: nobody waits for these."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from tipbench.api.access import GuardedRoute, Need, TheService
from tipbench.api.bodies import JsonBody, tip_body
from tipbench.api.errors import BadFields, documented
from tipbench.api.tip_description import body_of
from tipbench.bandit.asked import ResetRequest
from tipbench.bandit.books import Entry
from tipbench.errors import Unavailable
from tipbench.workflows.access import NotAllowed, Principal
from tipbench.workflows.tip_reports import forget, overview, policy_of, signal_of, statistics

router = APIRouter(tags=["tips"], route_class=GuardedRoute, responses=documented(404, 422, 503))
_QUIET_S = 5.0
_RETRY_MS = 2000
_LARGEST = 2**63 - 1


class TipCaller(Need):
    """The same rule as `Door` has: a service's or an admin's token, or none on this machine."""

    def check(self, request: Request) -> Principal | None:  # type: ignore[override]
        principal: Principal | None = request.state.principal
        if principal is not None and principal.role not in {"service", "admin"}:
            raise NotAllowed(f"this is for service and admin, not for {principal.role}", status=403)
        needs_token = request.app.state.service.needs_token(request.scope)
        if principal is None and (needs_token or request.headers.get("authorization")):
            raise NotAllowed("send a service's token: Authorization: Bearer TOKEN", status=401)
        return principal


Caller = Annotated[Principal | None, Depends(TipCaller())]
UserId = Annotated[str | None, Query(min_length=1, max_length=200, description="of one user only")]


_RESET_BODY = JsonBody(ResetRequest)


class ResetAnswer(BaseModel):
    reset: str


@router.get("/stats")
def stats(service: TheService, _who: Caller, user_id: UserId = None) -> dict[str, Any]:
    """Statistics of every policy, overall or of one user (404 for an unknown user); the active policy, the
    shadows, and the reasons why shipped tips are not fresh.
    """
    return overview(service.desk, _checked(user_id))


@router.get("/stats/{policy:path}")
def stats_of(service: TheService, _who: Caller, policy: str, user_id: UserId = None) -> dict[str, Any]:
    """Statistics and weights of one policy, overall or of one user, and how often shadows agreed.

    The answer is 404 for an unknown policy, and for a user without decisions and learned state.
    """
    return statistics(service.desk, policy_of(policy), _checked(user_id))


def _checked(user_id: str | None) -> str | None:
    if user_id is not None and "\0" in user_id:
        raise BadFields({"user_id": "holds a NUL character; leave it out"})
    return user_id


@router.post("/reset", openapi_extra=body_of(ResetRequest))
async def reset(service: TheService, who: Caller, request: Request) -> ResetAnswer:
    """Delete what every policy has learned from a user. Rewards for earlier decisions teach nothing."""
    body = _RESET_BODY.read(await tip_body(request.receive))
    if (body.user_id is None) is not body.everybody:
        raise BadFields({"user_id": 'name one user, or send "everybody": true'})
    ip = request.client.host if request.client else ""
    await service.desk.opened()
    await forget(service, who, user_id=body.user_id, ip=ip)
    return ResetAnswer(reset=body.user_id or "everybody")


@router.get(
    "/signals",
    response_class=Response,
    responses={200: {"description": "server-sent events", "content": {"text/event-stream": {}}}},
)
async def signals(
    service: TheService,
    _who: Caller,
    last_event_id: Annotated[str, Header()] = "",
    after: Annotated[
        int | None, Query(ge=0, le=_LARGEST, description="the number of the last one you saw")
    ] = None,
) -> Response:
    """What was served and what shadows said, as it happens, from a number on: who was away misses none.

    Each message has the number as its id, the signal (`serve`, `shadow:NAME`, `reset`) as its type, and a
    JSON object. `Last-Event-ID` goes before `after`; without either it begins with the oldest. Where the log
    has been compacted beyond the number, a message of the type `gap` says how far; also where it has not come
    to that number, as it is another log: then that is told from its beginning.
    """
    seen = int(last_event_id) if re.fullmatch(r"[0-9]{1,18}", last_event_id) else after
    await service.desk.opened()
    pages = await service.desk.signals(after=seen or 0, quiet_s=_QUIET_S)
    return StreamingResponse(
        _stream(pages, seen),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(pages: AsyncIterator[list[Entry]], seen: int | None) -> AsyncIterator[str]:
    """In pieces of many messages: each piece takes far longer to send than a message takes to make.

    A log that cannot be read any more ends it: readers come back by themselves, with what they saw last.
    """
    yield f"retry: {_RETRY_MS}\n\n"
    try:
        async for page in pages:
            missed = _missed(seen, page[0].seq) if page else ""
            yield missed + "".join(map(_message, page)) or ": quiet\n\n"
            seen = page[-1].seq if page else seen
    except Unavailable as error:
        yield f": {error}\n\n"


def _missed(seen: int | None, following: int) -> str:
    if seen is None or seen == following - 1:
        return ""
    data = json.dumps({"after": seen, "next": following}, separators=(",", ":"))
    return f"id: {following - 1}\nevent: gap\ndata: {data}\n\n"


def _message(entry: Entry) -> str:
    data = json.dumps(signal_of(entry), separators=(",", ":"))
    return f"id: {entry.seq}\nevent: {entry.signal}\ndata: {data}\n\n"
