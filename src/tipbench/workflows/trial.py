"""`try`: one cell on screen, nothing recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tipbench.engine.lock import is_loopback
from tipbench.engine.residency import Residency
from tipbench.engine.runner import Attempt, Call, ModelWork, Runner
from tipbench.plan import plan_cells
from tipbench.workflows.collect import cell_request, finished, make_grid
from tipbench.workflows.engines import find_models, hold_engine, open_engine
from tipbench.workflows.interrupt import run_interruptible

if TYPE_CHECKING:
    from tipbench.engine.lock import HostLock
    from tipbench.plan import Grid
    from tipbench.records import CellResult, Emit
    from tipbench.settings import Settings
    from tipbench.workflows.engines import Engine


def try_cell(settings: Settings, *, model: str, prompt: str, scenario: str, emit: Emit) -> CellResult:
    """Generate one cell under the same rules as a collection.

    The model stays loaded for `keep_alive`, noted in the lock file as ours, so that the next try is quick.
    """
    settings = replace(settings, models=(model,), prompts=(prompt,), experiment="try")
    grid = make_grid(settings)
    chosen = grid.suite.scenario(scenario) if scenario else grid.scenarios[0]
    grid = replace(grid, scenarios=(chosen,))
    with open_engine(settings, emit=emit) as engine, hold_engine(engine, settings, emit=emit) as lock:
        return run_interruptible(_try(settings, grid, engine, lock, emit))


async def _try(settings: Settings, grid: Grid, engine: Engine, lock: HostLock, emit: Emit) -> CellResult:
    attempts: list[Attempt] = []

    async def keep(attempt: Attempt) -> None:
        attempts.append(attempt)

    async with engine.host(timeout_s=settings.timeout) as host:
        models = await find_models(host, settings, emit=emit)
        cell = plan_cells(grid, models=models, done=frozenset()).cells[0]
        residency = Residency(
            host,
            lock=lock,
            models=models,
            evict=settings.evict,
            check_memory=is_loopback(host.host.url),
            gone_within_s=settings.unload_timeout,
            emit=emit,
        )
        runner = Runner(
            host,
            residency=residency,
            parallel=1,
            keep_alive=settings.keep_alive,
            retries=settings.retries,
            finish=keep,
            emit=emit,
            release=False,
        )
        call = Call(cell=cell, request=cell_request(grid, cell))
        work = ModelWork(model=cell.model, num_ctx=cell.sampling.num_ctx, size=1, calls=iter([call]))
        await runner.run([work])
        return finished(grid, attempts[0], host=host.host, diversity=True)
