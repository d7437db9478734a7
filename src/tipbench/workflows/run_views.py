"""Cells as a reader asks for them: a page of those that match, or one with all that belongs to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import NotFound
from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import is_failure
from tipbench.workflows.browse import one_run, runs_in
from tipbench.workflows.judged import judged_experiment, read_judged
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from tipbench.judge.verdicts import OverlongFlag
    from tipbench.records import Candidate, Run, Verdict
    from tipbench.settings import Settings
    from tipbench.workflows.judged import Judged

# What tells nothing that the rest does not, and is long.
_LEFT_OUT = ("experiment", "candidates", "prompt_hash", "scenario_hash", "rubric_hash")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which cells; None is any. `judged` is True for those that were and wait for nothing, False for the
    waiting.
    """

    model: str | None = None
    prompt: str | None = None
    scenario: str | None = None
    judged: bool | None = None

    def has(self, run: Run) -> bool:
        return (
            self.model in {None, run.model}
            and self.prompt in {None, run.prompt_id}
            and self.scenario in {None, run.scenario_id}
            and (self.judged is None or self.judged == _is_judged(run))
        )


def _is_judged(run: Run) -> bool | None:
    """None for a cell that holds nothing to judge."""
    if run.judge_pending:
        return False
    return True if run.metrics.get("n_judged") else None


def page_of_runs(settings: Settings, wanted: Wanted, *, page: int, size: int) -> dict[str, Any]:
    """The cells that match, oldest first, pages counted from 1; a page past the last is empty."""
    found = [run for run in runs_in(settings) if wanted.has(run)]
    shown = found[(page - 1) * size : page * size]
    return {"total": len(found), "page": page, "size": size, "runs": [run_told(run) for run in shown]}


def run_told(run: Run) -> dict[str, Any]:
    told = {name: value for name, value in asdict(run).items() if name not in _LEFT_OUT}
    return told | {"n_candidates": len(run.candidates), "judged": _is_judged(run)}


def run_in_full(settings: Settings, run_id: str) -> dict[str, Any]:
    """One cell with its texts and with every verdict on each of its candidates."""
    run, texts = one_run(settings, run_id)
    if run.experiment != settings.experiment:
        raise NotFound(f"there is no run {run_id!r} in experiment {settings.experiment!r}")
    state = judged_experiment(settings)
    return {
        "run": run_told(run),
        "prompt": texts.prompt,
        "raw": texts.raw,
        "rubric": texts.rubric,
        "candidates": [_candidate(state, run, one) for one in run.candidates],
    }


def with_judges_flags(settings: Settings, run: Run) -> Run:
    """The run, with the `overlong` flags of its candidates as they count in the composite."""
    state = read_judged(synced_ledger(settings), run.experiment)
    flags = [_judges_flag(state, run, one) for one in run.candidates]
    counted = (
        one if flag is None else replace(one, overlong=flag.value)
        for one, flag in zip(run.candidates, flags, strict=True)
    )
    return replace(run, candidates=tuple(counted))


def _judges_flag(state: Judged, run: Run, candidate: Candidate) -> OverlongFlag | None:
    """The `overlong` flag that judges set for a candidate; None where the code's flag counts."""
    if is_failure(run):
        return None
    return state.overlong_flags(state.ground()).get(candidate_key(run.scenario_id, candidate.text))


def _candidate(state: Judged, run: Run, candidate: Candidate) -> dict[str, Any]:
    key = candidate_key(run.scenario_id, candidate.text)
    verdicts = [_verdict(state, one) for one in state.verdicts if one.candidate == key]
    flag = _judges_flag(state, run, candidate)
    return {
        "text": candidate.text,
        "overlong": flag.value if flag else candidate.overlong,
        "overlong_by": ", ".join(flag.by) if flag else "code",
        "verdicts": verdicts,
    }


def _verdict(state: Judged, one: Verdict) -> dict[str, Any]:
    return {
        "judge": one.judge.id,
        "kind": one.judge.kind,
        "batch": one.batch_id,
        "at_ms": one.at_ms,
        "scores": dict(one.scores),
        "overlong": one.overlong,
        "note": one.note,
        "adjudicated": one.adjudicated,
        "counts": one.rubric_hash == state.rubric.hash,
    }
