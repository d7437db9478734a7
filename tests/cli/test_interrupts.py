"""Ctrl-C in `collect`, whatever it waits for: the prompt comes back, and the next command goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from command import here, start, tipbench
from ledger_servers import MlflowServer, Proxy
from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.ledger import open_ledger
from tipbench.ledger.locks import file_lock
from tipbench.settings import home as tipbench_home
from tipbench.workflows.recording import record_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger_servers import Deed, Request

pytestmark = pytest.mark.usefixtures("home")

CELLS = 8


def arguments(host: StandIn, *more: str) -> list[str]:
    return [
        *("collect", "--models", "a:1b", "--prompts", "v1", "--experiment", "bench", "--engine", "ollama"),
        *("--ollama-url", host.url, *more),
    ]


def wait_until(condition: Callable[[], bool], *, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def interrupted(child: subprocess.Popen[str]) -> str:
    """What the command prints after a Ctrl-C. It ends with 130, and so do its child processes."""
    children = psutil.Process(child.pid).children(recursive=True)
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    return err


def stalling(**how: Any) -> StandIn:  # noqa: ANN401 - any of the stand-in's fields
    """A host that answers two calls, and never the third."""
    return StandIn([FakeModel("a:1b")], fault=lambda n, _body: "stall" if n == 3 else None, **how)


@contextmanager
def a_silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_in_a_call_that_hangs() -> None:
    """The model is unloaded, and the lines say what is stored, what waits and how to go on."""
    with running(stalling()) as host:
        command = arguments(host)
        child = start(*command)
        wait_until(lambda: len(host.chats) == 3)
        err = interrupted(child)
        assert host.resident == []
        assert f"interrupted: 2 of {CELLS} cells stored; " in err
        assert "to be recorded in MLflow" in err
        assert "still loaded" not in err
        assert err.rstrip().endswith(" ".join(command[1:]))
        host.fault = lambda _number, _body: None
        again = tipbench(*command, "--json", timeout_s=300)
    assert again.code == 0, again.err
    assert again.json["cells"] == {"planned": CELLS, "done": CELLS - 2, "skipped": 2, "failed": 0}
    assert len({run.key for run in runs("bench")}) == len(runs("bench")) == CELLS


def test_nothing_more_is_recorded() -> None:
    """Cells that wait when Ctrl-C comes wait afterwards too; `sync` records them."""
    with running(stalling()) as host:
        child = start(*arguments(host))
        wait_until(lambda: len(host.chats) == 1)
        address = tipbench_home() / "mlflow.db"
        with file_lock(record_lock(f"sqlite:///{address}", "bench"), patience_s=60):
            wait_until(lambda: len(host.chats) == 3)
            err = interrupted(child)
    assert "2 cells wait to be recorded" in err
    assert runs_without_sync() == 0
    assert "2 cells recorded, 0 still waiting" in tipbench("sync").out


def runs_without_sync() -> int:
    return len(open_ledger("", home=tipbench_home()).runs("bench"))


def test_a_model_that_does_not_go_is_named_and_waited_for() -> None:
    """The lines say that the model is still loaded; the next collection starts once it is gone."""
    with running(stalling(unloads=False)) as host:
        child = start(*arguments(host))
        wait_until(lambda: len(host.chats) == 3)
        err = interrupted(child)
        assert f"a:1b is still loaded on {host.url}" in err
        host.fault, before = lambda _number, _body: None, len(host.chats)
        following = start(*arguments(host))
        assert following.stderr is not None
        for line in following.stderr:
            if "waiting until a:1b is unloaded" in line:
                break
        time.sleep(1)
        assert len(host.chats) == before
        host.unloads = True
        host.resident.clear()
        _, err = following.communicate(timeout=300)
        assert following.returncode == 0, err
        assert len(host.chats) == before + CELLS - 2
        assert host.most_resident == 1


def test_while_the_model_loads() -> None:
    """A load that never ends is broken off, and the lines say that the model may still come."""
    with running(StandIn([FakeModel("a:1b")], silent_on="/api/generate")) as host:
        child = start(*arguments(host))
        wait_until(lambda: any(path == "/api/generate" for path, _ in host.requests))
        err = interrupted(child)
    assert f"interrupted: 0 of {CELLS} cells stored; 0 cells wait" in err
    assert "a:1b may still be loading" in err


def test_a_host_that_is_dead_altogether() -> None:
    """Not even `/api/ps` answers: the prompt comes back all the same."""
    with running(StandIn([FakeModel("a:1b")], silent_from="/api/chat")) as host:
        child = start(*arguments(host))
        wait_until(lambda: any(path == "/api/chat" for path, _ in host.requests))
        err = interrupted(child)
    assert f"a:1b is still loaded on {host.url}" in err


def test_while_mlflow_does_not_answer() -> None:
    """At the start, before anything is generated."""
    with running(StandIn([FakeModel("a:1b")])) as host, a_silent_server() as url:
        child = start(*arguments(host, "--mlflow-url", url))
        wait_until(lambda: bool(psutil.Process(child.pid).net_connections()))
        time.sleep(3)
        err = interrupted(child)
        assert host.chats == []
    assert "interrupted: before the first cell was generated; 0 cells wait" in err


def test_while_it_waits_for_the_host() -> None:
    """A command that waits for another collection ends at once, and the lock stays with its holder."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        name = host_name(host.url)
        with hold_host(name, folder=lock_folder(), experiment="x", wait=False, waiting=print):
            child = start(*arguments(host, "--wait"))
            assert child.stderr is not None
            assert "waiting for it to end" in child.stderr.readline()
            err = interrupted(child)
    assert "interrupted: before the first cell was generated" in err
    assert "--wait" in err


