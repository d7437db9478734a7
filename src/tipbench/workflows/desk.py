"""A judge's desk: the batch they have, what they give for it, and how far they are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import LedgerUnreachable
from tipbench.workflows.applying import apply_answers
from tipbench.workflows.exporting import Order, batch_file, keep_batch, take_batches
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.judged import judged_experiment

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
        """The judge's open batch, or a new one; NotFound where nothing is left to judge."""
        if self._taken is None or self._came_back(self._taken):
            self._taken = self._open() or self._new()
        return self._taken

    def _came_back(self, batch: Batch) -> bool:
        """Whether another desk of this judge has applied it; while the ledger is away, nobody has."""
        with suppress(LedgerUnreachable):
            return bool((self._state or self._read()).ledger.batch(batch.batch_id).applications)
        return False

    def _open(self) -> Batch | None:
        state = self._read()
        mine = [
            batch
            for batch in state.batches
            if batch.judge == self.judge.id
            and batch.purpose in {"judge", "second", "adjudicate"}
            and batch.rubric_hash == state.rubric.hash
            and not batch.applications
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
        state = self._read()
        current = next((one for one in state.batches if one.batch_id == batch.batch_id), batch)
        self._last = apply_answers(state, current, self.judge, answers, lines={})
        self._taken = None
        return self._last

    def status(self) -> Mapping[str, Any]:
        """How far the experiment is, and what the hidden items said of the judge last time."""
        found = judge_status(self.settings)
        return {
            "experiment_judged": found.wanted - found.left_to_people,
            "experiment_pending": found.left_to_people,
            "minutes_left": found.minutes_left,
            "drift": self._last.drift.reason if self._last else "no batch applied yet",
            "drift_state": self._last.drift.state if self._last else None,
        }
