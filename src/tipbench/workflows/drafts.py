"""An agent's answers to a batch that it is not done with: in the store, where pages keep a person's too.

They survive whatever ends the server, and two servers with one home see the same ones.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.errors import Unavailable
from tipbench.judge.answers import NOTE, OVERLONG, Answer, read_answer
from tipbench.ledger.locks import file_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.store import Store
    from tipbench.suite.rubric import Scale

_PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One judge's draft of one batch. `ids` are those of the batch's items."""

    store: Store
    batch_id: str
    judge: str
    ids: frozenset[str]
    scales: Sequence[Scale]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes or applies a draft of this home meanwhile, however long that takes."""
        path = self.store.path.with_name("drafts.lock")
        with ExitStack() as stack:
            try:
                mine = stack.enter_context(file_lock(path, patience_s=_PATIENCE_S))
            except OSError as error:
                raise Unavailable(f"{path} cannot be used ({error.strerror}); free the disk") from None
            if not mine:
                raise Unavailable("another tipbench server is busy with this batch; try again in a minute")
            yield

    def answers(self) -> dict[str, Answer]:
        """What was answered so far, by item id; what does not read as an answer, or was rejected, is none."""
        if self._is_rejected():
            return {}
        found = {}
        for item_id, kept in self.store.drafts.get(self.batch_id, self.judge).items():
            answer = read_answer(kept, scales=self.scales)
            if item_id in self.ids and isinstance(answer, Answer) and answer.scores:
                found[item_id] = answer
        return found

    def add(self, answers: Mapping[str, Answer]) -> None:
        """Keep these answers beside those that are there, or in their place; durable when this returns."""
        with self.store.together():
            if self._is_rejected():
                self.remove()
            before = self.store.drafts.get(self.batch_id, self.judge)
            whole = {
                item_id: dict.fromkeys(before.get(item_id, ())) | _flat(given)
                for item_id, given in answers.items()
            }
            self.store.drafts.put_all(self.batch_id, self.judge, whole, now_ms=_now_ms())

    def remove(self) -> None:
        """The batch was applied: its draft is needed no more."""
        self.store.drafts.delete(self.batch_id, self.judge)

    def set_aside(self, reason: str) -> None:
        """Begin anew; what was rejected can be looked at until the first new answer comes."""
        self.store.drafts.reject(self.batch_id, self.judge, reason, now_ms=_now_ms())

    def _is_rejected(self) -> bool:
        return self.store.drafts.rejection(self.batch_id, self.judge) is not None


def _flat(given: Answer) -> dict[str, object]:
    return {**(given.scores or {}), OVERLONG: given.overlong, NOTE: given.note or None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
