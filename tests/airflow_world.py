"""A real Airflow with this checkout's DAG, and embedded engines that it can be pointed at.

`AirflowHome` is enough for `airflow dags test`; `serving` adds the API server, the scheduler and the rest, on
loopback. tipbench is called by a script of ours, because Airflow's environment has nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from command import TIPBENCH, Ran, start
from tiny_gguf import write_tiny_gguf
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
AIRFLOW_BIN = ROOT / ".venv-airflow" / "bin"
DAG = "bench_collect"
USER, PASSWORD = "ann", "only for tests"
DEFAULT_MODELS = ("qwen2.5:0.5b", "qwen2.5:1.5b", "gemma3:1b", "llama3.2:3b")
READY_S = 180.0

States = dict[tuple[str, int], str]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tiny_models(folder: Path, names: Sequence[str] = DEFAULT_MODELS) -> dict[str, Path]:
    """Models that a real llama.cpp loads in no time, each with weights of its own."""
    return {
        name: write_tiny_gguf(folder / f"tiny-{seed}.gguf", seed=seed, named=f"tiny-{seed}")
        for seed, name in enumerate(names)
    }


def judge_batch(path: Path, home: Path) -> None:
    """Fill a batch in as somebody would who knows which items are hidden checks, and apply it."""
    document = json.loads(path.read_text(encoding="utf-8"))
    ledger, names = open_ledger("", home=home), document.get("batches") or [document["batch"]]
    items = {item.id: item for name in names for item in ledger.batch(name).items}
    for entry in document["items"]:
        behind = items[entry["id"]]
        usual = {
            "relevance": 1 if behind.role == "foil" else 2 + len(entry["tip"]) % 4,
            "actionability": 3,
            "tone": 3,
        }
        for scale, score in (behind.reference or usual).items():
            entry["judge"][scale] = round(score)
    document["judged_by"] |= {"id": "ann", "kind": "human"}
    path.write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(
        [*TIPBENCH, "judge", "apply", str(path)],
        env={**os.environ, "TIPBENCH_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def engine(models: Mapping[str, Path]) -> Iterator[str]:
    """`tipbench engine serve` with these models on a free port; yields its address."""
    with engine_process(models) as (url, _):
        yield url


@contextmanager
def engine_process(models: Mapping[str, Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The same, with its process: the leader of its own group, for tests that end it."""
    files = [part for name, path in models.items() for part in ("--gguf", f"{name}={path}")]
    process = start("engine", "serve", "--port", "0", *files)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address, process.stderr and process.stderr.read()
        yield address[0], process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """A run that has ended, as Airflow's database has it; `log` is what `airflow dags test` printed."""

    run_id: str
    state: str
    tasks: States
    pools: States
    xcoms: Mapping[tuple[str, int, str], Any]
    log: str = ""

    def xcom(self, task: str, index: int = -1, key: str = "return_value") -> Any:  # noqa: ANN401 - any JSON
        return self.xcoms.get((task, index, key))

    @property
    def collected(self) -> list[dict[str, Any]]:
        """What `collect` and `collect_elsewhere` returned, in the order of their indexes."""
        found = sorted((name, index) for name, index, key in self.xcoms if key == "return_value")
        return [self.xcom(*one) for one in found if one[0].startswith("collect")]


