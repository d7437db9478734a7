"""`judge status`: how far judging has come, and how far the judges can be trusted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from tipbench.judge.agreement import Agreement, Comparison, agreement
from tipbench.judge.gate import ewma_series, history_of, visibility_sentence
from tipbench.judge.verdicts import counting_judges, under, wanted
from tipbench.workflows.assisting import assisted_means
from tipbench.workflows.judged import PEOPLE, judged_experiment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.judge.gate import Point
    from tipbench.records import Batch, Judge, Verdict
    from tipbench.settings import Settings
    from tipbench.workflows.assisting import AssistedMean
    from tipbench.workflows.judged import Judged

    # Candidates by the judge's id and kind, the rubric, and whether they were adjudicated.
    Scored = Mapping[tuple[str, str, str, bool], set[str]]

# What a person takes for a tip, unless their batches say otherwise.
USUAL_SECONDS = 20.0
_QUICKEST, _SLOWEST = 2.0, 120.0
PROVISIONAL = "The drift check is provisional: no person has judged the anchors yet."


@dataclass(frozen=True, kw_only=True)
class JudgeStatus:
    """One judge: how much, how severe against others, and the drift chart. Unknown is None.

    `verdicts` counts the texts that the judge has scored. `compared` compares a model or the proxy with
    people; it is None for people and agents. `inconsistent` candidates have no scores of this model, because
    its reasons named other levels than its scores.
    """

    judge: Judge
    verdicts: int
    batches: int
    last_ms: int
    objections: int
    severity: float | None
    chart: tuple[Point, ...]
    drift_accepted: int = 0
    compared: Comparison | None = None
    inconsistent: int = 0


@dataclass(frozen=True, kw_only=True)
class OpenBatch:
    """A batch that was exported and has not come back whole."""

    batch_id: str
    judge: str
    created_ms: int
    items: int
    judged: int


@dataclass(frozen=True, kw_only=True)
class RejectedSubmission:
    """One submission that the checks rejected, with the numbers."""

    judge: str
    at_ms: int
    reason: str
    drift_z: float | None
    shift: float | None
    foils_failed: int
    forgiven: bool


@dataclass(frozen=True, kw_only=True)
class RejectedBatch:
    """A batch with rejected submissions. `replaced_by` is the batch that was made in its place, if any."""

    batch_id: str
    judge: str
    closed: bool
    replaced_by: str
    released: int
    rejections: tuple[RejectedSubmission, ...]


@dataclass(frozen=True, kw_only=True)
class JudgeState:
    """`wanted`, `judged` and `pending` count candidates: each slot of a cell, as in `compare`.

    All other counts are of texts: equal candidates of a scenario are one text. `judged` candidates have
    scores that the leaderboard uses, `pending` ones wait for a judge. `left_to_people` are the texts that no
    person or agent has judged, `machine_only` those of them that a model or the proxy has. `minutes_left` is
    what they take one person, at the pace of the batches so far or at twenty seconds each. `settled` says
    that one combination is left in the race and that simulated judgements of the rest keep it first.
    """

    experiment: str
    rubric_id: str
    wanted: int
    judged: int
    pending: int
    cells_pending: int
    left_to_people: int
    machine_only: int
    minutes_left: int
    seconds_each: float
    settled: bool
    raced_out: tuple[str, ...]
    judges: tuple[JudgeStatus, ...]
    agreement: Agreement
    open_batches: tuple[OpenBatch, ...]
    rejected_batches: tuple[RejectedBatch, ...]
    old_verdicts: int
    notes: tuple[str, ...]
    ai_notes: tuple[str, ...] = ()
    assisted: tuple[AssistedMean, ...] = ()


def judge_status(settings: Settings) -> JudgeState:
    """How far the judging of the settings' experiment has come."""
    return status_of(judged_experiment(settings))


