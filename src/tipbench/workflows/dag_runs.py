"""`airflow run`: a collection on a team's Airflow, triggered, followed to its end, and ended with us."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING, Any

from tipbench.airflow import DagRuns
from tipbench.airflow.runs import OVER
from tipbench.errors import BadSetting, Conflict, Interrupted, NotFound, TipbenchError
from tipbench.workflows.airflow_address import connect
from tipbench.workflows.dag_conf import DAG, conf_of, named_hosts
from tipbench.workflows.dag_following import Follower, Pace
from tipbench.workflows.judged import judged_experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.airflow import DagRun
    from tipbench.records import Emit
    from tipbench.settings import Settings
    from tipbench.workflows.dag_conf import Asked

_LOOK_AT_LEDGER_S = 5.0
_ABOUT_TO_BE_S = 2.0


def run_on_airflow(
    settings: Settings, asked: Asked, *, emit: Emit, run_id: str = "", pace: Pace | None = None
) -> dict[str, Any]:
    """Collect on Airflow's hosts, and return what came of it once the DAG run is over.

    A run that is there already under `run_id` is followed; one that has failed is begun again, and what it
    has done is not done again. Who interrupts this ends the DAG run as well.
    """
    name = run_id or f"tipbench-{secrets.token_hex(6)}"
    if not re.fullmatch(r"[A-Za-z0-9_.~:+-]{1,200}", name):
        raise BadSetting("run_id", f"{name!r} is not a name of letters, digits and _ . ~ : + - (at most 200)")
    runs, conf = DagRuns(connect(), DAG), conf_of(settings, asked)
    follower = Follower(
        runs,
        name,
        models=settings.models,
        hosts=named_hosts(conf),
        emit=emit,
        is_judged=_Ledger(settings, emit),
        pace=pace or Pace(),
    )
    runs.check()
    try:
        _begin(runs, name, conf, emit)
        outcome = follower.outcome(follower.to_the_end())
    except Interrupted:
        _end(runs, name, emit)
        raise
    emit({"event": "summary", "experiment": settings.experiment, "unrecorded": 0, **outcome})
    return {"experiment": settings.experiment, **outcome}


def _begin(runs: DagRuns, run_id: str, conf: Mapping[str, Any], emit: Emit) -> None:
    """Trigger the run, or find the one that an earlier process of ours has triggered."""
    where = f"{run_id} in Airflow: {runs.page(run_id)}"
    if runs.trigger(run_id, conf):
        emit({"event": "notice", "message": f"triggered {where}"})
        return
    found = runs.get(run_id)
    if found.conf != conf:
        raise Conflict(f"there is a DAG run {run_id} already, of other settings; give another --run-id")
    emit({"event": "notice", "message": f"following {where}"})
    if found.state in OVER - {"success"}:
        emit({"event": "notice", "message": "it had failed, so its tasks have their turn again"})
        runs.begin_again(run_id)


def _end(runs: DagRuns, run_id: str, emit: Emit) -> None:
    """Let Airflow end the run, unless it is over."""
    try:
        if _found(runs, run_id).state in OVER:
            return
        runs.end(run_id)
    except NotFound:
        return
    except TipbenchError as error:
        message = f"{error}; the DAG run goes on: end it there, {runs.page(run_id)}"
    else:
        message = f"the DAG run {run_id} was ended; what it has done is kept"
    emit({"event": "notice", "message": message})


def _found(runs: DagRuns, run_id: str) -> DagRun:
    """The run; looked for twice, since it may be about to be there: we may be ended while we trigger it."""
    try:
        return runs.get(run_id)
    except NotFound:
        time.sleep(_ABOUT_TO_BE_S)
        return runs.get(run_id)


class _Ledger:
    """Whether everything of an experiment is judged, as far as the ledger that we see knows."""

    def __init__(self, settings: Settings, emit: Emit) -> None:
        self._settings = settings
        self._emit = emit
        self._looked: float | None = None
        self._told = ""

    def __call__(self) -> bool:
        """At most every few seconds: to look costs as much as a page of judging."""
        now = time.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_AT_LEDGER_S:
            return False
        self._looked = now
        try:
            state = judged_experiment(self._settings)
        except TipbenchError as error:
            self._complain(error)
            return False
        return bool(state.runs) and not state.waiting()

    def _complain(self, error: TipbenchError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            hint = "; until that is mended, the approval can be given in Airflow"
            self._emit({"event": "notice", "message": f"whether all is judged is not known: {error}{hint}"})
