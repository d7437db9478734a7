"""A judge's file that came over the wire: the same checks as `judge apply`, and whose it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, CheckFailed, NotFound
from tipbench.judge.filled_file import check_file, read_file
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.applying import apply_answers
from tipbench.workflows.judged import read_judged
from tipbench.workflows.judging_names import name_for
from tipbench.workflows.judging_views import applied_told, without_flag
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from tipbench.judge.filled_file import FilledFile
    from tipbench.records import Batch, Ledger
    from tipbench.workflows.access import Principal
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
    state = read_judged(ledger, _found(ledger, file.batch_id, only).experiment)
    batch = next(one for one in state.batches if one.batch_id == file.batch_id)
    filled = check_file(file, batch, rubric_text=state.rubric.text, scales=state.rubric.scales)
    _check_judge(batch, filled, who)
    answers = {entry.item_id: entry.answer for entry in filled.entries if entry.answer.scores is not None}
    lines = {entry.item_id: f"{NAME}:{entry.line}: item {entry.number}" for entry in filled.entries}
    way = "hook" if who is None else "judge"
    try:
        applied = apply_answers(state, batch, filled.judge, answers, lines=lines)
    except CheckFailed as error:
        service.audit(who, f"{way}.rejected", batch.batch_id, f"by {filled.judge.id}: {error}", ip=ip)
        raise CheckFailed(without_flag(error)) from None
    service.came_in()
    told = f"{applied.new} new verdicts by {filled.judge.id}"
    service.audit(who, f"{way}.apply", batch.batch_id, told, ip=ip)
    name = state.experiment if who is None else name_for(service, ledger, state.experiment, who)
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
