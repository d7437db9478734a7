"""Group commit: whatever is asked while the disk is busy goes to it together next time.

Batches come one after the other, so nothing that is learned is learned over; whoever asks waits for the disk,
and not for their turn at it.

A batch is worked on in the event loop of those who ask, and a thread does nothing but wait for the disk. Two
threads of Python that both have work would spend more time on waiting for each other than on the work: each
statement lets go of Python's lock, and has to get it back. Where a batch cannot be begun at once, because
another process is writing or the database is elsewhere, the thread does all of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tipbench.errors import Busy, TipbenchError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from tipbench.bandit.asks import Answer, Ask, Signal
    from tipbench.bandit.serving import Begun, Ran, Tips

    Listener: TypeAlias = Callable[[Sequence[Signal]], None]
    Loop: TypeAlias = asyncio.AbstractEventLoop
    # Something to be done next: in the event loop that it is handed, or in the thread, which hands it None.
    Step: TypeAlias = Callable[[Loop | None], None]

# What was written is brought over into the file soon after much was, and in little pieces: a commit waits for
# the disk behind all that is being brought over.
_MUCH = 128
_TIDY_S = 0.25
# Those who were answered together often come back together. Without a moment's wait for them the first one
# would go to the disk alone, and the others wait for that.
_MOMENT_S = 0.001
# A batch of two costs nearly as much as one of ten. Where several ask at once, batches therefore begin some
# time apart, unless there is company enough.
_APART_S = 0.003
_COMPANY = 16
# For so long those who are in no hurry wait for a batch that they can go with.
_PATIENCE_S = 0.05
_LOG = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """An ask and who waits for it: a task of an event loop, or a thread."""

    ask: Ask
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Answer] | Future[Answer]


_Settled: TypeAlias = "list[tuple[_Waiting, Answer | Exception]]"
_Batch: TypeAlias = "list[_Waiting]"


class Counter:
    """Where everybody asks. An answer is on disk; an error has changed nothing, unless it says otherwise."""

    def __init__(self, tips: Tips, *, most_waiting: int = 10_000, most_together: int = 128) -> None:
        self.tips = tips
        self._most_waiting = most_waiting
        self._most_together = most_together
        self._line: deque[_Waiting] = deque()
        self._aside: deque[_Waiting] = deque()  # those who are in no hurry
        self._door = threading.Lock()
        self._open = False
        self._idle = True  # nobody works on a batch, nor has been asked to
        self._handed: tuple[Loop, Step] | None = None  # to an event loop, which has not come to it yet
        self._last = 0, 0.0  # how many were answered together, and when
        self._began = 0.0  # when the last batch was begun in an event loop
        self._steps: SimpleQueue[Step | None] = SimpleQueue()  # for the thread
        self._listeners: tuple[Listener, ...] = ()
        self._wrote = threading.Event()
        self._wrote_much = threading.Event()
        self._untidy = 0  # how many were answered since the last tidying
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._run_steps, name="tips-counter", daemon=True),
            threading.Thread(target=self._tidy, name="tips-tidier", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._open = True

    def stop(self) -> None:
        """Take nothing more, answer what was taken, and end. Blocks for as long as that takes."""
        with self._door:
            was_open, self._open = self._open, False
            # Whoever calls may be the very loop that has a step to do.
            self._take_back()
            if was_open and self._idle:
                self._idle = False
                self._steps.put(self._work)
        self._closing.set()
        self._wrote.set()
        self._wrote_much.set()
        for thread in self._threads:
            thread.join()

    async def ask(self, ask: Ask) -> Answer:
        """The answer, once it is on disk; raises what was wrong with the ask, or Busy."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._put(_Waiting(ask, loop, future))
        return await future

    def ask_from_thread(self, ask: Ask) -> Future[Answer]:
        """As `ask`, for those who have no event loop, or do not wait at all."""
        future: Future[Answer] = Future()
        self._put(_Waiting(ask, None, future))
        return future

    def ask_in_passing(self, ask: Ask) -> Future[Answer]:
        """As `ask_from_thread`, for those in no hurry: they go with the next batch, or alone after a while.

        A batch of their own would have whoever asks meanwhile wait for the disk twice.
        """
        future: Future[Answer] = Future()
        with self._door:
            self._check_open()
            self._aside.append(_Waiting(ask, None, future))
            if len(self._aside) == 1:
                self._steps.put(_look)
        return future

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called with what was added to the log, after those who asked have their answers.

        It is called in the thread that everybody waits for, so it only passes on. Returns how to end it.
        """
        with self._door:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._door:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return unsubscribe

    def waiting(self) -> int:
        """How many asks are in the queue."""
        return len(self._line) + len(self._aside)

    def _check_open(self) -> None:
        if not self._open:
            raise Unavailable("tips are not being served any more: the service is stopping; try again")
        if self.waiting() >= self._most_waiting:
            raise Busy(f"{self._most_waiting} requests are waiting already; try again in a moment")

    def _put(self, waiting: _Waiting) -> None:
        with self._door:
            self._check_open()
            self._line.append(waiting)
            if self._idle:
                self._idle = False
                self._hand(waiting.loop, self._work, here=waiting.loop, wait_s=self._wait_s(waiting.loop))
            elif self._handed is not None:
                self._hurry(self._handed[0], waiting.loop)

    # -- who does the next step; the door is held

    def _wait_s(self, loop: Loop | None) -> float:
        """How long to wait for company: for those who were answered just now and may be about to ask again,
        and for others who come while several do.
        """
        if loop is None:
            return 0.0
        (many, at), here, now = self._last, len(self._line), loop.time()
        soon = _MOMENT_S if many > here and now - at < 2 * _MOMENT_S else 0.0
        apart = self._began + _APART_S - now if many > 1 and here < _COMPANY else 0.0
        return max(soon, min(apart, _APART_S))

    def _hurry(self, loop: Loop, here: Loop | None) -> None:
        """Whoever was waited for is here; or whoever was to go on is not."""
        if loop.is_closed():
            self._take_back()
        elif loop is here and len(self._line) in {self._last[0], _COMPANY} and not self._wait_s(loop):
            loop.call_soon(self._take, loop)

    def _hand(self, loop: Loop | None, step: Step, *, here: Loop | None, wait_s: float = 0.0) -> None:
        """Leave a step to an event loop, or to the thread where there is none any more."""
        if loop is None or not self._open or loop.is_closed():
            self._steps.put(step)
            return
        self._handed = loop, step
        if wait_s > 0.0:
            loop.call_later(wait_s, self._take, loop)
            return
        try:
            (loop.call_soon if loop is here else loop.call_soon_threadsafe)(self._take, loop)
        except RuntimeError:  # it was closed just now
            self._take_back()

    def _take_back(self) -> None:
        if self._handed is not None:
            (_, step), self._handed = self._handed, None
            self._steps.put(step)

    # -- the steps

    def _run_steps(self) -> None:
        while (step := self._next_step()) is not None:
            step(None)

    def _next_step(self) -> Step | None:
        try:
            return self._steps.get(timeout=_PATIENCE_S if self._aside else None)
        except Empty:
            return self._work_aside

    def _work_aside(self, here: Loop | None) -> None:
        """Nobody came with whom those who are in no hurry could have gone."""
        with self._door:
            if self._handed is not None and self._handed[0].is_closed():
                self._take_back()
            if not self._idle or not self._aside:
                return
            self._idle = False
            self._line.extend(self._aside)
            self._aside.clear()
        self._work(here)

    def _take(self, loop: Loop) -> None:
        """In an event loop: do what was left to it, unless that was taken back."""
        with self._door:
            handed = self._handed
            if handed is None or handed[0] is not loop:
                return
            self._handed = None
        handed[1](loop)

    def _work(self, here: Loop | None) -> None:
        """Work on what waits; in an event loop, up to where the disk has to be waited for."""
        batch = self._taken()
        if not batch:
            return
        if here is None:
            self._do_all(batch, None)
            return
        self._began = here.time()
        try:
            begun = self.tips.begin([one.ask for one in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, they all wait, and the next do too
            self._settle(batch, error, here)
            return
        if begun is None:
            self._steps.put(partial(self._do_all, batch))
        else:
            self._steps.put(partial(self._commit, batch, begun))

    def _taken(self) -> _Batch:
        """What is at the front of the line, and what goes with it. Where nothing is, this is the end of the
        work for now.
        """
        with self._door:
            batch = _first_of(self._line, self._most_together)
            if batch or not self._open:
                batch += _first_of(self._aside, self._most_together - len(batch))
            if not batch:
                self._idle = True
                if not self._open:
                    self._steps.put(None)
            return batch

    def _do_all(self, batch: _Batch, _here: Loop | None) -> None:
        """In the thread: the whole of it."""
        try:
            ran: Ran | Exception = self.tips.batch([one.ask for one in batch])
        except Exception as error:  # noqa: BLE001 - as above
            ran = error
        self._settle(batch, ran, None)

    def _commit(self, batch: _Batch, begun: Begun, _here: Loop | None) -> None:
        """In the thread: wait for the disk, and let the event loop go on."""
        begun.commit()
        with self._door:
            self._hand(_loop_of(batch), partial(self._end, batch, begun), here=None)
        try:
            begun.tidy_up()
        except TipbenchError as error:
            _LOG.warning("%s", error)

    def _end(self, batch: _Batch, begun: Begun, here: Loop | None) -> None:
        try:
            ran: Ran | Exception = self.tips.ended(begun)
        except Exception as error:  # noqa: BLE001 - as above
            ran = error
        self._settle(batch, ran, here)

    def _settle(self, batch: _Batch, ran: Ran | Exception, here: Loop | None) -> None:
        """Give everybody their answer; then tell those who listen, and go on."""
        answers: Sequence[Answer | Exception]
        if isinstance(ran, Exception):
            _LOG.error("a batch of %d could not be worked on", len(batch), exc_info=ran)
            answers, signals = [ran] * len(batch), []
        else:
            answers, signals = ran.answers, ran.signals
        _deliver([*zip(batch, answers, strict=True)], here)
        if here is not None:
            self._last = sum(one.loop is not None for one in batch), here.time()
        self._untidy += len(batch)
        self._wrote.set()
        if self._untidy >= _MUCH:
            self._wrote_much.set()
        with self._door:
            # After the tasks that have their answers now: the replies go out first.
            loop = _loop_of(self._line) if here is None else here
            self._hand(loop, partial(self._go_on, signals), here=here)

    def _go_on(self, signals: Sequence[Signal], here: Loop | None) -> None:
        if signals:
            self._announce(signals)
        if here is not None and self._line:
            with self._door:
                wait_s = self._wait_s(here)
                if wait_s > 0.0:
                    self._hand(here, self._work, here=here, wait_s=wait_s)
                    return
        self._work(here)

    def _announce(self, signals: Sequence[Signal]) -> None:
        for listener in self._listeners:
            try:
                listener(signals)
            except Exception:  # noqa: BLE001 - one that fails must not keep others from their answers
                _LOG.exception("a listener to the log failed")

    def _tidy(self) -> None:
        while not self._closing.is_set():
            self._wrote.wait()
            self._wrote_much.wait(_TIDY_S)
            self._untidy = 0
            self._wrote.clear()
            self._wrote_much.clear()
            try:
                self.tips.books.tidy()
            except TipbenchError as error:
                _LOG.warning("%s", error)


def _look(_here: Loop | None) -> None:
    """So that the thread that waits for steps sees that there is something to wait for."""


def _first_of(line: deque[_Waiting], most: int) -> _Batch:
    return [line.popleft() for _ in range(min(len(line), most))]


def _loop_of(waiting: Iterable[_Waiting]) -> Loop | None:
    return next((one.loop for one in waiting if one.loop is not None), None)


def _deliver(settled: _Settled, here: Loop | None) -> None:
    """Wake every other event loop once, however many of its tasks have an answer."""
    elsewhere: dict[Loop, _Settled] = {}
    for waiting, answer in settled:
        if waiting.loop is here or waiting.loop is None:
            _set(waiting.future, answer)
        else:
            elsewhere.setdefault(waiting.loop, []).append((waiting, answer))
    for loop, its in elsewhere.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_set_all, its)


def _set_all(settled: _Settled) -> None:
    for waiting, answer in settled:
        _set(waiting.future, answer)


def _set(future: asyncio.Future[Answer] | Future[Answer], answer: Answer | Exception) -> None:
    if future.done():  # whoever asked may have given up
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
