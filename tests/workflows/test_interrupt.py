"""What signals do to work that runs: the first ends it in order, a second one at once, an echo nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tipbench.errors import Interrupted

# It unloads for a while once it is interrupted, as a collection does, and says how far it has come.
WORK = """
import asyncio, sys
from tipbench.errors import Interrupted
from tipbench.workflows.interrupt import run_interruptible

async def work():
    try:
        print("working", flush=True)
        await asyncio.sleep(60)
    finally:
        print("ending", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("ended in order", flush=True)

try:
    run_interruptible(work())
except Interrupted as error:
    sys.exit(error.exit_code)
"""


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def interrupted_twice(*, ending_s: float, after_s: float) -> tuple[int, str]:
    """The exit code, and what it still said after a second signal that came so long after the first."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(ending_s)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert said(process) == "working"
        process.send_signal(signal.SIGINT)
        assert said(process) == "ending"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        rest = process.stdout.read().strip()
        return process.wait(30), rest


def test_an_echo_of_the_first_signal_is_no_second_one() -> None:
    """A parent that is killed may send the signal of its death once for each of its threads."""
    code, rest = interrupted_twice(ending_s=1.5, after_s=0.01)
    assert (code, rest) == (Interrupted.exit_code, "ended in order")


def test_a_second_signal_ends_it_at_once() -> None:
    """Who has waited and asks again does not wait for the end."""
    code, rest = interrupted_twice(ending_s=60, after_s=2)
    assert (code, rest) == (Interrupted.exit_code, "")


LATE = """
import os, signal, sys
from tipbench.errors import Interrupted
from tipbench.workflows.interrupt import run_interruptible

async def work():
    os.kill(os.getpid(), signal.SIGINT)

try:
    run_interruptible(work())
except Interrupted as error:
    sys.exit(error.exit_code)
"""


def test_a_signal_that_comes_when_the_work_has_just_ended_is_not_lost() -> None:
    """There is nothing left to cancel, and the command still ends as interrupted."""
    assert subprocess.run([sys.executable, "-c", LATE], check=False).returncode == Interrupted.exit_code
