"""Tips served and rewards counted, many in one transaction: all that is answered is on disk."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tipbench.bandit import draws
from tipbench.bandit.asks import Choose, Done, Note, Remark, Reset, Reward, Score, Signal
from tipbench.bandit.books import EVERYBODY, RESET, Entry, ShadowTotal
from tipbench.bandit.deciding import Open, Question, decide_all, open_question
from tipbench.bandit.line_up import LineUp
from tipbench.bandit.recall import Recall, Work
from tipbench.bandit.rewarding import Due, learn_all, tell
from tipbench.bandit.suites import state_key
from tipbench.errors import BadInput, Conflict, TipbenchError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tipbench.bandit.asks import Answer, Ask
    from tipbench.bandit.books import Books, Transaction, Turn
    from tipbench.bandit.line_up import Served
    from tipbench.bandit.policy import Policy

DAY_MS = 24 * 3600 * 1000
EXPIRE_MS = 7 * DAY_MS

_Ready: TypeAlias = "Question | Reward | Reset | Note | Choose | Remark | TipbenchError"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What came of a batch: an answer or an error for each ask, and what was added to the log."""

    answers: list[Answer | TipbenchError]
    signals: list[Signal]


class Begun:
    """A batch that is worked out and written. It lasts once `commit` was called, from any thread."""

    def __init__(self, turn: Turn | None, ran: Ran, work: Work | None = None) -> None:
        self._turn = turn
        self.ran = ran
        self.work = work
        self.error: Exception | None = None
        self._untidy = False

    def commit(self) -> None:
        """Wait for the disk. What comes of it is told by `Tips.ended`."""
        if self._turn is not None:
            try:
                self._untidy = self._turn.commit()
            except Exception as error:  # noqa: BLE001 - raised again by whoever works on
                self.error = error

    def tidy_up(self) -> None:
        """When those who asked have their answers."""
        if self._turn is not None and self._untidy:
            self._turn.tidy_up()


class Tips:
    """The serving half without its queue. One thread runs it."""

    def __init__(
        self,
        books: Books,
        policies: Mapping[str, Policy],
        *,
        seed: bytes,
        clock_ms: Callable[[], int],
        expire_ms: int = EXPIRE_MS,
        recall: Recall | None = None,
    ) -> None:
        self.books = books
        self.line_up = LineUp(policies)
        self.expire_ms = expire_ms
        self._seed = seed
        self._clock_ms = clock_ms
        self._recall = recall or Recall()

    def run(self, asks: Sequence[Ask]) -> list[Answer | TipbenchError]:
        """An answer for each, in one transaction: a bad ask has its error, and the others are as if alone.

        Where the transaction fails, its error is everybody's answer and nothing has happened.
        """
        return self.batch(asks).answers

    def batch(self, asks: Sequence[Ask]) -> Ran:
        """As `run`, with what was added to the log."""
        ready = [self._ready(ask) for ask in asks]
        try:
            with self.books.transaction(by=self) as tx:
                work, ran = self._written(ready, tx)
            work.remember()
        except BaseException as error:  # noqa: BLE001 - raised again, but for what everybody is told
            return self._undone(error, len(asks))
        return ran

    def begin(self, asks: Sequence[Ask]) -> Begun | None:
        """As `batch`, all but the wait for the disk, which is left to `Begun.commit`.

        None where somebody else is writing: `batch` would wait for them.
        """
        try:
            turn = self.books.begin(by=self)
        except Unavailable as error:
            return Begun(None, self._undone(error, len(asks)))
        if turn is None:
            return None
        try:
            work, ran = self._written([self._ready(ask) for ask in asks], turn.tx)
        except BaseException as error:  # noqa: BLE001 - raised again, but for what everybody is told
            turn.roll_back()
            return Begun(None, self._undone(error, len(asks)))
        return Begun(turn, ran, work)

    def ended(self, begun: Begun) -> Ran:
        """What came of it, once it is committed or has failed."""
        if begun.work is None:
            return begun.ran
        if begun.error is not None:
            return self._undone(begun.error, len(begun.ran.answers))
        begun.work.remember()
        return begun.ran

    def _written(self, ready: Sequence[_Ready], tx: Transaction) -> tuple[Work, Ran]:
        work = Work(self._recall, tx, now_ms=self._clock_ms())
        batch = _Batch(self, work)
        answers = batch.run(ready)
        work.write()
        return work, Ran(answers=answers, signals=batch.signals)

    def _undone(self, error: BaseException, many: int) -> Ran:
        """Nothing has happened: everybody's answer is why, where that was to be foreseen."""
        self._recall.forget()
        if not isinstance(error, Unavailable):
            raise error
        return Ran(answers=[error] * many, signals=[])

    def _ready(self, ask: Ask) -> _Ready:
        """The ask with all that can be worked out, or found wrong, before a transaction begins."""
        try:
            if isinstance(ask, Score):
                return self._question(ask)
            if isinstance(ask, Reward):
                request = ask.request
                check_ids(decision_id=request.decision_id, reward_id=request.reward_id, event=request.event)
            elif isinstance(ask, Reset):
                check_ids(user_id="everybody" if ask.user_id is None else ask.user_id)
        except TipbenchError as error:
            return error
        return ask

    def _question(self, ask: Score) -> Question:
        request, served = ask.request, self.line_up.asked_as(ask.policy)
        request_id = secrets.token_hex(16) if request.request_id is None else request.request_id
        check_ids(user_id=request.user_id, request_id=request_id)
        return Question(
            served=served,
            request=request,
            request_id=request_id,
            decision_id=draws.decision_id(
                self._seed, policy=ask.scope or served.name, user_id=request.user_id, request_id=request_id
            ),
            u=draws.uniform(self._seed, request_id),
            source=ask.source,
        )


