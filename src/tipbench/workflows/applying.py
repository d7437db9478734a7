"""`judge apply`: a filled-in file becomes verdicts, all of it or nothing, once the hidden items speak for
it.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput
from tipbench.judge.attempts import submission_id
from tipbench.judge.filled_file import check_file, read_file
from tipbench.judge.gate import check_drift, history_of
from tipbench.records import Application, Rejection, Verdict, content_hash
from tipbench.workflows.judge_replies import Rejected, check_words, closed
from tipbench.workflows.judged import read_judged, scored_items
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.judge.answers import Answer
    from tipbench.judge.filled_file import FilledFile, JudgeFile
    from tipbench.judge.gate import Drift
    from tipbench.records import Batch, Item, Judge, Ledger
    from tipbench.settings import Settings
    from tipbench.workflows.judge_replies import CheckWords
    from tipbench.workflows.judged import Judged

_LARGEST = 20_000_001
_MOST_ROUNDS = 5
_SUBMITTING = [threading.Lock() for _ in range(64)]


@contextmanager
def one_submission(batch_id: str) -> Iterator[None]:
    """Let this process check one submission of a batch at a time, so that it counts each rejection.

    Read the batch within. Without this, many submissions at once would all pass before the third is counted.
    """
    with _SUBMITTING[hash(batch_id) % len(_SUBMITTING)]:
        yield


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The result of an application. `drift` has the numbers of the checks, for admins; `checked` the words.

    `new` and `changed` verdicts were added, `unchanged` ones were there before, `skipped` items have no
    scores yet. `whole` says that every item has scores now. `state` is the experiment with them.
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

    @property
    def checked(self) -> CheckWords:
        """The result of the checks, as a judge may read it."""
        return check_words(self.drift, whole=self.whole)

    @property
    def pending(self) -> int:
        """The cells that still wait for a judge."""
        return len(self.state.waiting())

    @property
    def sentence(self) -> str:
        parts = [
            f"{self.new} new",
            f"{self.changed} changed",
            f"{self.unchanged} unchanged",
            f"{self.skipped} skipped",
        ]
        said = ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing in it"
        return f"batch {self.batch_id} of {self.experiment}, judged by {self.judge}: {said}"


def apply_file(
    settings: Settings, path: str, *, rejudge: bool = False, accept_drift: bool = False
) -> Applied:
    """Apply a judge's file. The same file again changes nothing; a rejected one is CheckFailed (Rejected)."""
    file = read_file(file_bytes(path), path=path)
    return apply_read(synced_ledger(settings), file, rejudge=rejudge, accept_drift=accept_drift)


def apply_read(
    ledger: Ledger, file: JudgeFile, *, rejudge: bool = False, accept_drift: bool = False
) -> Applied:
    """Apply a judge's file that was read, to the batch in this ledger that it belongs to."""
    with one_submission(file.batch_id):
        state = read_judged(ledger, ledger.batch(file.batch_id).experiment)
        batch = next(one for one in state.batches if one.batch_id == file.batch_id)
        filled = check_file(file, batch, rubric_text=state.rubric.text, scales=state.rubric.scales)
        _check_taker(batch, filled)
        answers = {entry.item_id: entry.answer for entry in filled.entries if entry.answer.scores is not None}
        lines = {entry.item_id: f"{file.path}:{entry.line}: item {entry.number}" for entry in filled.entries}
        return apply_answers(
            state, batch, filled.judge, answers, lines=lines, rejudge=rejudge, accept_drift=accept_drift
        )


def file_bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); give the file that `judge export` wrote"
        ) from None


def _check_taker(batch: Batch, filled: FilledFile) -> None:
    if batch.judge and filled.judge.id != batch.judge:
        raise BadInput(
            f"{filled.path}: batch {batch.batch_id} was exported for {batch.judge!r}, and 'judged_by' says "
            f"{filled.judge.id!r}; export one for {filled.judge.id!r}: tipbench judge export --judge "
            f"{filled.judge.id}"
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
) -> Applied:
    """Add a judge's answers to a batch. `lines` names the place of each item's answer, for messages.

    Raises Rejected where the checks reject them, and records the rejection; BatchClosed for a closed batch.
    """
    if batch.is_closed:
        raise closed(batch.batch_id)
    items = {item.id: item for item in batch.items}
    sorted_out = _Sorted(state, batch, judge)
    for item_id, answer in answers.items():
        sorted_out.add(items[item_id], answer)
    if sorted_out.conflicts and not rejudge:
        raise BadInput(_conflict_sentence(sorted_out.conflicts, judge, lines))
    drift = check_drift(
        batch,
        judge=judge,
        scores_by_item_id=sorted_out.hidden_so_far,
        history=history_of(state.batches, judge),
        scales=state.rubric.scales,
        accept_drift=accept_drift,
    )
    if drift.state == "reject":
        raise _rejected(state, batch, judge, answers, drift)
    application = sorted_out.application(drift)
    if application is not None:
        state.ledger.commit(batch, application)
    state = _marked(state)
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


def _marked(state: Judged) -> Judged:
    """The experiment as the ledger has it now, with its runs marked by that.

    Read anew each time, since others may apply meanwhile: whoever marks last has then seen them all. Also
    where nothing is new, as the runs may not have been reached when the same was applied before.
    """
    for _ in range(_MOST_ROUNDS):
        state = read_judged(state.ledger, state.experiment)
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
    def new(self) -> int:
        return len(self._verdicts) + len(self._hidden) - len(self.conflicts)

    @property
    def hidden_so_far(self) -> dict[str, Mapping[str, float]]:
        return {**self._hidden_before, **self._hidden}

    def _stores_remarks(self, item_id: str) -> bool:
        """Whether a hidden item's remarks are stored: empty ones only to take back earlier ones."""
        return bool(self._remarks[item_id]) or item_id in self._remarks_before

    def application(self, drift: Drift) -> Application | None:
        """What is to be committed; None where there is nothing new."""
        if not self._verdicts and not self._hidden:
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
        )


def _same(before: Verdict, now: Verdict) -> bool:
    return (dict(before.scores), before.overlong, before.note) == (dict(now.scores), now.overlong, now.note)


def _verdicts_of(state: Judged, judge: Judge, *, adjudicated: bool) -> dict[str, Verdict]:
    """The judge's latest verdict on each candidate, under the rubric that counts."""
    return {
        one.candidate: one
        for one in sorted(state.verdicts, key=lambda one: one.at_ms)
        if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
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
