"""The texts of the suites that an experiment was collected with: one MLflow run for each text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tipbench.ledger import chunks, shape
from tipbench.ledger.shape import KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.ledger.mlflow_store import ExperimentRow, Store
    from tipbench.ledger.shape import Row

SUITE = "tipbench.suite"
FILE = "suite.json"


class Suites:
    """The suite texts of one store. A text is known by its SHA-256 and stored once in an experiment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: set[tuple[str, str]] = set()

    def keep(self, found: ExperimentRow, suite_id: str, texts: Mapping[str, str]) -> None:
        """Store the texts that the experiment does not hold yet."""
        for digest, text in texts.items():
            if (found.experiment_id, digest) not in self._kept:
                self._keep(found, suite_id, digest, text)
                self._kept.add((found.experiment_id, digest))

    def _keep(self, found: ExperimentRow, suite_id: str, digest: str, text: str) -> None:
        """A run that was left half-written is completed. It counts only once it has ended."""
        row = self._row(found, digest) or self._begun(found, suite_id, digest)
        if row.is_complete:
            return
        texts = {FILE: text}
        if not self._store.put_texts(row, texts):
            self._store.write_tags(row.run_id, shape.text_tags(texts))
        self._store.end(row.run_id, failed=False, ended_ms=_now_ms())

    def _row(self, found: ExperimentRow, digest: str) -> Row | None:
        rows = self._store.tagged([found.experiment_id], SUITE, digest)
        return next(iter(sorted(rows, key=lambda row: not row.is_complete)), None)

    def _begun(self, found: ExperimentRow, suite_id: str, digest: str) -> Row:
        return self._store.create_run(
            found.experiment_id,
            name=chunks.storable(f"suite {suite_id}"),
            started_ms=_now_ms(),
            tags={KIND: "suite", SUITE: digest},
            made=lambda: self._row(found, digest),
        )

    def all(self, found: ExperimentRow) -> list[str]:
        """Every text that can be read whole, the newest first."""
        rows = [row for row in self._store.tagged([found.experiment_id], KIND, "suite") if row.is_complete]
        texts = {row.tags.get(SUITE, ""): self._text(row) for row in reversed(rows)}
        return [text for digest, text in texts.items() if text and chunks.sha256(text) == digest]

    def _text(self, row: Row) -> str | None:
        try:
            text = shape.text_from_tags(row, FILE)
        except chunks.Damaged:
            return None
        return self._store.get_text(row, FILE) if text is None else text


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
