"""`judge apply`: record the verdicts of a filled-in judge file.

A mistake in the file refuses the whole file. The gate checks each batch by its hidden items: it rejects a
batch alone, and the other batches of the file are recorded.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, CheckFailed, JudgeFileError
from tipbench.judge.attempts import submission_id
from tipbench.judge.filled_file import check_file, read_file
from tipbench.judge.gate import check_drift, history_of
from tipbench.records import Application, Rejection, Verdict, content_hash
from tipbench.workflows.hints import experiment_command, ledger_options
from tipbench.workflows.judge_replies import Rejected, check_words, closed
from tipbench.workflows.judged import read_judged, scored_items
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.judge.answers import Answer
    from tipbench.judge.filled_file import FilledFile, JudgeFile
    from tipbench.judge.gate import Drift, Past
    from tipbench.records import Batch, Item, Judge, Ledger
    from tipbench.settings import Settings
    from tipbench.workflows.judge_replies import CheckWords
    from tipbench.workflows.judged import Judged

_LARGEST = 20_000_001
_MOST_ROUNDS = 5
_SUBMITTING = [threading.Lock() for _ in range(64)]


@contextmanager
def one_submission(*batch_ids: str) -> Iterator[None]:
    """Let this process check one submission of a batch at a time, so that it counts each rejection.

    Read the batches within. Without this, many submissions at once would all pass before the third is
    counted. The locks are taken in a fixed order, so that two files with the same batches do not block each
    other.
    """
    places = sorted({hash(batch_id) % len(_SUBMITTING) for batch_id in batch_ids})
    with ExitStack() as held:
        for place in places:
            held.enter_context(_SUBMITTING[place])
        yield


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The result of an application. `drift` has the numbers of the checks, for admins; `checked` the words.

    `new` and `changed` verdicts were added, `unchanged` ones were there before, `skipped` items have no
    scores yet. `whole` says that every item has scores now. `state` is the experiment with them. Where a file
    holds several batches, `parts` has the result of each, and `drift` is the worst of theirs.
    """

    batch_id: str
    experiment: str
    judge: str
    new: int
    changed: int
    unchanged: int
    skipped: int
    whole: bool
    drift: Drift
    state: Judged
    parts: tuple[Applied, ...] = ()

    @property
    def batch_ids(self) -> list[str]:
        """The recorded batches."""
        return [one.batch_id for one in self.parts] or [self.batch_id]

    @property
    def checked(self) -> CheckWords:
        """The result of the checks, as a judge may read it."""
        return check_words(self.drift, whole=self.whole)

    @property
    def pending(self) -> int:
        """The cells that still wait for a judge."""
        return len(self.state.waiting())

    @property
    def counts(self) -> str:
        """`12 new, 3 skipped`."""
        parts = [
            f"{self.new} new",
            f"{self.changed} changed",
            f"{self.unchanged} unchanged",
            f"{self.skipped} skipped",
        ]
        return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing in it"

    @property
    def sentence(self) -> str:
        what = f"{len(self.parts)} batches" if len(self.parts) > 1 else f"batch {self.batch_id}"
        return f"{what} of {self.experiment}, judged by {self.judge}: {self.counts}"


class BatchesRejected(CheckFailed):
    """The gate rejected batches of a file. `rejected` has the reason of each, `applied` the other batches."""

    def __init__(
        self, path: Path | str, rejected: Mapping[str, CheckFailed], applied: Applied | None
    ) -> None:
        others = applied.batch_ids if applied else []
        rest = f"the other {len(others)} of {len(others) + len(rejected)} batches of {path} are recorded"
        counts = f"{rest}: {applied.counts}" if applied else f"no batch of {path} is recorded"
        super().__init__("\n".join([*map(str, rejected.values()), counts]))
        self.rejected = rejected
        self.applied = applied


def apply_file(
    settings: Settings, path: str, *, rejudge: bool = False, accept_drift: bool = False
) -> Applied:
    """Apply a judge's file. The same file again changes nothing.

    Raises CheckFailed for a rejected or closed batch: Rejected, BatchClosed or, of several, BatchesRejected.
    """
    file = read_judge_file(path)
    return apply_read(
        synced_ledger(settings),
        file,
        rejudge=rejudge,
        accept_drift=accept_drift,
        options=ledger_options(settings),
    )