@dataclass(frozen=True, kw_only=True)
class AirflowHome:
    """An Airflow of one's own: a folder, its database migrated, and the environment its commands get."""

    home: Path
    env: dict[str, str] = field(repr=False)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start an `airflow` command in a session of its own; its output goes to a file."""
        log = (self.home / f"{arguments[0]}.log").open("a", encoding="utf-8")
        with log:
            return subprocess.Popen(
                [AIRFLOW_BIN / "airflow", *arguments],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def run(self, *arguments: str, timeout_s: float = 480, env: Mapping[str, str] | None = None) -> Ran:
        """Run an `airflow` command to its end."""
        done = subprocess.run(
            [AIRFLOW_BIN / "airflow", *arguments],
            env={**self.env, **(env or {})},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def test(self, conf: Mapping[str, Any] | None = None, **env: str) -> DagRun:
        """`airflow dags test`, with the conf where there is one; the run that it made."""
        before = set(self.run_ids())
        told = ["--conf", json.dumps(conf)] if conf is not None else []
        ran = self.run("dags", "test", DAG, *told, env=env)
        (run_id,) = set(self.run_ids()) - before or {""}
        assert run_id, ran.err[-4000:]
        return self.dag_run(run_id, log=ran.out + ran.err)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(
            sqlite3.connect(f"file:{self.home / 'airflow.db'}?mode=ro", uri=True, timeout=30)
        ) as base:
            return base.execute(query, values).fetchall()

    def run_ids(self) -> list[str]:
        return [run_id for (run_id,) in self.rows("select run_id from dag_run where dag_id = ?", DAG)]

    def dag_run(self, run_id: str, *, log: str = "") -> DagRun:
        """A run, as it stands now."""
        [(state,)] = self.rows("select state from dag_run where run_id = ?", run_id)
        tasks = self.rows(
            "select task_id, map_index, state, pool from task_instance where run_id = ?", run_id
        )
        xcoms = self.rows("select task_id, map_index, key, value from xcom where run_id = ?", run_id)
        return DagRun(
            run_id=run_id,
            state=state,
            tasks={(task, index): now for task, index, now, _ in tasks},
            pools={(task, index): pool for task, index, _, pool in tasks},
            xcoms={(task, index, key): _value(value) for task, index, key, value in xcoms},
            log=log,
        )


def _value(text: str | float) -> Any:  # noqa: ANN401 - any JSON
    """What a column of JSON holds; SQLite makes a number of a text that is one."""
    return json.loads(text) if isinstance(text, str) else text


def make_airflow(folder: Path, *, tipbench_home: Path) -> AirflowHome:
    """A migrated Airflow in the folder; it calls the tipbench that runs these tests."""
    folder.mkdir(parents=True, exist_ok=True)
    made = AirflowHome(home=folder, env=_environment(folder, tipbench_home))
    migrated = made.run("db", "migrate")
    assert migrated.code == 0, migrated.err[-4000:]
    return made


def copy_airflow(made: AirflowHome, folder: Path, *, tipbench_home: Path) -> AirflowHome:
    """The same Airflow once more, with a database of its own."""
    folder.mkdir(parents=True)
    shutil.copy(made.home / "airflow.db", folder)
    return AirflowHome(home=folder, env=_environment(folder, tipbench_home))


def add_policy(airflow: AirflowHome) -> None:
    """Install the cluster policy, as the how-to says."""
    config = airflow.home / "config"
    config.mkdir(exist_ok=True)
    (config / "bench_pools.py").symlink_to(ROOT / "dags" / "bench_pools.py")
    (config / "airflow_local_settings.py").write_text("from bench_pools import task_instance_mutation_hook\n")


def add_pools(airflow: AirflowHome, *names: str) -> None:
    """Pools of one slot."""
    path = airflow.home / "pools.json"
    path.write_text(
        json.dumps({name: {"slots": 1, "description": "", "include_deferred": True} for name in names})
    )
    added = airflow.run("pools", "import", str(path))
    assert added.code == 0, added.err[-2000:]


def _environment(folder: Path, tipbench_home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "AIRFLOW" not in name}
    for name in ("PYTHONPATH", "OLLAMA_HOST", "MLFLOW_TRACKING_URI"):
        kept.pop(name, None)
    return {
        **kept,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "TIPBENCH_COMMAND": str(_command(folder)),
        "TIPBENCH_HOME": str(tipbench_home),
        "TIPBENCH_RETRY_SECONDS": "1",
        "TIPBENCH_POKE_SECONDS": "1",
        "TMPDIR": str(folder),
    }


def _command(folder: Path) -> Path:
    """A script that is tipbench as these tests import it."""
    path = folder / "tipbench"
    where = f"PYTHONPATH={shlex.quote(os.environ['PYTHONPATH'])} " if "PYTHONPATH" in os.environ else ""
    path.write_text(f'#!/bin/sh\n{where}exec {shlex.quote(sys.executable)} -m tipbench "$@"\n')
    path.chmod(0o755)
    return path


@dataclass(frozen=True, kw_only=True)
class ServingAirflow:
    """An Airflow that runs: `url` is its API server, where USER and PASSWORD are good."""

    airflow: AirflowHome
    url: str
    client: httpx.Client

    def trigger(self, conf: Mapping[str, Any], *, run_id: str = "") -> str:
        """Trigger a run by REST; its id."""
        body = {"conf": dict(conf), "logical_date": None, "dag_run_id": run_id or f"r-{secrets.token_hex(4)}"}
        answer = self.client.post(f"/api/v2/dags/{DAG}/dagRuns", json=body)
        assert answer.status_code == 200, answer.text
        made: str = answer.json()["dag_run_id"]
        return made

    def get(self, path: str, **query: str | int) -> Any:  # noqa: ANN401 - whatever it answers
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def task_instances(self, run_id: str) -> list[dict[str, Any]]:
        """All of a run's task instances, as REST tells them."""
        found: list[dict[str, Any]] = self.get(
            f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances", limit=100
        )["task_instances"]
        return found

    def wait(self, run_id: str, *, timeout_s: float = 280) -> DagRun:
        """The run once it has ended."""
        path = f"/api/v2/dags/{DAG}/dagRuns/{run_id}"
        wait_until(lambda: self.get(path)["state"] in {"success", "failed"}, timeout_s=timeout_s)
        return self.airflow.dag_run(run_id)


