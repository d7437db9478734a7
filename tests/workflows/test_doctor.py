"""What is looked at before a collection: it is said in time and in words, whatever answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from tipbench.settings import Settings
from tipbench.workflows.doctor import examine
from tipbench.workflows.hosts import installed_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.workflows.doctor import Finding

NOBODY = "http://127.0.0.1:9"


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that treats each connection so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=treat, args=listening.accept()[:1], daemon=True).start()

        def treat(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def drip(connection: socket.socket) -> None:
    """Always a little more, never all of it: no wait for the next byte is ever long."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(300):
        connection.sendall(b" ")
        time.sleep(0.2)


def say(connection: socket.socket, replies: dict[str, Any]) -> None:
    while asked := connection.recv(65536):
        path = asked.split()[1].decode().rpartition("/")[2]
        body = json.dumps(replies.get(path, {"models": []})).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)


def found(name: str, settings: dict[str, str], *, patience_s: float) -> Finding:
    given = {"ollama_url": NOBODY} | settings
    return next(one for one in examine(Settings.of(given), patience_s=patience_s) if one.name == name)


@pytest.mark.usefixtures("home")
@pytest.mark.timeout(50)
@pytest.mark.parametrize(("setting", "name"), [("ollama_url", "ollama"), ("mlflow_url", "ledger")])
def test_an_answer_without_an_end_is_not_waited_for(setting: str, name: str) -> None:
    """A server that drips is given up after a while, and one is told what to do."""
    with answering(drip) as url:
        finding = found(name, {setting: url}, patience_s=1)
    assert finding.state != "ok"
    assert url in finding.detail
    assert finding.fix


@pytest.mark.usefixtures("home")
def test_whatever_a_host_says_can_be_read() -> None:
    """Half a character and a version without an end are made into something that can be sent and shown."""
    model = {"name": "\ud800:1b", "model": "\ud800:1b", "size": 1, "digest": "d"}
    strange = {"version": {"version": "\ud800" + "x" * 100_000}, "tags": {"models": [model]}}
    with answering(lambda connection: say(connection, strange)) as url:
        finding = found("ollama", {"ollama_url": url}, patience_s=30)
        (installed,) = installed_models(Settings.of({"ollama_url": url, "engine": "ollama"}))
    assert finding.state == "ok"
    assert len(finding.detail.encode()) < 1000
    assert installed.name.encode()


@pytest.mark.usefixtures("home")
def test_everything_that_is_not_well_says_what_to_do() -> None:
    """Neither an engine nor a ledger answers: each finding has a cure."""
    findings = examine(Settings.of({"ollama_url": NOBODY, "mlflow_url": NOBODY}), patience_s=20)
    unwell = [one for one in findings if one.state != "ok"]
    assert {"ollama", "ledger"} <= {one.name for one in unwell}
    assert [one for one in unwell if not one.fix] == []
