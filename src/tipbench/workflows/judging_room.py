"""Judging through the service: batches come from the ledger, and what is scored waits in the store.

A judge sees the items of their own batches and never what is behind them. Every stroke is kept at once; a
batch that is handed in goes through the same gate as a judge's file.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, CheckFailed, NotFound
from tipbench.judge.answers import Answer, answer_keys, read_answer
from tipbench.records import Judge
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.applying import apply_answers, one_submission
from tipbench.workflows.desk import JudgesDesk
from tipbench.workflows.exporting import Order, judged_experiment_of
from tipbench.workflows.judge_replies import REJECTED_BEFORE, BatchClosed, NothingLeft, Rejected, closed
from tipbench.workflows.judge_status import seconds_each
from tipbench.workflows.judged import judged_experiment, scored_items
from tipbench.workflows.judging_names import name_for, named
from tipbench.workflows.judging_views import applied_told
from tipbench.workflows.service_state import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.judge.answers import Mistake
    from tipbench.records import Batch, Item
    from tipbench.settings import Settings
    from tipbench.suite.rubric import Scale
    from tipbench.workflows.access import Principal
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.judged import Judged
    from tipbench.workflows.service_state import Service

_KEPT = 256
_FULL_SIZE = 60


class WrongAnswer(BadInput):
    """An answer that cannot be kept; `fields` says what is wrong under which of its keys."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.fields = {mistake.key: mistake.message for mistake in mistakes}
        super().__init__("; ".join(self.fields.values()))


@dataclass(frozen=True, kw_only=True)
class _Open:
    """A batch as strokes need it: nothing of it changes until it is handed in."""

    judge: str
    ids: frozenset[str]
    scales: tuple[Scale, ...]


class JudgingRoom:
    """All judges of one service. Nobody waits for anybody but for themselves."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drafts = service.store.drafts
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def batch(self, experiment: str, who: Principal) -> dict[str, Any]:
        """The judge's open batch, or a new one, with what was given so far; NotFound where none is left."""
        settings = self._settings(experiment, who)
        _, batch = self._taken(settings, who, size=_FULL_SIZE, tips_per_cell=None)
        state = judged_experiment(settings)
        rubric = state.rubric
        given = self._drafts.get(batch.batch_id, who.name)
        left = _unscored(state, batch)
        items = [item for item in batch.items if item.id in left]
        return {
            "batch": batch.batch_id,
            "scales": [asdict(scale) for scale in rubric.scales],
            "rubric": rubric.text,
            "items": [_item(batch, item, number, given) for number, item in enumerate(items, start=1)],
            "left": _left(given, left, rubric.scales),
            "seconds_each": seconds_each(state.batches),
            "rejected": self._drafts.rejection(batch.batch_id, who.name),
        }

    def export(
        self, experiment: str, who: Principal, *, size: int, tips_per_cell: int | None
    ) -> tuple[str, str]:
        """The open batch, or a new one of this size, as a judge's file: its id and its text."""
        desk, batch = self._taken(
            self._settings(experiment, who), who, size=size, tips_per_cell=tips_per_cell
        )
        return batch.batch_id, desk.draft_text(batch)

    def stroke(
        self, batch_id: str, item_id: str, given: Mapping[str, object], who: Principal
    ) -> dict[str, Any]:
        """Keep what the judge has for one item now, complete or not, in place of what was there."""
        batch = self._mine(batch_id, who)
        if item_id not in batch.ids:
            raise NotFound(f"there is no item {item_id!r} in batch {batch_id}")
        answer = _checked(given, batch.scales)
        self._drafts.put(batch_id, who.name, item_id, answer, now_ms=now_ms())
        left = _left(self._drafts.get(batch_id, who.name), batch.ids, batch.scales)
        return {"batch": batch_id, "item": item_id, "left": left}

    def submit(self, batch_id: str, who: Principal, *, partial: bool) -> dict[str, Any]:
        """Hand the batch in: all of it, or with `partial` what there is. A rejected one keeps its draft."""
        with self._locks[who.name], one_submission(batch_id):
            state, batch = self._read(batch_id, who)
            answers = self._answers(state, batch, who)
            _check_complete(batch, answers, left=_unscored(state, batch), partial=partial)
            applied = self._applied(state, batch, answers, who)
            self._drafts.delete(batch_id, who.name)
            self._open.pop(batch_id, None)
        self._service.came_in()
        self._service.audit(who, "judge.submit", batch_id, f"{applied.new} new verdicts")
        return applied_told(applied, experiment=self._name(state, who))

    def _settings(self, experiment: str, who: Principal) -> Settings:
        return self._service.judging_settings(named(self._service, experiment, who))

    def _name(self, state: Judged, who: Principal) -> str:
        return name_for(self._service, state.ledger, state.experiment, who)

    def _taken(
        self, settings: Settings, who: Principal, *, size: int, tips_per_cell: int | None
    ) -> tuple[JudgesDesk, Batch]:
        with self._locks[who.name]:
            state = judged_experiment(settings)
            if tips_per_cell not in {None, state.tips_per_cell} and who.role != "admin":
                raise NotAllowed("how many of each cell are judged is for an admin to say", status=403)
            order = Order(
                judge=who.name,
                kind=who.kind,
                size=size,
                race=state.is_raced,
                tips_per_cell=state.tips_per_cell if tips_per_cell is None else tips_per_cell,
            )
            desk = JudgesDesk(settings=settings, judge=_judge(who), order=order)
            try:
                batch = desk.take()
            except (NotFound, BadInput) as error:
                raise self._without_names(error, state, who) from None
            if all(batch.batch_id != one.batch_id for one in state.batches):
                self._audit_taken(state, batch, who)
        return desk, batch

    def _audit_taken(self, state: Judged, batch: Batch, who: Principal) -> None:
        detail = f"{len(batch.items)} items of {state.experiment}"
        self._service.audit(who, "judge.take", batch.batch_id, detail)
        if batch.replaces:
            self._drafts.delete(batch.replaces, who.name)
            self._service.audit(who, "judge.replaced", batch.replaces, f"by {batch.batch_id}")

    def _without_names(self, error: NotFound | BadInput, state: Judged, who: Principal) -> Exception:
        """The error as a judge may read it, without commands and hidden names. An admin reads all of it."""
        if who.role == "admin":
            return error
        shown = self._name(state, who)
        if isinstance(error, NotFound):
            words = error.words if isinstance(error, NothingLeft) else str(error)
            return NotFound(words.replace(state.experiment, shown))
        return BadInput(f"experiment {shown!r} cannot be judged at present; ask an admin to look at it")

    def _remember(self, state: Judged, batch: Batch) -> _Open:
        found = _Open(judge=batch.judge, ids=_unscored(state, batch), scales=tuple(state.rubric.scales))
        self._open[batch.batch_id] = found
        while len(self._open) > _KEPT:
            self._open.popitem(last=False)
        return found

    def _mine(self, batch_id: str, who: Principal) -> _Open:
        found = self._open.get(batch_id)
        if found is None:
            state, batch = self._read(batch_id, who)
            if batch.is_closed:
                raise BatchClosed(closed(batch_id).words)
            if not _unscored(state, batch):
                raise _handed_in(batch_id)
            found = self._remember(state, batch)
        if found.judge != who.name:
            raise _not_yours(batch_id)
        return found

    def _read(self, batch_id: str, who: Principal) -> tuple[Judged, Batch]:
        """The batch as the ledger has it; one of somebody else's is as good as none."""
        try:
            state = judged_experiment_of(self._service.settings(), batch_id)
        except NotFound:
            raise _not_yours(batch_id) from None
        batch = next(one for one in state.batches if one.batch_id == batch_id)
        if batch.judge != who.name:
            raise _not_yours(batch_id)
        return state, batch

    def _answers(self, state: Judged, batch: Batch, who: Principal) -> dict[str, Answer]:
        given = self._drafts.get(batch.batch_id, who.name)
        if not given and not _unscored(state, batch):
            raise _handed_in(batch.batch_id)
        ids, scales = _ids(batch), state.rubric.scales
        found = {item: read_answer(answer, scales=scales) for item, answer in given.items() if item in ids}
        return {item: one for item, one in found.items() if isinstance(one, Answer) and one.scores}

    def _applied(self, state: Judged, batch: Batch, answers: Mapping[str, Answer], who: Principal) -> Applied:
        try:
            return apply_answers(state, batch, _judge(who), answers, lines={})
        except Rejected as error:
            self._drafts.reject(batch.batch_id, who.name, REJECTED_BEFORE, now_ms=now_ms())
            self._service.audit(who, "judge.rejected", batch.batch_id, error.reason)
            if error.closes:
                self._open.pop(batch.batch_id, None)
                self._service.audit(who, "judge.closed", batch.batch_id)
            raise CheckFailed(error.words) from None
        except BatchClosed as error:
            raise BatchClosed(error.words) from None


