"""How long a collection takes to be recorded where other programs want the processor all the time.

Beside a busy loop for each core: `collect`, against `collect --offline` and then `sync`, which records all
cells in a process of normal priority. Both in turn, so that other work on the machine disturbs them alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from bench_overhead import standing_in
from measures import Measure
from processes import TIPBENCH, clean_env, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from measures import Options

BAR = 1.5
_SCENARIOS = 8


def bench_busy(options: Options) -> list[Measure]:
    found = []
    for cells in (8, 96):
        rounds = [_round(options.work / f"{cells}-{n}", cells) for n in range(1 if options.quick else 3)]
        ratio = median(ours / apart for ours, apart in rounds)
        found += [
            Measure(what=f"{cells} cells, all recorded", value=median(r[0] for r in rounds), unit="s"),
            Measure(what="… ÷ generated offline, then `sync`", value=ratio, unit="×", bar=BAR),
        ]
    return found


def _round(folder: Path, cells: int) -> tuple[float, float]:
    """Seconds of a collection that records, and of one that leaves that to `sync`."""
    env = clean_env(folder)
    run([*TIPBENCH, "experiments"], env=env)  # makes the tables of the embedded store
    with standing_in(folder / "seen.json") as url, _busy_loops():
        ours = run(_collect(url, cells, "recorded"), env=env).wall_s
        apart = run([*_collect(url, cells, "apart"), "--offline"], env=env).wall_s
        apart += run([*TIPBENCH, "sync"], env=env).wall_s
    return ours, apart


def _collect(url: str, cells: int, experiment: str) -> list[str]:
    return [
        *TIPBENCH, "collect", "--engine", "ollama", "--ollama-url", url, "--models", "alpha:1b",
        "--prompts", "v1", "--repeats", str(cells // _SCENARIOS), "--experiment", experiment, "--json",
    ]  # fmt: skip


@contextmanager
def _busy_loops() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