def apply_read(
    ledger: Ledger,
    file: JudgeFile,
    *,
    rejudge: bool = False,
    accept_drift: bool = False,
    options: Sequence[str] = (),
) -> Applied:
    """Apply a judge's file that was read, to the batches in this ledger that it was made from.

    `options` name the ledger in commands that messages print.
    """
    with one_submission(*file.batch_ids):
        state, batches = batches_of(ledger, file)
        filled = check_file(file, *batches, rubric_text=state.rubric.text, scales=state.rubric.scales)
        for batch in batches:
            _check_taker(batch, filled, options)
        return apply_filled(state, batches, filled, rejudge=rejudge, accept_drift=accept_drift)


def batches_of(ledger: Ledger, file: JudgeFile) -> tuple[Judged, list[Batch]]:
    """The experiment of a judge's file and its batches. Raises NotFound if the ledger does not have them."""
    state = read_judged(ledger, ledger.batch(file.batch_ids[0]).experiment)
    known = {batch.batch_id: batch for batch in state.batches}
    strange = [batch_id for batch_id in file.batch_ids if batch_id not in known]
    if strange:
        raise JudgeFileError(
            file.path,
            [
                (file.batches_line, f"there is no batch {name!r}; give it the id that was exported")
                for name in strange
            ],
        )
    return state, [known[batch_id] for batch_id in file.batch_ids]


def check_experiment(ledger: Ledger, file: JudgeFile, experiment: str) -> None:
    """Raise BadInput if the batches of a judge's file belong to another experiment."""
    found = ledger.batch(file.batch_ids[0]).experiment
    if found != experiment:
        raise BadInput(
            f"{file.path} was exported from experiment {found!r}, and --experiment is {experiment!r}; "
            f"nothing is recorded: give a file of {experiment!r}, or leave --experiment out"
        )


def apply_filled(
    state: Judged,
    batches: Sequence[Batch],
    filled: FilledFile,
    *,
    rejudge: bool = False,
    accept_drift: bool = False,
) -> Applied:
    """Record the answers of a checked file.

    Raises CheckFailed if a batch is rejected or closed, after the other batches are recorded.
    The caller holds `one_submission` of the batches and has read them within.
    """
    answers = {entry.item_id: entry.answer for entry in filled.entries if entry.answer.scores is not None}
    lines = {entry.item_id: f"{filled.path}:{entry.line}: item {entry.number}" for entry in filled.entries}
    if len(batches) == 1:
        return apply_answers(
            state, batches[0], filled.judge, answers, lines=lines, rejudge=rejudge, accept_drift=accept_drift
        )
    by_batch = [
        (batch, {item.id: answers[item.id] for item in batch.items if item.id in answers})
        for batch in batches
    ]
    if not rejudge:
        sorted_out = [
            _sorted(state, batch, filled.judge, given) for batch, given in by_batch if not batch.is_closed
        ]
        _check_conflicts([item for one in sorted_out for item in one.conflicts], filled.judge, lines)
    return _apply_each(state, by_batch, filled, lines=lines, rejudge=rejudge, accept_drift=accept_drift)


def _apply_each(
    state: Judged,
    by_batch: Sequence[tuple[Batch, Mapping[str, Answer]]],
    filled: FilledFile,
    *,
    lines: Mapping[str, str],
    rejudge: bool,
    accept_drift: bool,
) -> Applied:
    """Apply the batches of a file one by one. The runs are marked once, at the end."""
    done: list[Applied] = []
    rejected: dict[str, CheckFailed] = {}
    for batch, answers in by_batch:
        try:
            one = apply_answers(
                state,
                batch,
                filled.judge,
                answers,
                lines=lines,
                rejudge=rejudge,
                accept_drift=accept_drift,
                mark_runs=False,
            )
        except CheckFailed as error:
            rejected[batch.batch_id] = error
            continue
        state = one.state
        done.append(one)
    applied = _together([replace(one, state=marked(state)) for one in done]) if done else None
    if rejected or applied is None:
        raise BatchesRejected(filled.path, rejected, applied)
    return applied


