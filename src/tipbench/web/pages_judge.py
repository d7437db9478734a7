"""Judging: what waits, one tip after the other, and what came of it. Nothing here tells who wrote what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from tipbench.compare import figures
from tipbench.web.drift_chart import drift_chart
from tipbench.web.guard import as_sentence, need
from tipbench.web.render import page, part
from tipbench.web.rubric_sheet import sheet_of
from tipbench.workflows.access import Principal
from tipbench.workflows.judge_status import status_of
from tipbench.workflows.judged import as_judge_sees, judged_experiment
from tipbench.workflows.judging_names import named
from tipbench.workflows.judging_views import to_judge
from tipbench.workflows.service_state import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.judge.agreement import Agreement
    from tipbench.workflows.judge_status import JudgeState, JudgeStatus, RejectedBatch

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True)
class WaitingRow:
    """An experiment by the name that the judge may read."""

    name: str
    told: str
    judged_words: str
    percent: int
    action: str


@router.get("/judge")
def waiting(request: Request, who: Principal = need("judge", "admin")) -> Response:
    """The experiments in which something waits for a judge, the newest first."""
    rows = [_row(one) for one in to_judge(request.app.state.service, who)]
    return page(request, "judge_list.html.j2", rows=rows)


def _row(one: Mapping[str, Any]) -> WaitingRow:
    cells, waits, begun = one["cells"], one["cells_pending"], one["open_batch"]
    return WaitingRow(
        name=one["experiment"],
        told="you have begun a batch" if begun else "not begun by you",
        judged_words=f"{waits} of {figures.count(cells, 'cell')} to judge" if waits else "all judged",
        percent=part(cells - waits, cells),
        action="Go on" if begun else "Judge",
    )


@router.get("/judge/{experiment}")
def judging(request: Request, experiment: str, who: Principal = need("judge", "admin")) -> Response:
    """The desk. What is judged is fetched by its script; the rubric is on the page."""
    service: Service = request.app.state.service
    rubric = judged_experiment(service.settings({"experiment": named(service, experiment, who)})).rubric
    return page(
        request,
        "judge.html.j2",
        experiment=experiment,
        sheet=sheet_of(rubric),
        lowest=min(scale.low for scale in rubric.scales),
        highest=max(scale.high for scale in rubric.scales),
    )


@router.get("/judge/{experiment}/result")
def result(request: Request, experiment: str, who: Principal = need("judge", "admin")) -> Response:
    """How the judge who asks has drifted, and how far judges agree; from batches that are in."""
    service: Service = request.app.state.service
    state = judged_experiment(service.settings({"experiment": named(service, experiment, who)}))
    admin = who.role == "admin"
    found = status_of(state if admin else as_judge_sees(state, who.name))
    own = next((one for one in found.judges if (one.judge.id, one.judge.kind) == (who.name, who.kind)), None)
    agreed = found.agreement if found.agreement.n_items else None
    return page(
        request,
        "judge_result.html.j2",
        experiment=experiment,
        pending=found.left_to_people,
        said=_said(found, own),
        more=_more(found),
        drift=drift_chart(own.chart) if own and admin else None,
        no_drift=_drift_words(own),
        rejected=[_rejected_row(one) for one in found.rejected_batches] if admin else [],
        scales=_scales(agreed) if agreed and admin else (),
        agreement_told=_agreement_told(agreed, numbers=admin),
        severity=_severity(own, numbers=admin),
        notes=[as_sentence(note) for note in (*found.notes, *(found.ai_notes if admin else ()))],
        machines=[_machine(one) for one in found.judges if one.compared] if admin else [],
    )


def _machine(one: JudgeStatus) -> dict[str, Any]:
    """A model or the proxy against people, as an admin reads it: Krippendorff's alpha first."""
    found = one.compared
    assert found is not None  # noqa: S101 - the caller chose those that are compared
    return {
        "name": one.judge.id,
        "people": found.people,
        "told": (
            f"Lowest alpha {figures.number(found.least_alpha, 2)} on {figures.count(found.n, 'tip')} that "
            f"{found.people}s scored too; {'it' if found.passes else 'it does not'} "
            f"{'agrees' if found.passes else 'agree'} well enough to rank alone."
            if found.n
            else "Not compared with people yet: no tip was scored by both."
        ),
        "left_out": figures.count(one.inconsistent, "tip") if one.inconsistent else "",
        "rows": [
            (
                name,
                *(
                    figures.number(value, 2)
                    for value in (
                        scale.alpha,
                        scale.bias,
                        scale.swap_alpha,
                        scale.top_bonus,
                        scale.length,
                        scale.length_people,
                    )
                ),
            )
            for name, scale in found.scales.items()
        ]
        if found.n
        else [],
    }