def wait_until(true: Any, *, timeout_s: float, every_s: float = 0.5) -> None:  # noqa: ANN401 - any callable
    """Look again and again; an AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(every_s)


@contextmanager
def serving(airflow: AirflowHome) -> Iterator[ServingAirflow]:
    """Start API server, DAG processor, scheduler and triggerer; all on loopback, ended with this context."""
    port = free_port()
    airflow.env.update(_server_settings(airflow.home, port))
    commands = [
        ("api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ("dag-processor",),
        ("scheduler", "--skip-serve-logs"),
        ("triggerer", "--skip-serve-logs"),
    ]
    with ExitStack() as stack:
        for command in commands:
            stack.callback(_end, airflow.start(*command))
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)
        )
        live = ServingAirflow(airflow=airflow, url=f"http://127.0.0.1:{port}", client=client)
        wait_until(lambda: _is_ready(live), timeout_s=READY_S)
        yield live


def _server_settings(home: Path, port: int) -> dict[str, str]:
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({USER: PASSWORD}))
    return {
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        # Sooner than a busy scheduler has seen a look end, it would take that end for the next look's.
        "TIPBENCH_POKE_SECONDS": "15",
    }


def _is_ready(live: ServingAirflow) -> bool:
    """Whether somebody can log in, the scheduler is alive and the DAG is known; logs in on the way."""
    try:
        if "authorization" not in live.client.headers:
            token = live.client.post("/auth/token", json={"username": USER, "password": PASSWORD})
            if token.status_code != 201:
                return False
            live.client.headers["authorization"] = f"Bearer {token.json()['access_token']}"
        health = live.get("/api/v2/monitor/health")
        known = live.client.get(f"/api/v2/dags/{DAG}").status_code == 200
    except httpx.TransportError:
        return False
    return known and health["scheduler"]["status"] == "healthy"


def _end(process: subprocess.Popen[str]) -> None:
    """End it in order, then what is left of its session."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
