"""A ledger that forgets: for tests, and for trying a prompt without leaving a trace."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.ledger import pins, shape
from tipbench.ledger.cache import Counts
from tipbench.records import ExperimentSummary, RunTexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.records import CellResult, Pin, Run


class MemoryLedger:
    """Behaves as the others do: it passes the same conformance suite."""

    uri = "memory:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pins: dict[str, Pin] = {}
        self._runs: dict[str, dict[str, tuple[Run, RunTexts]]] = {}

    def pin(self, experiment: str, pin: Pin) -> Pin:
        held = self._pins.get(experiment)
        merged = pins.merge_pins(experiment, held, pin) if held else pin
        self._pins[experiment] = merged
        self._runs.setdefault(experiment, {})
        return merged

    def pinned(self, experiment: str) -> Pin | None:
        return self._pins.get(experiment)

    def record(self, experiment: str, results: Sequence[CellResult]) -> None:
        if experiment not in self._runs:
            raise NotFound(f"there is no experiment {experiment!r} at {self.uri}; it is made by being pinned")
        with self._lock:
            for result in shape.settled(results):
                self._record(experiment, result)

    def _record(self, experiment: str, result: CellResult) -> None:
        held = self._runs[experiment].get(result.cell.key)
        if held is not None and held[0].status == "done":
            return
        run_id = held[0].run_id if held else uuid.uuid4().hex
        texts = shape.texts_of(result)
        row = shape.Row(
            run_id=run_id,
            experiment_id=experiment,
            status="FAILED" if result.error is not None else "FINISHED",
            artifact_uri="",
            params=shape.params_of(result) | ({"model": held[0].model} if held else {}),
            tags=shape.tags_of(result),
            metrics=shape.metrics_of(result),
        )
        run = shape.run_of(row, experiment=experiment, candidates=texts[shape.CANDIDATES])
        self._runs[experiment][run.key] = (
            run,
            RunTexts(prompt=texts[shape.PROMPT], raw=texts[shape.RAW], candidates=texts[shape.CANDIDATES]),
        )

    def runs(self, experiment: str) -> list[Run]:
        return shape.one_per_key(run for run, _ in self._runs.get(experiment, {}).values())

    def run(self, run_id: str) -> tuple[Run, RunTexts]:
        text = shape.run_id_start(run_id)
        every = [entry for entries in self._runs.values() for entry in entries.values()]
        found = [entry for entry in every if entry[0].run_id.startswith(text)]
        found = found or [entry for entry in every if entry[0].key.startswith(text)]
        if len(found) != 1:
            names = [f"{run.run_id} in {run.experiment!r}" for run, _ in found]
            raise shape.not_one_run(run_id, names, uri=self.uri)
        return found[0]

    def experiments(self) -> list[ExperimentSummary]:
        found = [self._summary(name, pin) for name, pin in self._pins.items()]
        return sorted(found, key=lambda summary: (-(summary.newest_ms or 0), summary.name))

    def _summary(self, name: str, pin: Pin) -> ExperimentSummary:
        counts = Counts.of(self.runs(name))
        return ExperimentSummary(
            name=name,
            experiment_id=name,
            suite_id=pin.suite_id,
            rubric_id=pin.rubric_id,
            done=counts.done,
            failed=counts.failed,
            pending=counts.pending,
            newest_ms=counts.newest_ms,
        )
