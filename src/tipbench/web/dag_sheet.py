"""A run on Airflow as a job's page shows it: where it stands, and each of its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.compare import figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.store import Job
    from tipbench.workflows.job_progress import Progress

# How a task's state looks, by the classes that jobs' states have.
_LOOKS = {
    "success": "done",
    "running": "running",
    "failed": "failed",
    "upstream_failed": "failed",
    "up_for_retry": "interrupted",
    "skipped": "cancelled",
    "removed": "cancelled",
}
_OVER = frozenset({"success", "skipped", "removed"})
_WORDS = {
    "": "waits its turn",
    "success": "done",
    "awaiting_input": "waits for an approval",
    "up_for_reschedule": "waits for the judge",
}


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """One task: `look` is the class of its state."""

    name: str
    words: str
    look: str
    url: str


@dataclass(frozen=True, kw_only=True)
class DagSheet:
    """One run. `told` is where it stands, in words; `url` its page in Airflow."""

    told: str
    url: str
    tasks: Sequence[TaskRow]
    verdict: str


def dag_sheet(job: Job, progress: Progress) -> DagSheet | None:
    """The run of a job on Airflow; None where nothing is known of one yet, or the job is another."""
    found = progress.summary
    if job.kind != "airflow" or not found or not isinstance(found.get("tasks"), list):
        return None
    tasks = [_row(task) for task in found["tasks"] if isinstance(task, dict)]
    done = sum(task.get("state") in _OVER for task in found["tasks"] if isinstance(task, dict))
    state = _words(str(found.get("state", "")))
    return DagSheet(
        told=f"the DAG run is {state}, {done} of {figures.count(len(tasks), 'task')} done",
        url=_web(found.get("url")),
        tasks=tasks,
        verdict=str(found.get("verdict") or ""),
    )


def _row(task: Mapping[str, Any]) -> TaskRow:
    state = str(task.get("state", ""))
    tries = task.get("tries")
    again = f", try {tries}" if isinstance(tries, int) and tries > 1 else ""
    return TaskRow(
        name=str(task.get("name", "?")),
        words=f"{_words(state)}{again}",
        look=_LOOKS.get(state, "queued"),
        url=_web(task.get("url")),
    )


def _words(state: str) -> str:
    return _WORDS.get(state, state.replace("_", " "))


def _web(url: object) -> str:
    """An address that a page may link to: nothing but one of the web's."""
    return url if isinstance(url, str) and url.lower().startswith(("http://", "https://")) else ""
