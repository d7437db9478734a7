"""What it costs to be told how to use it: CPU seconds of `tipbench --help`."""

from __future__ import annotations

import sys
from statistics import median
from typing import TYPE_CHECKING

from measures import Measure
from processes import TIPBENCH, clean_env, run

if TYPE_CHECKING:
    from measures import Options

HELP_BAR_S = 0.3


def bench_help(options: Options) -> list[Measure]:
    """Taken in turns with an empty interpreter, so that what disturbs one disturbs the other."""
    env = clean_env(options.work / "help")
    helps, collects, empties = [], [], []
    for _ in range(5 if options.quick else 15):
        helps.append(run([*TIPBENCH, "--help"], env=env).cpu_s)
        collects.append(run([*TIPBENCH, "collect", "--help"], env=env).cpu_s)
        empties.append(run([sys.executable, "-c", "pass"], env=env).cpu_s)
    return [
        Measure(what="tipbench --help, CPU, median", value=median(helps), unit="s", bar=HELP_BAR_S),
        Measure(what="tipbench --help, CPU, least", value=min(helps), unit="s"),
        Measure(what="tipbench collect --help, CPU, median", value=median(collects), unit="s"),
        Measure(what="python -c pass, CPU, median", value=median(empties), unit="s"),
    ]
