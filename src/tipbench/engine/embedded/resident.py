"""The one place in memory for a model: who may use it, when it is exchanged, when it is given up.

Requests come in one by one through a door, in the order in which they asked. A request for the model that is
loaded goes on while there is room; one for another waits until everyone has left. So no model is ever
unloaded under a request, and there are never two.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tipbench.engine.embedded.catalog import Entry
    from tipbench.engine.embedded.llama import Llama

DEFAULT_KEEP_ALIVE = 300.0
_CLOCK_SLACK = 0.05  # a timer may ring a moment early

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A model for the time of one request; `load_ns` is what loading took, nothing much if it was there."""

    llama: Llama
    load_ns: int


class Resident:
    """`load` is called in a thread of its own, never while another model is in memory."""

    def __init__(self, *, load: Callable[[Entry, int], Llama], parallel: int) -> None:
        self._load = load
        self._parallel = parallel
        self._door = asyncio.Lock()
        self._left = asyncio.Event()
        self._llama: Llama | None = None
        self._in_use = 0
        self._keep_alive = DEFAULT_KEEP_ALIVE
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: set[asyncio.Task[None]] = set()

    @property
    def llama(self) -> Llama | None:
        return self._llama

    @property
    def expires_at(self) -> datetime:
        """When the model will be given up if nobody asks for it again."""
        left = self._keep_alive if self._in_use else self._deadline - time.monotonic()
        return datetime.now(tz=timezone.utc) + timedelta(seconds=max(0.0, left))

    @asynccontextmanager
    async def using(self, entry: Entry, *, num_ctx: int, keep_alive: float | None) -> AsyncIterator[Lease]:
        """The model in memory, for as long as the block runs; `keep_alive` counts from its end."""
        async with self._door:
            lease = await self._admit(entry, num_ctx)
            self._in_use += 1
        try:
            self._keep_alive = self._keep_alive if keep_alive is None else keep_alive
            self._stop_timer()
            yield lease
        finally:
            self._in_use -= 1
            self._left.set()
            self._start_timer()

    async def expire(self, entry: Entry) -> None:
        """Give the model up: at once when it is idle, else as soon as its last request is done."""
        if self._llama is None or self._llama.entry.name != entry.name:
            return
        self._keep_alive = 0.0
        if not self._in_use:
            self._deadline = time.monotonic()
            await self._unload_expired()

    async def clear(self) -> None:
        """Give up whatever is loaded; for the end of the server."""
        self._stop_timer()
        async with self._door:
            await self._unload()

    async def _admit(self, entry: Entry, num_ctx: int) -> Lease:
        fits = self._holds(entry, num_ctx)
        while self._in_use >= (self._parallel if fits else 1):
            self._left.clear()
            await self._left.wait()
            fits = self._holds(entry, num_ctx)
        began = time.perf_counter_ns()
        if not fits:
            await _to_the_end(self._exchange(entry, num_ctx))
        assert self._llama is not None  # noqa: S101 - `_exchange` has just loaded it, or it was there
        return Lease(llama=self._llama, load_ns=time.perf_counter_ns() - began)

    def _holds(self, entry: Entry, num_ctx: int) -> bool:
        wanted = (entry.name, entry.stamp, num_ctx)
        return self._llama is not None and self._llama.identity == wanted

    async def _exchange(self, entry: Entry, num_ctx: int) -> None:
        await self._unload()
        self._llama = await asyncio.to_thread(self._load, entry, num_ctx)
        self._keep_alive = DEFAULT_KEEP_ALIVE
        self._start_timer()

    async def _unload(self) -> None:
        """It counts as loaded until its memory is free, which is what `/api/ps` is asked for."""
        if self._llama is None:
            return
        try:
            await _to_the_end(self._llama.close())
        finally:
            self._llama = None

    def _start_timer(self) -> None:
        self._stop_timer()
        if self._in_use or self._llama is None:
            return
        self._deadline = time.monotonic() + self._keep_alive
        self._timer = asyncio.get_running_loop().call_later(self._keep_alive, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        task = asyncio.create_task(self._unload_expired())
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _unload_expired(self) -> None:
        """Behind the door: someone may have come in since the time was up."""
        async with self._door:
            if not self._in_use and time.monotonic() >= self._deadline - _CLOCK_SLACK:
                await self._unload()


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await the work, and see it done even if the waiter is cancelled: a thread cannot be called back."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