def test_while_it_records(tmp_path: Path) -> None:
    """MLflow stops to answer after the last cell: what is recorded stays, the rest waits."""
    hang: list[bool] = []

    def decide(_: Request) -> Deed:
        while hang:
            time.sleep(0.1)
        return "pass"

    server = MlflowServer(tmp_path / "server", ("--artifacts-destination", str(tmp_path / "artifacts")))

    def fault(number: int, _body: dict[str, Any]) -> None:
        if number == 1:
            hang.append(True)

    with server.running(), Proxy(server.port, decide=decide).running() as proxy:
        with running(StandIn([FakeModel("a:1b")], fault=fault)) as host:
            command = arguments(host, "--mlflow-url", proxy.url)
            child = start(*command)
            assert child.stderr is not None
            for line in child.stderr:
                if line.startswith("recording: "):
                    break
            err = interrupted(child)
            assert f"interrupted: {CELLS} of {CELLS} cells stored; {CELLS} cells wait" in err
            hang.clear()
            again = tipbench(*command, "--json", timeout_s=300)
        assert again.json["cells"]["skipped"] == CELLS
        assert again.json["unrecorded"] == 0
        assert len(runs("bench", mlflow_url=server.url)) == CELLS


def test_a_second_ctrl_c_ends_it_at_once_with_the_same_lines() -> None:
    """While the first one still waits for the host to unload."""
    with running(stalling(unloads=False)) as host:
        child = start(*arguments(host))
        wait_until(lambda: len(host.chats) == 3)
        os.killpg(child.pid, signal.SIGINT)
        time.sleep(0.8)
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert f"interrupted: 2 of {CELLS} cells stored" in err
    assert f"a:1b is still loaded on {host.url}" in err
    assert "run the same command to go on: " in err
    assert err.count("interrupted: ") == 1


@pytest.mark.parametrize("form", ["{}", "--ollama-url={}"])
def test_a_password_of_the_command_line_is_not_repeated(form: str) -> None:
    """The command to go on with has the address without its login, and a line says what to type again."""
    with running(stalling()) as host:
        login = form.format(host.url.replace("://", "://anna:geheim@"))
        command = [one for one in arguments(host) if one not in {"--ollama-url", host.url}]
        command += [login] if form != "{}" else ["--ollama-url", login]
        child = start(*command)
        wait_until(lambda: len(host.chats) == 3)
        err = interrupted(child)
    assert "geheim" not in err
    assert "anna" not in err
    *_, again, last = err.strip().splitlines()
    assert again.endswith(f"{form.format(host.url)}" if form != "{}" else f"--ollama-url {host.url}")
    assert last == f"the login of {host.url} is left out above: type it again"


# Ctrl-C when the third event loop is just closed: the one in which the cells were generated.
AFTER_GENERATION = """
import asyncio, os, signal, sys
from tipbench.cli import main

class Loop(asyncio.SelectorEventLoop):
    closed = 0

    def close(self):
        Loop.closed += not self.is_closed()
        super().close()
        if Loop.closed == 3:
            Loop.closed += 1
            os.kill(os.getpid(), signal.SIGINT)

class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop

asyncio.set_event_loop_policy(Policy())
main()
"""


def test_between_generation_and_recording() -> None:
    """All cells are stored, nothing more is recorded, and the number that waits is the true one."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        command = [sys.executable, "-c", AFTER_GENERATION, *arguments(host)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 130, done.stderr
    waiting = sum(one["count"] for one in here("sync", "--list", "--json").json)
    assert f"interrupted: {CELLS} of {CELLS} cells stored; " in done.stderr
    assert f"; {waiting} cells wait to be recorded" in done.stderr
    assert "run the same command to go on: " in done.stderr
