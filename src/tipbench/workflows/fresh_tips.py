"""Fresh tips: the shipped model asked with the shipped prompt, exactly as the bench asked, with new seeds."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tipbench.engine.lock import is_loopback
from tipbench.engine.residency import Residency
from tipbench.engine.runner import Call, ModelWork, Runner
from tipbench.errors import HostBusy, ModelRefused, PinConflict
from tipbench.plan import Grid
from tipbench.records import Cell
from tipbench.suite import load_suite
from tipbench.workflows.collect import cell_request, finished
from tipbench.workflows.engines import find_models, hold_engine, open_engine
from tipbench.workflows.hosts import busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.runner import Attempt
    from tipbench.records import CellResult, Emit, Model, Shipped
    from tipbench.settings import Settings
    from tipbench.workflows.engines import Engine
    from tipbench.workflows.shipped_file import Filed

    Keep = Callable[[str, tuple[str, ...], str | None], None]

# What was benched was let in then, under whichever limit; what is shipped is not refused for its size.
_ANY_SIZE = 1e6


class FreshTips:
    """Sessions with the engine, one at a time: load, ask, unload, see it gone. The host is ours meanwhile."""

    def __init__(self, settings: Settings, *, emit: Emit) -> None:
        self._settings = settings
        self._emit = emit
        self._guard = threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self._ended = False

    def end(self) -> None:
        """Break off the session under way, and begin none any more; from any thread."""
        with self._guard:
            self._ended = True
            if self._cancel is not None:
                self._cancel()

    def generate(self, filed: Filed, *, wanted: Iterator[str], keep: Keep) -> None:
        """Ask for each scenario that `wanted` names, until it names no more; `keep` gets what may be served.

        Raises what keeps it from being asked: an engine that is away, a host that somebody else uses, a model
        or a prompt that is not the one that was shipped.
        """
        shipped = filed.shipped
        grid = _grid(filed)
        settings = replace(
            self._settings,
            models=(shipped.model,),
            experiment="fresh tips for the app",
            max_model_b=_ANY_SIZE,
            # Its size was accepted when it was benched.
            assume_size=(f"{shipped.model}=1",),
            parallel=1,
            wait=False,
            evict=False,
            pull=False,
        )
        occupied = busy(settings)
        if occupied:
            raise HostBusy(occupied)
        with (
            open_engine(settings, emit=self._emit) as engine,
            hold_engine(engine, settings, emit=self._emit) as lock,
            suppress(asyncio.CancelledError),
        ):
            session = _Session(settings=settings, shipped=shipped, grid=grid, wanted=wanted, keep=keep)
            asyncio.run(self._cancellable(session, engine, lock))

    async def _cancellable(self, session: _Session, engine: Engine, lock: HostLock) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - this is one
        with self._guard:
            if self._ended:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            async with engine.host(timeout_s=self._settings.timeout) as host:
                await session.run(host, lock, self._emit)
        finally:
            with self._guard:
                self._cancel = None


class _Session:
    def __init__(
        self, *, settings: Settings, shipped: Shipped, grid: Grid, wanted: Iterator[str], keep: Keep
    ) -> None:
        self._settings = settings
        self._shipped = shipped
        self._grid = grid
        self._wanted = wanted
        self._keep = keep

    async def run(self, host: OllamaHost, lock: HostLock, emit: Emit) -> None:
        (model,) = await find_models(host, self._settings, emit=emit)
        _check_weights(model, self._shipped)
        residency = Residency(
            host,
            lock=lock,
            models=[model],
            evict=False,
            check_memory=is_loopback(host.host.url),
            gone_within_s=self._settings.unload_timeout,
            emit=emit,
        )
        runner = Runner(
            host,
            residency=residency,
            parallel=1,
            keep_alive=self._settings.keep_alive,
            retries=self._settings.retries,
            finish=lambda attempt: self._finish(attempt, host),
            emit=emit,
        )
        sampling = self._shipped.sampling
        work = ModelWork(model=model, num_ctx=sampling.num_ctx, size=1, calls=self._calls(model))
        await runner.run([work])

    def _calls(self, model: Model) -> Iterator[Call]:
        for scenario_id in self._wanted:
            cell = self._cell(model, scenario_id)
            yield Call(cell=cell, request=cell_request(self._grid, cell))

    def _cell(self, model: Model, scenario_id: str) -> Cell:
        """As the bench makes one, but for its seed, which is the moment's own: a refresh brings new texts."""
        scenario = self._grid.suite.scenario(scenario_id)
        return Cell(
            model=model,
            prompt_id=self._shipped.prompt_id,
            prompt_hash=self._shipped.prompt_hash,
            scenario_id=scenario.id,
            scenario_hash=scenario.hash,
            n_tips=self._shipped.n_tips,
            sampling=self._shipped.sampling,
            base_seed=time.time_ns() // 1_000_000,
            repeat=0,
        )

    async def _finish(self, attempt: Attempt, host: OllamaHost) -> None:
        result = finished(self._grid, attempt, host=host.host, diversity=False)
        self._keep(attempt.cell.scenario_id, servable(result), result.error)


def servable(result: CellResult) -> tuple[str, ...]:
    """The tips of a reply that may be served: none of one that failed in any way, and no overlong one."""
    if result.completion is None or result.completion.cut is not None or result.reading is None:
        return ()
    if result.reading.how == "none":
        return ()
    found = result.candidates[: result.cell.n_tips]
    return tuple(dict.fromkeys(one.text for one in found if one.text.strip() and not one.overlong))


def _grid(filed: Filed) -> Grid:
    """What the bench would be asked for, of the suite as it is now; PinConflict for a prompt that changed."""
    shipped = filed.shipped
    if not filed.suite:
        raise PinConflict(
            f"the suite {shipped.suite_id!r} is not on this machine, so no fresh tips can be asked for; "
            "serve with --suite and its folder"
        )
    suite = load_suite(filed.suite)
    prompt = suite.prompt(shipped.prompt_id)
    if prompt.hash != shipped.prompt_hash:
        raise PinConflict(
            f"the prompt {prompt.id!r} of {suite.path} is not the one that was shipped; restore its text, or "
            "bench it as a new version and ship that"
        )
    sampling = shipped.sampling
    return Grid(
        suite=suite,
        prompts=[prompt],
        scenarios=suite.scenarios,
        n_tips=shipped.n_tips,
        temperature=sampling.temperature,
        num_ctx=sampling.num_ctx,
        num_predict=sampling.num_predict,
        seed=0,
        repeats=1,
    )


def _check_weights(model: Model, shipped: Shipped) -> None:
    if model.digest.removeprefix("sha256:") != shipped.digest.removeprefix("sha256:"):
        raise ModelRefused(
            f"{model.name} on the host is not the one that was judged and shipped (its digest is "
            f"{model.digest[:12]}, not {shipped.digest[:12]}); get that one back, or bench this one"
        )
