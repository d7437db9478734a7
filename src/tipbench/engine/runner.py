"""Model by model: make room, load, make all its calls, unload, see it gone. Then the next.

The runner knows nothing of suites or ledgers. It is handed the calls to make and a `finish` that makes a
finished call durable; what `finish` has returned from is done, and nothing else is.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tipbench.errors import EngineFailure, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.residency import Residency
    from tipbench.records import Cell, ChatRequest, Completion, Emit, Model

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
COME_BACK_TRIES = 5
_STRICT_LOAD_KEEP_ALIVE = "1m"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Call:
    cell: Cell
    request: ChatRequest


@dataclass(frozen=True, kw_only=True)
class ModelWork:
    """All the calls for one model, in order. They are made only when asked for: thousands may be waiting."""

    model: Model
    num_ctx: int
    size: int
    calls: Iterator[Call]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """How a call ended: with a completion, or with the reason why there is none."""

    cell: Cell
    request: ChatRequest
    started_ms: int
    ended_ms: int
    completion: Completion | None = None
    error: str | None = None


class Runner:
    """One pass over the work on one host. Without `release` the last model is left to its keep_alive."""

    def __init__(
        self,
        host: OllamaHost,
        *,
        residency: Residency,
        parallel: int,
        keep_alive: str,
        retries: int,
        finish: Callable[[Attempt], Awaitable[None]],
        emit: Emit,
        release: bool = True,
    ) -> None:
        self._host = host
        self._residency = residency
        self._parallel = parallel
        self._keep_alive = keep_alive
        self._retries = retries
        self._finish = finish
        self._emit = emit
        self._release = release
        self.calls = 0

    @property
    def _strict(self) -> bool:
        """Unload after every reply, rather than after a model's last one."""
        return self._keep_alive == "0"

    async def run(self, work: Sequence[ModelWork]) -> None:
        """Generate all of it. A model that cannot load fails its own cells and stops nobody else's."""
        for item in work:
            self._emit({"event": "model_start", "model": item.model.name, "cells": item.size})
            try:
                await self._serve(item)
            except EngineFailure as failure:
                if failure.unreachable:
                    raise EngineUnreachable(self._farewell(failure)) from None
                await self._fail_rest(item, str(failure))

    def _farewell(self, failure: EngineFailure) -> str:
        kept = "what was generated is kept"
        if self._host.host.kind == "embedded":
            return f"the embedded engine ended unexpectedly; {kept}: run the same command to go on"
        return f"{self._host.host.url} went away ({failure}); {kept}: start it, then run the same command"

    async def _serve(self, item: ModelWork) -> None:
        await self._residency.make_room(item.model)
        self._residency.check_memory(item.model, num_ctx=item.num_ctx)
        try:
            try:
                if not self._strict:
                    await self._retrying(
                        lambda: self._load(item.model, item.num_ctx), what=f"loading {item.model.name}"
                    )
                async with self._residency.watched():
                    await self._make_calls(item.calls)
            except Exception:
                await self._leave(item.model)
                raise
            await self._leave(item.model)
        except asyncio.CancelledError:
            if self._release:
                await self._residency.let_go(item.model)
            raise

    async def _leave(self, model: Model) -> None:
        if self._release:
            await self._residency.release(model)

    async def _load(self, model: Model, num_ctx: int) -> None:
        keep_alive = _STRICT_LOAD_KEEP_ALIVE if self._strict else self._keep_alive
        await self._residency.load(model, num_ctx=num_ctx, keep_alive=keep_alive)

    async def _fail_rest(self, item: ModelWork, reason: str) -> None:
        self._emit({"event": "model_failed", "model": item.model.name, "error": reason})
        for call in item.calls:
            await self._finish(_attempt(call, time.time(), error=reason))

    async def _make_calls(self, calls: Iterator[Call]) -> None:
        """`parallel` workers take from one queue, all for the one loaded model."""
        workers = [asyncio.create_task(self._work_off(calls)) for _ in range(self._parallel)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work_off(self, calls: Iterator[Call]) -> None:
        for call in calls:
            await self._complete(call)

    async def _complete(self, call: Call) -> None:
        """One call with its retries, made durable; a host that has gone for good ends the run."""
        started = time.time()
        what = f"{call.cell.model.name} × {call.cell.prompt_id} × {call.cell.scenario_id}"
        try:
            completion = await self._retrying(lambda: self._one_call(call), what=what)
        except EngineFailure as failure:
            await self._finish(_attempt(call, started, error=str(failure)))
            if failure.unreachable and not await self._comes_back():
                raise
        else:
            await self._finish(_attempt(call, started, completion=completion))
        if self._strict:
            await self._residency.unload(call.cell.model.name, call.cell.model.digest)

    async def _one_call(self, call: Call) -> Completion:
        if self._strict:
            await self._load(call.cell.model, call.cell.sampling.num_ctx)
        self._residency.check_unchanged(call.cell.model)
        self.calls += 1
        return await self._host.chat(call.request, keep_alive=self._keep_alive)

    async def _retrying(self, act: Callable[[], Awaitable[T]], *, what: str) -> T:
        """Try again after a pause that doubles, with jitter, as often as allowed and while it may help."""
        for attempt in range(self._retries + 1):
            try:
                return await act()
            except EngineFailure as failure:
                if not failure.retryable or attempt == self._retries:
                    raise
                pause = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)  # noqa: S311
                self._emit(
                    {"event": "retry", "what": what, "error": str(failure), "pause_s": round(pause, 1)}
                )
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _comes_back(self) -> bool:
        for _ in range(COME_BACK_TRIES):
            if await self._host.alive():
                return True
            await asyncio.sleep(1)
        return False


def _attempt(
    call: Call, started: float, *, completion: Completion | None = None, error: str | None = None
) -> Attempt:
    return Attempt(
        cell=call.cell,
        request=call.request,
        started_ms=round(started * 1000),
        ended_ms=round(time.time() * 1000),
        completion=completion,
        error=error,
    )
