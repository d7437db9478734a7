"""The demo's experiment as it is once its cells are generated, without the minutes that this takes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from tipbench.engine.runner import Attempt
from tipbench.ledger import open_ledger
from tipbench.plan import plan_cells
from tipbench.records import Completion, Host
from tipbench.workflows.collect import cell_request, finished, make_grid, pin_of
from tipbench.workflows.demo import EXPERIMENT, demo_settings
from tipbench.workflows.engines import find_models, open_engine

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.plan import Grid
    from tipbench.records import Cell, CellResult, Model

_WORDS = ("Write the first line now.", "Take ten minutes for {}.", "Please rest before {}!", "NEVER do {}.")


def plant_demo(home: Path) -> int:
    """Record every cell of the demo with tips that the proxy's rules tell apart; how many they are."""
    settings = demo_settings()
    grid = make_grid(settings)
    cells = plan_cells(grid, models=_models(), done=set()).cells
    ledger = open_ledger("", home=home)
    ledger.pin(EXPERIMENT, pin_of(grid))
    ledger.record(EXPERIMENT, [_result(grid, cell, number) for number, cell in enumerate(cells)])
    return len(cells)


def _models() -> list[Model]:
    """As the embedded engine has them: their digests are part of a cell's key."""
    settings = demo_settings()

    async def found() -> list[Model]:
        async with engine.host(timeout_s=30) as host:
            return list(await find_models(host, settings, emit=lambda _event: None))

    with open_engine(settings, emit=lambda _event: None) as engine:
        return asyncio.run(found())


def _result(grid: Grid, cell: Cell, number: int) -> CellResult:
    tips = [words.format(f"{cell.scenario_id} {number}") for words in _WORDS[number % 2 :][: cell.n_tips]]
    completion = Completion(text=json.dumps(tips), latency_ms=900.0, load_ms=0.0, tokens_per_s=60.0)
    attempt = Attempt(
        cell=cell,
        request=cell_request(grid, cell),
        started_ms=1_700_000_000_000 + number,
        ended_ms=1_700_000_001_000 + number,
        completion=completion,
        error=None,
    )
    host = Host(kind="embedded", url="http://127.0.0.1:1", version="1")
    return finished(grid, attempt, host=host, diversity=True)
