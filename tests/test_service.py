"""The service's own socket, and its end."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import pytest

from tipbench.errors import Unavailable
from tipbench.service import LogFormatter, _listening
from tipbench.store import Job, Store
from tipbench.workflows.job_process import JobFolder
from tipbench.workflows.service_state import ServiceConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_the_log_repeats_no_login_and_no_control_character() -> None:
    """A traceback in the service's log is safe to read on a terminal, and to pass on."""
    try:
        int("http://ann:hush@gpu:1/x?token=hush")
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
    record = logging.LogRecord(
        "x", logging.ERROR, __file__, 1, "failed at %s", ("http://u:hush@h \x9b31m",), found
    )
    text = LogFormatter().format(record)
    assert "failed at http://h \\x9b31m\nTraceback" in text
    assert "'http://gpu:1/x'" in text
    assert "hush" not in text


def test_answers_are_sent_at_once() -> None:
    """The end of an answer does not wait for the client to confirm its beginning, which takes 40 ms."""
    with _listening(ServiceConfig(port=0)) as listening:
        listening.settimeout(10)
        with closing(socket.create_connection(listening.getsockname(), timeout=10)):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_where_it_cannot_listen_it_says_what_helps() -> None:
    """Another port where one is taken; another host where it is none of this machine's."""
    with _listening(ServiceConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port"
        with pytest.raises(Unavailable, match=f"^{re.escape(said)}$"):
            _listening(ServiceConfig(port=port))
    for host in ("nowhere.invalid", "192.0.2.1"):
        with pytest.raises(Unavailable, match=r"\([^()]+\); give --host an address of this machine$"):
            _listening(ServiceConfig(host=host, port=0))


def test_the_service_ends_at_once_though_somebody_watches(home: Path, tmp_path: Path) -> None:
    """SIGTERM lets go of whoever watches a job, with a whole answer; nothing is cut off or complained of."""
    folder = JobFolder(home / "jobs" / "live")
    store = Store(home / "service.db")
    token = store.tokens.create("root", "admin", now_ms=0)
    job = Job(
        job_id="live", kind="collect", title="", experiment="bench", params={"settings": {}},
        folder=str(folder.path), by="root", created_ms=0,
    )  # fmt: skip
    with folder.claimed(), (tmp_path / "err").open("w+") as complaints:
        store.jobs.add(job)
        command = [sys.executable, "-m", "tipbench", "serve", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as service:
            assert service.stdout
            url = service.stdout.readline().split()[-1]
            headers = {"Authorization": f"Bearer {token}"}
            path = f"{url}/api/jobs/live/events"
            with httpx.stream("GET", path, headers=headers, timeout=60, trust_env=False) as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 3000"
                service.terminate()
                assert "event: end" not in list(lines)
            assert service.wait(timeout=60) == 0
        assert store.jobs.get("live") == job
        complaints.seek(0)
        assert complaints.read() == ""
    store.close()


def test_the_service_ends_though_a_server_keeps_it_waiting(home: Path) -> None:
    """A request waits in a thread for an MLflow that never answers; the service does not wait with it."""
    store = Store(home / "service.db")
    headers = {"Authorization": f"Bearer {store.tokens.create('root', 'admin', now_ms=0)}"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "tipbench", "serve", "--port", "0", "--mlflow-url", address]
        env = os.environ | {"MLFLOW_HTTP_REQUEST_TIMEOUT": "200"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as service:
            assert service.stdout
            url = service.stdout.readline().split()[-1]
            host, _, port = url.removeprefix("http://").partition(":")
            with socket.create_connection((host, int(port)), timeout=60) as asking:
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                asking.sendall(f"GET /api/bench/experiments HTTP/1.1\r\nHost: {host}\r\n{head}\r\n".encode())
                connection, _ = silent.accept()
                with connection:
                    service.terminate()
                    assert service.wait(timeout=60) == 130
    store.close()
