"""The end of a collection: it records its own cells, whatever its child process or others are doing."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from command import start
from ledger_samples import sample_pin, sample_result
from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.ledger import Spool, public_uri
from tipbench.ledger.locks import file_lock
from tipbench.settings import Settings
from tipbench.settings import home as tipbench_home
from tipbench.workflows.collect import collect
from tipbench.workflows.recording import record_lock

if TYPE_CHECKING:
    from pathlib import Path

CELLS = 8


def settings_for(host: StandIn, **changes: Any) -> Settings:  # noqa: ANN401 - any setting
    base = {"models": "a:1b", "prompts": "v1", "ollama_url": host.url, "engine": "ollama"}
    return Settings.of(base | {"experiment": "bench", "retries": 0} | changes)


def recorded_once() -> bool:
    found = Counter(run.key for run in runs("bench"))
    return len(found) == CELLS and set(found.values()) == {1}


@pytest.mark.usefixtures("home")
def test_a_recorder_that_stands_still_holds_nothing_up() -> None:
    """The child is frozen as if it never got the processor: the command ends it and records all cells."""
    with running(StandIn([FakeModel("a:1b")], latency_s=0.3)) as host:
        child = start(
            *("collect", "--models", "a:1b", "--prompts", "v1", "--engine", "ollama"),
            *("--ollama-url", host.url, "--experiment", "bench"),
        )
        while not (writers := [p for p in psutil.Process(child.pid).children() if "sync" in p.cmdline()]):
            time.sleep(0.01)
        writers[0].send_signal(signal.SIGSTOP)
        _, err = child.communicate(timeout=100)
        assert child.returncode == 0, err
    assert "recording: 0 cells left" in err
    psutil.wait_procs(writers, timeout=30)
    assert not writers[0].is_running()
    assert recorded_once()


@pytest.mark.timeout(110)
def test_cells_of_others_that_cannot_be_recorded_are_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that never answers has older cells; the command ends once its own cells are recorded."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3600")
    with socket.create_server(("127.0.0.1", 0)) as silent, running(StandIn([FakeModel("a:1b")])) as host:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Spool(home / "spool.db") as spool:
            spool.put(url, "bench", sample_pin(), sample_result(1))
            spool.put("", "other", sample_pin(), sample_result(1))
        summary = collect(settings_for(host), emit=lambda _event: None)
        assert (summary.cells.done, summary.unrecorded) == (CELLS, 0)
        with Spool(home / "spool.db") as spool:
            assert [waiting.count for waiting in spool.pending(url)] == [1]
    assert recorded_once()


@pytest.mark.usefixtures("home", "recorded_at_the_end")
def test_a_process_that_records_the_experiment_is_waited_for() -> None:
    """Another command holds the experiment for some seconds; each cell is recorded once all the same."""
    events: list[dict[str, Any]] = []
    lock = record_lock(public_uri("", home=tipbench_home()), "bench")
    held = threading.Event()

    def hold() -> None:
        with file_lock(lock, patience_s=10):
            held.set()
            time.sleep(4)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with running(StandIn([FakeModel("a:1b")])) as host:
        summary = collect(settings_for(host), emit=lambda event: events.append(dict(event)))
    holder.join()
    assert (summary.cells.done, summary.unrecorded) == (CELLS, 0)
    left = [event["left"] for event in events if event["event"] == "recording"]
    assert (left[0], left[-1]) == (CELLS, 0)
    assert recorded_once()


@pytest.mark.usefixtures("home", "recorded_at_the_end")
def test_the_host_is_free_while_cells_are_recorded() -> None:
    """Another collection can begin as soon as the model is seen gone."""
    free: list[bool] = []

    with running(StandIn([FakeModel("a:1b")])) as host:

        def listen(event: Any) -> None:  # noqa: ANN401 - an event
            if event["event"] == "recording" and not free:
                name = host_name(host.url)
                with hold_host(name, folder=lock_folder(), experiment="x", wait=False, waiting=print):
                    free.append(not host.resident)

        collect(settings_for(host), emit=listen)
    assert free == [True]