class _Batch:
    """The asks of one transaction: what they need is looked up for all together, then each has its turn."""

    def __init__(self, tips: Tips, work: Work) -> None:
        self._tips = tips
        self._work = work
        self.signals: list[Signal] = []
        self._answers: dict[int, Answer | TipbenchError] = {}
        # By user: the place in the batch, and what is still to be decided or learned.
        self._open: dict[str, tuple[int, Open]] = {}
        self._due: dict[str, tuple[int, Due]] = {}

    def run(self, ready: Sequence[_Ready]) -> list[Answer | TipbenchError]:
        questions = [one for one in ready if isinstance(one, Question)]
        rewards = [one for one in ready if isinstance(one, Reward)]
        # An id that was drawn just now is nobody's yet.
        self._work.look_up_replies([one.decision_id for one in questions if one.request.request_id])
        lessons = [one for one in ready if isinstance(one, Note) and one.memories]
        self._work.look_up_past(
            [*(one.request.decision_id for one in rewards), *(one.lesson for one in lessons)]
        )
        asked = [(one.request.user_id, one.served, self._work.suite) for one in questions]
        wanted = [*asked, *self._look_up_told(rewards)]
        keys = (
            key for user, served, suite in wanted if served is not None for key in served.keys(user, suite)
        )
        learners = (memory.user_id for one in lessons for memory in one.memories)
        watched = (one.user_id for one in ready if isinstance(one, Note) and one.decision_id)
        self._work.look_up_users((*(user for user, _, _ in wanted), *learners, *watched), keys)
        for place, one in enumerate(ready):
            self._work_on(place, one)
        self._catch_up()
        return [self._answers[place] for place in range(len(ready))]

    def _look_up_told(self, rewards: Sequence[Reward]) -> list[tuple[str, Served | None, str]]:
        """Look up which rewards were counted before. Return the user, policy and suite of their decisions.

        The policy is None if it is no longer served: the user's profile is needed all the same.
        """
        told, wanted = [], []
        for one in rewards:
            try:
                decision = self._work.decision(one.request.decision_id)
            except TipbenchError:  # a damaged one: it is raised again when its turn comes
                continue
            if decision is not None:
                told.append((decision.seq, one.request.reward_id))
                served = self._tips.line_up.called(decision.policy)
                wanted.append((decision.user_id, served, decision.suite))
        self._work.look_up_repeats(told)
        return wanted

    def _work_on(self, place: int, ready: _Ready) -> None:
        try:
            answer = self._answer(ready)
        except TipbenchError as error:
            answer = error
        if isinstance(answer, Open):
            self._open[answer.question.request.user_id] = place, answer
        elif isinstance(answer, Due):
            self._due[answer.decision.user_id] = place, answer
        else:
            self._answers[place] = answer

    def _answer(self, ready: _Ready) -> Answer | TipbenchError | Open | Due:
        if isinstance(ready, Question):
            self._catch_up_on(ready.request.user_id, shared=ready.served.fresh.pooled is not None)
            return open_question(ready, self._work)
        if isinstance(ready, Reward):
            decision = self._work.decision(ready.request.decision_id)
            self._catch_up_on(decision.user_id if decision else "", shared=False)
            return tell(ready, self._work, self._tips.line_up, expire_ms=self._tips.expire_ms)
        if isinstance(ready, TipbenchError):
            return ready
        self._catch_up()
        return self._kept(ready)

    def _catch_up_on(self, user: str, *, shared: bool) -> None:
        """See that this user's next ask meets what it would meet had all before it been done in turn."""
        if user in self._open or user in self._due or (shared and self._due):
            self._catch_up()

    def _catch_up(self) -> None:
        """Decide and learn what has been left to be done together."""
        opened, due = [*self._open.values()], [*self._due.values()]
        for (place, _), made in zip(opened, decide_all([one for _, one in opened], self._work), strict=True):
            self._answers[place] = made if isinstance(made, TipbenchError) else made[0]
            self.signals += [] if isinstance(made, TipbenchError) else [made[1]]
        learned = learn_all([one for _, one in due], self._work)
        self._answers.update(zip((place for place, _ in due), learned, strict=True))
        self._open.clear()
        self._due.clear()

    def _kept(self, ready: Reset | Note | Choose | Remark) -> Done:
        if isinstance(ready, Reset):
            return self._reset(ready)
        if isinstance(ready, Note):
            return self._note(ready)
        if isinstance(ready, Choose):
            return self._choose(ready)
        self._log(ready.signal, "", ready.user_id, ready.policy, ready.body)
        return Done(seq=self._work.seq)

    def _choose(self, ready: Choose) -> Done:
        if ready.checked and self._work.chosen(ready.name) != ready.was:
            raise Conflict(f"somebody else has changed {ready.name!r} meanwhile; look again, then decide")
        self._work.choose(ready.name, ready.value)
        if ready.signal:
            self._log(ready.signal, "", "", ready.policy, ready.body)
        return Done(seq=self._work.seq)

    def _reset(self, ready: Reset) -> Done:
        who = EVERYBODY if ready.user_id is None else ready.user_id
        self._log(RESET, "", who, "", ready.body)
        self._work.forget(who)
        return Done(seq=self._work.seq)

    def _note(self, ready: Note) -> Done:
        if ready.decision_id:
            self._log(ready.signal, ready.decision_id, ready.user_id, ready.policy, ready.body)
            self._work.count_shadow(ShadowTotal(ready.signal, 1, int(ready.agreed), 0))
            profile = self._work.profile(ready.user_id)
            self._work.keep_profile(ready.user_id, profile.watched(ready.signal, agreed=ready.agreed))
        if ready.dropped:
            self._work.count_shadow(ShadowTotal(ready.signal, 0, 0, ready.dropped))
        self._keep_learned(ready)
        return Done(seq=self._work.seq)

    def _keep_learned(self, note: Note) -> None:
        held = [one for one in note.memories if self._holds(note.lesson, one.user_id)]
        key = state_key(note.policy, self._work.suite)
        if any(self._work.encoded((one.user_id, key)) != one.was for one in held):
            raise Conflict(f"{note.policy} was taught something else meanwhile")
        for one in held:
            self._work.keep_encoded((one.user_id, key), one.now)

    def _holds(self, lesson: str, user_id: str) -> bool:
        """Whether the decision is of the suite in use, and made after the user's last reset."""
        decision, work = self._work.decision(lesson), self._work
        return decision is not None and decision.suite == work.suite and decision.seq > work.floor_of(user_id)

    def _log(self, signal: str, decision_id: str, user_id: str, policy: str, body: bytes) -> None:
        work = self._work
        entry = Entry(work.seq + 1, work.now_ms, signal, decision_id, user_id, policy, body)
        work.log(entry)
        self.signals.append(Signal(entry))


def check_ids(**ids: str) -> None:
    """Ids are keys: any text will do that every database can keep."""
    for name, value in ids.items():
        if value.isascii() and 0 < len(value) <= 200 and "\0" not in value:
            continue
        if not 0 < len(value) <= 200:
            raise BadInput(f"{name} has {len(value)} characters; it must have from 1 to 200")
        if "\0" in value:
            raise BadInput(f"{name} holds a NUL character; leave it out")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{name} is not valid Unicode; send it as UTF-8") from None
