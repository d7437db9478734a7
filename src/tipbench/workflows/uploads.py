"""A judge's file that was uploaded: the same checks as `judge apply`, and who may hand it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, CheckFailed, NotFound
from tipbench.judge.filled_file import check_file, read_file
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.applying import BatchesRejected, apply_filled, batches_of, one_submission
from tipbench.workflows.judge_replies import BatchClosed, Rejected
from tipbench.workflows.judging_names import name_for
from tipbench.workflows.judging_views import applied_told
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.judge.filled_file import FilledFile, JudgeFile
    from tipbench.records import Batch, Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.judged import Judged
    from tipbench.workflows.service_state import Service

NAME = "file"


def apply_upload(service: Service, data: bytes, *, who: Principal | None, ip: str = "") -> dict[str, Any]:
    """Apply a filled judge file. A mistake refuses the whole file; the gate rejects batches one by one.

    Raises CheckFailed where a batch was rejected, after the other batches are recorded. A judge may hand in
    their own batches alone; an admin, and a caller who signs with the service's secret (`who` is None), all.
    """
    file = read_file(data, path=NAME)
    ledger = synced_ledger(service.settings())
    only = who.name if who is not None and who.role == "judge" else None
    with one_submission(*file.batch_ids):
        state, batches = _found(ledger, file, only)
        filled = check_file(file, *batches, rubric_text=state.rubric.text, scales=state.rubric.scales)
        for batch in batches:
            _check_judge(batch, filled, who)
        applied = _applied(service, state, batches, filled, who=who, ip=ip)
    _came_in(service, who, applied, ip=ip)
    name = state.experiment if who is None else name_for(service, ledger, state.experiment, who)
    return applied_told(applied, experiment=name)


def _applied(
    service: Service,
    state: Judged,
    batches: Sequence[Batch],
    filled: FilledFile,
    *,
    who: Principal | None,
    ip: str,
) -> Applied:
    try:
        return apply_filled(state, batches, filled)
    except BatchesRejected as error:
        for batch_id, one in error.rejected.items():
            _audit_rejection(service, who, batch_id, filled, one, ip=ip)
        if error.applied is not None:
            _came_in(service, who, error.applied, ip=ip)
        raise
    except Rejected as error:
        _audit_rejection(service, who, batches[0].batch_id, filled, error, ip=ip)
        raise CheckFailed(error.words) from None
    except BatchClosed as error:
        raise BatchClosed(error.words) from None


def _way(who: Principal | None) -> str:
    return "hook" if who is None else "judge"


def _audit_rejection(
    service: Service, who: Principal | None, batch_id: str, filled: FilledFile, error: CheckFailed, *, ip: str
) -> None:
    """Record a rejection with its numbers. A submission of a batch that was closed before is none."""
    if not isinstance(error, Rejected):
        return
    detail = f"by {filled.judge.id}: {error.reason}"
    service.audit(who, f"{_way(who)}.rejected", batch_id, detail, ip=ip)
    if error.closes:
        service.audit(who, f"{_way(who)}.closed", batch_id, f"by {filled.judge.id}", ip=ip)


def _came_in(service: Service, who: Principal | None, applied: Applied, *, ip: str) -> None:
    service.came_in()
    for one in applied.parts or (applied,):
        told = f"{one.new} new verdicts by {one.judge}"
        service.audit(who, f"{_way(who)}.apply", one.batch_id, told, ip=ip)


def _found(ledger: Ledger, file: JudgeFile, only: str | None) -> tuple[Judged, list[Batch]]:
    """The experiment and its batches. For a judge, a batch of another judge counts as missing."""
    first = file.batch_ids[0]
    absent = NotFound(f"there is no batch {first!r} here that this file could be applied to")
    try:
        state, batches = batches_of(ledger, file)
    except NotFound:
        raise absent from None
    if only is not None and any(batch.judge != only for batch in batches):
        raise absent
    return state, batches


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
