"""Speed and memory, measured and printed; nothing is asserted. `make bench`, or `run.py --only help --quick`.

Times are told as ratios taken within one run, or as CPU seconds: other work on the machine disturbs both
sides of a ratio alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_bandits import bench_bandits
from bench_busy import bench_busy
from bench_engine import bench_engine
from bench_help import bench_help
from bench_install import bench_install
from bench_judging import bench_judging
from bench_overhead import bench_overhead
from bench_record import bench_record
from bench_service import bench_service
from bench_serving import bench_serving
from bench_sim import bench_sim
from bench_tips import bench_tips
from measures import Options, table

if TYPE_CHECKING:
    from measures import Bench

BENCHES: dict[str, Bench] = {
    "help": bench_help,
    "overhead": bench_overhead,
    "record": bench_record,
    "busy": bench_busy,
    "judging": bench_judging,
    "service": bench_service,
    "sim": bench_sim,
    "serving": bench_serving,
    "tips": bench_tips,
    "bandits": bench_bandits,
    "engine": bench_engine,
    "install": bench_install,
}
SLOW = frozenset({"install"})


def main() -> None:
    asked = _arguments()
    names = asked.only or [name for name in BENCHES if not (asked.quick and name in SLOW)]
    report: dict[str, Any] = {"date": datetime.now(timezone.utc).date().isoformat(), "machine": _machine()}
    print(f"{report['date']}, {report['machine']}, quick={asked.quick}")
    report["benches"] = {name: _one(name, quick=asked.quick) for name in names}
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", choices=BENCHES, action="append", help="this one alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller grids, no fresh install")
    parser.add_argument("--out", type=Path, help="also write the numbers to this file, as JSON")
    return parser.parse_args()


def _machine() -> str:
    system, python = f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}"
    return f"{system}, {os.cpu_count()} cores, {python}"


def _one(name: str, *, quick: bool) -> dict[str, Any]:
    before, started = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tipbench-bench-") as folder:
        measures = BENCHES[name](Options(quick=quick, work=Path(folder)))
    took_s = time.perf_counter() - started
    print(f"\n{name} ({took_s:.0f} s; load {before:.1f} before, {os.getloadavg()[0]:.1f} after)")
    print(table(measures), flush=True)
    return {"load_before": before, "measures": [asdict(each) for each in measures]}


if __name__ == "__main__":
    main()