def _together(done: Sequence[Applied]) -> Applied:
    """The results of several batches of one file as one."""
    states = ("off", "unchecked", "ok", "warn", "reject")
    return replace(
        done[-1],
        batch_id=", ".join(one.batch_id for one in done),
        new=sum(one.new for one in done),
        changed=sum(one.changed for one in done),
        unchanged=sum(one.unchanged for one in done),
        skipped=sum(one.skipped for one in done),
        whole=all(one.whole for one in done),
        drift=max((one.drift for one in done), key=lambda drift: states.index(drift.state)),
        parts=tuple(done),
    )


def read_judge_file(path: str) -> JudgeFile:
    """Read a judge's file from disk; it is not compared with its batches yet."""
    return read_file(file_bytes(path), path=path)


def file_bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); give the file that `judge export` wrote"
        ) from None


def _check_taker(batch: Batch, filled: FilledFile, options: Sequence[str]) -> None:
    if batch.judge and filled.judge.id != batch.judge:
        words = ("judge", "export", "--judge", filled.judge.id)
        export = experiment_command(*words, experiment=batch.experiment, options=options)
        raise BadInput(
            f"{filled.path}: batch {batch.batch_id} was exported for {batch.judge!r}, and 'judged_by' says "
            f"{filled.judge.id!r}; export one for {filled.judge.id!r}: {export}"
        )


def apply_answers(
    state: Judged,
    batch: Batch,
    judge: Judge,
    answers: Mapping[str, Answer],
    *,
    lines: Mapping[str, str],
    rejudge: bool = False,
    accept_drift: bool = False,
    mark_runs: bool = True,
    inconsistent: Sequence[str] = (),
) -> Applied:
    """Add a judge's answers to a batch. `lines` names the place of each item's answer, for messages.

    Raises Rejected where the checks reject them, and records the rejection; BatchClosed for a closed batch.
    With `mark_runs` False the caller marks the runs later. `inconsistent` are items of an AI judge that have
    no answer: see `Application`.
    """
    if batch.is_closed:
        raise closed(batch.batch_id)
    sorted_out = _sorted(state, batch, judge, answers)
    if not rejudge:
        _check_conflicts(sorted_out.conflicts, judge, lines)
    drift = check_drift(
        batch,
        judge=judge,
        scores_by_item_id=sorted_out.hidden_so_far,
        history=_history(state, batch, judge, is_new=sorted_out.is_new),
        scales=state.rubric.scales,
        accept_drift=accept_drift,
    )
    if drift.state == "reject":
        raise _rejected(state, batch, judge, answers, drift)
    application = sorted_out.application(drift, inconsistent=tuple(inconsistent))
    if application is not None:
        state.ledger.commit(batch, application)
    state = marked(state) if mark_runs else _with(state, batch, application)
    left = {item.id for item in batch.items} - answers.keys() - scored_items(state, batch.batch_id, judge.id)
    return Applied(
        batch_id=batch.batch_id,
        experiment=state.experiment,
        judge=judge.id,
        new=sorted_out.new,
        changed=len(sorted_out.conflicts),
        unchanged=sorted_out.unchanged,
        skipped=len(left),
        whole=not left,
        drift=drift,
        state=state,
    )


def _sorted(state: Judged, batch: Batch, judge: Judge, answers: Mapping[str, Answer]) -> _Sorted:
    items = {item.id: item for item in batch.items}
    sorted_out = _Sorted(state, batch, judge)
    for item_id, answer in answers.items():
        sorted_out.add(items[item_id], answer)
    return sorted_out


def _check_conflicts(conflicts: Sequence[Item], judge: Judge, lines: Mapping[str, str]) -> None:
    if conflicts:
        raise BadInput(_conflict_sentence(conflicts, judge, lines))


def _history(state: Judged, batch: Batch, judge: Judge, *, is_new: bool) -> list[Past]:
    """The judge's earlier batches. An application without anything new is checked as it was the first time.

    Otherwise a batch that was accepted could be rejected later, because of batches that came after it.
    """
    every = history_of(state.batches, judge)
    own = [place for place, past in enumerate(every) if past.batch_id == batch.batch_id]
    return every if is_new or not own else every[: own[-1] + 1]


