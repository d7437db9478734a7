"""`tipbench serve` as an app meets it: a process of its own, and nothing but HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tips_world import KINDS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = "http://127.0.0.1:9"
AWAY = ("--mlflow-url", NOWHERE, "--ollama-url", NOWHERE, "--engine", "ollama")
ONLY_TIPS = ("--only", "tips", *AWAY)
SEED = "a seed that the tests know"
SCORED = ("egreedy", "egreedy/v2", "linucb", "hybrid")
CANDIDATES = [
    {"id": f"tip-{kind}", "kind": kind, "text": text} for kind, text in zip(KINDS, TEXTS, strict=True)
]


@dataclass(frozen=True, kw_only=True)
class TipService:
    """A service that runs; `said` is what it printed before its address, `errors` is where it complains."""

    process: subprocess.Popen[str]
    url: str
    said: list[str]
    errors: Path
    client: httpx.Client

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    def get(self, path: str, **query: str | int) -> Any:  # noqa: ANN401 - whatever it answers
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def score(self, route: str = "egreedy", user: str = "anna", **changes: Any) -> httpx.Response:  # noqa: ANN401 - any field
        return self.post(f"/score/{route}", asked(user, **changes))

    def recommend(self, user: str = "anna", **changes: Any) -> httpx.Response:  # noqa: ANN401 - any field
        return self.post("/recommend", asked(user, **changes))

    def reward(self, decision: httpx.Response | str, path: str = "/reward", **changes: Any) -> httpx.Response:  # noqa: ANN401 - any field
        return self.post(path, told(decision, **changes))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=30)


def asked(user: str = "anna", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of a request
    """A request for a decision; None takes a field out."""
    context = {"hour": 9.5, "weekday": 2, "open_tasks": ["write the report"]}
    body = {"user_id": user, "context": context, "candidates": CANDIDATES, **changes}
    return {name: value for name, value in body.items() if value is not None}


def told(decision: httpx.Response | str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of a reward
    decision_id = decision if isinstance(decision, str) else decision.json()["decision_id"]
    return {"decision_id": decision_id, "reward_id": "r1", "event": "completed", **changes}


SERVE = ("-m", "tipbench", "serve", "--port", "0")


@contextmanager
def serving(home: Path, *arguments: str, **env: str) -> Iterator[TipService]:
    """The real command on a free port of this machine, ended with the block."""
    with running(home, *SERVE, *arguments, **env) as service:
        yield service


@contextmanager
def running(home: Path, *arguments: str, **env: str) -> Iterator[TipService]:
    """A service that Python starts with these arguments, ended with the block."""
    home.parent.mkdir(parents=True, exist_ok=True)
    errors = home.parent / f"{home.name}.err"
    with ExitStack() as stack:
        complaints = stack.enter_context(errors.open("a"))
        process = stack.enter_context(_started(home, arguments, env, complaints))
        said: list[str] = []
        assert process.stdout is not None
        while not (said and said[-1].startswith("tipbench is at ")):
            line = process.stdout.readline()
            assert line, f"the service ended: {errors.read_text()}"
            said.append(line.strip())
        url = said.pop().rpartition(" ")[2].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - where it listens
        client = stack.enter_context(httpx.Client(base_url=url, timeout=30, trust_env=False))
        yield TipService(process=process, url=url, said=said, errors=errors, client=client)


@contextmanager
def _started(
    home: Path,
    arguments: tuple[str, ...],
    env: dict[str, str],
    complaints: Any,  # noqa: ANN401 - an open file
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=complaints, stdin=subprocess.DEVNULL, text=True,
        env=environment(home, **env),
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise


def environment(home: Path, **env: str) -> dict[str, str]:
    """What a command needs to find this home, a seed, and policies of the tests' own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIPBENCH_")}
    for name in ("OLLAMA_HOST", "MLFLOW_TRACKING_URI"):
        inherited.pop(name, None)
    path = os.pathsep.join(
        part for part in (str(Path(__file__).parent), os.environ.get("PYTHONPATH")) if part
    )
    own = {"TIPBENCH_HOME": str(home), "TIPBENCH_SERVE_SEED": SEED, "TMPDIR": str(home.parent)}
    return inherited | {"PYTHONPATH": path} | own | env


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", "")).encode("latin-1")


def sent(service: TipService, *pieces: bytes, half_closed: bool = False) -> bytes:
    """All that is answered to these bytes before the connection ends."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
        answered = b""
        try:
            while received := connection.recv(65536):
                answered += received
        except ConnectionResetError:  # it did not read all that was sent, and has said why
            pass
        return answered


def raw(service: TipService, path: str, body: bytes, *lines: str) -> tuple[int, Any]:
    """The status and the body of the answer to a request that no client library would send."""
    length = f"Content-Length: {len(body)}"
    status, found = parsed(sent(service, head(path, "Connection: close", length, *lines), body))
    return status, found


def parsed(answer: bytes) -> tuple[int, Any]:
    first, _, body = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(body) if body.startswith(b"{") else body