def status_of(state: Judged) -> JudgeState:
    """How far the judging of an experiment has come."""
    waiting = state.waiting()
    left = sum(map(len, waiting.values()))
    to_people = len(_different(state.waiting(PEOPLE)))
    counting = under(state.verdicts, state.rubric.hash)
    seconds = seconds_each(state.batches)
    agreed = agreement(
        state.verdicts, rubric_hash=state.rubric.hash, scales=state.rubric.scales, kinds=PEOPLE
    )
    return JudgeState(
        experiment=state.experiment,
        rubric_id=state.rubric.id,
        wanted=_n_wanted(state),
        judged=_n_judged(state),
        pending=left,
        cells_pending=len(waiting),
        left_to_people=to_people,
        machine_only=to_people - len(_different(waiting)),
        minutes_left=round(to_people * seconds / 60 + (0.49 if to_people else 0)),
        seconds_each=seconds,
        settled=state.is_settled,
        raced_out=tuple(f"{model} with {prompt}" for model, prompt in sorted(state.out_of_the_race)),
        judges=tuple(_judge_status(state, judge, counting, agreed) for judge in _judges(counting)),
        agreement=agreed,
        open_batches=open_batches(state),
        rejected_batches=_rejected_batches(state),
        old_verdicts=len(state.verdicts) - len(counting),
        notes=_notes(state),
        ai_notes=tuple(_version_notes(state)),
        assisted=assisted_means(state, state.ground()),
    )


def _different(by_run: Mapping[str, Sequence[str]]) -> set[str]:
    return {key for keys in by_run.values() for key in keys}


def _n_judged(state: Judged) -> int:
    """The candidates with scores that the leaderboard uses, of eliminated variants too."""
    scores = state.scores(state.ground())
    return sum(key in scores for keys in _slots(state).values() for key in keys)


def _n_wanted(state: Judged) -> int:
    """The judged candidates and those that wait."""
    waiting, scores = state.waiting(), state.scores(state.ground())
    return sum(
        key in scores or key in waiting.get(run_id, ())
        for run_id, keys in _slots(state).items()
        for key in keys
    )


def _slots(state: Judged) -> dict[str, list[str]]:
    """By run id, the keys of all candidates that count."""
    return wanted(state.runs, tips_per_cell=state.tips_per_cell)


def seconds_each(batches: Sequence[Batch]) -> float:
    """The median over batches of the time from export to apply, where that can have been spent judging."""
    paces = []
    for batch in batches:
        for one in batch.applications[:1]:
            given = len(one.verdicts) + len(one.hidden)
            pace = (one.at_ms - batch.created_ms) / 1000 / max(given, 1)
            if one.judge.kind in PEOPLE and _QUICKEST <= pace <= _SLOWEST:
                paces.append(pace)
    return median(paces) if paces else USUAL_SECONDS


def _judges(verdicts: Sequence[Verdict]) -> list[Judge]:
    newest = {(one.judge.kind, one.judge.id): one.judge for one in verdicts}
    order = ("human", "agent", "ai", "proxy")
    return sorted(newest.values(), key=lambda judge: (order.index(judge.kind), judge.id))


def _judge_status(state: Judged, judge: Judge, counting: Sequence[Verdict], agreed: Agreement) -> JudgeStatus:
    mine = [one for one in counting if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)]
    severity = [
        one.sum for one in agreed.severity if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
    ]
    return JudgeStatus(
        judge=judge,
        verdicts=len({one.candidate for one in mine}),
        batches=len({one.batch_id for one in mine}),
        last_ms=max(one.at_ms for one in mine),
        objections=sum(one.overlong is not None for one in mine),
        severity=severity[0] if severity else None,
        chart=tuple(ewma_series(history_of(state.batches, judge))),
        drift_accepted=sum(
            one.drift_accepted
            for batch in state.batches
            if batch.rubric_hash == state.rubric.hash
            for one in batch.applications
            if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
        ),
        compared=None if judge.kind in PEOPLE else state.calibration(judge),
        inconsistent=_inconsistent(state, judge, mine),
    )


