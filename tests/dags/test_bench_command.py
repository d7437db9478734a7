"""A command as a task's child: what it is told, what it tells, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import bench_command

DAGS = Path(bench_command.__file__).parent


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the command: a Python program that each test writes."""
    path = tmp_path / "program.py"
    monkeypatch.setenv("TIPBENCH_COMMAND", f"'{sys.executable}' '{path}'")
    return path


def test_what_it_says_is_passed_on_and_its_result_is_read(script: Path) -> None:
    """Events become a few words, other lines stand as they are, standard output is the result."""
    script.write_text(
        "import json, sys\n"
        "print(json.dumps({'event': 'plan', 'planned': 4, 'skipped': 1}), file=sys.stderr)\n"
        "print(json.dumps({'event': 'resident', 'models': []}), file=sys.stderr)\n"
        "print('{ not JSON', file=sys.stderr)\n"
        "print('[1]', file=sys.stderr)\n"
        "print('tipbench: that went wrong', file=sys.stderr)\n"
        "print(json.dumps(sys.argv[1:]))\n"
        "sys.exit(3)\n"
    )
    said: list[str] = []
    ended = bench_command.run(["collect", "--json"], say=said.append)
    assert said == ["4 cells, 1 of them done before", "{ not JSON", "[1]", "tipbench: that went wrong"]
    assert (ended.code, ended.sentence, ended.result) == (3, "that went wrong", ["collect", "--json"])


def test_no_secret_of_airflow_reaches_it(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own variables are left out, what the task adds is there, and the rest is kept."""
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "hush")
    monkeypatch.setenv("AIRFLOW_CONN_OLLAMA_GPU_8000", "http://ann:hush@gpu:8000")
    monkeypatch.setenv("TIPBENCH_HOME", "here")
    script.write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    seen = bench_command.run([], say=print, env={"OLLAMA_HOST": "http://gpu"}).result
    assert "hush" not in json.dumps(seen)
    assert (seen["TIPBENCH_HOME"], seen["OLLAMA_HOST"]) == ("here", "http://gpu")


def test_no_command_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tipbench is not installed the sentence names the variable."""
    monkeypatch.setenv("TIPBENCH_COMMAND", "/nowhere/tipbench")
    with pytest.raises(bench_command.NoCommand, match="TIPBENCH_COMMAND names '/nowhere/tipbench'"):
        bench_command.command()


def test_a_result_that_is_none_is_none(script: Path) -> None:
    """A command that broke down printed no JSON, and that is no second error."""
    script.write_text("raise SystemExit('tipbench: broken')\n")
    ended = bench_command.run([], say=print)
    assert (ended.code, ended.result, ended.sentence) == (1, None, "broken")


# Runs the command as a task does; `how` is told to it by its first argument.
TASK = """
import sys
sys.path.insert(0, sys.argv[1])
import bench_command
ended = bench_command.run([sys.argv[2]], say=lambda line: print(line, flush=True))
print("code", ended.code, flush=True)
"""
# Says its pid, then waits to be interrupted, once, and writes down that it was.
PATIENT = """
import os, signal, sys, time
from pathlib import Path
def end(number, _frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.3)
    sys.exit(130)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("pid", os.getpid(), file=sys.stderr, flush=True)
time.sleep(60)
"""


def started(script: Path, notes: Path) -> tuple[subprocess.Popen[str], int]:
    script.write_text(PATIENT)
    task = subprocess.Popen(
        [sys.executable, "-c", TASK, str(DAGS), str(notes)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert task.stdout is not None
    return task, int(task.stdout.readline().split()[1])


def gone(pid: int) -> bool:
    """Whether the process has ended within some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_task_that_is_ended_interrupts_it_once(script: Path, tmp_path: Path) -> None:
    """Airflow's SIGTERM to the task's whole group reaches the command as one Ctrl-C, which it may finish."""
    task, pid = started(script, tmp_path / "notes")
    os.killpg(task.pid, signal.SIGTERM)
    out, _ = task.communicate(timeout=30)
    assert "code 130" in out
    assert gone(pid)
    assert (tmp_path / "notes").read_text().split() == [str(int(signal.SIGINT))]


def test_a_script_around_the_command_does_not_keep_it_going(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A team may call tipbench by a script of its own, which passes no signal on."""
    around = tmp_path / "around"
    around.write_text(f"""#!/bin/sh\n'{sys.executable}' '{script}' "$@"\nexit $?\n""")
    around.chmod(0o755)
    monkeypatch.setenv("TIPBENCH_COMMAND", f"'{around}'")
    task, pid = started(script, tmp_path / "notes")
    os.kill(task.pid, signal.SIGTERM)
    try:
        assert gone(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        task.communicate(timeout=30)
    assert (tmp_path / "notes").read_text().split() == [str(int(signal.SIGINT))]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the command goes on to its end")
def test_a_task_that_is_killed_interrupts_it(script: Path, tmp_path: Path) -> None:
    """After SIGKILL the kernel tells the command, which ends in order."""
    task, pid = started(script, tmp_path / "notes")
    os.killpg(task.pid, signal.SIGKILL)
    task.communicate(timeout=30)
    assert gone(pid)
    assert (tmp_path / "notes").read_text().split() == [str(int(signal.SIGINT))]
