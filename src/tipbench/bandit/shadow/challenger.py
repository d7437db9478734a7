"""One shadow: its line, its process and a thread between them. It may be late or wrong, never in the way."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tipbench.bandit.shadow.child import Child, WorkerLost
from tipbench.bandit.shadow.line import Forget, Line, LookAgain, Mark
from tipbench.bandit.shadow.messages import (
    BROKEN,
    FULL,
    REASONS,
    SLOW,
    STOPPED,
    UNKNOWN,
    Batch,
    Decide,
    Decided,
    Learned,
    Ready,
    Refused,
    Start,
    Teach,
)
from tipbench.bandit.shadow.notebook import Notebook
from tipbench.bandit.shadow.outcomes import ShadowCounts, ShadowDropped, ShadowLesson, ShadowResult
from tipbench.errors import TipbenchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeIs

    from tipbench.bandit.shadow.messages import Answer
    from tipbench.bandit.shadow.notebook import Archive
    from tipbench.bandit.shadow.outcomes import Limits, Outcome, ShadowSpec

_MOST_BATCH_BYTES = 2**20
_CALM = 100  # answers in a row after which a process counts as well again


@dataclass
class _Tally:
    """What the shadow's own thread has counted."""

    decided: int = 0
    agreed: int = 0
    learned: int = 0
    starts: int = 0
    trouble: str = ""
    dropped: Counter[str] = field(default_factory=Counter)
    lessons_dropped: Counter[str] = field(default_factory=Counter)

    def drop(self, ask: Decide | Teach, reason: str, trouble: str = "") -> None:
        self.trouble = trouble or self.trouble
        (self.dropped if isinstance(ask, Decide) else self.lessons_dropped)[reason] += 1