def _inconsistent(state: Judged, judge: Judge, mine: Sequence[Verdict]) -> int:
    """The candidates that the judge left out because reason and score differed, and has not scored since."""
    left_out = {
        item.candidate
        for batch in state.batches
        if batch.rubric_hash == state.rubric.hash
        for one in batch.applications
        if one.inconsistent and (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
        for item in batch.items
        if item.id in one.inconsistent and item.candidate
    }
    return len(left_out - {one.candidate for one in mine})


def _version_notes(state: Judged) -> list[str]:
    """AI judges with scores of several versions: each version has a calibration of its own."""
    counting = counting_judges(state.verdicts, rubric_hash=state.rubric.hash, kind="ai")
    names = Counter(judge.id for judge in counting)
    return [
        f"{name} has scores under {n} versions of its weights and prompt, and each is compared with people "
        f"by itself: `{state.command('judge', 'auto', '--judge', name)}` scores the older ones again."
        for name, n in names.items()
        if n > 1
    ]


def open_batches(state: Judged) -> tuple[OpenBatch, ...]:
    """The batches that were exported, are not closed, and have not come back whole."""
    scored = _scored(state.verdicts)
    current = (
        _how_far(batch, scored)
        for batch in state.batches
        if batch.purpose != "auto" and batch.rubric_hash == state.rubric.hash and not batch.is_closed
    )
    return tuple(one for one in current if one.judged < one.items)


def _rejected_batches(state: Judged) -> tuple[RejectedBatch, ...]:
    by = {one.replaces: one.batch_id for one in state.batches if one.replaces}
    return tuple(
        RejectedBatch(
            batch_id=batch.batch_id,
            judge=batch.judge,
            closed=batch.is_closed,
            replaced_by=by.get(batch.batch_id, ""),
            released=len(batch.releases),
            rejections=_rejections(batch),
        )
        for batch in state.batches
        if batch.rejections
    )


def _rejections(batch: Batch) -> tuple[RejectedSubmission, ...]:
    counted = {one.rejection_id for one in batch.counted_rejections}
    return tuple(
        RejectedSubmission(
            judge=one.judge.id,
            at_ms=one.at_ms,
            reason=one.reason,
            drift_z=one.drift_z,
            shift=one.shift,
            foils_failed=one.foils_failed,
            forgiven=one.rejection_id not in counted,
        )
        for one in batch.rejections
    )


def _scored(verdicts: Sequence[Verdict]) -> Scored:
    """Gathered once for all batches: of each there may be hundreds."""
    found: defaultdict[tuple[str, str, str, bool], set[str]] = defaultdict(set)
    for one in verdicts:
        found[one.judge.id, one.judge.kind, one.rubric_hash, one.adjudicated].add(one.candidate)
    return found


def _how_far(batch: Batch, scored: Scored) -> OpenBatch:
    """The batch by the judge who brought back most of it."""
    takers = {(one.judge.id, one.judge.kind) for one in batch.applications}
    return OpenBatch(
        batch_id=batch.batch_id,
        judge=batch.judge,
        created_ms=batch.created_ms,
        items=len(batch.items),
        judged=max((_n_given(batch, scored, taker) for taker in takers), default=0),
    )


def _n_given(batch: Batch, scored: Scored, taker: tuple[str, str]) -> int:
    """How many items the judge has scored, once each; a candidate also where it was in another batch."""
    given = scored.get((*taker, batch.rubric_hash, batch.purpose == "adjudicate"), set())
    hidden = {
        item_id
        for one in batch.applications
        if (one.judge.id, one.judge.kind) == taker
        for item_id in one.hidden
    }
    return sum(item.candidate in given or item.id in hidden for item in batch.items)


def _notes(state: Judged) -> tuple[str, ...]:
    current = [
        batch for batch in state.batches if batch.rubric_hash == state.rubric.hash and batch.purpose != "auto"
    ]
    checked = [batch for batch in current if any(item.role == "anchor" for item in batch.items)]
    if current and not checked:
        return ("Judge drift not checked: the suite has no anchors.",)
    if not checked:
        return ()
    notes = [visibility_sentence(state.rubric.scales)]
    if not all(item.by_people for item in checked[-1].items if item.role == "anchor"):
        notes.append(PROVISIONAL)
    return tuple(notes)
