"""Cells in MLflow: one run per cell, recorded once, read in bulk; beside them batches of what is judged."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger import pins, shape
from tipbench.ledger.address import parse_address
from tipbench.ledger.batches import Batches
from tipbench.ledger.cache import Cache, Counts
from tipbench.ledger.chunks import Damaged
from tipbench.ledger.claims import CellsBusy, Claims, writer_of
from tipbench.ledger.mlflow_store import Store
from tipbench.ledger.notes import Notes
from tipbench.ledger.registry import Registry
from tipbench.ledger.shipments import Shipments
from tipbench.ledger.suites import Suites
from tipbench.ledger.words import Words
from tipbench.records import ExperimentSummary, RubricText, RunTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tipbench.ledger.claims import Held
    from tipbench.ledger.mlflow_store import ExperimentRow
    from tipbench.ledger.notes import Note
    from tipbench.ledger.shape import Row
    from tipbench.records import Application, Batch, CellResult, Mark, Pin, Rejection, Release, Run, Shipped

REVISION = "tipbench.revision"
MARKS = "tipbench.marks."
_ROWS = 100
_PROMPT_HASH = "tipbench.prompt_hash"


def open_ledger(uri: str, *, home: Path, host_header: str = "") -> MlflowLedger:
    """The ledger at an address; empty is the embedded store in `home`. Nothing is opened until it is used."""
    place = home.expanduser().absolute()
    store = Store(parse_address(uri, home=place), home=place, host_header=host_header)
    return MlflowLedger(store, home=place)


@dataclass(frozen=True, kw_only=True)
class _Written:
    """A result, the run that was written for it, and the tags that must be found there."""

    result: CellResult
    held: Held
    tags: Mapping[str, str]


class MlflowLedger:
    """A run that is not ended and that nobody writes was left half-written: the next try completes it."""

    def __init__(self, store: Store, *, home: Path) -> None:
        self._store = store
        self._home = home
        self._cache = Cache(home / "cache.db")
        self._batches = Batches(store, self._cache)
        self._marks = Words(store, MARKS)
        self._registry = Registry(store)
        self._shipments = Shipments(self._registry)
        self._suites = Suites(store)
        self._registered: set[tuple[str, str]] = set()

    @property
    def uri(self) -> str:
        """The address without credentials."""
        return self._store.address.public

    def pin(self, experiment: str, pin: Pin) -> Pin:
        found = self._experiment(experiment)
        if found is None:
            parts, pointer = pins.pin_tags(pin)
            self._store.create_experiment(experiment, parts | pointer | _new_revision())
            found = self._existing(experiment)
        held = pins.pin_from_tags(experiment, found.tags)
        merged = pins.merge_pins(experiment, held, pin) if held else pin
        if merged != held:
            self._write_pin(found, merged)
        self._register_prompts(merged)
        self._suites.keep(found, merged.suite_id, merged.suites)
        return merged

    def _write_pin(self, found: ExperimentRow, pin: Pin) -> None:
        parts, pointer = pins.pin_tags(pin)
        new = {name: value for name, value in parts.items() if name not in found.tags}
        for name, value in (new | pointer | _new_revision()).items():
            self._store.tag_experiment(found.experiment_id, name, value)
        written = self._existing(found.name)
        if pins.pin_from_tags(found.name, written.tags) is None:
            raise LedgerUnreachable(f"{self.uri} did not keep the pin of {found.name!r}; try again")
        for name in pins.stale_parts(written.tags, pin):
            self._store.untag_experiment(found.experiment_id, name)

    def pinned(self, experiment: str) -> Pin | None:
        found = self._experiment(experiment)
        return pins.pin_from_tags(experiment, found.tags) if found else None

    def suite_texts(self, experiment: str) -> list[str]:
        found = self._experiment(experiment)
        return self._suites.all(found) if found else []

    def change_rubric(self, experiment: str, *, rubric_id: str, rubric_hash: str, rubric_text: str) -> Pin:
        found = self._existing(experiment)
        held = pins.pin_from_tags(experiment, found.tags)
        if held is None:
            raise self._not_pinned(experiment)
        pin = replace(held, rubric_id=rubric_id, rubric_hash=rubric_hash, rubric_text=rubric_text)
        if pin != held:
            self._write_pin(found, pin)
        return pin

    def record(self, experiment: str, results: Sequence[CellResult]) -> None:
        """Each result once. A run ends only after what was written to it has been read back and compared.

        Cells that another home is writing are left to it for now: CellsBusy, once the others are recorded.
        """
        found = self._existing(experiment)
        rubric = _rubric_of(pins.pin_from_tags(experiment, found.tags))
        busy: list[str] = []
        written: list[_Written] = []
        for result in shape.settled(results):
            try:
                held = self._claims.run_for(found.experiment_id, result)
            except CellsBusy as error:
                busy.extend(error.keys)
                continue
            if held is not None:
                written.append(self._write(held, result, rubric))
        kept = self._check(found, written)
        for each in kept:
            self._end(each)
        self._touch(found)
        busy.extend(each.result.cell.key for each in written if each not in kept)
        if busy:
            raise CellsBusy(busy)

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self._store, writer_of(self._home))

    def _write(self, held: Held, result: CellResult, rubric: RubricText | None) -> _Written:
        row = held.row
        tags = shape.tags_of(result) | held.claim.tag
        if not held.fresh:
            self._clean(row, tags)
        params = shape.params_of(result)
        # A param cannot change: of a model known by two names, the first one stays.
        new = {name: value for name, value in params.items() if name not in row.params}
        self._store.write_params(row.run_id, new, shape.metrics_of(result), at_ms=result.ended_ms)
        texts = shape.texts_of(result)
        more: dict[str, str] = {}
        if rubric is not None:
            texts |= shape.rubric_texts(rubric, None)
            more = {} if rubric.hash == result.rubric_hash else shape.rubric_tags(rubric)
        if not self._store.put_texts(row, texts):
            more |= shape.text_tags(texts)
        if more:
            self._store.write_tags(row.run_id, more)
        tags |= more
        return _Written(result=result, held=held, tags=tags)

    def _clean(self, row: Row, tags: Mapping[str, str]) -> None:
        """Open the run again, and rid it of what the earlier try said of itself."""
        if row.is_complete:
            self._store.reopen(row.run_id)
        for name in row.tags:
            if name.startswith(("tipbench.", "artifact:")) and name not in tags:
                self._store.untag(row.run_id, name)
        self._store.write_tags(row.run_id, tags)

    def _check(self, found: ExperimentRow, written: Sequence[_Written]) -> list[_Written]:
        """Those that are there as written; one that was taken for a dead writer's is not ours any more."""
        ids = [each.held.row.run_id for each in written]
        rows = {row.run_id: row for row in self._store.rows(found.experiment_id, ids)}
        kept = [each for each in written if each.held.claim.name in _tags(rows, each)]
        for each in kept:
            there = _tags(rows, each)
            lost = [name for name, value in each.tags.items() if there.get(name) != value]
            if lost:
                raise LedgerUnreachable(
                    f"{self.uri} did not keep the tag {lost[0]!r} of run {each.held.row.run_id} as it was "
                    "written; see whether the server cuts long values, then try again"
                )
        return kept

    def _end(self, each: _Written) -> None:
        """A failed run may be taken over by anybody at once, so its claim goes."""
        run_id, failed = each.held.row.run_id, each.result.error is not None
        self._store.end(run_id, failed=failed, ended_ms=each.result.ended_ms)
        if failed:
            self._store.untag(run_id, each.held.claim.name)

    def _touch(self, found: ExperimentRow) -> None:
        for name, value in _new_revision().items():
            self._store.tag_experiment(found.experiment_id, name, value)

    def runs(self, experiment: str) -> list[Run]:
        found = self._experiment(experiment)
        return self._runs(found) if found else []

    def _runs(self, found: ExperimentRow) -> list[Run]:
        """From the cache while the revision stands. It was read before the rows, so it is never too new."""
        revision = self._revision(found)
        cached = self._cache.runs(self.uri, found.experiment_id, revision)
        if cached is not None:
            return cached
        rows = self._store.cells(found.experiment_id)
        runs = shape.one_per_key(self._run(row, found.name) for row in rows if row.is_complete)
        self._cache.keep(self.uri, found.experiment_id, revision, runs)
        return runs

    def matching(self, experiment: str, text: str) -> set[str]:
        """The ids of the cells that a filter of MLflow's `search_runs` finds."""
        found = self._existing(experiment)
        return {row.run_id for row in self._store.filtered(found.experiment_id, text)}

    def revision(self, experiment: str) -> str:
        found = self._experiment(experiment)
        if found is None or self._batches.under_way(found) or self._marks.under_way(found.tags):
            return ""
        cells = self._revision(found)
        return cells and f"{cells} {self._batches.revision(found)} {found.tags.get(pins.TAG, '')}"

    def _revision(self, found: ExperimentRow, marks: str | None = None) -> str:
        """What a snapshot of the runs is kept under: the word of the cells and the words of the marks."""
        cells = found.tags.get(REVISION, "")
        return cells and f"{cells} {self._marks.revision(found.tags) if marks is None else marks}"

    def _run(self, row: Row, experiment: str) -> Run:
        return shape.run_of(row, experiment=experiment, candidates=self._text(row, shape.CANDIDATES))

    def _text(self, row: Row, name: str) -> str:
        """A long text, from tags or artifact; BadInput where it is in neither."""
        text = self._perhaps_text(row, name)
        if text is None:
            raise BadInput(
                f"{name} of run {row.run_id} is neither in its tags nor at {row.artifact_uri}; "
                "restore it there, or delete the run in MLflow and collect again"
            )
        return text

    def _perhaps_text(self, row: Row, name: str) -> str | None:
        try:
            text = shape.text_from_tags(row, name)
        except Damaged:
            text = None
        return self._store.get_text(row, name) if text is None else text

    def run(self, run_id: str) -> tuple[Run, RunTexts]:
        """A run by its id, by the beginning of it (6 characters or more), or by its cell's key."""
        row, found = self._one(run_id)
        texts = {name: self._text(row, name) for name in (shape.PROMPT, shape.RAW, shape.CANDIDATES)}
        run = shape.run_of(row, experiment=found.name, candidates=texts[shape.CANDIDATES])
        return run, RunTexts(
            prompt=texts[shape.PROMPT],
            raw=texts[shape.RAW],
            candidates=texts[shape.CANDIDATES],
            rubric=self._rubric(row, found),
        )

    def _rubric(self, row: Row, found: ExperimentRow) -> str:
        """The rubric of a run. A run that was recorded without it has the one of its experiment."""
        text = self._perhaps_text(row, shape.RUBRIC)
        if text:
            return text
        rubric = _rubric_of(pins.pin_from_tags(found.name, found.tags))
        return rubric.text if rubric else ""

    def _one(self, typed: str) -> tuple[Row, ExperimentRow]:
        text = shape.run_id_start(typed)
        every = {found.experiment_id: found for found in self._store.experiments(tag=pins.TAG)}
        rows = [row for row in self._store.cells_like(list(every), text) if row.is_complete]
        if len(rows) != 1:
            named = [f"{row.run_id} in {every[row.experiment_id].name!r}" for row in rows]
            raise shape.not_one_run(typed, named, uri=self.uri)
        return rows[0], every[rows[0].experiment_id]

    def experiments(self) -> list[ExperimentSummary]:
        found = [self._summary(row) for row in self._store.experiments(tag=pins.TAG)]
        return sorted(found, key=lambda summary: (-(summary.newest_ms or 0), summary.name))

    def _summary(self, found: ExperimentRow) -> ExperimentSummary:
        revision = self._revision(found)
        counts = self._cache.counts(self.uri, found.experiment_id, revision)
        counts = counts or Counts.of(self._runs(found))
        head = pins.pin_head(found.tags) or {}
        return ExperimentSummary(
            name=found.name,
            experiment_id=found.experiment_id,
            suite_id=head.get("suite_id", ""),
            rubric_id=head.get("rubric_id", ""),
            done=counts.done,
            failed=counts.failed,
            pending=counts.pending,
            newest_ms=counts.newest_ms,
            judged=counts.judged,
            url=self._page(found.experiment_id),
        )

    def note(self, experiment: str, note: Note) -> str:
        """Record something that is neither cell nor batch, once; the id of its run."""
        return Notes(self._store).add(experiment, note)

    def add_batch(self, batch: Batch) -> None:
        self._batches.add(self._existing(batch.experiment), batch)

    def batches(self, experiment: str) -> list[Batch]:
        found = self._experiment(experiment)
        return self._batches.all(found) if found else []

    def batch(self, batch_id: str) -> Batch:
        return self._batches.one(self._store.experiments(tag=pins.TAG), batch_id)

    def commit(self, batch: Batch, application: Application) -> None:
        self._batches.commit(self._existing(batch.experiment), batch, application)

    def reject(self, batch: Batch, rejection: Rejection) -> None:
        self._batches.reject(self._existing(batch.experiment), batch, rejection)

    def release(self, batch: Batch, release: Release) -> None:
        self._batches.release(self._existing(batch.experiment), batch, release)

    def rejected_batches(self) -> list[Batch]:
        return self._batches.rejected(self._store.experiments(tag=pins.TAG))

    def mark(self, experiment: str, marks: Mapping[str, Mark]) -> None:
        """Runs that are known to be marked so already are left alone.

        What the cache holds is marked as well and kept under the new words, with the cells' word as it was
        before: had cells been recorded meanwhile, theirs is another, and all is read anew.
        """
        found = self._existing(experiment)
        cached = self._cache.runs(self.uri, found.experiment_id, self._revision(found)) or []
        same = {run.run_id for run in cached if run == _marked(run, marks)}
        new = {run_id: mark for run_id, mark in marks.items() if run_id not in same}
        if not new:
            return
        word = self._marks.begin(found)
        self._write_rubrics(found, new)
        for run_id, mark in new.items():
            self._store.write_mark(run_id, mark)
        revision = self._revision(found, self._marks.end(found, word))
        if cached:
            now = [_marked(run, marks) for run in cached]
            self._cache.keep(self.uri, found.experiment_id, revision, now)

    def add_marks(self, experiment: str, marks: Mapping[str, Sequence[str]]) -> set[str]:
        found = self._store.experiment(experiment)
        if found is None or found.deleted:
            return set(marks)
        runs = {run.key: run for run in self._runs(found)}
        changed = {
            key: run
            for key in marks.keys() & runs.keys()
            if (run := shape.with_marks(runs[key], marks[key])) != runs[key]
        }
        there = self._still_there(found, [run.run_id for run in changed.values()])
        for run in changed.values():
            if run.run_id in there:
                self._store.write_tags(run.run_id, {shape.CELL_MARKS: shape.marks_text(run.marks)})
        if changed:
            self._touch(found)
        gone = {key for key, run in changed.items() if run.run_id not in there}
        return (set(marks) - runs.keys()) | gone

    def _still_there(self, found: ExperimentRow, run_ids: Sequence[str]) -> set[str]:
        """Return the runs that nobody has deleted in MLflow. The cache does not notice a deletion."""
        portions = (run_ids[start : start + _ROWS] for start in range(0, len(run_ids), _ROWS))
        rows = (row for portion in portions for row in self._store.rows(found.experiment_id, portion))
        return {row.run_id for row in rows}

    def _write_rubrics(self, found: ExperimentRow, marks: Mapping[str, Mark]) -> None:
        """Store the rubric in every run whose scores now count under another one than it shows."""
        changed = {run_id: mark.rubric for run_id, mark in marks.items() if mark.rubric is not None}
        ids = list(changed)
        for start in range(0, len(ids), _ROWS):
            rows = self._store.rows(found.experiment_id, ids[start : start + _ROWS])
            for row in rows:
                self._write_rubric(row, changed[row.run_id])

    def _write_rubric(self, row: Row, rubric: RubricText) -> None:
        """The texts first, then the tags that name the rubric: a writer that dies in between is repeated."""
        texts = shape.rubric_texts(rubric, self._perhaps_text(row, shape.RUBRIC))
        in_tags = f"{shape.artifact_tag(shape.RUBRIC)}.chunks" in row.tags
        if in_tags or not self._store.put_texts(row, texts):
            self._store.write_tags(row.run_id, shape.text_tags(texts))
        self._store.write_tags(row.run_id, shape.rubric_tags(rubric))

    def add_shipment(self, shipped: Shipped) -> Shipped:
        return self._shipments.add(shipped)

    def set_shipped(self, suite_id: str, version: int) -> None:
        self._shipments.put_in_force(suite_id, version)

    def shipped(self, suite_id: str) -> Shipped | None:
        return self._shipments.in_force(suite_id)

    def shipments(self, suite_id: str) -> list[Shipped]:
        return self._shipments.all(suite_id)

    def _page(self, experiment_id: str) -> str | None:
        return f"{self.uri}/#/experiments/{experiment_id}" if self._store.address.is_server else None

    def _register_prompts(self, pin: Pin) -> None:
        """Put the pin's prompts in MLflow's prompt registry, each text once.

        A store whose registry cannot be used goes without: the prompts as sent are with every run.
        """
        for prompt_id, template in pin.templates.items():
            name = re.sub(r"[^\w.-]", "_", f"tipbench.{pin.suite_id}.{prompt_id}", flags=re.ASCII)
            version = (name, pin.prompts[prompt_id])
            if version in self._registered:
                continue
            try:
                if version[1] not in self._registry.prompt_tags(name, tag=_PROMPT_HASH):
                    self._registry.register_prompt(name, template, {_PROMPT_HASH: version[1]})
            except (BadInput, LedgerUnreachable):
                return
            self._registered.add(version)

    def _experiment(self, name: str) -> ExperimentRow | None:
        found = self._store.experiment(name)
        if found is not None and found.deleted:
            raise BadInput(
                f"experiment {name!r} was deleted at {self.uri}: restore it with `mlflow experiments restore "
                f"--experiment-id {found.experiment_id}`, or use another name"
            )
        return found

    def _existing(self, name: str) -> ExperimentRow:
        found = self._experiment(name)
        if found is None:
            raise self._not_pinned(name)
        return found

    def _not_pinned(self, name: str) -> NotFound:
        return NotFound(f"there is no experiment {name!r} at {self.uri}; it is made by being pinned")


def _rubric_of(pin: Pin | None) -> RubricText | None:
    if pin is None:
        return None
    return RubricText(id=pin.rubric_id, hash=pin.rubric_hash, text=pin.rubric_text)


def _tags(rows: Mapping[str, Row], each: _Written) -> Mapping[str, str]:
    row = rows.get(each.held.row.run_id)
    return row.tags if row else {}


def _marked(run: Run, marks: Mapping[str, Mark]) -> Run:
    return shape.marked(run, marks[run.run_id]) if run.run_id in marks else run


def _new_revision() -> dict[str, str]:
    """A word never used before: two writers that counted up could arrive at the same number."""
    return {REVISION: uuid.uuid4().hex}
