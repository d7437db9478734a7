"""A job's process: started in a session of its own, found again by whoever asks, and what it leaves behind.

Run as a module it is that process: it runs the command and, as its last act, writes down the exit code. So
how a job ended is known even to a service that was not there; one that was killed leaves nothing.

A job runs for as long as somebody holds the lock in its folder: first whoever starts it, who hands it on to
the process. The system takes it back with the last thread of that; no clock and no pid comes into it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from tipbench.errors import CheckFailed
from tipbench.ledger.locks import held_file, is_held
from tipbench.private import make_folder, opener
from tipbench.workflows import interrupt
from tipbench.workflows.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

EVENTS, OUT, LOG = "events.jsonl", "out.json", "log.txt"
_PROCESS, _EXIT, _CANCEL, _LOCK = "process.json", "exit.json", "cancel.json", "running.lock"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FIRMER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_INTERRUPTED = 130
_ENDING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Started:
    """Which process, and when it began by the clock of that moment."""

    pid: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a process wrote down as its last act."""

    code: int
    ended_ms: int


class JobFolder:
    """A job's folder, which has all there is to know of its process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = path / EVENTS
        self.out = path / OUT
        self.log = path / LOG

    @contextmanager
    def claimed(self) -> Iterator[int]:
        """Hold the job's lock, to be handed on to its process; CheckFailed where an earlier one has it."""
        make_folder(self.path)
        with held_file(self.path / _LOCK, patience_s=_ENDING_S) as lock:
            if lock is None:
                raise CheckFailed(f"the last process of job {self.path.name} is still ending; try again")
            yield lock

    def prepare(self, heading: str) -> None:
        """Make it ready for a process to begin, or to begin again: what the last one left is cleared away.

        Events and log are added to. An event that was being written when the last process was killed is
        ended here, so that the next one has a line of its own.
        """
        for name in (_PROCESS, _EXIT, _CANCEL, OUT):
            (self.path / name).unlink(missing_ok=True)
        with open(self.events, "ab+", opener=opener) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                file.write(b"" if file.read(1) == b"\n" else b"\n")
        self.say(f"# {heading}")

    def say(self, line: str) -> None:
        """Add a line to the log."""
        with open(self.log, "a", encoding="utf-8", opener=opener) as file:
            file.write(f"{line}\n")

    def spawn(self, arguments: Sequence[str], *, lock: int, env: Mapping[str, str], cwd: str) -> Started:
        """Start the command. It outlives us; while we live it is waited for, so that no zombie is left."""
        module = "tipbench.workflows.job_process"
        command = [sys.executable, "-m", module, str(self.path), str(lock), "--", *arguments]
        with open(self.out, "wb", opener=opener) as out, open(self.log, "ab", opener=opener) as log:
            child = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=(lock,),
            )
        started = Started(pid=child.pid, at=psutil.Process(child.pid).create_time())
        threading.Thread(target=child.wait, name=f"job {self.path.name}", daemon=True).start()
        return started

    def announced(self) -> Started | None:
        """Who the process said it is, for a service that ended before it could write that down."""
        said = _read(self.path / _PROCESS)
        try:
            return Started(pid=int(said["pid"]), at=float(said["at"]))
        except (KeyError, TypeError, ValueError):
            return None

    def left(self) -> Left | None:
        """What the process wrote at its end; None while it runs, and where it was killed."""
        said = _read(self.path / _EXIT)
        try:
            return Left(code=int(said["code"]), ended_ms=int(said["ended_ms"]))
        except (KeyError, TypeError, ValueError):
            return None

    def runs(self, started: Started | None) -> bool:
        """Whether the job's process lives, or is about to begin; asked of it where the lock was deleted."""
        held = is_held(self.path / _LOCK)
        return self.find(started) is not None if held is None else held

    def find(self, started: Started | None) -> psutil.Process | None:
        """The process, where it runs. One that only has its pid is somebody else's, and is never returned.

        Looked up before the lock is: while that is held, the pid is nobody else's.
        """
        try:
            process = psutil.Process(started.pid) if started else None
            ours = process and is_held(self.path / _LOCK) is not False and str(self.path) in process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None
        return process if ours else None

    @property
    def cancelled(self) -> bool:
        return (self.path / _CANCEL).exists()

    def cancel(self, started: Started | None, *, grace_s: float) -> None:
        """Ask the process to end; where it was asked before, insist once it has had its time.

        It has `grace_s` to unload its model, then it is told to end at once, and after twice that again it is
        killed: a call that waits for a dead ledger hears no signal. What was generated is safe in each case.
        """
        said = {"asked": time.monotonic(), "sent": 0} | _read(self.path / _CANCEL)
        waited = time.monotonic() - said["asked"]
        due = 1 + (waited >= grace_s) + (waited >= 3 * grace_s)
        process = self.find(started or self.announced()) if said["sent"] < due else None
        if process is not None or not self.cancelled:
            self._note_cancel(said | {"sent": due if process else 0})
        if process is not None:
            _send(process, _FIRMER[due - 1])

    def _note_cancel(self, said: Mapping[str, Any]) -> None:
        """Write down what was asked. A full disk, or a folder that is gone, does not keep a job running."""
        with suppress(OSError):
            make_folder(self.path)
            write_whole(self.path / _CANCEL, json.dumps(said))

    def insist_later(self, started: Started | None, *, grace_s: float) -> None:
        """Go on with a cancellation without anybody waiting for it."""
        for wait_s in (grace_s, 3 * grace_s):
            timer = threading.Timer(wait_s + 0.05, self._insist, (started, grace_s))
            timer.daemon = True
            timer.start()

    def _insist(self, started: Started | None, grace_s: float) -> None:
        if self.cancelled:
            self.cancel(started, grace_s=grace_s)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    """Send it to a process that may have ended this moment; psutil sees to it that it is still the same."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _read(path: Path) -> dict[str, Any]:
    """The object in a file; nothing where there is none that can be read, or where it holds no object."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def main(folder: Path, lock: int, arguments: Sequence[str]) -> None:
    """Be the process: run the command, and write down how it ended. The lock is for it alone."""
    code = 1
    try:
        os.set_inheritable(lock, False)
        for number in _SIGNALS:
            signal.signal(number, _end)  # until the command sets its own
        myself = psutil.Process()
        write_whole(folder / _PROCESS, json.dumps({"pid": os.getpid(), "at": myself.create_time()}))
        if JobFolder(folder).cancelled:  # by somebody who could not know the pid yet
            sys.exit(_INTERRUPTED)
        interrupt.before_end.append(partial(_write_exit, folder))
        sys.argv = ["tipbench", *arguments]
        runpy.run_module("tipbench", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _write_exit(folder, code)


def _write_exit(folder: Path, code: int) -> None:
    write_whole(folder / _EXIT, json.dumps({"code": code, "ended_ms": time.time_ns() // 1_000_000}))


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_INTERRUPTED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4:])
