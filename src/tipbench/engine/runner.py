"""Model by model: make room, load, make all its calls, unload, see it gone. Then the next.

The runner knows nothing of suites or ledgers. It is handed the calls to make and a `finish` that makes a
finished call durable; what `finish` has returned from is done, and nothing else is.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.errors import EngineFailure, EngineUnreachable, PromptTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.residency import Residency
    from tipbench.records import Cell, ChatRequest, Completion, Emit, Model

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
COME_BACK_TRIES = 5
# A reply that waited this long for the weights, and this many times longer than another, followed a load.
_RELOAD_MS = 300.0
_RELOAD_FACTOR = 5.0
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
    """How a call ended: with a completion, or with the reason why there is none.

    `first_call`: no call had ended since the model was loaded. `too_long`: the host refused this prompt, or,
    if the request was not `sent`, one of the same version and model that is not longer.
    """

    cell: Cell
    request: ChatRequest
    started_ms: int
    ended_ms: int
    completion: Completion | None = None
    error: str | None = None
    first_call: bool = False
    too_long: PromptTooLong | None = None
    sent: bool = True


async def _nothing_more(_model: Model) -> None:
    pass


class Runner:
    """One pass over the work on one host. Without `release` the last model is left to its keep_alive.

    The runner awaits `after_model` when the last call of a model has ended, while the model is still loaded.
    """

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
        after_model: Callable[[Model], Awaitable[None]] = _nothing_more,
    ) -> None:
        self._host = host
        self._residency = residency
        self._parallel = parallel
        self._keep_alive = keep_alive
        self._retries = retries
        self._finish = finish
        self._emit = emit
        self._release = release
        self._after_model = after_model
        self._warm = False
        self._least_load_ms: float | None = None
        self._too_long: dict[tuple[str, str], tuple[int, PromptTooLong]] = {}
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
                self._warm, self._least_load_ms = False, None
                async with self._residency.watched():
                    await self._make_calls(item.calls)
                    await self._after_model(item.model)
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
        self._warm = False
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
        refused = self._refused_before(call)
        if refused is not None:
            await self._finish(_attempt(call, started, error=str(refused), too_long=refused, sent=False))
            return
        what = f"{call.cell.model.name} × {call.cell.prompt_id} × {call.cell.scenario_id}"
        try:
            completion, first = await self._retrying(lambda: self._one_call(call), what=what)
        except PromptTooLong as failure:
            self._remember_refusal(call, failure)
            await self._finish(_attempt(call, started, error=str(failure), too_long=failure))
        except EngineFailure as failure:
            await self._finish(_attempt(call, started, error=str(failure)))
            if failure.unreachable and not await self._comes_back():
                raise
        else:
            await self._finish(_attempt(call, started, completion=completion, first_call=first))
        if self._strict:
            await self._residency.unload(call.cell.model.name, call.cell.model.digest)

    def _refused_before(self, call: Call) -> PromptTooLong | None:
        """The refusal of a prompt that this one is not shorter than, of the same version and model."""
        shortest = self._too_long.get(_version_and_model(call))
        return shortest[1] if shortest is not None and call.request.characters >= shortest[0] else None

    def _remember_refusal(self, call: Call, failure: PromptTooLong) -> None:
        key, size = _version_and_model(call), call.request.characters
        if key not in self._too_long or size < self._too_long[key][0]:
            self._too_long[key] = (size, failure)

    async def _one_call(self, call: Call) -> tuple[Completion, bool]:
        """The completion, and whether the call was the first after a load."""
        if self._strict:
            await self._load(call.cell.model, call.cell.sampling.num_ctx)
        self._residency.check_unchanged(call.cell.model)
        self.calls += 1
        cold = not self._warm
        completion = await self._host.chat(call.request, keep_alive=self._keep_alive)
        self._warm = True
        return completion, self._loaded_again(completion) or cold

    def _loaded_again(self, completion: Completion) -> bool:
        """Whether the host loaded the model for this call by itself: the call waited much longer than others.

        The load time of one reply alone proves nothing: on some hosts every reply waits a while.
        """
        least, load_ms = self._least_load_ms, completion.load_ms
        self._least_load_ms = load_ms if least is None else min(least, load_ms)
        return least is not None and load_ms > max(_RELOAD_MS, _RELOAD_FACTOR * least)

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


def _version_and_model(call: Call) -> tuple[str, str]:
    return call.cell.prompt_hash, call.cell.model.digest


def _attempt(call: Call, started: float, **how: Any) -> Attempt:  # noqa: ANN401 - the other fields of Attempt
    return Attempt(
        cell=call.cell,
        request=call.request,
        started_ms=round(started * 1000),
        ended_ms=round(time.time() * 1000),
        **how,
    )
