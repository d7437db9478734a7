"""What came of a simulation or a gate that was a job: from what its command printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.compare import figures
from tipbench.errors import StateUnusable
from tipbench.web.policy_sheet import OUTCOMES
from tipbench.web.regret_chart import Series, regret_chart
from tipbench.web.render import address
from tipbench.workflows.gate_views import gate_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tipbench.store import Job
    from tipbench.web.regret_chart import RegretChart
    from tipbench.workflows.job_progress import Progress


@dataclass(frozen=True, kw_only=True)
class Result:
    """A sentence, for a gate its outcome and where it is shown in full, and the curves."""

    sentence: str
    curves: RegretChart | None
    outcome: str = ""
    state: str = ""
    more: str = ""


def result_of(job: Job, progress: Progress) -> Result | None:
    """None for other jobs, and for those that have printed no result."""
    if job.state != "done" or progress.summary is None:
        return None
    if job.kind == "gate":
        return _of_gate(progress.summary)
    return _of_simulation(progress.summary) if job.kind == "sim" else None


def _of_gate(summary: Mapping[str, Any]) -> Result | None:
    gate_id = summary.get("gate")
    try:
        view = gate_view(summary, gate_id=gate_id)
    except StateUnusable:
        return None
    plan = view.plan
    series = (
        Series(name=f"{plan.challenger} (challenger)", points=view.curves.challenger),
        Series(name=f"{plan.champion} (champion)", points=view.curves.champion),
    )
    return Result(
        sentence=view.verdict.reason,
        outcome=view.outcome,
        state=OUTCOMES[view.outcome],
        more=f"{address('policies', gate=gate_id)}#gate" if gate_id else "",
        curves=regret_chart(series, title=f"Regret of {plan.challenger} and {plan.champion}"),
    )


def _of_simulation(summary: Mapping[str, Any]) -> Result | None:
    series = sorted(_series(summary), key=lambda one: one.last[1])
    if not series:
        return None
    best = series[0]
    least = figures.number(best.last[1], 4)
    sentence = f"{best.name} has the least regret: {least} per round."
    if len(series) > 1 and best.last[1] == series[-1].last[1]:
        sentence = f"All policies have the same regret: {least} per round."
    return Result(sentence=sentence, curves=regret_chart(series, title="Regret of each policy"))


def _series(summary: Mapping[str, Any]) -> Iterator[Series]:
    """The curves as the command printed them; what does not have their form is left out."""
    rows = summary.get("rows")
    for row in rows if isinstance(rows, list) else ():
        curve = row.get("curve") if isinstance(row, dict) else None
        if isinstance(curve, list) and curve and all(map(_is_point, curve)):
            yield Series(name=str(row.get("policy", "?")), points=[tuple(point) for point in curve])


def _is_point(point: object) -> bool:
    if not isinstance(point, list) or len(point) != 4:
        return False
    known = point[:2] if point[2:] == [None, None] else point  # on one seed there are no bounds
    return all(isinstance(one, (int, float)) for one in known)
