"""A ledger that forgets: for tests, and for trying a prompt without leaving a trace."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.ledger import codec, pins, shape, shipments
from tipbench.ledger.batches import another_batch, checked_id, in_order, no_batch
from tipbench.ledger.cache import Counts
from tipbench.ledger.chunks import sha256
from tipbench.records import ExperimentSummary, RubricText, RunTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.records import Application, Batch, CellResult, Mark, Pin, Rejection, Release, Run, Shipped


class MemoryLedger:
    """Behaves as the others do: it passes the same conformance suite."""

    uri = "memory:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pins: dict[str, Pin] = {}
        self._suites: dict[str, Mapping[str, str]] = {}
        self._runs: dict[str, dict[str, tuple[Run, RunTexts]]] = {}
        self._batches: dict[str, dict[str, Batch]] = {}
        self._shipments: dict[str, list[Shipped]] = {}
        self._in_force: dict[str, int] = {}

    def pin(self, experiment: str, pin: Pin) -> Pin:
        held = self._pins.get(experiment)
        merged = pins.merge_pins(experiment, held, pin) if held else pin
        self._pins[experiment] = replace(merged, suites={})
        self._suites[experiment] = {**pin.suites, **self._suites.get(experiment, {})}
        self._runs.setdefault(experiment, {})
        return merged

    def pinned(self, experiment: str) -> Pin | None:
        return self._pins.get(experiment)

    def suite_texts(self, experiment: str) -> list[str]:
        return list(self._suites.get(experiment, {}).values())

    def change_rubric(self, experiment: str, *, rubric_id: str, rubric_hash: str, rubric_text: str) -> Pin:
        self._check(experiment)
        pin = replace(
            self._pins[experiment], rubric_id=rubric_id, rubric_hash=rubric_hash, rubric_text=rubric_text
        )
        self._pins[experiment] = pin
        return pin

    def record(self, experiment: str, results: Sequence[CellResult]) -> None:
        self._check(experiment)
        with self._lock:
            for result in shape.settled(results):
                self._record(experiment, result)

    def _check(self, experiment: str) -> None:
        if experiment not in self._runs:
            raise NotFound(f"there is no experiment {experiment!r} at {self.uri}; it is made by being pinned")

    def _record(self, experiment: str, result: CellResult) -> None:
        held = self._runs[experiment].get(result.cell.key)
        if held is not None and held[0].status == "done":
            return
        run_id = held[0].run_id if held else uuid.uuid4().hex
        pin = self._pins[experiment]
        rubric = RubricText(id=pin.rubric_id, hash=pin.rubric_hash, text=pin.rubric_text)
        texts = shape.texts_of(result) | shape.rubric_texts(rubric, None)
        row = shape.Row(
            run_id=run_id,
            experiment_id=experiment,
            status="FAILED" if result.error is not None else "FINISHED",
            artifact_uri="",
            params=shape.params_of(result) | ({"model": held[0].model} if held else {}),
            tags=shape.tags_of(result) | shape.rubric_tags(rubric),
            metrics=shape.metrics_of(result),
        )
        run = shape.run_of(row, experiment=experiment, candidates=texts[shape.CANDIDATES])
        self._runs[experiment][run.key] = (
            run,
            RunTexts(
                prompt=texts[shape.PROMPT],
                raw=texts[shape.RAW],
                candidates=texts[shape.CANDIDATES],
                rubric=texts[shape.RUBRIC],
            ),
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
            judged=counts.judged,
        )

    def add_batch(self, batch: Batch) -> None:
        checked_id(batch.batch_id, what="a batch")
        self._check(batch.experiment)
        new = codec.batch_from_json(codec.batch_to_json(batch), experiment=batch.experiment)
        with self._lock:
            held = self._batches.setdefault(batch.experiment, {}).setdefault(batch.batch_id, new)
        if replace(held, applications=(), rejections=(), releases=()) != new:
            raise another_batch(batch.batch_id, where=f"experiment {batch.experiment!r} of {self.uri}")

    def revision(self, experiment: str) -> str:
        held = (self._pins.get(experiment), self.runs(experiment), self.batches(experiment))
        return sha256(repr(held)) if held[0] else ""

    def batches(self, experiment: str) -> list[Batch]:
        found = self._batches.get(experiment, {}).values()
        return sorted(found, key=lambda batch: (batch.created_ms, batch.batch_id))

    def batch(self, batch_id: str) -> Batch:
        for batches in self._batches.values():
            if batch_id in batches:
                return batches[batch_id]
        raise no_batch(batch_id, where=f"any experiment of {self.uri}")

    def commit(self, batch: Batch, application: Application) -> None:
        checked_id(application.application_id, what="an application")
        self._check(batch.experiment)
        new = codec.application_from_json(codec.application_to_json(application))
        with self._lock:
            held = self._batches.get(batch.experiment, {}).get(batch.batch_id)
            if held is None:
                raise no_batch(batch.batch_id, where=f"experiment {batch.experiment!r} of {self.uri}")
            if application.application_id not in {each.application_id for each in held.applications}:
                now = replace(held, applications=in_order([*held.applications, new]))
                self._batches[batch.experiment][batch.batch_id] = now

    def reject(self, batch: Batch, rejection: Rejection) -> None:
        checked_id(rejection.rejection_id, what="a rejection")
        new = codec.rejection_from_json(codec.rejection_to_json(rejection))
        with self._lock:
            held = self._held(batch)
            if new.rejection_id not in {each.rejection_id for each in held.rejections}:
                every = sorted([*held.rejections, new], key=lambda each: (each.at_ms, each.rejection_id))
                self._batches[batch.experiment][batch.batch_id] = replace(held, rejections=tuple(every))

    def release(self, batch: Batch, release: Release) -> None:
        new = codec.release_from_json(codec.release_to_json(release))
        with self._lock:
            held = self._held(batch)
            releases = {new.at_ms: new} | {each.at_ms: each for each in held.releases}
            every = tuple(releases[at_ms] for at_ms in sorted(releases))
            self._batches[batch.experiment][batch.batch_id] = replace(held, releases=every)

    def _held(self, batch: Batch) -> Batch:
        self._check(batch.experiment)
        held = self._batches.get(batch.experiment, {}).get(batch.batch_id)
        if held is None:
            raise no_batch(batch.batch_id, where=f"experiment {batch.experiment!r} of {self.uri}")
        return held

    def rejected_batches(self) -> list[Batch]:
        every = [one for batches in self._batches.values() for one in batches.values() if one.rejections]
        return sorted(every, key=lambda batch: (batch.created_ms, batch.batch_id))

    def mark(self, experiment: str, marks: Mapping[str, Mark]) -> None:
        self._check(experiment)
        with self._lock:
            held = {run.run_id: (run, texts) for run, texts in self._runs[experiment].values()}
            for run_id, mark in marks.items():
                if run_id not in held:
                    raise shape.not_one_run(run_id, [], uri=self.uri)
                run, texts = held[run_id]
                if mark.rubric is not None:
                    texts = replace(texts, rubric=mark.rubric.text)
                self._runs[experiment][run.key] = (shape.marked(run, mark), texts)

    def add_marks(self, experiment: str, marks: Mapping[str, Sequence[str]]) -> set[str]:
        with self._lock:
            held = self._runs.get(experiment, {})
            for key in marks.keys() & held.keys():
                run, texts = held[key]
                held[key] = (shape.with_marks(run, marks[key]), texts)
            return set(marks) - held.keys()

    def add_shipment(self, shipped: Shipped) -> Shipped:
        with self._lock:
            held = self._shipments.setdefault(shipped.suite_id, [])
            new = shipments.from_tags(len(held) + 1, shipments.to_tags(shipped), where=self.uri)
            held.append(new)
        return new

    def set_shipped(self, suite_id: str, version: int) -> None:
        if version not in {one.version for one in self.shipments(suite_id)}:
            raise shipments.no_version(suite_id, version, uri=self.uri)
        self._in_force[suite_id] = version

    def shipped(self, suite_id: str) -> Shipped | None:
        number = self._in_force.get(suite_id)
        return next((one for one in self.shipments(suite_id) if one.version == number), None)

    def shipments(self, suite_id: str) -> list[Shipped]:
        return list(self._shipments.get(suite_id, []))
