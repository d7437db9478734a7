"""Runs that are neither cells nor batches: what a simulation showed, what a gate said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.ledger.shape import KEY, KIND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.ledger.mlflow_store import ExperimentRow, Store
    from tipbench.ledger.shape import Row


@dataclass(frozen=True, kw_only=True)
class Note:
    """One run. `key` tells it from all others: the same key is recorded once."""

    kind: str
    key: str
    name: str
    started_ms: int
    ended_ms: int
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


class Notes:
    """Notes in their experiments, which are made when they are first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, experiment: str, note: Note) -> str:
        """The id of the note's run. One that was left half-written is completed."""
        found = self._experiment(experiment)
        row = self._found(found, note) or self._begun(found, note)
        if not row.is_complete:
            self._store.write_params(row.run_id, note.params, note.metrics, at_ms=note.ended_ms)
            self._store.write_curves(row.run_id, note.curves, at_ms=note.ended_ms)
            self._store.put_texts(row, note.texts)
            self._store.end(row.run_id, failed=False, ended_ms=note.ended_ms)
        return row.run_id

    def _experiment(self, name: str) -> ExperimentRow:
        self._store.create_experiment(name, {})
        found = self._store.experiment(name)
        if found is None or found.deleted:
            raise NotFound(f"the experiment {name!r} is deleted in MLflow; restore it there")
        return found

    def _begun(self, found: ExperimentRow, note: Note) -> Row:
        return self._store.create_run(
            found.experiment_id,
            name=note.name,
            started_ms=note.started_ms,
            tags={KIND: note.kind, KEY: note.key, **note.tags},
            made=lambda: self._found(found, note),
        )

    def _found(self, found: ExperimentRow, note: Note) -> Row | None:
        rows = self._store.tagged([found.experiment_id], KEY, note.key)
        return rows[0] if rows else None
