"""What is told about judging, and to whom: a judge hears of their own work and of the whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tipbench.judge.agreement import agreement
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.judged import PEOPLE
from tipbench.workflows.judging_names import name_for, named
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.errors import CheckFailed
    from tipbench.judge.agreement import Agreement
    from tipbench.records import Batch, ExperimentSummary, Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.judge_status import JudgeStatus
    from tipbench.workflows.service_state import Service


# A judge cannot take this way out: a person at the command line can.
_FLAG = ", or accept it with --accept-drift"


def to_judge(service: Service, who: Principal) -> list[dict[str, Any]]:
    """The experiments with something to judge, or with a batch that the judge has not handed in."""
    ledger = synced_ledger(service.settings())
    found = []
    for entry in ledger.experiments():
        batches = _counting(ledger, entry.name)
        waits, begun = _waiting(entry, batches), _open_batch(batches, who)
        if waits or begun:
            told = {"rubric": entry.rubric_id, "cells": entry.done, "cells_pending": waits}
            name = name_for(service, ledger, entry.name, who)
            found.append({"experiment": name, **told, "open_batch": begun})
    return found


def _counting(ledger: Ledger, experiment: str) -> list[Batch]:
    """The batches under the rubric that the experiment is pinned to."""
    pin = ledger.pinned(experiment)
    return [one for one in ledger.batches(experiment) if pin and one.rubric_hash == pin.rubric_hash]


def _waiting(entry: ExperimentSummary, batches: Sequence[Batch]) -> int:
    """The cells that wait for a person: all, where only a model or the proxy has judged so far."""
    applied = (one for batch in batches for one in batch.applications)
    return entry.pending if any(one.judge.kind in PEOPLE for one in applied) else entry.done


def _open_batch(batches: Sequence[Batch], who: Principal) -> str | None:
    """The batch that the judge would be given again."""
    mine = [
        batch.batch_id
        for batch in batches
        if batch.judge == who.name and batch.purpose != "auto" and not batch.applications
    ]
    return mine[-1] if mine else None


def status_for(service: Service, experiment: str, who: Principal) -> dict[str, Any]:
    """How far judging has come. A judge is told nothing of other judges, and no name of a model."""
    settings = service.settings({"experiment": named(service, experiment, who)})
    found = judge_status(settings)
    everything = who.role == "admin"
    name = name_for(service, synced_ledger(settings), found.experiment, who)
    return {
        "experiment": name,
        "rubric": found.rubric_id,
        "wanted": found.wanted,
        "judged": found.judged,
        "pending": found.pending,
        "cells_pending": found.cells_pending,
        "minutes_left": found.minutes_left,
        "seconds_each": found.seconds_each,
        "settled": found.settled,
        "raced_out": list(found.raced_out) if everything else [],
        "judges": [
            _judge(one) for one in found.judges if everything or (one.judge.id, one.judge.kind) == _me(who)
        ],
        "agreement": agreement_told(found.agreement),
        "open_batches": [asdict(one) for one in found.open_batches if everything or one.judge == who.name],
        "old_verdicts": found.old_verdicts,
        "notes": list(found.notes),
    }


def _me(who: Principal) -> tuple[str, str]:
    return who.name, who.kind


def _judge(one: JudgeStatus) -> dict[str, Any]:
    return {
        "id": one.judge.id,
        "kind": one.judge.kind,
        "verdicts": one.verdicts,
        "batches": one.batches,
        "last_ms": one.last_ms,
        "objections": one.objections,
        "severity": one.severity,
        "chart": [asdict(point) | {"beyond": point.beyond} for point in one.chart],
        "trusted_alone": None if one.compared is None else one.compared.passes,
    }


def agreement_told(found: Agreement) -> dict[str, Any]:
    return {
        "n_items": found.n_items,
        "alpha": dict(found.alpha),
        "word": found.word,
        "enough": found.enough,
    }


def without_flag(error: CheckFailed) -> str:
    """Why a batch was rejected, for who is not at a command line."""
    return str(error).replace(_FLAG, "")


def applied_told(applied: Applied, *, experiment: str) -> dict[str, Any]:
    """What came of a batch; it is in, so nothing that is told can change a score any more."""
    state = applied.state
    agreed = agreement(
        state.verdicts, rubric_hash=state.rubric.hash, scales=state.rubric.scales, kinds=PEOPLE
    )
    return {
        "batch": applied.batch_id,
        "batches": applied.batch_ids,
        "experiment": experiment,
        "judge": applied.judge,
        "new": applied.new,
        "changed": applied.changed,
        "unchanged": applied.unchanged,
        "skipped": applied.skipped,
        "cells_pending": applied.pending,
        "drift": asdict(applied.drift),
        "agreement": agreement_told(agreed),
    }
