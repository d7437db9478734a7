"""What signals do to work that runs: the first ends it in order, a second one at once, an echo nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tipbench.errors import Interrupted
from tipbench.workflows.interrupt import SIGNALS, handling_signals

# It unloads for a while once it is interrupted, as a collection does, and says how far it has come.
WORK = """
import asyncio, sys
from tipbench.errors import Interrupted
from tipbench.workflows.interrupt import SIGNALS, handling_signals
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
from tipbench.workflows.interrupt import SIGNALS, handling_signals
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


# A signal comes at a moment that is easily missed: a loop is just closed, or no loop runs.
AT = """
import asyncio, os, signal, sys
from tipbench.errors import Interrupted
from tipbench.workflows.interrupt import SIGNALS, handling_signals
from tipbench.workflows.interrupt import handling_signals, run_interruptible

WHERE, NUMBER = sys.argv[1], int(sys.argv[2])

class Loop(asyncio.SelectorEventLoop):
    def close(self):
        is_open = not self.is_closed()
        super().close()
        if WHERE == "closing" and is_open:
            os.kill(os.getpid(), NUMBER)

class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop

async def work():
    print("work", flush=True)

asyncio.set_event_loop_policy(Policy())
try:
    with handling_signals():
        run_interruptible(work())
        if WHERE == "between":
            os.kill(os.getpid(), NUMBER)
        run_interruptible(work())
except Interrupted as error:
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["closing", "between"])
def test_a_signal_between_two_phases_is_an_interrupt(where: str, number: signal.Signals) -> None:
    """It neither kills the process nor lets the second phase begin."""
    command = [sys.executable, "-c", AT, where, str(int(number))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (Interrupted.exit_code, ["work"]), done.stderr


def test_the_handlers_of_the_caller_come_back() -> None:
    """A block leaves the process as it was, also after an interrupt."""
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(Interrupted), handling_signals():
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in SIGNALS] == before
