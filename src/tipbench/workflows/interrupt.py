"""Ctrl-C that is safe: the first one ends the work in order, the second one ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tipbench.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ECHO_S = 0.5
# A signal may reach another thread of this process. The main thread then notices within this time.
_LOOK_EVERY_S = 0.1


def _no_words() -> None:
    pass


class _SignalHandler:
    """Handles all signals of one block of code: see `handling_signals`."""

    def __init__(self, last_words: Callable[[], None]) -> None:
        self._last_words = last_words
        self._first_at: float | None = None
        self._is_working = False
        self._cancel: Callable[[], object] | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Take a signal. The kernel may send the signal of a parent's death once for each of its threads."""
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            if not self._is_working:
                raise _interrupted()
            if self._cancel is not None:
                self._cancel()
        elif now - self._first_at > _ECHO_S:
            _exit(self._last_words)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work in an event loop. Raises Interrupted if a signal comes before the loop is closed."""
        self._is_working = True
        try:
            result = asyncio.run(self._cancellable(work))
        except (Exception, asyncio.CancelledError) as error:
            if self._first_at is None and not isinstance(error, asyncio.CancelledError):
                raise
            raise _interrupted() from None
        finally:
            self._is_working = False
        if self._first_at is not None:
            raise _interrupted()
        return result

    async def _cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._first_at is not None:  # the signal came before there was a task
            task.cancel()
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_LOOK_EVERY_S)
        finally:
            self._cancel = None
        return task.result()


@contextmanager
def handling_signals(last_words: Callable[[], None] = _no_words) -> Iterator[None]:
    """Handle Ctrl-C, a closed terminal and SIGTERM in this block, also between two `run_interruptible`.

    The first signal cancels the work of `run_interruptible`, so that its `finally` blocks run. Outside of
    such work it raises Interrupted. A second signal calls `last_words` and ends the process.
    """
    if threading.current_thread() is not threading.main_thread() or _present_handler() is not None:
        yield
        return
    handler = _SignalHandler(last_words)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, earlier)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run the work. A signal cancels it and raises Interrupted: see `handling_signals`."""
    with handling_signals():
        handler = _present_handler()
        return asyncio.run(work) if handler is None else handler.run(work)


def _present_handler() -> _SignalHandler | None:
    """The handler of the block that this thread is in. Only the main thread has one."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(signal.SIGINT)
    return handler if isinstance(handler, _SignalHandler) else None


def _interrupted() -> Interrupted:
    return Interrupted("interrupted; what was generated is kept: run the same command to go on")


def _exit(last_words: Callable[[], None]) -> None:
    try:
        last_words()
    finally:
        end_process(Interrupted.exit_code)


# Called with the exit code by a process that ends without Python's own ending.
before_end: list[Callable[[int], None]] = []


def end_process(code: int) -> NoReturn:
    """End at once. Python's own ending takes 0.6 s of CPU once MLflow is imported, and waits for threads.

    Nothing is lost by this: what counts as done is on disk, and the engine ends with its parent.
    """
    try:
        for act in before_end:
            act(code)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def ignore_signals() -> None:
    """For the last moments of a command that was interrupted: a further Ctrl-C would only cut them short."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


async def in_background(work: Callable[[], T]) -> T:
    """Do work that blocks in a thread. Unlike `asyncio.to_thread`, an interrupt does not wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type] # it is what `work` returned
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - it is raised in the caller
            error = caught
        with suppress(RuntimeError):  # the loop has ended: the command was interrupted
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done