class Challenger:
    """A shadow at work. `offer`, `teach` and `forget` may be called by any thread, and cost it an append."""

    def __init__(
        self,
        spec: ShadowSpec,
        *,
        limits: Limits,
        report: Callable[[list[Outcome]], None],
        archive: Archive | None,
    ) -> None:
        self.spec = spec
        self._limits = limits
        self._report = report
        self._line = Line(most=limits.waiting, most_bytes=limits.waiting_bytes)
        self._notebook = Notebook(spec.name, archive, users=limits.users, decisions=limits.decisions)
        self._tally = _Tally()
        self._told: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._asked: deque[Decide | Teach] = deque()
        self._child: Child | None = None
        self._ready: Ready | None = None
        self._rest_s = limits.rest_s
        self._calm = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=spec.signal, daemon=True)
        self._thread.start()

    def offer(self, ask: Decide) -> None:
        self._line.add(ask)

    def teach(self, ask: Teach) -> None:
        """A reward; whoever is no apprentice never hears of it."""
        if self.spec.apprentice:
            self._line.add(ask)

    def forget(self, user_id: str | None) -> None:
        if self.spec.apprentice:
            self._line.add(Forget(user_id))

    def unlearn(self, user_id: str) -> None:
        """What it learned of this user last was not kept."""
        self._line.add(LookAgain(user_id))

    @property
    def pid(self) -> int | None:
        """Of its process, while there is one."""
        child = self._child
        return child.pid if child else None

    def counts(self) -> ShadowCounts:
        tally = self._tally
        return ShadowCounts(
            policy=self.spec.policy,
            apprentice=self.spec.apprentice,
            offered=self._line.offered(Decide),
            decided=tally.decided,
            agreed=tally.agreed,
            dropped=self._dropped(Decide),
            learned=tally.learned,
            lessons_dropped=self._dropped(Teach),
            waiting=len(self._line),
            starts=tally.starts,
            trouble=tally.trouble,
        )

    def _dropped(self, kind: type[Decide | Teach]) -> dict[str, int]:
        """By reason; read reason by reason, because another thread may be counting."""
        dropped = self._tally.dropped if kind is Decide else self._tally.lessons_dropped
        full = self._line.refused(kind)
        return ({FULL: full} if full else {}) | {why: dropped[why] for why in REASONS if why in dropped}

    def stop(self) -> None:
        """Ends at once; what still waits is dropped. May be called again."""
        self._stopping.set()
        self._line.wake()
        child = self._child
        if child:
            child.hang_up()

    def join(self, within_s: float) -> bool:
        """Whether the thread, and with it the process, is gone."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._end_child()
            self._drop_all(STOPPED)
            self._report_dropped()

    def _turn(self) -> None:
        """One batch from the line to its answers. A process that is lost meanwhile is replaced, later."""
        try:
            child = self._working_child()
            self._line.wait()
            self._stopping.wait(self._limits.nap_s)
            if not self._stopping.is_set():
                self._exchange(child)
        except WorkerLost as lost:
            self._end_child()
            if not self._stopping.is_set():
                self._blame(lost)
                self._report_dropped()
                self._rest()
        else:
            self._report_dropped()

    def _report_dropped(self) -> None:
        was_decisions, was_lessons = self._told
        self._told = decisions, lessons = Counter(self._dropped(Decide)), Counter(self._dropped(Teach))
        if (decisions, lessons) != (was_decisions, was_lessons):
            more = dict(decisions - was_decisions), dict(lessons - was_lessons)
            self._report([ShadowDropped(name=self.spec.name, decisions=more[0], lessons=more[1])])

    def _working_child(self) -> Child:
        """The process, with its policy loaded. Where that fails, nobody in the line can be served."""
        if self._child is not None:
            return self._child
        start = Start(
            policy=self.spec.policy,
            start_s=self._limits.start_s,
            deadline_s=self._limits.deadline_s,
            memory_mb=self._limits.memory_mb,
        )
        self._tally.starts += 1
        try:
            self._child = child = Child(start, nap_s=self._limits.nap_s)
            if self._stopping.is_set():
                child.hang_up()
            self._ready = child.ready(self._limits.start_s)
        except WorkerLost as lost:
            self._tally.trouble = lost.said
            self._drop_all(STOPPED if self._stopping.is_set() else lost.reason)
            raise
        return child

    def _exchange(self, child: Child) -> None:
        taken = self._line.take(most=self._limits.batch, most_bytes=_MOST_BATCH_BYTES)
        self._asked = deque(ask for ask in taken if not self._heeded(ask))
        batch = self._batch()
        if batch is None:
            return
        if child.disturbed():
            self._line.put_back(self._asked)
            self._asked.clear()
            raise WorkerLost(BROKEN, "its process ended while it had nothing to do")
        child.send(batch)
        while self._asked:
            self._take_in(child.hear(self._limits.deadline_s))

    def _heeded(self, item: Decide | Teach | Mark) -> TypeIs[Mark]:
        if isinstance(item, Forget):
            self._notebook.forget(item.user_id)
        elif isinstance(item, LookAgain):
            self._tally.learned -= 1
            self._notebook.look_again(item.user_id)
        return isinstance(item, Mark)

    def _batch(self) -> Batch | None:
        """What was taken, as it is sent. None: nothing was, or what is remembered cannot be read."""
        if not self._asked or not self.spec.apprentice:
            return Batch(asks=list(self._asked)) if self._asked else None
        try:
            self._asked = deque(self._notebook.completed(self._asked))
            return self._notebook.batch(self._asked)
        except TipbenchError as error:
            while self._asked:
                self._tally.drop(self._asked.popleft(), BROKEN, str(error))
            return None

    def _take_in(self, answers: list[Answer]) -> None:
        outcomes = [outcome for said in answers if (outcome := self._outcome(said)) is not None]
        self._calm += len(outcomes)
        if self._calm >= _CALM:
            self._rest_s = self._limits.rest_s
        if outcomes:
            self._report(outcomes)

    def _outcome(self, said: Answer) -> Outcome | None:
        """What an answer means; it must be the answer to what was asked first."""
        if isinstance(said, Ready) or not self._asked or said.decision_id != self._asked[0].decision_id:
            raise WorkerLost(BROKEN, "it answered something that it was not asked")
        ask = self._asked.popleft()
        if isinstance(said, Refused):
            # That a reward is for what it was never asked about is no fault of the policy.
            self._tally.drop(ask, said.reason, "" if said.reason == UNKNOWN else said.said)
            return None
        if said.took_us > self._limits.deadline_s * 1e6:
            self._tally.drop(ask, SLOW, f"a decision took {said.took_us / 1e6:.1f} s")
            return None
        if isinstance(said, Decided) and isinstance(ask, Decide):
            return self._result(ask, said)
        if isinstance(said, Learned) and isinstance(ask, Teach):
            return self._lesson(ask, said)
        raise WorkerLost(BROKEN, "it answered something that it was not asked")

    def _result(self, ask: Decide, said: Decided) -> ShadowResult:
        assert self._ready is not None  # noqa: S101 - nothing is asked of a process that is not ready
        agrees = said.tip_id == ask.served
        self._tally.decided += 1
        self._tally.agreed += agrees
        if self.spec.apprentice:
            self._notebook.decided(ask.user_id, said)
        return ShadowResult(
            name=self.spec.name,
            decision_id=ask.decision_id,
            user_id=ask.user_id,
            tip_id=said.tip_id,
            agrees=agrees,
            explored=said.explored,
            scores=said.scores,
            propensities=said.propensities,
            policy=self._ready.policy,
            policy_version=self._ready.policy_version,
            feature_version=self._ready.feature_version,
            absent=said.absent,
            took_us=said.took_us,
            apprentice=self.spec.apprentice,
            served_x=said.served_x,
        )

    def _lesson(self, ask: Teach, said: Learned) -> ShadowLesson:
        self._tally.learned += 1
        was_own, was_pooled = self._notebook.learned(ask.user_id, said)
        return ShadowLesson(
            name=self.spec.name,
            decision_id=ask.decision_id,
            user_id=ask.user_id,
            reward=ask.reward,
            was_own=was_own,
            was_pooled=was_pooled,
            own=said.own,
            pooled=said.pooled,
            took_us=said.took_us,
        )

    def _blame(self, lost: WorkerLost) -> None:
        """What was being decided is dropped; what was only behind it goes back to the head of the line."""
        self._tally.trouble = lost.said
        if self._asked:
            self._tally.drop(self._asked.popleft(), lost.reason)
        self._line.put_back(self._asked)
        self._asked.clear()

    def _rest(self) -> None:
        """A policy that fails at once must not keep the machine busy with starting it."""
        self._calm = 0
        self._stopping.wait(self._rest_s)
        self._rest_s = min(self._rest_s * 2, self._limits.longest_rest_s)

    def _drop_all(self, reason: str) -> None:
        """Nobody in the line can be served; marks to forget are still heeded."""
        self._line.put_back(self._asked)
        self._asked.clear()
        while taken := self._line.take(most=self._limits.batch, most_bytes=_MOST_BATCH_BYTES):
            for item in taken:
                if not self._heeded(item):
                    self._tally.drop(item, reason)

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child:
            child.end()
