"""What is told about judging, and to whom: a judge hears of their own work and of the whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tipbench.judge.agreement import agreement
from tipbench.workflows.judge_status import open_batches, status_of
from tipbench.workflows.judged import PEOPLE, as_judge_sees, is_open, judged_experiment, read_judged
from tipbench.workflows.judging_names import name_for, named
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.judge.agreement import Agreement, Comparison
    from tipbench.records import Batch, ExperimentSummary, Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.judge_status import JudgeStatus
    from tipbench.workflows.service_state import Service


def to_judge(service: Service, who: Principal) -> list[dict[str, Any]]:
    """The experiments with something to judge, or with a batch that the judge has not handed in."""
    ledger = synced_ledger(service.settings())
    found = []
    for entry in ledger.experiments():
        batches = _counting(ledger, entry.name)
        waits, begun = _waiting(entry, batches), _open_batch(ledger, batches, who)
        if begun and waits:
            waits = _shown_waiting(ledger, entry, batches, who)
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


def _open_batch(ledger: Ledger, batches: Sequence[Batch], who: Principal) -> str | None:
    """The batch that the judge would be given again."""
    mine = [batch for batch in batches if batch.judge == who.name and batch.purpose != "auto"]
    if any(batch.applications and not batch.is_closed for batch in mine):
        state = read_judged(ledger, mine[0].experiment)
        mine = [batch for batch in mine if is_open(state, batch, who.name)]
    else:
        mine = [batch for batch in mine if not batch.is_closed]
    return mine[-1].batch_id if mine else None


def _shown_waiting(ledger: Ledger, entry: ExperimentSummary, batches: Sequence[Batch], who: Principal) -> int:
    """As `_waiting`, without what this judge has submitted of a batch that is not complete."""
    if who.role == "admin" or not any(one.applications for one in batches if one.judge == who.name):
        return _waiting(entry, batches)
    return len(as_judge_sees(read_judged(ledger, entry.name), who.name).waiting(PEOPLE))


def status_for(service: Service, experiment: str, who: Principal) -> dict[str, Any]:
    """How far judging has come. A judge sees no other judge, no model's name and no number of agreement."""
    settings = service.settings({"experiment": named(service, experiment, who)})
    everything = who.role == "admin"
    state = judged_experiment(settings)
    found = status_of(state if everything else as_judge_sees(state, who.name))
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
            _judge(one, everything=everything)
            for one in found.judges
            if everything or (one.judge.id, one.judge.kind) == _me(who)
        ],
        "agreement": _agreement(found.agreement) if everything else agreement_words(found.agreement),
        "open_batches": [asdict(one) for one in open_batches(state) if everything or one.judge == who.name],
        "rejected_batches": [asdict(one) for one in found.rejected_batches] if everything else [],
        "old_verdicts": found.old_verdicts,
        "notes": [*found.notes, *(found.ai_notes if everything else ())],
    }


def _me(who: Principal) -> tuple[str, str]:
    return who.name, who.kind


def _judge(one: JudgeStatus, *, everything: bool) -> dict[str, Any]:
    """One judge. Only an admin gets the numbers of the drift chart and of the severity."""
    return {
        "id": one.judge.id,
        "kind": one.judge.kind,
        "verdicts": one.verdicts,
        "batches": one.batches,
        "last_ms": one.last_ms,
        "objections": one.objections,
        "severity": one.severity if everything else None,
        "chart": [asdict(point) | {"beyond": point.beyond} for point in one.chart] if everything else [],
        "trusted_alone": None if one.compared is None else one.compared.passes,
        "calibration": _calibration(one.compared) if everything and one.compared else None,
        "inconsistent": one.inconsistent,
    }


def _calibration(found: Comparison) -> dict[str, Any]:
    return {
        "people": found.people,
        "version": found.version,
        "n": found.n,
        "n_swapped": found.n_swapped,
        "least_alpha": found.least_alpha,
        "scales": {name: asdict(scale) for name, scale in found.scales.items()},
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    """The agreement of judges with its numbers, for admins."""
    return {"n_items": found.n_items, "alpha": dict(found.alpha), **agreement_words(found)}


def agreement_words(found: Agreement) -> dict[str, Any]:
    """The agreement of judges in words. Numbers would change with each batch that a judge submits."""
    return {"word": found.word, "enough": found.enough}


def applied_told(applied: Applied, *, experiment: str) -> dict[str, Any]:
    """The result of a submission, as a judge may read it.

    A part of a batch moves no count of candidates: that would tell hidden items from real ones.
    """
    state = applied.state if applied.whole else as_judge_sees(applied.state, applied.judge)
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
        "cells_pending": len(state.waiting()),
        "drift": asdict(applied.checked),
        "agreement": agreement_words(agreed),
    }
