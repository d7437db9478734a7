"""Shadows beside the counter: they hear what was served once it is on disk, and what they say is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tipbench.bandit.asks import Note, Remembered
from tipbench.bandit.books import EVERYBODY, POOLED, RESET
from tipbench.bandit.decisions import decode, recalled
from tipbench.bandit.rewarding import WORTH
from tipbench.bandit.shadow import Decide, Logged, ShadowDropped, ShadowLesson, ShadowResult, Shadows, Teach
from tipbench.bandit.suites import owner_of_state, state_key
from tipbench.errors import BadState, Conflict, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from tipbench.bandit.asked import RewardReply, RewardRequest
    from tipbench.bandit.asks import Answer, Signal
    from tipbench.bandit.books import Books, Entry
    from tipbench.bandit.counter import Counter
    from tipbench.bandit.shadow import Limits, Outcome, ShadowCounts, ShadowSpec

_MANY_WAITING = 256
# So many entries after a decision a shadow that keeps up has said what it makes of it. To look through more
# of them, for every reward that an apprentice knows nothing of, would take time from those who are served.
_FOLLOWED = 2_000
_Form = TypeVar("_Form")
_ENCODER = msgspec.msgpack.Encoder()


class _Said(msgspec.Struct, frozen=True):
    """Of what a shadow said, what is learned from."""

    served_x: bytes


class Shadowing:
    """Shadows at work beside a counter. Whoever asked has the answer before a shadow hears of it.

    They decide on what apps are served (`Score.source`), not on what somebody asks one policy for.

    What a shadow decides is logged under `shadow:<name>`; what an apprentice learns is kept under its own
    name, beside the memories of policies. While many wait at the counter both are let go, and counted in
    `unkept` and `unkept_lessons`: what a shadow has to say must not take a place from those who are waiting
    for an answer. Such decisions count as dropped, and are noted with the next thing that there is room for.
    """

    def __init__(
        self, counter: Counter, specs: Sequence[ShadowSpec], *, limits: Limits | None = None
    ) -> None:
        self._counter = counter
        self._signals = {spec.name: spec.signal for spec in specs}
        self.unkept: dict[str, int] = dict.fromkeys(self._signals, 0)
        self.unkept_lessons: dict[str, int] = dict.fromkeys(self._signals, 0)
        # Drops that are not in the books yet; each shadow's own thread sees to its own.
        self._owed: dict[str, int] = dict.fromkeys(self._signals, 0)
        archive = _Archive(counter.tips.books, self._signals)
        self.shadows = Shadows(specs, report=self._report, archive=archive, limits=limits)
        self._unsubscribe: Callable[[], None] = counter.subscribe(self._heard) if specs else _nothing

    def counts(self) -> dict[str, ShadowCounts]:
        return self.shadows.counts()

    def stop(self) -> bool:
        """Before the counter is stopped: True when no process is left."""
        self._unsubscribe()
        return self.shadows.stop()

    def rewarded(self, request: RewardRequest, reply: RewardReply) -> None:
        """To be called with every reward that was answered: apprentices hear of those that taught."""
        if reply.learned:
            worth = WORTH[request.event] if request.reward is None else request.reward
            self.shadows.teach(Teach(decision_id=request.decision_id, reward=worth))

    def _heard(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            if signal.request is not None and signal.source:
                self.shadows.offer(self._offer(signal))
            elif signal.entry.signal == RESET:
                who = signal.entry.user_id
                self.shadows.forget(None if who == EVERYBODY else who)

    def _offer(self, signal: Signal) -> Decide:
        assert signal.request is not None  # noqa: S101 - whoever calls has looked
        return Decide(
            decision_id=signal.entry.decision_id,
            user_id=signal.entry.user_id,
            request=signal.request,
            profile=signal.profile,
            u=signal.u,
            served=signal.tip_id,
        )

    def _report(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            asked = self._asked(self._note(outcome))
            if asked is None:
                self._owed[outcome.name] += _lost_with(outcome)
                self._let_go(outcome)
            elif isinstance(outcome, ShadowLesson):
                asked.add_done_callback(partial(self._settled, outcome))
            else:
                self._owed[outcome.name] = 0

    def _asked(self, note: Note) -> Future[Answer] | None:
        if self._counter.waiting() >= _MANY_WAITING:
            return None
        try:
            return self._counter.ask_in_passing(note)
        except Unavailable:
            return None

    def _settled(self, lesson: ShadowLesson, answered: Future[Answer]) -> None:
        """Another process may have taught the same shadow: then the lesson is learned again, from that."""
        error = answered.exception()
        if isinstance(error, Conflict):
            self.shadows.unlearn(lesson, again=True)
        elif error is not None:
            self._let_go(lesson)

    def _let_go(self, outcome: Outcome) -> None:
        if isinstance(outcome, ShadowResult):
            self.unkept[outcome.name] += 1
        elif isinstance(outcome, ShadowLesson):
            self.unkept_lessons[outcome.name] += 1
            self.shadows.unlearn(outcome, again=False)

    def _note(self, outcome: Outcome) -> Note:
        signal, name, owed = self._signals[outcome.name], outcome.name, self._owed[outcome.name]
        if isinstance(outcome, ShadowResult):
            body = _ENCODER.encode(outcome)
            decided = Note(signal, outcome.decision_id, outcome.user_id, name, body, agreed=outcome.agrees)
            return decided._replace(dropped=owed)
        if isinstance(outcome, ShadowDropped):
            return Note(signal, "", "", name, dropped=_lost_with(outcome) + owed)
        return Note(signal, "", "", name, memories=_memories(outcome), lesson=outcome.decision_id)


def _lost_with(outcome: Outcome) -> int:
    """How many decisions more are dropped, or have been, where this is not kept."""
    if isinstance(outcome, ShadowDropped):
        return sum(outcome.decisions.values())
    return int(isinstance(outcome, ShadowResult))


def unpacked(entry: Entry) -> dict[str, Any]:
    """What a shadow said, out of the log; BadState where that cannot be read."""
    return _unpacked(entry, dict[str, Any])


def _unpacked(entry: Entry, form: type[_Form]) -> _Form:
    try:
        return msgspec.msgpack.decode(entry.body, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        what = f"what {entry.signal} said of decision {entry.decision_id} in the log"
        raise BadState(what, f"it does not have its form ({error})") from None


def _memories(lesson: ShadowLesson) -> tuple[Remembered, ...]:
    own, pooled = (lesson.user_id, lesson.was_own, lesson.own), (POOLED, lesson.was_pooled, lesson.pooled)
    return tuple(Remembered(user, was, now) for user, was, now in (own, pooled) if now is not None)


def _nothing() -> None:
    """Where nobody listens, nobody need be told to stop."""


class _Archive:
    """What apprentices have learned before, out of the books; read by a shadow's own thread."""

    def __init__(self, books: Books, signals: Mapping[str, str]) -> None:
        self._books = books
        self._signals = signals

    def memory(self, shadow: str, user_id: str) -> bytes | None:
        with self._books.reading() as reading:
            key = user_id, state_key(shadow, owner_of_state(reading.choices()))
            return reading.memories([key]).get(key)

    def decision(self, shadow: str, decision_id: str) -> Logged | None:
        """One that an app was served: what somebody asked one policy for is nothing to learn from.

        The policy that served it may read other features than the shadow, which has said its own.
        """
        with self._books.reading() as reading:
            past = reading.decisions([decision_id]).get(decision_id)
            if past is None or not decode(past.entry).source:
                return None
            said = reading.said(self._signals[shadow], of=past.entry, within=_FOLLOWED)
        x = recalled(past).x.astype("<f8").tobytes() if said is None else _unpacked(said, _Said).served_x
        return Logged(past.entry.user_id, x)
