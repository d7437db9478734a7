"""The runs of one DAG: triggered, looked at, answered, ended, begun again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tipbench.errors import AirflowUnreachable, Conflict, NotFound, TipbenchError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tipbench.airflow.client import Client

OVER = frozenset({"success", "failed"})
AWAITING = "awaiting_input"
_PAGE = 100
_MOST_TASKS = 10_000


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """A run as it is now: queued, running, success or failed. `conf` is what it was triggered with."""

    run_id: str
    state: str
    conf: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """One task of a run. `index` is -1 for one that is not mapped; `named` is what the DAG calls it, if so.

    `state` is empty for one whose turn has not come.
    """

    task: str
    index: int
    named: str
    state: str
    tries: int


class DagRuns:
    """The runs of one DAG."""

    def __init__(self, client: Client, dag: str) -> None:
        self.client = client
        self.dag = dag
        self._path = f"/dags/{quote(dag, safe='')}"

    def check(self) -> None:
        """Refuse a DAG that is not there, cannot be read, or is paused: its runs would wait for ever."""
        where = f"Airflow at {self.client.url}"
        try:
            found = _object(self.client.ask("GET", self._path), "a DAG")
        except NotFound:
            raise NotFound(
                f"{where} has no DAG {self.dag}; put tipbench's dags/ into its DAG folder"
            ) from None
        if found.get("is_stale") is True:
            raise NotFound(f"{where} no longer finds the file of {self.dag}; put it back into its DAG folder")
        if found.get("is_paused") is True:
            raise Unavailable(
                f"{self.dag} is paused in {where}; unpause it there, or type: airflow dags unpause {self.dag}"
            )

    def trigger(self, run_id: str, conf: Mapping[str, Any]) -> bool:
        """Begin a run; False where there is one of this name already."""
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}
        try:
            self.client.ask("POST", f"{self._path}/dagRuns", body=body)
        except Conflict:
            return False
        return True

    def get(self, run_id: str) -> DagRun:
        """The run as it is now; NotFound where it was deleted."""
        found = _object(self.client.ask("GET", self._of(run_id)), "a DAG run")
        conf = found.get("conf")
        return DagRun(run_id=run_id, state=_text(found, "state"), conf=conf if isinstance(conf, dict) else {})

    def tasks(self, run_id: str) -> list[TaskRun]:
        """Every task of the run, mapped ones each by itself."""
        return [_task(found) for found in self._pages(f"{self._of(run_id)}/taskInstances", "task_instances")]

    def end(self, run_id: str) -> None:
        """Let Airflow end the run: its tasks are stopped, and it counts as failed."""
        self.client.ask("PATCH", self._of(run_id), body={"state": "failed"}, query={"update_mask": "state"})

    def begin_again(self, run_id: str) -> None:
        """Let every task have its turn again.

        All of them: of a run that was ended by hand, the tasks whose turn never came count as skipped and not
        as failed, and Airflow would leave them so.
        """
        body = {"dry_run": False, "only_failed": False}
        self.client.ask("POST", f"{self._of(run_id)}/clear", body=body)

    def approve(self, run_id: str, task: TaskRun, *, answer: str = "Approve") -> bool:
        """Answer a task that waits for a person; False where somebody has answered before."""
        path = f"{self._of_task(run_id, task.task)}/{task.index}/hitlDetails"
        try:
            self.client.ask("PATCH", path, body={"chosen_options": [answer], "params_input": {}})
        except Conflict:
            return False
        return True

    def returned(self, run_id: str, task: str) -> Any:  # noqa: ANN401 - whatever the task returned
        """What a task returned; None where it has returned nothing."""
        path = f"{self._of_task(run_id, task)}/xcomEntries/return_value"
        try:
            return _object(self.client.ask("GET", path), "an XCom").get("value")
        except NotFound:
            return None

    def why(self, run_id: str, task: TaskRun) -> str:
        """What a task raised last, by its log; nothing where that cannot be told."""
        path = f"{self._of_task(run_id, task.task)}/logs/{max(1, task.tries)}"
        query: dict[str, str | int] = {"map_index": task.index, "full_content": "true"}
        try:
            said = self.client.ask("GET", path, query=query)
        except TipbenchError:
            return ""
        content = said.get("content") if isinstance(said, dict) else None
        raised = [_raised(entry) for entry in content] if isinstance(content, list) else []
        return next((text for text in reversed(raised) if text), "")

    def page(self, run_id: str, task: TaskRun | None = None) -> str:
        """The address of a run, or of one of its tasks with its log, in Airflow's own pages."""
        own = f"{self.client.url}{self._path}/runs/{quote(run_id, safe='')}"
        if task is None:
            return own
        mapped = f"/mapped/{task.index}" if task.index >= 0 else ""
        return f"{own}/tasks/{quote(task.task, safe='')}{mapped}"

    def _of(self, run_id: str) -> str:
        return f"{self._path}/dagRuns/{quote(run_id, safe='')}"

    def _of_task(self, run_id: str, task: str) -> str:
        return f"{self._of(run_id)}/taskInstances/{quote(task, safe='')}"

    def _pages(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        seen = 0
        while seen < _MOST_TASKS:
            said = _object(self.client.ask("GET", path, query={"limit": _PAGE, "offset": seen}), name)
            found, total = said.get(name), said.get("total_entries")
            if not isinstance(found, list):
                raise _odd(name)
            yield from (_object(one, name) for one in found)
            seen += len(found)
            if not found or not isinstance(total, int) or seen >= total:
                return


def _task(found: Mapping[str, Any]) -> TaskRun:
    index, tries = found.get("map_index", -1), found.get("try_number", 0)
    named = found.get("rendered_map_index")
    return TaskRun(
        task=_text(found, "task_id"),
        index=index if isinstance(index, int) else -1,
        # Until a task has run, Airflow gives its number for a name.
        named=named if isinstance(named, str) and not named.isdecimal() else "",
        state=str(found.get("state") or ""),
        tries=tries if isinstance(tries, int) else 0,
    )


def _raised(entry: object) -> str:
    detail = entry.get("error_detail") if isinstance(entry, dict) else None
    last = detail[-1] if isinstance(detail, list) and detail else None
    value = last.get("exc_value") if isinstance(last, dict) else None
    lines = value.split("\n") if isinstance(value, str) else []
    return next((" ".join(line.split())[:300] for line in lines if line.strip()), "")


def _object(said: object, what: str) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise _odd(what)
    return said


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise _odd(name)
    return value


def _odd(what: str) -> AirflowUnreachable:
    return AirflowUnreachable(
        f"Airflow answered without {what} where one belongs; tipbench speaks to Airflow 3"
    )
