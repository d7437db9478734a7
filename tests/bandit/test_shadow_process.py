"""A shadow's process beside the service's: behind it in priority, bounded, and gone when it is gone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shadow_world import bad, decision, running, settled, until
from tipbench.bandit.shadow.messages import Frames, Ready, Unreadable, answer, framed

_SERVICE = """
import sys, time
from dataclasses import replace
from shadow_world import BRISK, bad, decision
from tipbench.bandit.shadow import Shadows
shadows = Shadows([bad(sys.argv[1])], report=list, limits=replace(BRISK, deadline_s=float(sys.argv[2])))
shadows.offer(decision(1))
while not (shadows.counts()[sys.argv[1]].decided or shadows.counts()[sys.argv[1]].waiting == 0):
    time.sleep(0.01)
print(shadows.pids()[sys.argv[1]], flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("name", ["good", "sleeps", "spins", "holds_the_interpreter"])
def test_a_killed_service_leaves_no_process(name: str) -> None:
    """After `kill -9` an idle process sees the end of its connection, and one that hangs meets its alarm."""
    path = os.pathsep.join(sys.path)
    service = subprocess.Popen(
        [sys.executable, "-c", _SERVICE, name, "2"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    try:
        assert service.stdout is not None
        worker = psutil.Process(int(service.stdout.readline()))
    finally:
        service.send_signal(signal.SIGKILL)
        service.communicate()
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, within_s=30)


def test_a_process_steps_back_and_is_bounded() -> None:
    """It is nicer than the service, in a session of its own, and may not take all memory or dump a core."""
    with running([bad("good")]) as shadows:
        shadows.offer(decision(1))
        settled(shadows, "good")
        pid = shadows.pids()["good"]
        assert pid
        process = psutil.Process(pid)
        assert process.nice() == min(19, psutil.Process().nice() + 10)
        assert os.getsid(pid) == pid != os.getsid(0)
        if sys.platform == "linux":
            assert 0 < process.rlimit(resource.RLIMIT_AS)[1] < 4 * 2**30
            assert process.rlimit(resource.RLIMIT_CORE) == (0, 0)
            open_files = {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
            assert [open_files[name] for name in "012"] == ["/dev/null"] * 3


def test_messages_are_cut_out_of_any_pieces() -> None:
    """However a stream is divided, the same messages come out."""
    ready = Ready(policy="p", policy_version="1", feature_version="v1")
    stream = framed(ready) * 3
    for size in (1, 3, len(framed(ready)) + 1, len(stream)):
        frames = Frames(1000)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [answer(said) for piece in pieces for said in frames.feed(piece)] == [ready] * 3


@pytest.mark.parametrize(
    "said",
    [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa5Other", b"\x82\xa4type\xa7Refused\xabdecision_id\xa2\xff\xfe"],
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    """Bytes that are not one of the known answers cannot be taken for one."""
    with pytest.raises(Unreadable):
        answer(said)


def test_a_length_beyond_reason_is_refused_before_it_is_read() -> None:
    """A process cannot make the service wait for, or hold, four gigabytes."""
    with pytest.raises(Unreadable):
        list(Frames(1000).feed(b"\xff\xff\xff\xff"))
