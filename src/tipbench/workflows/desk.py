"""A judge's desk: the batch they have, what they give for it, and how far they are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import CheckFailed, LedgerUnreachable
from tipbench.workflows.applying import apply_answers, one_submission
from tipbench.workflows.exporting import Order, batch_file, keep_batch, take_batches
from tipbench.workflows.judge_replies import BatchClosed, Rejected
from tipbench.workflows.judge_status import status_of
from tipbench.workflows.judged import as_judge_sees, is_open, judged_experiment, read_judged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.judge.answers import Answer
    from tipbench.records import Batch, Judge
    from tipbench.settings import Settings
    from tipbench.suite import Rubric
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.judged import Judged


@dataclass(kw_only=True)
class JudgesDesk:
    """One judge at one experiment. All is read anew when a batch is done, not for every item."""

    settings: Settings
    judge: Judge
    order: Order
    _taken: Batch | None = field(default=None, init=False)
    _state: Judged | None = field(default=None, init=False)
    _last: Applied | None = field(default=None, init=False)

    def take(self) -> Batch:
        """The judge's open batch, or a new one; NotFound where nothing is left to judge.

        BatchClosed where the judge's last batch is closed and the suite has no other texts for a new one.
        """
        if self._taken is None or self._is_over(self._taken):
            try:
                self._taken = self._open() or self._new()
            except BatchClosed as error:
                raise BatchClosed(error.words) from None
        return self._taken

    def _is_over(self, batch: Batch) -> bool:
        """Whether the batch was applied or closed elsewhere. False while the ledger cannot be reached."""
        with suppress(LedgerUnreachable):
            ledger = (self._state or self._read()).ledger
            now = ledger.batch(batch.batch_id)
            if now.applications == batch.applications and not now.is_closed:
                return False
            return not is_open(read_judged(ledger, now.experiment), now, self.judge.id)
        return False

    def _open(self) -> Batch | None:
        state = self._read()
        mine = [
            batch
            for batch in state.batches
            if batch.judge == self.judge.id
            and batch.purpose in {"judge", "second", "adjudicate"}
            and is_open(state, batch, self.judge.id)
        ]
        return mine[-1] if mine else None

    def _new(self) -> Batch:
        taken = take_batches(self.settings, replace(self.order, even_if_open=True))
        keep_batch(taken.state, taken.new[0])
        return taken.new[0]

    def _read(self) -> Judged:
        self._state = judged_experiment(self.settings)
        return self._state

    def rubric(self) -> Rubric:
        return (self._state or self._read()).rubric

    def draft_text(self, batch: Batch) -> str:
        return batch_file(self._state or self._read(), batch, judge=self.judge)

    def apply(self, batch: Batch, answers: Mapping[str, Answer]) -> Applied:
        """Apply answers by item id, as `judge apply` does; CheckFailed where the gate rejects them."""
        with one_submission(batch.batch_id):
            state = self._read()
            current = next((one for one in state.batches if one.batch_id == batch.batch_id), batch)
            try:
                self._last = apply_answers(state, current, self.judge, answers, lines={})
            except Rejected as error:
                raise (BatchClosed if error.closes else CheckFailed)(error.words) from None
            except BatchClosed as error:
                raise BatchClosed(error.words) from None
        self._taken = None
        return self._last

    def status(self) -> Mapping[str, Any]:
        """How far the experiment is, and the result of the checks of the last batch in words."""
        found = status_of(as_judge_sees(self._read(), self.judge.id))
        return {
            "experiment_judged": found.wanted - found.left_to_people,
            "experiment_pending": found.left_to_people,
            "minutes_left": found.minutes_left,
            "drift": self._last.checked.reason if self._last else "no batch applied yet",
            "drift_state": self._last.checked.state if self._last else None,
        }
