"""The end of a collection: it records its own cells, whatever its child process or others are doing."""

from __future__ import annotations

import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from command import start
from ledger_samples import sample_pin, sample_result
from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.errors import SpoolUnusable
from tipbench.ledger import Spool, open_ledger, public_uri
from tipbench.ledger.locks import file_lock
from tipbench.settings import Settings
from tipbench.settings import home as tipbench_home
from tipbench.workflows.collect import collect
from tipbench.workflows.recording import Recorder, record_lock, the_spool

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import Run

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


def rows_in_mlflow() -> int:
    """The number of runs in the embedded store, finished or not."""
    with closing(sqlite3.connect(tipbench_home() / "mlflow.db")) as db:
        (number,) = db.execute("SELECT count(*) FROM runs").fetchone()
    return int(number)


def stopped_while_recording(*, in_a_batch: bool) -> tuple[int, int, float]:
    """Stop a recorder that records 8 cells: how many wait then, how many in the end, seconds to stop."""
    settings = Settings.of({"experiment": "bench"})
    begun = threading.Event()
    with Recorder.open(settings, emit=lambda _event: begun.set()) as recorder:
        recorder.begin(sample_pin())
        for number in range(CELLS):
            recorder.put(sample_result(number))
        before = rows_in_mlflow()
        recording = threading.Thread(target=recorder.finish)
        recording.start()
        begun.wait()
        while in_a_batch and rows_in_mlflow() == before:
            time.sleep(0.001)
        started = time.monotonic()
        recorder.stop()
        took = time.monotonic() - started
        told = recorder.left()
        with pytest.raises(SpoolUnusable):
            recorder.put(sample_result(CELLS))
        recording.join()
    with the_spool() as spool:
        return told, sum(one.count for one in spool.pending()), took


@pytest.mark.usefixtures("home")
def test_the_batch_under_way_may_end() -> None:
    """Its cells are recorded and do not wait; if it takes too long, all of them wait."""
    told, waiting, took = stopped_while_recording(in_a_batch=True)
    assert told == waiting
    assert (waiting, len(runs_now("bench"))) == (0, CELLS) or took > 1


@pytest.mark.usefixtures("home")
def test_a_stopped_recorder_begins_no_batch() -> None:
    """Another process holds the experiment until after the stop; then nothing is recorded."""
    lock = record_lock(public_uri("", home=tipbench_home()), "bench")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with file_lock(lock, patience_s=10):
            held.set()
            let_go.wait(1.5)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    assert stopped_while_recording(in_a_batch=False)[:2] == (CELLS, CELLS)
    holder.join()
    assert runs_now("bench") == []


def runs_now(experiment: str) -> list[Run]:
    """The recorded cells, without a sync before."""
    return open_ledger("", home=tipbench_home()).runs(experiment)
