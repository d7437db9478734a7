"""Errands to the ledger and to the engine, each in a process of its own.

What they need takes seconds of CPU to import, and all threads of a Python process share one lock: done by a
thread of the service, every errand would be felt by everybody who waits for a tip.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tipbench.errors import Unavailable
from tipbench.workflows.shipped_file import encode_filed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tipbench.records import Emit
    from tipbench.settings import Settings
    from tipbench.workflows.fresh_tips import Keep
    from tipbench.workflows.shipped_file import Filed

LEDGER, ENGINE = "ledger", "engine"
# What an errand says, in lines of JSON.
WANT, KEEP, EVENT, FAILED, DONE = "want", "keep", "event", "failed", "done"
_LEDGER_S = 300.0
_SLACK_S = 300.0
_LAST_S = 20.0
_CHUNK = 2**16


class Errand:
    """A process that is given a task, may ask something, and says what came of it.

    It ends by itself when nobody listens to it any more: its input closes then, however the service ended.
    """

    def __init__(self, what: str, task: Mapping[str, Any], *, silence_s: float) -> None:
        self._what = what
        self._silence_s = silence_s
        self._guard = threading.Lock()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "tipbench.workflows.tip_errand", what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            start_new_session=True,
        )
        self.tell(task)

    def tell(self, said: Mapping[str, Any]) -> None:
        """Say something to it; what has hung up, or has ended, does not hear it."""
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        with self._guard, suppress(OSError):
            if not self._child.stdin.closed:
                self._child.stdin.write(json.dumps(said).encode() + b"\n")
                self._child.stdin.flush()

    def hang_up(self) -> None:
        """Let it come to its end; from any thread."""
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        with self._guard, suppress(OSError):
            self._child.stdin.close()

    def kill(self) -> None:
        """End it; from any thread."""
        self.hang_up()
        with suppress(OSError):
            self._child.kill()

    def heard(self) -> Iterator[dict[str, Any]]:
        """What it says until it is done. Unavailable with its words where it failed, or fell silent."""
        for line in self._lines():
            said = json.loads(line)
            if said["say"] == DONE:
                return
            if said["say"] == FAILED:
                raise Unavailable(said["error"])
            yield said
        raise Unavailable(
            f"the process that asks the {self._what} ended before it was done{self._last_words()}"
        )

    def close(self) -> None:
        """See it gone."""
        self.hang_up()
        try:
            self._child.wait(_LAST_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._noise.close()

    def _lines(self) -> Iterator[bytes]:
        assert self._child.stdout is not None  # noqa: S101 - it is a pipe
        kept = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._child.stdout, selectors.EVENT_READ)
            while True:
                if not ready.select(self._silence_s):
                    self.kill()
                    raise Unavailable(
                        f"the {self._what} was asked, and nothing came for {self._silence_s:.0f} s"
                    )
                piece = os.read(self._child.stdout.fileno(), _CHUNK)
                if not piece:
                    return
                *lines, kept = (kept + piece).split(b"\n")
                yield from lines

    def _last_words(self) -> str:
        self._noise.seek(0)
        lines = self._noise.read()[-2000:].decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f": {said[-1]}" if said else ""


class Errands:
    """Errands of one kind, one at a time, that can be broken off."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._ended = False
        self._now: Errand | None = None

    def end(self) -> None:
        """Break off what is under way, and begin nothing any more; from any thread."""
        with self._guard:
            self._ended = True
            if self._now is not None:
                self._now.hang_up()

    def kill(self) -> None:
        """As `end`, for what does not come to its end."""
        self.end()
        with self._guard:
            if self._now is not None:
                self._now.kill()

    @contextmanager
    def _begun(self, what: str, task: Mapping[str, Any], *, silence_s: float) -> Iterator[Errand | None]:
        """The errand, None where nothing is to be begun any more. Gone when the block ends."""
        with self._guard:
            told = {"settings": asdict(self._settings), **task}
            errand = self._now = None if self._ended else Errand(what, told, silence_s=silence_s)
        if errand is None:
            yield None
            return
        try:
            yield errand
        finally:
            errand.close()
            with self._guard:
                self._now = None


class LedgerErrands(Errands):
    def refreshed(self, folder: Path) -> None:
        """See that the file of what is shipped is as the ledger has it; raises what keeps it from that."""
        with self._begun(LEDGER, {"folder": str(folder)}, silence_s=_LEDGER_S) as errand:
            for _ in errand.heard() if errand else ():
                pass


class EngineErrands(Errands):
    """As `FreshTips`, in another process."""

    def __init__(self, settings: Settings, *, emit: Emit) -> None:
        super().__init__(settings)
        self._emit = emit

    def generate(self, filed: Filed, *, wanted: Iterator[str], keep: Keep) -> None:
        longest = self._settings.timeout * (self._settings.retries + 1) + self._settings.unload_timeout
        with self._begun(ENGINE, {"filed": encode_filed(filed)}, silence_s=longest + _SLACK_S) as errand:
            for said in errand.heard() if errand else ():
                if said["say"] == WANT:
                    assert errand is not None  # noqa: S101 - it has just spoken
                    errand.tell({"scenario": next(wanted, None)})
                elif said["say"] == KEEP:
                    keep(said["scenario"], tuple(said["texts"]), said["error"])
                else:
                    self._emit(said["event"])