def _with(state: Judged, batch: Batch, application: Application | None) -> Judged:
    """The experiment with an application that was committed, without asking the ledger."""
    if application is None:
        return state
    grown = replace(batch, applications=(*batch.applications, application))
    return replace(
        state, batches=tuple(grown if one.batch_id == batch.batch_id else one for one in state.batches)
    )


def _rejected(
    state: Judged, batch: Batch, judge: Judge, answers: Mapping[str, Answer], drift: Drift
) -> Rejected:
    """Record a rejected submission. The same scores again are recorded and counted once."""
    rejection = Rejection(
        rejection_id=submission_id(batch.batch_id, answers),
        judge=judge,
        at_ms=time.time_ns() // 1_000_000,
        reason=drift.reason,
        drift_z=drift.z,
        shift=drift.shift,
        foils_failed=drift.foils_failed,
    )
    known = rejection.rejection_id in {one.rejection_id for one in batch.rejections}
    if not known:
        state.ledger.reject(batch, rejection)
        batch = replace(batch, rejections=(*batch.rejections, rejection))
    return Rejected(batch.batch_id, closes=batch.is_closed, reason=drift.reason)


def marked(state: Judged) -> Judged:
    """The experiment as the ledger has it now, with its runs marked by that.

    Read anew each time, since others may apply meanwhile: whoever marks last has then seen them all. Also
    where nothing is new, as the runs may not have been reached when the same was applied before.
    """
    for _ in range(_MOST_ROUNDS):
        state = read_judged(state.ledger, state.experiment, options=state.options)
        if not mark(state):
            break
    return state


def mark(state: Judged) -> int:
    """Write what follows from the verdicts to the runs that it changes; how many they were."""
    marks = state.marks()
    if marks:
        state.ledger.mark(state.experiment, marks)
    return len(marks)


