"""A run of the DAG, followed to its end: what changes is told, and an Airflow that is away is waited for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.airflow.runs import AWAITING, OVER
from tipbench.errors import AirflowUnreachable, BadInput, DagRunFailed, NotFound, Unavailable
from tipbench.workflows.dag_conf import COMPARE, DAG, WAIT, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tipbench.airflow import DagRun, DagRuns, TaskRun
    from tipbench.records import Emit

    # Whether a run that waits for a judge may go on.
    IsJudged = Callable[[], bool]

EVERY_S, PATIENCE_S = 3.0, 600.0
_FAILED = "failed"
# An approval's own state, and a sensor's between two looks.
_WAITING = frozenset({AWAITING, "up_for_reschedule"})
_SOON_S, _SLOWER, _MOST_STEPS = 0.5, 1.5, 30


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often Airflow is asked while nothing happens, and for how long it may stay away."""

    every_s: float = EVERY_S
    patience_s: float = PATIENCE_S

    def pause_s(self, quiet: int) -> float:
        """How long to wait after so many looks at which nothing had changed: soon at first, then as told."""
        return min(self.every_s, _SOON_S * _SLOWER ** min(quiet, _MOST_STEPS))


class Follower:
    """Follows one run. A change is told as a `dag_run` event with all of it, a task's also as `task`."""

    def __init__(
        self,
        runs: DagRuns,
        run_id: str,
        *,
        models: Sequence[str],
        hosts: Sequence[str],
        emit: Emit,
        is_judged: IsJudged,
        pace: Pace,
    ) -> None:
        self._runs = runs
        self._run_id = run_id
        self._models, self._hosts = models, hosts
        self._emit = emit
        self._is_judged = is_judged
        self._pace = pace
        self._seen: Mapping[str, Any] | None = None
        self._states: dict[tuple[str, int], tuple[str, int]] = {}
        self._told: set[str] = set()
        self._away_since: float | None = None
        self._quiet = 0
        self._may_approve = True

    def to_the_end(self) -> DagRun:
        """The run once it is over. AirflowUnreachable where nobody has answered for too long."""
        while True:
            try:
                run = self._looked_at()
            except AirflowUnreachable as error:
                self._away(error)
            else:
                self._back()
                if run.state in OVER:
                    return run
            time.sleep(self._pace.pause_s(self._quiet))
            self._quiet += 1

    def outcome(self, run: DagRun) -> dict[str, Any]:
        """What came of a run that is over: its leaderboard; DagRunFailed says which task failed, and why."""
        if run.state == _FAILED:
            raise DagRunFailed(self._why_failed())
        compared = self._runs.returned(self._run_id, COMPARE)
        board = compared if isinstance(compared, dict) else {}
        return {**(self._seen or {}), "leaderboard": board, "verdict": str(board.get("verdict") or "")}

    def _looked_at(self) -> DagRun:
        try:
            run = self._runs.get(self._run_id)
            tasks = self._runs.tasks(self._run_id)
        except NotFound:
            raise NotFound(
                f"the DAG run {self._run_id} is no longer in Airflow at {self._runs.client.url}: somebody "
                "has deleted it; start it again"
            ) from None
        self._tell(run, tasks)
        if run.state == "queued":
            self._look_whether_paused()
        if run.state not in OVER:
            self._answer(tasks)
        return run

    def _tell(self, run: DagRun, tasks: Sequence[TaskRun]) -> None:
        told = {
            "run_id": self._run_id,
            "state": run.state,
            "url": self._runs.page(self._run_id),
            "tasks": [self._told_task(task) for task in tasks],
        }
        for task in tasks:
            self._tell_change(task)
        if told != self._seen:
            self._seen, self._quiet = told, 0
            self._emit({"event": "dag_run", **told})

    def _told_task(self, task: TaskRun) -> dict[str, Any]:
        return {
            "name": self._name(task),
            "state": task.state,
            "tries": task.tries,
            "url": self._runs.page(self._run_id, task),
        }

    def _tell_change(self, task: TaskRun) -> None:
        key, now = (task.task, task.index), (task.state, task.tries)
        before = self._states.get(key, ("", 0))
        self._states[key] = now
        if now != before and task.state:
            self._emit({"event": "task", "name": self._name(task), "state": task.state, "tries": task.tries})

    def _name(self, task: TaskRun) -> str:
        return name_of(task, models=self._models, hosts=self._hosts)

    def _look_whether_paused(self) -> None:
        """A run of a DAG that was paused meanwhile waits for ever, and Airflow does not say so."""
        try:
            self._runs.check()
        except AirflowUnreachable:
            raise
        except (NotFound, Unavailable) as error:
            self._notice(str(error))

    def _answer(self, tasks: Sequence[TaskRun]) -> None:
        for task in tasks:
            if task.state == AWAITING and task.task.split(".")[0] == WAIT:
                self._notice("it waits until all is judged; then the approval is given from here")
                if self._may_approve and self._is_judged():
                    self._approve(task)

    def _approve(self, task: TaskRun) -> None:
        """Give the approval. Who may not goes on following: somebody else can give it."""
        try:
            given = self._runs.approve(self._run_id, task)
        except BadInput as error:
            self._may_approve = False
            self._notice(f"all is judged, but {error}; give the approval in Airflow")
            return
        if given:
            self._notice("all is judged: the approval was given")

    def _notice(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self._told:
            self._told.add(sentence)
            self._emit({"event": "notice", "message": sentence})

    def _away(self, error: AirflowUnreachable) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            again = f"asking again for {_span(self._pace.patience_s)}"
            self._emit({"event": "notice", "message": f"{error}; the DAG run goes on, {again}"})
        if now - self._away_since >= self._pace.patience_s:
            raise AirflowUnreachable(
                f"{error}, and has not been for {_span(self._pace.patience_s)}; the DAG run {self._run_id} "
                "may well go on: start this again to follow it"
            )

    def _back(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            self._emit({"event": "notice", "message": "Airflow answers again"})

    def _why_failed(self) -> str:
        url = self._runs.page(self._run_id)
        try:
            failed = [task for task in self._runs.tasks(self._run_id) if task.state == _FAILED]
        except (AirflowUnreachable, NotFound):
            failed = []
        if not failed:
            return f"the DAG run {self._run_id} of {DAG} failed; see {url}"
        first = failed[0]
        why = self._runs.why(self._run_id, first)
        others = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        reason = f" ({why.rstrip('.')})" if why else ""
        log = self._runs.page(self._run_id, first)
        return f"{self._name(first)} failed{reason}{others}; its log is at {log}"


def waits_for_judge(told: Mapping[str, Any]) -> bool:
    """Whether a run, as a `dag_run` event tells of it, waits until it is judged."""
    tasks = told.get("tasks")
    return any(
        task.get("state") in _WAITING and str(task.get("name")).split(".")[0] == WAIT
        for task in (tasks if isinstance(tasks, list) else ())
        if isinstance(task, dict)
    )


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:g} seconds"
    return f"{minutes} minutes"
