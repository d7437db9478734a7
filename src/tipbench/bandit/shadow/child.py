"""A shadow's process, seen from the service: started, talked to with a deadline, and ended for certain."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tipbench.bandit.shadow.messages import (
    BROKEN,
    LONGEST_ANSWER,
    SLOW,
    Frames,
    Ready,
    Refused,
    Unreadable,
    answer,
    framed,
)

if TYPE_CHECKING:
    from tipbench.bandit.shadow.messages import Answer, Batch, Start

OUT_OF_MEMORY = 77  # the exit status of a process that met its bound
_CHUNK = 2**18
_FEW_THREADS = {
    f"{library}_THREADS": "1" for library in ("OPENBLAS_NUM", "OMP_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
}
# The path is the service's own, so that both run the same code; nothing is imported before it is set.
_RUN = """import sys
sys.path[:] = sys.argv[2:]
from tipbench.bandit.shadow.worker import main
main(sys.argv[1])"""


class WorkerLost(Exception):
    """The process is of no more use. `reason` is SLOW or BROKEN, `said` a sentence for people."""

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(said)
        self.reason = reason
        self.said = said


class Child:
    """One process that runs one policy. Only `hang_up` may be called from another thread.

    It has a session of its own, so that neither a Ctrl-C meant for the service nor what the policy starts
    reaches the other. It ends by itself when the service does, because its only connection closes; what hangs
    then is ended by an alarm that the process sets before every piece of work.
    """

    def __init__(self, start: Start, *, nap_s: float) -> None:
        try:
            self._process, self._socket = _begun()
        except OSError as error:
            raise WorkerLost(BROKEN, f"its process cannot be started ({error.strerror})") from None
        self._frames = Frames(LONGEST_ANSWER)
        self._unsent = memoryview(framed(start))
        self._nap_s = nap_s
        self._hung_up = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def disturbed(self) -> bool:
        """Whether it ended, or spoke, while nobody asked it anything."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def ready(self, within_s: float) -> Ready:
        """Waits until the policy is loaded; a WorkerLost says why it cannot be."""
        for said in self._until(time.monotonic() + within_s):
            if isinstance(said, Ready):
                return said
            sentence = said.said if isinstance(said, Refused) else "it answered before it was asked"
            raise WorkerLost(BROKEN, sentence)
        raise WorkerLost(SLOW, f"the policy was not loaded within {within_s:g} s")

    def send(self, batch: Batch) -> None:
        self._unsent = memoryview(framed(batch))

    def hear(self, within_s: float) -> list[Answer]:
        """The answers that have come, at least one; a WorkerLost when there is none in time."""
        heard = self._until(time.monotonic() + within_s)
        if not heard:
            raise WorkerLost(SLOW, f"a decision took longer than {within_s:g} s")
        return heard

    def _until(self, deadline: float) -> list[Answer]:
        """Sends what is unsent and waits for answers; looks once more when the deadline is past.

        The one more look is for a service that was itself stopped for a while: the answer may be there.
        """
        while True:
            left = deadline - time.monotonic()
            heard = self._pump(max(left, 0.0))
            if heard or left <= 0:
                return heard

    def _pump(self, wait_s: float) -> list[Answer]:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        events = dict(poll.poll(wait_s * 1000)).get(self._socket.fileno(), 0)
        try:
            if events & select.POLLOUT:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if events & ~select.POLLOUT:
                return self._read()
        except BlockingIOError:
            return []
        except OSError:
            raise WorkerLost(BROKEN, self._last_words()) from None
        return []

    def _read(self) -> list[Answer]:
        # Whoever answers one decision answers the next soon: a nap saves the service being woken for each.
        time.sleep(self._nap_s)
        some = self._socket.recv(_CHUNK)
        if not some:
            raise WorkerLost(BROKEN, self._last_words())
        try:
            return [answer(said) for said in self._frames.feed(some)]
        except Unreadable as error:
            raise WorkerLost(BROKEN, f"it answered what cannot be read: {error}") from None

    def _last_words(self) -> str:
        if self._hung_up:
            return "nobody wants to hear it any more"
        try:
            status = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        if status == OUT_OF_MEMORY:
            return "it took more memory than it may"
        return f"its process ended with status {status}"

    def hang_up(self) -> None:
        """Whoever waits for an answer gets WorkerLost now."""
        self._hung_up = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """No process of its session is left, and nothing of it in the table of processes."""
        # Before it is waited for: its number still stands for it and for no other.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._socket.close()


def _begun() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and our end of its connection."""
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as unless_begun, theirs:
        unless_begun.callback(ours.close)
        process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
            [sys.executable, "-c", _RUN, str(theirs.fileno()), *map(str, sys.path)],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | _FEW_THREADS,
        )
        unless_begun.pop_all()
    ours.setblocking(False)
    return process, ours