def _drift_words(own: JudgeStatus | None) -> str:
    """The judge's drift without numbers and without a direction: both would be hints to the hidden items."""
    if own is None or not own.chart:
        return "Not checked: no batch of yours with agreed items is in."
    if own.chart[-1].beyond or own.chart[-1].accepted:
        return (
            "Your scores differ from the agreed scores more than chance explains. Read the rubric's examples."
        )
    return "Your scores agree with the agreed scores, as far as your batches can tell."


def _rejected_row(one: RejectedBatch) -> dict[str, Any]:
    """A rejected batch as an admin reads it, with the numbers."""
    if one.replaced_by:
        standing = f"closed, replaced by {one.replaced_by}"
    elif one.closed:
        standing = "closed until the judge takes the next batch, or until it is released"
    else:
        standing = "can be submitted again"
    return {
        "batch": one.batch_id,
        "judge": one.judge or "anybody",
        "standing": standing,
        "releasable": one.closed and not one.replaced_by,
        "reasons": [rejection.reason for rejection in one.rejections],
    }


def _said(found: JudgeState, own: JudgeStatus | None) -> str:
    if own is None:
        return "No batch of yours is in yet."
    batches = f"{own.batches} batch{'' if own.batches == 1 else 'es'}"
    mine = f"You have judged {figures.count(own.verdicts, 'tip')} in {batches}"
    return f"{mine}; {found.judged} of {found.wanted} are judged in all."


def _more(found: JudgeState) -> str:
    """What is left for people, also where a model has judged all of it."""
    if not found.left_to_people:
        return "Nothing is left to judge."
    if found.settled:
        return "One variant is left in the race, and simulated judgements of the rest keep it first."
    left = figures.count(found.left_to_people, "tip")
    what = f"{left} to go" if found.pending else f"{left} that no person has judged"
    return f"{what}: about {figures.count(max(1, found.minutes_left), 'minute')} for one person."


def _scales(agreed: Agreement) -> list[tuple[str, str, str]]:
    words = agreed.words
    return [
        (name, figures.number(alpha, 2), words[name] or "not known") for name, alpha in agreed.alpha.items()
    ]


def _agreement_told(agreed: Agreement | None, *, numbers: bool) -> str:
    """How far people agree. Only an admin reads numbers: they would change with each submitted batch."""
    if agreed is None:
        return "Not known: no tip was judged by two people yet."
    if not numbers:
        few = "" if agreed.enough else " Too few tips have scores of two people to be sure."
        return f"Agreement of people on the same tips: {agreed.word or 'not known'}.{few}"
    enough = "" if agreed.enough else "; that is too few to be sure"
    return f"On the {figures.count(agreed.n_items, 'tip')} that at least two judges scored{enough}."


def _severity(own: JudgeStatus | None, *, numbers: bool) -> str:
    if own is None or own.severity is None:
        return ""
    way = "more" if own.severity > 0 else "fewer"
    points = f"{abs(own.severity):.1f} points {way}" if numbers else f"{way} points"
    return f"On tips that others judged too, you gave {points} than they did."
