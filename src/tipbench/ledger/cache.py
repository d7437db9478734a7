"""What was read of an experiment, kept until its revision changes: reading 3000 runs anew takes seconds.

A cache is a convenience: whatever is wrong with its file, the ledger is read instead.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.ledger.codec import batches_from_json, runs_from_json, to_json
from tipbench.private import make_file, narrow_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tipbench.records import Batch, Run

_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS snapshot_2 (
    ledger TEXT, experiment TEXT, revision TEXT, runs TEXT,
    done INTEGER, failed INTEGER, pending INTEGER, newest_ms INTEGER, judged INTEGER,
    PRIMARY KEY (ledger, experiment)
)""",
    """
CREATE TABLE IF NOT EXISTS batches_1 (
    ledger TEXT, experiment TEXT, revision TEXT, batches TEXT,
    PRIMARY KEY (ledger, experiment)
)""",
)
_KEEP = "INSERT OR REPLACE INTO snapshot_2 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_BATCHES = "INSERT OR REPLACE INTO batches_1 VALUES (?, ?, ?, ?)"
_SNAPSHOT = "FROM snapshot_2 WHERE ledger = ? AND experiment = ? AND revision = ?"
_BATCHES = "FROM batches_1 WHERE ledger = ? AND experiment = ? AND revision = ?"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many cells are done, have failed, and wait for a judge; how many candidates are judged."""

    done: int
    failed: int
    pending: int
    newest_ms: int | None
    judged: int = 0

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Counts:
        done = sum(run.status == "done" for run in runs)
        return cls(
            done=done,
            failed=len(runs) - done,
            pending=sum(run.judge_pending for run in runs),
            newest_ms=max((run.started_ms for run in runs), default=None),
            judged=sum(int(run.metrics.get("n_judged", 0)) for run in runs),
        )


class Cache:
    """Snapshots by ledger and experiment. `revision` is what the ledger says now; empty is never cached."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def runs(self, ledger: str, experiment_id: str, revision: str) -> list[Run] | None:
        row = self._row(f"SELECT runs {_SNAPSHOT}", ledger, experiment_id, revision)
        try:
            return runs_from_json(row[0]) if row else None
        except (KeyError, TypeError, ValueError):
            return None

    def counts(self, ledger: str, experiment_id: str, revision: str) -> Counts | None:
        query = f"SELECT done, failed, pending, newest_ms, judged {_SNAPSHOT}"
        row = self._row(query, ledger, experiment_id, revision)
        if row is None:
            return None
        done, failed, pending, newest_ms, judged = row
        return Counts(done=done, failed=failed, pending=pending, newest_ms=newest_ms, judged=judged)

    def keep(self, ledger: str, experiment_id: str, revision: str, runs: Sequence[Run]) -> None:
        counts = Counts.of(runs)
        numbers = (counts.done, counts.failed, counts.pending, counts.newest_ms, counts.judged)
        self._keep(_KEEP, (ledger, experiment_id, revision), to_json(list(runs)), *numbers)

    def batches(self, ledger: str, experiment_id: str, revision: str) -> list[Batch] | None:
        row = self._row(f"SELECT batches {_BATCHES}", ledger, experiment_id, revision)
        try:
            return batches_from_json(row[0]) if row else None
        except (KeyError, TypeError, ValueError):
            return None

    def keep_batches(self, ledger: str, experiment_id: str, revision: str, batches: Sequence[Batch]) -> None:
        self._keep(_KEEP_BATCHES, (ledger, experiment_id, revision), to_json(list(batches)))

    def _keep(self, statement: str, place: tuple[str, str, str], *values: object) -> None:
        if not place[2]:
            return
        try:
            with closing(self._opened()) as db, db:
                db.execute(statement, (*place, *values))
        except (OSError, sqlite3.OperationalError):
            return
        except sqlite3.DatabaseError:
            self._path.unlink(missing_ok=True)  # broken for good: the next one to keep something starts anew

    def _row(self, query: str, ledger: str, experiment_id: str, revision: str) -> tuple[Any, ...] | None:
        if not revision or not self._path.exists():
            return None
        try:
            with closing(self._opened()) as db:
                row: tuple[Any, ...] | None = db.execute(query, (ledger, experiment_id, revision)).fetchone()
        except (OSError, sqlite3.Error):
            return None
        return row

    def _opened(self) -> sqlite3.Connection:
        make_file(self._path)
        narrow_database(self._path)
        db = sqlite3.connect(self._path, timeout=1)
        # after a power cut a lost or broken cache is read anew: no need to wait for the disk
        db.execute("PRAGMA synchronous = OFF")
        for table in _SCHEMA:
            db.execute(table)
        return db
