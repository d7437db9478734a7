"""Signed messages in and out, so that a bench can be judged without a hand.

Both ways a message carries when it was sent, a word that is used once, and an HMAC over these and its body.
What goes out is kept in the store until it arrived: only ever at the address that the service was given.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tipbench.errors import NotFound
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.exporting import Order, batch_file, keep_batch, take_batches
from tipbench.workflows.job_command import without_login

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from tipbench.settings import Settings
    from tipbench.store import Delivery, Store

TIMESTAMP, NONCE, SIGNATURE = "X-Tipbench-Timestamp", "X-Tipbench-Nonce", "X-Tipbench-Signature"
EVENT = "batch.ready"
WINDOW_S = 300
MOST_AT_ONCE = 4

# One minute, five, thirty, then every two hours: about a day in all.
_WAITS_S = (60, 300, 1800, *(7200,) * 12)
_TIMEOUT_S, _CLAIM_MS = 15.0, 120_000
# All in all: a receiver that sends a byte now and then never times out by itself.
_LONGEST_S = 30.0
_LONGEST_REPLY = 500
_JITTER = 0.1
_GONE = 410


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Where messages go, and the secret that both sides know."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Signed:
    """What a message's headers say, as they came."""

    timestamp: str
    nonce: str
    signature: str


class Seen(Protocol):
    """What is remembered of messages that came in."""

    def first_time(self, nonce: str, now_ms: int, *, keep_ms: int) -> bool: ...


def signature(secret: str, *, timestamp: str, nonce: str, body: bytes) -> str:
    signed = f"{timestamp}.{nonce}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def signed_headers(secret: str, body: bytes, *, now_ms: int) -> dict[str, str]:
    """The headers that make a message one of ours, with a word that was never used before."""
    timestamp, nonce = str(now_ms // 1000), secrets.token_urlsafe(24)
    made = signature(secret, timestamp=timestamp, nonce=nonce, body=body)
    return {TIMESTAMP: timestamp, NONCE: nonce, SIGNATURE: made}


def check_signed(said: Signed, body: bytes, *, secret: str, seen: Seen, now_ms: int) -> None:
    """Refuse what was not signed with the secret, not within five minutes, or what came before.

    The signature is looked at first: nobody without the secret learns anything, or has anything remembered.
    """
    if not re.fullmatch(r"[0-9]{1,12}", said.timestamp) or not re.fullmatch(
        r"[\w.-]{8,128}", said.nonce, re.ASCII
    ):
        raise NotAllowed(f"{TIMESTAMP} (seconds since 1970) or {NONCE} is missing or malformed", status=401)
    expected = signature(secret, timestamp=said.timestamp, nonce=said.nonce, body=body)
    given = said.signature.encode("utf-8", "replace")
    if not hmac.compare_digest(given, expected.encode()):
        raise NotAllowed(f"{SIGNATURE} does not fit this message", status=401)
    if abs(now_ms // 1000 - int(said.timestamp)) > WINDOW_S:
        raise NotAllowed(
            f"{TIMESTAMP} is more than {WINDOW_S // 60} minutes away from this clock", status=401
        )
    if not seen.first_time(said.nonce, now_ms, keep_ms=3 * WINDOW_S * 1000):
        raise NotAllowed("this message came before; sign a new one", status=409)


def announce(store: Store, hook: Hook, settings: Settings, *, key: str, now_ms: int) -> bool:
    """Take the next batch of an experiment and put it into the mail; False where nothing is left to judge.

    `key` names the occasion: the same one is announced once, however often it is seen.
    """
    if store.deliveries.get(key) is not None:
        return False
    try:
        taken = take_batches(settings, Order(even_if_open=True))
    except NotFound:
        return False
    state, batch = taken.state, taken.new[0]
    keep_batch(state, batch)
    message = {
        "event": EVENT,
        "experiment": state.experiment,
        "batch": batch.batch_id,
        "file": json.loads(batch_file(state, batch, judge=None)),
    }
    return store.deliveries.add(
        key=key, event=EVENT, url=without_login(hook.url), body=json.dumps(message), now_ms=now_ms
    )


def deliver_due(store: Store, hook: Hook, now_ms: int, *, longest_s: float = _LONGEST_S) -> int:
    """Send what is due, a few at a time; how many were tried. What does not arrive is due again later."""
    with ThreadPoolExecutor(max_workers=MOST_AT_ONCE, thread_name_prefix="webhook") as pool:
        tried = 0
        while claimed := store.deliveries.claim(now_ms=now_ms, for_ms=_CLAIM_MS):
            pool.submit(_deliver, store, hook, claimed, longest_s)
            tried += 1
    return tried


def _deliver(store: Store, hook: Hook, claimed: Delivery, longest_s: float) -> None:
    try:
        status, problem = asyncio.run(asyncio.wait_for(_post(hook, claimed), longest_s))
    except asyncio.TimeoutError:
        status, problem = None, f"no whole answer within {longest_s:g} seconds"
    now_ms = time.time_ns() // 1_000_000
    if not problem and status is not None:
        store.deliveries.sent(claimed, status=status, now_ms=now_ms)
        return
    wait_s = None if status == _GONE else next_wait_s(claimed.attempts)
    retry_ms = None if wait_s is None else now_ms + round(wait_s * 1000)
    store.deliveries.failed(claimed, error=problem, status=status, retry_ms=retry_ms, now_ms=now_ms)


def next_wait_s(attempts: int) -> float | None:
    """How long to wait after so many attempts, a little more or less each time; None is to give up."""
    if attempts > len(_WAITS_S):
        return None
    return _WAITS_S[attempts - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret


async def _post(hook: Hook, claimed: Delivery) -> tuple[int | None, str]:
    """Send one message: the status, and what was wrong, empty where it arrived. No redirect is followed."""
    import httpx

    body = claimed.body.encode()
    headers: Mapping[str, str] = {
        "Content-Type": "application/json",
        "User-Agent": "tipbench",
        **signed_headers(hook.secret, body, now_ms=time.time_ns() // 1_000_000),
    }
    try:
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", hook.url, content=body, headers=headers) as reply,
        ):
            if reply.is_success:
                return reply.status_code, ""
            return reply.status_code, f"HTTP {reply.status_code}: {await _beginning(reply)}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return None, f"{type(error).__name__}: {error}"


async def _beginning(reply: httpx.Response) -> str:
    """The first of what a receiver says; it may go on for ever."""
    async for first in reply.aiter_bytes(4 * _LONGEST_REPLY):
        return first.decode("utf-8", "replace")[:_LONGEST_REPLY]
    return ""
