"""What the service was asked to run, and how far it came. A job changes only from a state that it is in."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tipbench.store.database import bounded, record, storable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from typing_extensions import Unpack

    from tipbench.store.database import Database, Row

Kind = Literal["collect", "judge", "sim", "gate", "airflow"]
State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """`pid_started` tells the process from a later one with its number. Every change adds to `revision`."""

    job_id: str
    kind: Kind
    title: str
    experiment: str
    params: Mapping[str, Any]
    folder: str
    by: str
    created_ms: int
    state: State = "queued"
    pid: int | None = None
    pid_started: float | None = None
    exit_code: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    revision: int = 0


class Change(TypedDict, total=False):
    """What may change about a job."""

    state: State
    title: str
    pid: int | None
    pid_started: float | None
    exit_code: int | None
    started_ms: int | None
    ended_ms: int | None


def new_job_id() -> str:
    return secrets.token_hex(6)


class Jobs:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: Job) -> None:
        """Keep a new job, on disk when this returns."""
        with self._database.writing() as db:
            db.execute(
                "INSERT INTO job (job_id, revision, kind, title, experiment, params, state, pid, "
                'pid_started, exit_code, created_ms, started_ms, ended_ms, folder, "by") '
                "VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    job.job_id, job.kind, storable(job.title), storable(job.experiment),
                    json.dumps(dict(job.params)), job.state, job.pid, job.pid_started, job.exit_code,
                    job.created_ms, job.started_ms, job.ended_ms, job.folder, storable(job.by),
                ),
            )  # fmt: skip

    def get(self, job_id: str) -> Job | None:
        with self._database.reading() as db:
            row = db.execute("SELECT * FROM job WHERE job_id = ?", (storable(job_id),)).fetchone()
        return None if row is None else _job(row)

    def page(
        self, *, before: str | None = None, limit: int = 50, states: tuple[State, ...] = ()
    ) -> tuple[Job, ...]:
        """The newest jobs, or those before one of them; with `states`, only those in one of these."""
        older = "" if before is None else "AND seq < (SELECT seq FROM job WHERE job_id = ?)"
        those = "" if not states else f"AND state IN ({_marks(states)})"
        with self._database.reading() as db:
            rows = db.execute(
                f"SELECT * FROM job WHERE 1 {older} {those} ORDER BY seq DESC LIMIT ?",  # noqa: S608 - marks
                (*([] if before is None else [storable(before)]), *states, max(0, bounded(limit))),
            ).fetchall()
        return tuple(_job(row) for row in rows)

    def change(
        self,
        job_id: str,
        from_states: tuple[State, ...],
        *,
        revision: int | None = None,
        **new: Unpack[Change],
    ) -> bool:
        """Change a job that is in one of these states; False where it is not, and nothing is changed.

        Of several that try to take a job out of a state, one succeeds. `revision` is for who has looked at
        the job and acts on what it saw: where anything has changed since, this does nothing.
        """
        names = [name for name in Change.__annotations__ if name in new]
        if len(names) < len(new) or not names:
            raise TypeError(f"a job's {', '.join(new) or 'nothing'} cannot be changed")
        values = dict(new)
        assigned = ", ".join(f"{name} = ?" for name in names)
        with self._database.writing() as db:
            changed = db.execute(
                f"UPDATE job SET {assigned}, revision = revision + 1 "  # noqa: S608 - names from the table above
                f"WHERE job_id = ? AND state IN ({_marks(from_states)}) AND (? IS NULL OR revision = ?)",
                (*(values[name] for name in names), storable(job_id), *from_states, revision, revision),
            )
            return changed.rowcount == 1


def _job(row: Row) -> Job:
    return record(Job, row | {"params": json.loads(row["params"])})


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