class _Sorted:
    """A judge's answers, sorted into what is new, what was there, and what contradicts an earlier one."""

    def __init__(self, state: Judged, batch: Batch, judge: Judge) -> None:
        self._batch = batch
        self._judge = judge
        self._now_ms = max([time.time_ns() // 1_000_000, *(one.at_ms + 1 for one in state.verdicts)])
        self._before = _verdicts_of(state, judge, adjudicated=batch.purpose == "adjudicate")
        self._hidden_before = _hidden_of(batch, judge)
        self._remarks_before = _remarks_of(batch, judge)
        self._hidden: dict[str, Mapping[str, float]] = {}
        self._remarks: dict[str, Mapping[str, object]] = {}
        self._verdicts: list[Verdict] = []
        self.conflicts: list[Item] = []
        self.unchanged = 0

    def add(self, item: Item, answer: Answer) -> None:
        assert answer.scores is not None  # noqa: S101 - skipped items are not handed in
        if item.role == "real":
            self._add_verdict(item, answer, answer.scores)
        else:
            self._add_hidden(item, answer, answer.scores)

    def _add_verdict(self, item: Item, answer: Answer, scores: Mapping[str, float]) -> None:
        before = self._before.get(item.candidate)
        verdict = Verdict(
            candidate=item.candidate,
            scores=dict(scores),
            judge=self._judge,
            at_ms=self._now_ms,
            rubric_hash=self._batch.rubric_hash,
            batch_id=self._batch.batch_id,
            overlong=answer.overlong,
            note=answer.note,
            adjudicated=self._batch.purpose == "adjudicate",
            readings=answer.readings,
        )
        if before is not None and _same(before, verdict):
            self.unchanged += 1
            return
        if before is not None and dict(before.scores) != dict(verdict.scores):
            self.conflicts.append(item)
        self._verdicts.append(verdict)

    def _add_hidden(self, item: Item, answer: Answer, scores: Mapping[str, float]) -> None:
        """As for a verdict, remarks included: the counts must not tell hidden items from real ones."""
        before = self._hidden_before.get(item.id)
        remarks = _remarks(answer)
        same = before is not None and dict(before) == dict(scores)
        if same and self._remarks_before.get(item.id, {}) == remarks:
            self.unchanged += 1
            return
        if before is not None and not same:
            self.conflicts.append(item)
        self._hidden[item.id] = dict(scores)
        self._remarks[item.id] = remarks

    @property
    def is_new(self) -> bool:
        """Whether anything is to be recorded."""
        return bool(self._verdicts or self._hidden)

    @property
    def new(self) -> int:
        return len(self._verdicts) + len(self._hidden) - len(self.conflicts)

    @property
    def hidden_so_far(self) -> dict[str, Mapping[str, float]]:
        return {**self._hidden_before, **self._hidden}

    def _stores_remarks(self, item_id: str) -> bool:
        """Whether a hidden item's remarks are stored: empty ones only to take back earlier ones."""
        return bool(self._remarks[item_id]) or item_id in self._remarks_before

    def application(self, drift: Drift, *, inconsistent: tuple[str, ...] = ()) -> Application | None:
        """What is to be committed; None where there is nothing new."""
        if not self.is_new and not inconsistent:
            return None
        verdicts = tuple(replace(one, drift_z=drift.z) for one in self._verdicts)
        # The same answers after the same history have the same id: a retry overwrites its own remains.
        named = [
            self._batch.batch_id,
            [self._judge.id, self._judge.kind],
            len(self._batch.applications),
            [[one.candidate, dict(one.scores), one.overlong, one.note] for one in verdicts],
            {item_id: dict(scores) for item_id, scores in self._hidden.items()},
        ]
        remarks = {
            item_id: remark for item_id, remark in self._remarks.items() if self._stores_remarks(item_id)
        }
        named += [remarks] if remarks else []
        named += [list(inconsistent)] if inconsistent else []
        return Application(
            application_id=content_hash(named)[:16],
            judge=self._judge,
            at_ms=self._now_ms,
            verdicts=verdicts,
            hidden=dict(self._hidden),
            remarks=remarks,
            drift_z=drift.z,
            shift=drift.shift,
            drift_accepted=drift.accepted,
            inconsistent=inconsistent,
        )


def _same(before: Verdict, now: Verdict) -> bool:
    return (dict(before.scores), before.overlong, before.note) == (dict(now.scores), now.overlong, now.note)


def _verdicts_of(state: Judged, judge: Judge, *, adjudicated: bool) -> dict[str, Verdict]:
    """The judge's latest verdict on each candidate, under the rubric that counts.

    An AI judge with other weights or another prompt is another judge: it contradicts nobody.
    """
    return {
        one.candidate: one
        for one in sorted(state.verdicts, key=lambda one: one.at_ms)
        if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
        and (judge.kind != "ai" or one.judge.version == judge.version)
        and one.rubric_hash == state.rubric.hash
        and one.adjudicated == adjudicated
    }


def _hidden_of(batch: Batch, judge: Judge) -> dict[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {}
    for one in sorted(batch.applications, key=lambda one: one.at_ms):
        if (one.judge.id, one.judge.kind) == (judge.id, judge.kind):
            found |= one.hidden
    return found


def _remarks(answer: Answer) -> dict[str, object]:
    """What an answer has beside its scores."""
    given = {"overlong": answer.overlong, "note": answer.note}
    return {name: value for name, value in given.items() if value not in {None, ""}}


def _remarks_of(batch: Batch, judge: Judge) -> dict[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for one in sorted(batch.applications, key=lambda one: one.at_ms):
        if (one.judge.id, one.judge.kind) == (judge.id, judge.kind):
            found |= one.remarks
    return found


def _conflict_sentence(conflicts: Sequence[Item], judge: Judge, lines: Mapping[str, str]) -> str:
    where = lines.get(conflicts[0].id, f"item {conflicts[0].id}")
    more = f" (the first of {len(conflicts)})" if len(conflicts) > 1 else ""
    return (
        f"{where}: {judge.id!r} has scored this before, otherwise{more}; nothing is recorded: put the "
        "earlier scores "
        "back, or add the new ones as a changed mind with --rejudge"
    )


def rebuild(settings: Settings) -> int:
    """Derive anew what the runs of an experiment show of their verdicts; how many runs that changed."""
    ledger = synced_ledger(settings)
    return mark(read_judged(ledger, settings.experiment))
