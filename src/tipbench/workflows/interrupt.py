"""Ctrl-C that is safe: the first one ends the work in order, the second one ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tipbench.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SETTLE_S = 0.01
_ECHO_S = 0.5


def _nothing() -> None:
    """An echo: the kernel may send the signal of a parent's death once for each of the parent's threads."""


def run_interruptible(work: Coroutine[Any, Any, T], *, last_words: Callable[[], None] = _nothing) -> T:
    """Run it; Ctrl-C, a closed terminal and SIGTERM cancel it, so that its `finally` blocks run.

    A second signal calls `last_words` and ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        return asyncio.run(_cancel_on_signal(work, last_words))
    finally:
        # The loop leaves Python's own handlers behind, which know nothing of our exit codes.
        for number, handler in before.items():
            signal.signal(number, handler)


async def _cancel_on_signal(work: Coroutine[Any, Any, T], last_words: Callable[[], None]) -> T:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, _first_signal, loop, task, signalled, last_words)
    try:
        result = await task
    except asyncio.CancelledError:
        raise _interrupted() from None
    await asyncio.sleep(_SETTLE_S)  # the loop handles a signal some steps after it came
    if signalled.is_set():  # it came when the work had just ended, too late to cancel anything
        raise _interrupted()
    return result


def _interrupted() -> Interrupted:
    return Interrupted("interrupted; what was generated is kept: run the same command to go on")


def _first_signal(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Future[Any],
    signalled: asyncio.Event,
    last_words: Callable[[], None],
) -> None:
    signalled.set()
    _on_signal(loop, _nothing)
    loop.call_later(_ECHO_S, _on_signal, loop, lambda: _exit(last_words))
    task.cancel()


def _on_signal(loop: asyncio.AbstractEventLoop, handler: Callable[[], None]) -> None:
    for number in SIGNALS:
        loop.add_signal_handler(number, handler)


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
