"""A `tipbench` command as a child process: found, started, listened to, and ended with its task.

tipbench lives in an environment of its own. Nothing of it is imported here, and nothing of Airflow either.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

COMMAND = "TIPBENCH_COMMAND"
SOME_FAILED, BAD_INPUT, UNAVAILABLE, CHECK_FAILED = 1, 2, 3, 4
_PR_SET_PDEATHSIG = 1
_ENDING_S = 60.0


class NoCommand(Exception):
    """There is no tipbench to call; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: its exit code, what it printed, and the sentence it ended with."""

    code: int
    out: str
    sentence: str

    @property
    def result(self) -> Any:  # noqa: ANN401 - whatever the command printed
        """Its JSON; None where it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None


def command() -> list[str]:
    """How tipbench is called: as `TIPBENCH_COMMAND` says, in the checkout around this file, or on PATH."""
    given = shlex.split(os.environ.get(COMMAND, ""))
    checkout = Path(__file__).resolve().parent.parent / ".venv" / "bin" / "tipbench"
    found = given or ([str(checkout)] if checkout.exists() else [shutil.which("tipbench") or ""])
    if not shutil.which(found[0]):
        named = f"{COMMAND} names {found[0]!r}, which cannot be run" if given else "tipbench is not here"
        raise NoCommand(
            f"{named}: install tipbench on this worker in an environment of its own and set {COMMAND} to its "
            "command, such as /opt/tipbench/bin/tipbench"
        )
    return found


def run(
    arguments: Sequence[str], *, say: Callable[[str], None], env: Mapping[str, str] | None = None
) -> Ended:
    """Run it to its end. What it tells while it works goes to `say`, line by line."""
    last = ""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, _started(arguments, out, env or {}) as child:
        assert child.stderr is not None  # noqa: S101 - it is a pipe
        for line in child.stderr:
            told = _told(line.strip())
            last = told or last
            if told:
                say(told)
        code = child.wait()
        out.seek(0)
        return Ended(code=code, out=out.read(), sentence=last.removeprefix("tipbench: "))


@contextmanager
def _started(arguments: Sequence[str], out: Any, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - any file
    """The process, in a session of its own: a signal to the task reaches it once, from here, as a Ctrl-C."""
    child = subprocess.Popen(  # noqa: S603 - the command that whoever runs the worker chose
        [*command(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=_environment(env),
        start_new_session=True,
        preexec_fn=_end_with_parent(),  # noqa: PLW1509 - it only calls into the kernel
    )
    with child, _passing_on(child):
        try:
            yield child
        finally:
            _end(child)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """What the command is given: nothing of Airflow's own, which holds its secrets."""
    kept = {name: value for name, value in os.environ.items() if "AIRFLOW" not in name}
    return {**kept, "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8", **env}


def _end_with_parent() -> Callable[[], None] | None:
    """On Linux the kernel interrupts the command when its task dies, however it dies.

    Elsewhere it goes on to its end; a retry waits for it, as for any other collection on the host.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(130)

    return in_child


@contextmanager
def _passing_on(child: subprocess.Popen[str]) -> Iterator[None]:
    """Pass SIGTERM, by which Airflow ends a task, on as a Ctrl-C: the model is unloaded before it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        _interrupt(child)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(child: subprocess.Popen[str]) -> None:
    """As a Ctrl-C does it: the whole group, since the command may be a script around tipbench."""
    if child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGINT)


def _end(child: subprocess.Popen[str]) -> None:
    """End it, where the task ended first: a timeout, or an error in it."""
    if child.poll() is not None:
        return
    _interrupt(child)
    try:
        child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        child.kill()


def _told(line: str) -> str:
    """What a line says to people: an event of `--events` as a few words, nothing where it says too much."""
    if not line.startswith("{"):
        return line
    try:
        event = json.loads(line)
    except ValueError:
        return line
    tell = _TELLERS.get(event.get("event", ""))
    return tell(event) if tell else ""


_TELLERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "plan": lambda e: f"{e['planned']} cells, {e['skipped']} of them done before",
    "model_start": lambda e: f"{e['model']}: {e['cells']} cells to generate",
    "model_loaded": lambda e: f"{e['model']}: loaded in {e['load_s']} s",
    "model_unloaded": lambda e: f"{e['model']}: unloaded",
    "cell": lambda e: f"{e['model']} × {e['prompt']} × {e['scenario']}: {e['status']}",
}
