"""Webhooks: a signed message that applies a filled batch, and the messages that went out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.bodies import FILE, raw_body
from tipbench.api.errors import documented
from tipbench.api.judging import AppliedAnswer
from tipbench.errors import NotFound, TipbenchError
from tipbench.workflows.announcing import Announcer
from tipbench.workflows.service_state import Service, now_ms
from tipbench.workflows.uploads import apply_upload
from tipbench.workflows.webhooks import Hook, Signed, check_signed, deliver_due

router = APIRouter(
    prefix="/api/hooks", tags=["webhooks"], route_class=GuardedRoute, responses=documented(422, 503)
)
_LOOK_EVERY_S = 5.0
_LARGEST_ID = 2**63 - 1
_log = logging.getLogger(__name__)


class DeliveryAnswer(BaseModel):
    """A message that went out, or waits to. `last_error` has the beginning of what its receiver said."""

    delivery_id: int
    event: str
    url: str
    created_ms: int
    state: str
    attempts: int
    next_ms: int
    status: int | None
    last_error: str
    ended_ms: int | None
    size: int = Field(description="characters of the message")


@router.post("/batch", responses=documented(404, 409, 413), openapi_extra=FILE)
async def batch(
    service: TheService,
    request: Request,
    x_tipbench_timestamp: Annotated[str, Header(max_length=20)] = "",
    x_tipbench_nonce: Annotated[str, Header(max_length=200)] = "",
    x_tipbench_signature: Annotated[str, Header(max_length=200)] = "",
) -> AppliedAnswer:
    """Apply a filled-in judge's file that was signed with the service's webhook secret."""
    if not service.config.webhook_secret:
        raise NotFound("webhooks are off here: the service has no TIPBENCH_WEBHOOK_SECRET")
    body = await raw_body(request)
    said = Signed(timestamp=x_tipbench_timestamp, nonce=x_tipbench_nonce, signature=x_tipbench_signature)
    ip = request.client.host if request.client else ""
    return await run_in_threadpool(_apply, service, said, body, ip)


def _apply(service: Service, said: Signed, body: bytes, ip: str) -> AppliedAnswer:
    secret = service.config.webhook_secret
    check_signed(said, body, secret=secret, seen=service.store.seen, now_ms=now_ms())
    return AppliedAnswer.model_validate(apply_upload(service, body, who=None, ip=ip))


@router.get("/deliveries")
def deliveries(
    service: TheService,
    _who: Admin,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST_ID, description="a delivery's id")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> list[DeliveryAnswer]:
    """The messages that went out or wait to, the newest first."""
    names = [name for name in DeliveryAnswer.model_fields if name != "size"]
    return [
        DeliveryAnswer(**{name: getattr(one, name) for name in names}, size=len(one.body))
        for one in service.store.deliveries.page(before_id=before, limit=limit)
    ]


@asynccontextmanager
async def background(service: Service) -> AsyncIterator[None]:
    """Announce batches and deliver messages for as long as the service runs, where it has an address to."""
    config = service.config
    if not (config.webhook_url and config.webhook_secret):
        yield
        return
    task = asyncio.create_task(_keep_delivering(service))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _keep_delivering(service: Service) -> None:
    hook = Hook(url=service.config.webhook_url, secret=service.config.webhook_secret)
    announcer = Announcer(service, hook)
    while True:
        try:
            await asyncio.to_thread(announcer.look)
            await asyncio.to_thread(deliver_due, service.store, hook, now_ms())
        except TipbenchError as error:
            _log.warning("webhooks wait: %s", error)
        await asyncio.sleep(_LOOK_EVERY_S)
