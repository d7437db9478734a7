"""`tipbench airflow`: setting up, running, and no trace of it without an Airflow."""

from __future__ import annotations

import json
import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from airflow_stand_in import PASSWORD, AirflowStandIn, Frame, Task, environment, frames, running
from command import here, start
from job_world import wait_until
from tipbench.engine.lock import host_name
from tipbench.workflows.airflow_setup import pool_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = ("airflow", "run", "--models", "m0,m1", "--every", "0.05")


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, fresh_home: Path) -> Iterator[AirflowStandIn]:
    assert not fresh_home.exists()
    monkeypatch.delenv("TIPBENCH_OLLAMA_URLS", raising=False)
    with running(AirflowStandIn()) as stand_in:
        for name, value in environment(stand_in).items():
            monkeypatch.setenv(name, value)
        yield stand_in


def test_without_an_airflow_the_command_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for teams that have one; for everybody else there is nothing to read."""
    monkeypatch.delenv("TIPBENCH_AIRFLOW_URL", raising=False)
    assert "irflow" not in here("--help").out
    monkeypatch.setenv("TIPBENCH_AIRFLOW_URL", "http://localhost:8080")
    assert "airflow" in here("--help").out


def test_setup_says_what_it_did_and_does_it_once(airflow: AirflowStandIn) -> None:
    """A pool of one slot for all, and one with a connection for each host, however often it is written."""
    first = here("airflow", "setup", "gpu-1", "http://gpu-1:11434/", "localhost:1", "127.0.0.1:1")
    assert first.code == 0
    assert set(airflow.pools) == {"tipbench", "ollama-gpu-1-11434", "ollama-localhost-1"}
    assert {pool["slots"] for pool in airflow.pools.values()} == {1}
    assert set(airflow.connections) == {"ollama-gpu-1-11434", "ollama-localhost-1"}
    assert first.out.count("made") == 5
    again = here("airflow", "setup", "gpu-1", "localhost:1", "--json")
    assert set(again.json["pools"].values()) | set(again.json["connections"].values()) == {"was there"}


def test_setup_tells_of_a_dag_that_would_not_run(airflow: AirflowStandIn) -> None:
    """Pools are made all the same."""
    airflow.paused = True
    done = here("airflow", "setup", "gpu-1")
    assert (done.code, "airflow dags unpause bench_collect" in done.err) == (0, True)
    assert "tipbench" in airflow.pools


def test_setup_takes_logins_from_the_environment_alone(
    airflow: AirflowStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command line can be read by others; the password is shown nowhere."""
    refused = here("airflow", "setup", "http://me:s3cret@gpu-1")
    assert (refused.code, "s3cret" in refused.err, airflow.pools) == (2, False, {})
    monkeypatch.setenv("TIPBENCH_OLLAMA_URLS", "http://me:s3cret%2F@gpu-1:1, gpu-2")
    done, dry = here("airflow", "setup"), here("airflow", "setup", "--dry-run")
    kept = airflow.connections["ollama-gpu-1-1"]
    assert (kept["login"], kept["password"], kept["host"]) == ("me", "s3cret/", "gpu-1")
    assert "s3cret" not in done.out + done.err + dry.out + dry.err
    assert "s3cret" not in json.dumps(airflow.pools)


def test_a_dry_setup_prints_commands_and_asks_nobody(
    airflow: AirflowStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people who cannot reach the API; no Airflow need be configured."""
    monkeypatch.delenv("TIPBENCH_AIRFLOW_URL")
    done = here("airflow", "setup", "--dry-run", "https://gpu-1")
    assert done.out.splitlines()[1:] == [
        "airflow pools set ollama-gpu-1-443 1 'tipbench: one model at a time on gpu-1'",
        (
            "airflow connections add ollama-gpu-1-443 --conn-type http --conn-host gpu-1 --conn-port 443 "
            "--conn-schema https"
        ),
    ]
    assert airflow.requests == []
    assert here("airflow", "setup", "--dry-run").code == 2


def test_a_dry_setup_prints_what_a_shell_takes_as_it_is() -> None:
    """People paste these lines: nothing in an address becomes a command or a second word."""
    lines = here("airflow", "setup", "--dry-run", "http://gpu$(id):80", "a;b c").out.splitlines()
    words = [shlex.split(line) for line in lines]
    assert {word[3] for word in words[1:]} == {"ollama-gpu$(id)-80", "ollama-a;b c-11434"}
    assert all("'ollama-" in line for line in lines[1:])


def test_a_place_is_named_by_its_host() -> None:
    """The same name as the lock's: however the address is written."""
    assert (
        pool_name("http://127.0.0.1:11434")
        == "ollama-localhost-11434"
        == f"ollama-{host_name('http://[::1]:11434')}"
    )


def test_a_run_is_told_line_by_line(airflow: AirflowStandIn) -> None:
    """What began, what each task does, and the leaderboard in the end."""
    done = here(*RUN, "--run-id", "r1")
    assert done.code == 0
    assert "triggered r1" in done.err
    assert "collect: m0: running" in done.err
    assert "Nothing is judged yet." in done.out
    assert airflow.runs["r1"].conf["models"] == ["m0", "m1"]


def test_a_run_as_json_and_events(airflow: AirflowStandIn, tmp_path: Path) -> None:
    """One object on standard output; every event in the file."""
    done = here(*RUN, "--json", "--events", str(tmp_path / "e"))
    assert (done.json["state"], done.json["leaderboard"]["html"]) == ("success", "/w/board.html")
    kinds = [json.loads(line)["event"] for line in (tmp_path / "e").read_text().splitlines()]
    assert {"dag_run", "task", "notice", "summary"} == set(kinds)
    assert done.json["run_id"] in airflow.runs


def test_a_run_that_fails_is_exit_code_one(airflow: AirflowStandIn) -> None:
    """With the task and where its log is; a password that is wrong is exit code two and not told."""
    airflow.script = frames(last="failed", collect="failed")
    failed = here(*RUN)
    assert failed.code == 1
    assert failed.err.splitlines()[-1].startswith("tipbench: collect: m0 failed (no host answers)")
    airflow.password = "changed"  # noqa: S105 - of a test
    refused = here(*RUN)
    assert (refused.code, PASSWORD in refused.err) == (2, False)


def test_without_an_airflow_a_run_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the variable's name."""
    monkeypatch.delenv("TIPBENCH_AIRFLOW_URL", raising=False)
    assert "TIPBENCH_AIRFLOW_URL is not set" in here(*RUN).err


def test_ctrl_c_ends_the_run_on_airflow(airflow: AirflowStandIn) -> None:
    """The real command, interrupted: exit code 130, and Airflow was asked to end the run."""
    airflow.script = [Frame("running", (Task("collect", "running", 0),))]
    process = start(*RUN, "--run-id", "r1")
    wait_until(lambda: ("GET", "/api/v2/dags/bench_collect/dagRuns/r1/taskInstances") in airflow.requests)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "r1 was ended; what it has done is kept" in err
    assert airflow.runs["r1"].now.state == "failed"
