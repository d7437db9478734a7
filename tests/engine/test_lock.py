"""The host lock: one holder, named to whoever asks; what it says outlives it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tipbench.engine.lock import hold_host, host_name
from tipbench.errors import HostBusy

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

SPAWN = multiprocessing.get_context("spawn")


def no_word(_message: str) -> None:
    pass


def hold_for_long(folder: str, holding: Event) -> None:
    with hold_host("h", folder=Path(folder), experiment="their-bench", wait=False, waiting=no_word) as lock:
        lock.note(model="a:1b", digest="d" * 64)
        holding.set()
        time.sleep(60)


def test_second_holder_is_refused_with_the_first_ones_name_and_leftover_survives_kill(tmp_path: Path) -> None:
    """The refusal names pid, start and experiment; after `kill -9` the lock is free, its model remembered."""
    holding = SPAWN.Event()
    other = SPAWN.Process(target=hold_for_long, args=(str(tmp_path), holding))
    other.start()
    assert holding.wait(30)
    with (
        pytest.raises(
            HostBusy, match=rf"pid {other.pid} has been collecting 'their-bench' on h since 20\d\d-"
        ),
        hold_host("h", folder=tmp_path, experiment="mine", wait=False, waiting=no_word),
    ):
        pass
    assert other.pid
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    with hold_host("h", folder=tmp_path, experiment="mine", wait=False, waiting=no_word) as lock:
        assert lock.leftover is not None
        assert (lock.leftover.model, lock.leftover.digest) == ("a:1b", "d" * 64)


def test_waiting_tells_once_and_then_holds(tmp_path: Path) -> None:
    """With `wait` the lock is taken once it is free, after one message."""
    holding = SPAWN.Event()
    other = SPAWN.Process(target=hold_for_long, args=(str(tmp_path), holding))
    other.start()
    assert holding.wait(30)
    told: list[str] = []

    def waiting(message: str) -> None:
        told.append(message)
        other.kill()

    with hold_host("h", folder=tmp_path, experiment="mine", wait=True, waiting=waiting):
        assert len(told) == 1
    other.join()


def test_a_garbled_lock_file_says_nothing(tmp_path: Path) -> None:
    """Text that is not ours in the file is no leftover and no error."""
    (tmp_path / "h.lock").write_bytes(b"\xff\x00 not json")
    with hold_host("h", folder=tmp_path, experiment="mine", wait=False, waiting=no_word) as lock:
        assert lock.leftover is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:11434", "localhost-11434"),
        ("http://127.0.0.1:11434/", "localhost-11434"),
        ("http://[::1]:11434", "localhost-11434"),
        ("https://gpu.example", "gpu.example-443"),
    ],
)
def test_one_host_has_one_name(url: str, name: str) -> None:
    """However an address is written, the same host has the same lock."""
    assert host_name(url) == name
