"""`collect --dry-run`: what a collection would take, before anything is generated."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tipbench.engine.memory import free_bytes, needed_bytes
from tipbench.errors import LedgerMisconfigured, LedgerUnreachable
from tipbench.ledger import merge_pins
from tipbench.plan import plan_cells
from tipbench.suite.prompt_length import LongPrompt, long_prompt
from tipbench.workflows.collect import make_grid, pin_of
from tipbench.workflows.engines import check_parallel, installed_of, open_engine
from tipbench.workflows.places import by_place, median_of, place_of_host
from tipbench.workflows.planned_power import PlannedPower, planned_power
from tipbench.workflows.recording import the_ledger, the_spool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.plan import Grid, Plan
    from tipbench.records import Cell, Emit, Model, Run
    from tipbench.settings import Settings
    from tipbench.workflows.engines import Engine

# Where nothing was measured yet: a token costs one pass over the weights at the memory speed of a modest
# box, and a reply is about half as long as it may be.
_GUESSED_BYTES_PER_S = 10e9
_GUESSED_SHARE_OF_LIMIT = 0.5
_GUESSED_LOAD_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ModelEstimate:
    name: str
    digest: str
    parameters: int | None
    cells: int
    minutes: float
    needs_bytes: int
    measured: bool


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The plan in numbers. `basis` says whether the minutes come from measurements or are a guess."""

    experiment: str
    cells: int
    skipped: int
    calls: int
    minutes: float
    basis: str
    peak_bytes: int
    free_bytes: int
    models: tuple[ModelEstimate, ...]
    long_prompts: tuple[LongPrompt, ...] = ()
    power: PlannedPower | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def check_collection(settings: Settings, *, emit: Emit) -> None:
    """Raise the error that a collection with these settings would raise before it generates anything."""
    grid, _, _ = _checked_models(settings, emit)
    if not settings.offline:
        _check_texts(settings, grid)


def estimate(settings: Settings, *, emit: Emit) -> Estimate:
    """The cells, calls, minutes and memory of a collection. Checks all that a collection would check."""
    grid, models, place = _checked_models(settings, emit)
    done = _known_here(settings, grid)
    runs = [] if settings.offline else _runs(settings, grid, emit)
    done |= {run.key for run in runs if run.status == "done"}
    plan = plan_cells(grid, models=models, done=done)
    here = by_place(runs).get(place, [])
    parts = tuple(_model_estimate(model, cells, here, settings) for model, cells in plan.by_model())
    return Estimate(
        experiment=settings.experiment,
        cells=len(plan.cells),
        skipped=plan.skipped,
        calls=len(plan.cells),
        minutes=round(sum(part.minutes for part in parts), 2),
        basis=_basis(parts),
        peak_bytes=max((part.needs_bytes for part in parts), default=0),
        free_bytes=free_bytes(),
        models=parts,
        long_prompts=_long_prompts(grid, plan),
        power=planned_power(
            settings,
            grid.suite.rubric,
            suite_id=grid.suite.id,
            n_scenarios=len(grid.scenarios),
            n_variants=len(models) * len(grid.prompts),
            candidates=grid.suite.reply.slots(grid.n_tips),
        ),
    )


def _checked_models(settings: Settings, emit: Emit) -> tuple[Grid, list[Model], str]:
    """Return the grid, the models and the name of their host. Raises if one of them is refused."""
    check_parallel(settings)
    grid = make_grid(settings)
    with open_engine(settings, emit=emit) as engine:
        models, place = asyncio.run(_models(engine, settings, emit))
    return grid, models, place


def _long_prompts(grid: Grid, plan: Plan) -> tuple[LongPrompt, ...]:
    """The prompts still to generate that come near the limit, which may be the smallest model's own."""
    rooms = {cell.model.context_length: cell.model.name for cell in plan.cells if cell.model.context_length}
    least = min(rooms, default=None)
    wanted = {cell.prompt_id for cell in plan.cells}
    found = []
    for prompt in grid.prompts:
        if prompt.id in wanted:
            sampling = grid.sampling(prompt)
            num_ctx = sampling.num_ctx if least is None else min(sampling.num_ctx, least)
            long = long_prompt(
                grid.suite,
                prompt,
                grid.scenarios,
                n_tips=grid.n_tips,
                num_ctx=num_ctx,
                num_predict=sampling.num_predict,
            )
            if long is not None:
                found.append(long if num_ctx == sampling.num_ctx else replace(long, model=rooms[num_ctx]))
    return tuple(found)


async def _models(engine: Engine, settings: Settings, emit: Emit) -> tuple[list[Model], str]:
    """Return the models and the name of their host. Speeds are compared only within one host."""
    async with engine.host(timeout_s=settings.timeout) as host:
        return await installed_of(host, settings, emit=emit), place_of_host(host.host)


def _check_texts(settings: Settings, grid: Grid) -> bool:
    """Return whether the experiment exists. Raises PinConflict if its texts differ from the suite's."""
    pinned = the_ledger(settings).pinned(settings.experiment)
    if pinned is not None:
        merge_pins(settings.experiment, pinned, pin_of(grid))
    return pinned is not None


def _known_here(settings: Settings, grid: Grid) -> set[str]:
    """The cells that wait on this disk; offline, also the ones that this machine knows to be recorded."""
    where = settings.mlflow_url, settings.experiment
    with the_spool() as spool:
        if not settings.offline:
            return spool.pending_keys(*where)
        pinned = spool.known_pin(*where)
        if pinned is not None:
            merge_pins(settings.experiment, pinned, pin_of(grid))
        return spool.known_keys(*where)


def _runs(settings: Settings, grid: Grid, emit: Emit) -> list[Run]:
    """Return the recorded cells of the experiment, after the check of its texts."""
    try:
        if not _check_texts(settings, grid):
            return []
        return the_ledger(settings).runs(settings.experiment)
    except LedgerMisconfigured:
        raise
    except LedgerUnreachable as error:
        emit({"event": "notice", "message": f"{error}; cells done before are not counted"})
        return []


def _model_estimate(
    model: Model, cells: Sequence[Cell], runs: Sequence[Run], settings: Settings
) -> ModelEstimate:
    latency_ms = median_of([run for run in runs if run.digest == model.digest], "latency_ms")
    seconds = _guessed_seconds(model, cells) if latency_ms is None else latency_ms / 1000
    strict_loads = len(cells) if settings.keep_alive == "0" else 1
    total = len(cells) * seconds / settings.parallel + strict_loads * _GUESSED_LOAD_S
    num_ctx = max(cell.sampling.num_ctx for cell in cells)
    return ModelEstimate(
        name=model.name,
        digest=model.digest,
        parameters=model.parameters,
        cells=len(cells),
        minutes=round(total / 60, 2),
        needs_bytes=needed_bytes(model, num_ctx=num_ctx),
        measured=latency_ms is not None,
    )


def _guessed_seconds(model: Model, cells: Sequence[Cell]) -> float:
    limit = sum(cell.sampling.num_predict for cell in cells) / len(cells)
    return limit * _GUESSED_SHARE_OF_LIMIT * max(model.size_bytes, 1) / _GUESSED_BYTES_PER_S


def _basis(parts: Sequence[ModelEstimate]) -> str:
    if not parts:
        return "nothing to do"
    measured = sum(part.measured for part in parts)
    if measured == len(parts):
        return "from this experiment's own speed"
    return "a rough guess from the models' sizes" if not measured else "partly measured, partly a rough guess"
