"""Real MLflow servers to test against, and a proxy that misbehaves on request."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_STARTS_WITHIN_S = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class MlflowServer:
    """A `mlflow server` of one worker on loopback; `url` is what a person would type."""

    folder: Path
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    @contextmanager
    def running(self) -> Iterator[MlflowServer]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, env=self._environment(), cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process)
                yield self
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _command(self) -> list[str]:
        database = f"sqlite:///{self.folder}/server.db"
        return [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--workers", "1", "--backend-store-uri", database, *self.options),
        ]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        return kept | quiet | dict(self.env)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < deadline and process.poll() is None:
            if _answers(self.port, f"{self.prefix}/health"):
                return
            time.sleep(0.1)
        raise AssertionError(f"mlflow server did not start:\n{(self.folder / 'log').read_text()[-2000:]}")


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@dataclass(frozen=True)
class Request:
    """A request that came to a proxy: the how many-th, and what it asks for."""

    number: int
    method: str
    path: str


# What a proxy does with a request: pass it on, drop the connection before or after the server has seen
# it, let it hang, or answer by itself.
Deed = str | tuple[int, str, bytes]


class Proxy:
    """Passes requests on to a server, but for those that `decide` wants otherwise."""

    def __init__(self, target_port: int = 0, *, decide: Callable[[Request], Deed] = lambda _: "pass") -> None:
        self.decide = decide
        self.port = free_port()
        self.seen: list[Request] = []
        self._target = target_port
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        self.open()
        try:
            yield self
        finally:
            self.close()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Deed:
        """The answer to give, or `drop`."""
        request = Request(number=len(self.seen), method=method, path=path)
        self.seen.append(request)
        deed = self.decide(request)
        if deed == "hang":
            time.sleep(5)
            return "drop"
        if not isinstance(deed, str) or deed == "drop before":
            return deed
        answer = self._pass_on(method, path, headers, body)
        return answer if deed == "pass" else "drop"

    def _pass_on(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Deed:
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=60)
        try:
            sent = {name: value for name, value in headers.items() if name.lower() != "connection"}
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        finally:
            connection.close()


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = proxy.handle(self.command, self.path, dict(self.headers), body)
            self.close_connection = True
            if isinstance(answer, str):
                return
            status, kind, content = answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler
