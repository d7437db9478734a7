"""What judging and ranking cost once everything is imported: CPU seconds on 3000 cells of five candidates."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bench_overhead import write_suite
from measures import Measure
from processes import HERE, ROOT, clean_env, run

if TYPE_CHECKING:
    from measures import Options

RANK_BAR_S, ROWS_BAR_S, EXPORT_BAR_S, APPLY_BAR_S = 1, 2, 3, 5
COMBINATIONS = 12


def bench_judging(options: Options) -> list[Measure]:
    scenarios = 25 if options.quick else 250
    suite = write_suite(options.work / "suite")
    env = clean_env(options.work / "home", modules=ROOT / "tests")
    command = [sys.executable, str(HERE / "judging.py"), str(options.work), str(suite), str(scenarios)]
    took = json.loads(run(command, env=env).out)
    each = took["runs"]

    def row(what: str, name: str, bar: float | None = None, unit: str = "s") -> Measure:
        return Measure(what=what, value=took[name], unit=unit, bar=bar)

    return [
        row("cells", "runs", unit=""),
        row("candidates", "candidates", unit=""),
        row(f"exporting a batch from {each} pending cells, warm cache, CPU", "export_cpu_s", EXPORT_BAR_S),
        row(f"applying {took['items']} items, wall", "apply_s", APPLY_BAR_S),
        row(f"applying {took['items']} items, CPU", "apply_cpu_s"),
        row(f"ranking {each} judged cells from the cache, CPU", "rank_cpu_s", RANK_BAR_S),
        row("… after verdicts have come, CPU", "rank_after_cpu_s"),
        row("the report as JSON, CPU", "json_cpu_s"),
        row("the report as HTML, CPU", "html_cpu_s"),
        row("rank, 100,000 rows of 200 combinations, CPU", "rows_many_cpu_s", ROWS_BAR_S),
        row("rank, 100,000 rows of 12 combinations, CPU", "rows_few_cpu_s", ROWS_BAR_S),
        row("rank, 100,000 rows of 1000 combinations, CPU", "rows_wide_cpu_s", ROWS_BAR_S),
        row("planting the cells, for scale, CPU", "plant_cpu_s"),
    ]