def _judge(who: Principal) -> Judge:
    return Judge(id=who.name, kind=who.kind)


def _ids(batch: Batch) -> frozenset[str]:
    return frozenset(item.id for item in batch.items)


def _unscored(state: Judged, batch: Batch) -> frozenset[str]:
    """The ids of the items that the batch's judge has not handed in yet."""
    every = _ids(batch)
    return every - scored_items(state, batch.batch_id, batch.judge) if batch.applications else every


def _not_yours(batch_id: str) -> NotFound:
    return NotFound(f"there is no batch {batch_id!r} of yours")


def _handed_in(batch_id: str) -> NotAllowed:
    return NotAllowed(f"batch {batch_id} was handed in before", status=409)


def _item(batch: Batch, item: Item, number: int, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a judge sees of an item. Its role and all that is behind it stay where they are."""
    return {
        "id": item.id,
        "number": number,
        "scenario": item.scenario_id,
        "context": batch.contexts[item.scenario_id],
        "tip": item.text,
        "answer": given.get(item.id),
    }


def _checked(given: Mapping[str, object], scales: Sequence[Scale]) -> dict[str, object]:
    """The answer with all of its keys. A scale that has no score yet is no mistake in a stroke."""
    whole = {scale.name: scale.low for scale in scales}
    read = read_answer(
        whole | {key: value for key, value in given.items() if value is not None}, scales=scales
    )
    if not isinstance(read, Answer):
        raise WrongAnswer(read)
    return {key: given.get(key) for key in answer_keys(scales)}


def _left(given: Mapping[str, Mapping[str, Any]], ids: frozenset[str], scales: Sequence[Scale]) -> int:
    """How many items have no complete score."""
    complete = [
        item for item in ids if all((given.get(item) or {}).get(scale.name) is not None for scale in scales)
    ]
    return len(ids) - len(complete)


def _check_complete(
    batch: Batch, answers: Mapping[str, Answer], *, left: frozenset[str], partial: bool
) -> None:
    missing = len(left - answers.keys())
    if not answers:
        raise BadInput(f"nothing in batch {batch.batch_id} is scored yet")
    if missing and not partial:
        raise BadInput(f"{missing} of {len(batch.items)} items of batch {batch.batch_id} are not scored yet")
