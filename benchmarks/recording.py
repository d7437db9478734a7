"""Recording and reading in the embedded store, timed from inside: `recording.py HOME CELLS`. Prints JSON.

The same rows are also written with MLflow's client alone, for scale: what tipbench adds is that each
run is recorded once, checked after writing, and has its long texts beside it.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledger_samples import sample_pin, sample_result
from tipbench.ledger import open_ledger, shape
from tipbench.suite import load_suite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.records import CellResult

BATCH = 25
TIPS = tuple(
    f"Write down the first step of the report, then work on it for {n} minutes." for n in range(5, 30, 5)
)

spent: dict[str, float] = {}


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Wall and CPU seconds of the block, added to what the name has already."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    spent[f"{name}_s"] = spent.get(f"{name}_s", 0) + time.perf_counter() - wall
    spent[f"{name}_cpu_s"] = spent.get(f"{name}_cpu_s", 0) + time.process_time() - cpu


def main() -> None:
    home, cells = Path(sys.argv[1]), int(sys.argv[2])
    results = [sample_result(n, tips=TIPS, text=json.dumps(TIPS)) for n in range(cells)]
    with timed("open"):
        ledger = open_ledger("", home=home / "ours")
        rubric = load_suite("tip").rubric.text
        ledger.pin("record", sample_pin(scenarios=[f"s{n}" for n in range(cells)], rubric=rubric))
    plain = PlainMlflow(home / "plain")
    for start in range(0, cells, BATCH):
        batch = results[start : start + BATCH]
        with timed("record"):
            ledger.record("record", batch)
        with timed("plain"):
            plain.record(batch)
    with timed("read_cold"):
        count = len(ledger.runs("record"))
    with timed("read_cached"):
        open_ledger("", home=home / "ours").runs("record")
    print(json.dumps({"runs": count, **spent}))


class PlainMlflow:
    """One run per cell with the same params, tags and metrics, in the three calls this takes at least."""

    def __init__(self, home: Path) -> None:
        from mlflow import MlflowClient

        home.mkdir(parents=True)
        uri = f"sqlite:///{home / 'mlflow.db'}"
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._experiment = self._client.create_experiment("plain", artifact_location=(home / "a").as_uri())

    def record(self, results: Sequence[CellResult]) -> None:
        for result in results:
            self._record(result)

    def _record(self, result: CellResult) -> None:
        from mlflow.entities import Metric, Param

        run = self._client.create_run(
            self._experiment, start_time=result.started_ms, tags=shape.tags_of(result), run_name="plain"
        )
        metrics = [
            Metric(name, value, result.ended_ms, 0) for name, value in shape.metrics_of(result).items()
        ]
        params = [Param(name, value) for name, value in shape.params_of(result).items()]
        self._client.log_batch(run.info.run_id, metrics=metrics, params=params)
        self._client.set_terminated(run.info.run_id, end_time=result.ended_ms)


if __name__ == "__main__":
    main()
