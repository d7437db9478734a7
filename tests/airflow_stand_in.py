"""A stand-in for Airflow's API server: a real HTTP server on loopback, with the answers of Airflow 3.3.

It runs nothing: a run goes through the frames that the test gives it, one each time it is looked at, and
stays where a task waits for a person. `fault` is asked before each answer and may take its place.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

USER, PASSWORD = "bench", "a pass/word"
DAG = "bench_collect"
TIPS = {"json": "/w/board.json", "html": "/w/board.html", "judged": 0, "verdict": "Nothing is judged yet."}
SCHEMA_400 = (
    "Invalid input for param n_tips: 100 is greater than the maximum of 50\n\nFailed validating 'maximum' in "
    "schema:\n    {'type': 'integer', 'maximum': 50}\n\nOn instance:\n    100"
)
UNIQUE_409 = {"reason": "Unique constraint violation", "statement": "hidden", "orig_error": "hidden"}

# status, body, headers; a body that is no text is sent as JSON. "drop" closes the connection.
Answer = tuple[int, Any, dict[str, str]]
Fault = Callable[[str, str], "Answer | str | None"]


@dataclass(frozen=True)
class Task:
    task: str
    state: str | None
    index: int = -1
    named: str | None = None
    tries: int = 1


@dataclass(frozen=True)
class Frame:
    state: str
    tasks: tuple[Task, ...] = ()

    @property
    def waits(self) -> bool:
        return any(task.state == "awaiting_input" for task in self.tasks)


def frames(*, last: str = "success", collect: str = "success", models: int = 2) -> list[Frame]:
    """A run as it usually goes."""
    before = (Task("assign", None, tries=0), Task("collect", None, tries=0), Task("compare", None, tries=0))
    mapped = tuple(Task("collect", "running", at, str(at)) for at in range(models))
    ended = tuple(Task("collect", collect, at, f"m{at}", 2) for at in range(models))
    end = "success" if last == "success" else "upstream_failed"
    return [
        Frame("queued", before),
        Frame("running", (Task("assign", "success"), *mapped, Task("compare", None, tries=0))),
        Frame(last, (Task("assign", "success"), *ended, Task("compare", end))),
    ]


def waiting_frames() -> list[Frame]:
    """A run that waits for an approval before its end."""
    mapped = Task("collect", "success", 0, "m0")
    waits = Frame("running", (mapped, Task("wait_for_judge.approval", "awaiting_input")))
    return [waits, Frame("success", (mapped, Task("wait_for_judge.approval", "success")))]


@dataclass
class Run:
    conf: dict[str, Any]
    frames: list[Frame]
    at: int = 0
    cleared: int = 0
    answers: list[str] = field(default_factory=list)

    @property
    def now(self) -> Frame:
        return self.frames[min(self.at, len(self.frames) - 1)]

    def look(self) -> Frame:
        now = self.now
        if self.at < len(self.frames) - 1 and not now.waits:
            self.at += 1
        return now


@dataclass
class AirflowStandIn:
    """What this Airflow has, and what it was asked."""

    script: list[Frame] = field(default_factory=frames)
    password: str | None = PASSWORD
    paused: bool = False
    has_dag: bool = True
    may_trigger: bool = True
    refuse: str = ""
    fault: Fault = lambda _method, _path: None
    log_error: str = "no host answers"
    returned: dict[str, Any] = field(default_factory=lambda: dict(TIPS))
    runs: dict[str, Run] = field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    connections: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    logins: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, query: dict[str, Any], body: Any, token: str) -> Answer:  # noqa: ANN401 - JSON
        if path == "/auth/token":
            return self._token(method, body)
        if not token:
            return 401, {"detail": "Not authenticated"}, {}
        if token not in self.tokens:
            return 403, {"detail": "Invalid JWT token"}, {}
        for methods, pattern, handler in _ROUTES:
            found = re.fullmatch(f"/api/v2{pattern}", path)
            if found and method in methods.split():
                made: Answer = handler(self, method, query, body, *map(unquote, found.groups()))
                return made
        return 404, {"detail": "Not Found"}, {}

    def _token(self, method: str, body: Any) -> Answer:  # noqa: ANN401 - JSON
        if method == "GET" and self.password is not None:
            return 403, {"detail": "This method is only allowed if all are admins"}, {}
        if self.password is not None and body != {"username": USER, "password": self.password}:
            return 401, {"detail": "Invalid credentials"}, {}
        self.logins += 1
        self.tokens.add(f"token-{self.logins}")
        return 201, {"access_token": f"token-{self.logins}"}, {}

    def _dag(self, _method: str, _query: Any, _body: Any, dag: str) -> Answer:  # noqa: ANN401 - JSON
        if not self.has_dag or dag != DAG:
            return 404, {"detail": f"The Dag with ID: `{dag}` was not found"}, {}
        return 200, {"dag_id": dag, "is_paused": self.paused, "is_stale": False}, {}

    def _trigger(self, _method: str, _query: Any, body: Any, dag: str) -> Answer:  # noqa: ANN401 - JSON
        if not self.may_trigger:
            return 403, {"detail": "Forbidden"}, {}
        if not self.has_dag or dag != DAG:
            return 404, {"detail": f"Dag with dag_id: '{dag}' not found"}, {}
        if "logical_date" not in body:
            return 422, {"detail": [{"loc": ["body", "logical_date"], "msg": "Field required"}]}, {}
        if self.refuse:
            return 400, {"detail": self.refuse}, {}
        run_id = body["dag_run_id"]
        if run_id in self.runs:
            return 409, {"detail": UNIQUE_409}, {}
        self.runs[run_id] = Run(conf=body["conf"], frames=list(self.script))
        return 200, self._told(run_id, "queued"), {}

    def _told(self, run_id: str, state: str) -> dict[str, Any]:
        return {"dag_run_id": run_id, "dag_id": DAG, "state": state, "conf": self.runs[run_id].conf}

    def _missing(self, run_id: str) -> Answer:
        return 404, {"detail": f"The DagRun with dag_id: `{DAG}` and run_id: `{run_id}` was not found"}, {}

    def _run(self, method: str, _query: Any, body: Any, _dag: str, run_id: str) -> Answer:  # noqa: ANN401 - JSON
        run = self.runs.get(run_id)
        if run is None:
            return self._missing(run_id)
        if method == "PATCH":
            ended = tuple(
                Task(one.task, "failed" if one.state == "running" else one.state or "skipped", one.index)
                for one in run.now.tasks
            )
            run.frames, run.at = [Frame(body["state"], ended)], 0
        return 200, self._told(run_id, run.now.state), {}

    def _tasks(self, _method: str, query: Any, _body: Any, _dag: str, run_id: str) -> Answer:  # noqa: ANN401 - JSON
        run = self.runs.get(run_id)
        if run is None:
            return self._missing(run_id)
        tasks = run.look().tasks
        first, size = int(query.get("offset", ["0"])[0]), min(100, int(query.get("limit", ["50"])[0]))
        told = [
            {
                "task_id": one.task,
                "map_index": one.index,
                "state": one.state,
                "try_number": one.tries,
                "rendered_map_index": one.named,
            }
            for one in tasks[first : first + size]
        ]
        return 200, {"task_instances": told, "total_entries": len(tasks)}, {}

    def _clear(self, _method: str, _query: Any, body: Any, _dag: str, run_id: str) -> Answer:  # noqa: ANN401 - JSON
        run = self.runs[run_id]
        if body == {"dry_run": False, "only_failed": False}:
            run.cleared += 1
            run.frames, run.at = list(self.script), 0
        return 200, self._told(run_id, "queued"), {}

    def _approve(self, _method: str, _query: Any, body: Any, _dag: str, run_id: str, _task: str) -> Answer:  # noqa: ANN401 - JSON
        run = self.runs[run_id]
        if run.answers:
            return 409, {"detail": "Human-in-the-loop detail has already been updated"}, {}
        run.answers += body["chosen_options"]
        run.at += 1
        return 200, {"chosen_options": body["chosen_options"]}, {}

    def _xcom(self, _method: str, _query: Any, _body: Any, _dag: str, _run: str, task: str) -> Answer:  # noqa: ANN401 - JSON
        if task != "compare" or not self.returned:
            return 404, {"detail": "XCom entry with key: `return_value` not found"}, {}
        return 200, {"key": "return_value", "value": self.returned}, {}

    def _log(self, _method: str, _query: Any, _body: Any, *_names: str) -> Answer:  # noqa: ANN401 - JSON
        raised = {"error_detail": [{"exc_type": "AirflowException", "exc_value": f"{self.log_error}\nmore"}]}
        return 200, {"content": [{"event": "::group::"}, {"level": "error", **raised}, {"event": "x"}]}, {}

    def _place(self, method: str, _query: Any, body: Any, kind: str, name: str = "") -> Answer:  # noqa: ANN401 - JSON
        held = self.pools if kind == "pools" else self.connections
        key = name or body["name" if kind == "pools" else "connection_id"]
        if method == "POST" and key in held:
            return 409, {"detail": UNIQUE_409}, {}
        if method != "POST" and key not in held:
            return 404, {"detail": f"The one with name: `{key}` was not found"}, {}
        if kind == "pools" and method == "PATCH" and "include_deferred" not in body:
            return 422, {"detail": [{"loc": ["include_deferred"], "msg": "Field required"}]}, {}
        held[key] = held.get(key, {}) | (body or {})
        shown = held[key] | ({"password": "***"} if "password" in held[key] else {})
        return (201 if method == "POST" else 200), shown, {}


_RUN = r"/dags/([^/]+)/dagRuns/([^/]+)"
_ROUTES: Sequence[tuple[str, str, Any]] = (
    ("GET", r"/dags/([^/]+)", AirflowStandIn._dag),
    ("POST", r"/dags/([^/]+)/dagRuns", AirflowStandIn._trigger),
    ("GET PATCH", _RUN, AirflowStandIn._run),
    ("GET", rf"{_RUN}/taskInstances", AirflowStandIn._tasks),
    ("POST", rf"{_RUN}/clear", AirflowStandIn._clear),
    ("PATCH", rf"{_RUN}/taskInstances/([^/]+)/-1/hitlDetails", AirflowStandIn._approve),
    ("GET", rf"{_RUN}/taskInstances/([^/]+)/xcomEntries/return_value", AirflowStandIn._xcom),
    ("GET", rf"{_RUN}/taskInstances/([^/]+)/logs/\d+", AirflowStandIn._log),
    ("GET POST PATCH", r"/(pools|connections)", AirflowStandIn._place),
    ("GET POST PATCH", r"/(pools|connections)/([^/]+)", AirflowStandIn._place),
)


def _handler(airflow: AirflowStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_what: object) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
            with airflow.lock:
                airflow.requests.append((self.command, parts.path))
                made = airflow.fault(self.command, parts.path) or airflow.answer(
                    self.command, parts.path, parse_qs(parts.query), body, token
                )
            if isinstance(made, str):
                self.close_connection = True
                return
            status, said, headers = made
            content = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815 - the library's own names

    return Handler


@contextmanager
def running(airflow: AirflowStandIn, *, port: int = 0) -> Iterator[AirflowStandIn]:
    """Serve it on a free port of this machine, or on one that it had before."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(airflow))
    server.daemon_threads = True
    airflow.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield airflow
    finally:
        server.shutdown()
        thread.join()
        with suppress(OSError):
            server.server_close()


def environment(airflow: AirflowStandIn) -> dict[str, str]:
    """What names it to tipbench."""
    return {
        "TIPBENCH_AIRFLOW_URL": airflow.url,
        "TIPBENCH_AIRFLOW_USER": USER,
        "TIPBENCH_AIRFLOW_PASSWORD": PASSWORD,
    }
