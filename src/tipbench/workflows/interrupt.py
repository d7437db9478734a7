"""Ctrl-C that is safe: the first one ends the work in order, the second one ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ECHO_S = 0.5


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run it; Ctrl-C, a closed terminal and SIGTERM cancel it, so that its `finally` blocks run."""
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        return asyncio.run(_cancel_on_signal(work))
    finally:
        # The loop leaves Python's own handlers behind, which know nothing of our exit codes.
        for number, handler in before.items():
            signal.signal(number, handler)


async def _cancel_on_signal(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _first_signal, loop, task)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted("interrupted; what was generated is kept: run the same command to go on") from None


def _first_signal(loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
    _on_signal(loop, _nothing)
    loop.call_later(_ECHO_S, _on_signal, loop, _exit)
    task.cancel()


def _on_signal(loop: asyncio.AbstractEventLoop, handler: Callable[[], None]) -> None:
    for number in SIGNALS:
        loop.add_signal_handler(number, handler)


def _nothing() -> None:
    """An echo: the kernel may send the signal of a parent's death once for each of the parent's threads."""


def _exit() -> None:
    """Nothing is lost by this: what counts as done is on disk, and the engine ends with its parent."""
    os._exit(Interrupted.exit_code)
