"""What one cell costs to record in the embedded store, and what all of them cost to read."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from measures import Measure
from processes import HERE, ROOT, clean_env, run

if TYPE_CHECKING:
    from measures import Options


def bench_record(options: Options) -> list[Measure]:
    cells = 300 if options.quick else 3000
    env = clean_env(options.work / "home", modules=ROOT / "tests")
    command = [sys.executable, str(HERE / "recording.py"), str(options.work / "stores"), str(cells)]
    took = json.loads(run(command, env=env).out)
    return [
        Measure(what="cells", value=took["runs"], unit=""),
        Measure(what="making the store, CPU", value=took["open_cpu_s"], unit="s"),
        Measure(what="recording one cell, CPU", value=1e3 * took["record_cpu_s"] / cells, unit="ms"),
        Measure(what="… ÷ MLflow's client alone", value=took["record_cpu_s"] / took["plain_cpu_s"], unit="×"),
        Measure(what="recording, cells a second", value=cells / took["record_s"], unit="/s"),
        Measure(what="reading all cells, cold", value=took["read_cold_s"], unit="s"),
        Measure(what="reading all cells, cold, CPU", value=took["read_cold_cpu_s"], unit="s"),
        Measure(what="reading all cells from the cache", value=took["read_cached_s"], unit="s"),
        Measure(what="reading all cells from the cache, CPU", value=took["read_cached_cpu_s"], unit="s"),
        Measure(
            what="cold ÷ cached, CPU", value=took["read_cold_cpu_s"] / took["read_cached_cpu_s"], unit="×"
        ),
    ]
