"""A judge's file that came over the wire: the same checks as `judge apply`, and whose it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, CheckFailed, NotFound
from tipbench.judge.filled_file import check_file, read_file
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.applying import apply_answers, one_submission
from tipbench.workflows.judge_replies import BatchClosed, Rejected
from tipbench.workflows.judged import read_judged
from tipbench.workflows.judging_names import name_for
from tipbench.workflows.judging_views import applied_told
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from tipbench.judge.filled_file import FilledFile, JudgeFile
    from tipbench.records import Batch, Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.judged import Judged
    from tipbench.workflows.service_state import Service

NAME = "file"


def apply_upload(service: Service, data: bytes, *, who: Principal | None, ip: str = "") -> dict[str, Any]:
    """Apply a filled judge file: all of it or nothing. CheckFailed where its hidden items speak against it.

    A judge may hand in their own batches alone; an admin, and whoever signs with the service's secret (`who`
    is None), anybody's.
    """
    file = read_file(data, path=NAME)
    ledger = synced_ledger(service.settings())
    only = who.name if who is not None and who.role == "judge" else None
    experiment = _found(ledger, file.batch_id, only).experiment
    with one_submission(file.batch_id):
        return _apply_read(service, read_judged(ledger, experiment), file, who=who, ip=ip)


def _apply_read(
    service: Service, state: Judged, file: JudgeFile, *, who: Principal | None, ip: str
) -> dict[str, Any]:
    batch = next(one for one in state.batches if one.batch_id == file.batch_id)
    filled = check_file(file, batch, rubric_text=state.rubric.text, scales=state.rubric.scales)
    _check_judge(batch, filled, who)
    answers = {entry.item_id: entry.answer for entry in filled.entries if entry.answer.scores is not None}
    lines = {entry.item_id: f"{NAME}:{entry.line}: item {entry.number}" for entry in filled.entries}
    way = "hook" if who is None else "judge"
    try:
        applied = apply_answers(state, batch, filled.judge, answers, lines=lines)
    except Rejected as error:
        detail = f"by {filled.judge.id}: {error.reason}"
        service.audit(who, f"{way}.rejected", batch.batch_id, detail, ip=ip)
        if error.closes:
            service.audit(who, f"{way}.closed", batch.batch_id, f"by {filled.judge.id}", ip=ip)
        raise CheckFailed(error.words) from None
    except BatchClosed as error:
        raise BatchClosed(error.words) from None
    service.came_in()
    told = f"{applied.new} new verdicts by {filled.judge.id}"
    service.audit(who, f"{way}.apply", batch.batch_id, told, ip=ip)
    name = state.experiment if who is None else name_for(service, state.ledger, state.experiment, who)
    return applied_told(applied, experiment=name)


def _found(ledger: Ledger, batch_id: str, only: str | None) -> Batch:
    """The batch; to a judge, one that was made for somebody else is as good as none."""
    absent = NotFound(f"there is no batch {batch_id!r} here that this file could be applied to")
    try:
        batch = ledger.batch(batch_id)
    except NotFound:
        raise absent from None
    if only is not None and batch.judge != only:
        raise absent
    return batch


def _check_judge(batch: Batch, filled: FilledFile, who: Principal | None) -> None:
    judge = filled.judge
    if who is not None and who.role == "judge" and judge.id != who.name:
        raise NotAllowed(f"'judged_by' says {judge.id!r}, and you are {who.name!r}", status=403)
    if who is not None and who.kind == "agent" and judge.kind != "agent":
        raise NotAllowed(f"'judged_by' says {judge.kind!r}, and your token is an agent's", status=403)
    if batch.judge and filled.judge.id != batch.judge:
        raise BadInput(
            f"batch {batch.batch_id} was made for {batch.judge!r}, and 'judged_by' says {filled.judge.id!r}; "
            "take a batch of one's own"
        )
