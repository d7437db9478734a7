"""The command itself: killed, interrupted, locked out, with its ledger down, piped and scripted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import psutil
import pytest

from command import start, tipbench
from ledger_servers import MlflowServer
from stand_in import FakeModel, StandIn, running
from tipbench import runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("home")


def arguments(host: StandIn, *more: str) -> list[str]:
    names = ",".join(model.name for model in host.models)
    return [
        *(
            "collect",
            "--models",
            names,
            "--ollama-url",
            host.url,
            "--engine",
            "ollama",
            "--experiment",
            "bench",
        ),
        *("--prompts", "v1,v2-mentor", "--json", *more),
    ]


def wait_until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


@pytest.mark.parametrize("parallel", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_kill_9_redoes_at_most_parallel_calls_and_records_each_cell_once(parallel: int) -> None:
    """Killed half way and run again: at most `--parallel` calls are made twice, no cell is recorded twice."""
    with running(StandIn([FakeModel("a:1b"), FakeModel("b:1b")], latency_s=0.05)) as host:
        child = start(*arguments(host, "--parallel", str(parallel)))
        wait_until(lambda: len(host.chats) >= 11)
        child.kill()
        child.communicate()
        before = len(host.chats)
        again = tipbench(*arguments(host, "--parallel", str(parallel)))
    assert again.code == 0, again.err
    counts = again.json["cells"]
    assert counts["planned"] == counts["done"] + counts["skipped"] == 32
    assert len(host.chats) <= 32 + parallel
    assert counts["skipped"] >= before - parallel
    found = Counter(run.key for run in runs("bench"))
    assert len(found) == 32
    assert set(found.values()) == {1}
    assert host.most_resident == 1


def test_ctrl_c_unloads_the_model_keeps_the_cells_and_exits_130() -> None:
    """The first Ctrl-C ends the work in order: memory freed, a summary, and the rest is done next time."""
    with running(StandIn([FakeModel("a:1b")], latency_s=0.05)) as host:
        child = start(*arguments(host))
        wait_until(lambda: len(host.chats) >= 5)
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 130
        assert "run the same command" in err
        assert host.resident == []
        done = json.loads(out)["cells"]["done"]
        assert tipbench(*arguments(host)).json["cells"]["skipped"] == done


def test_a_second_collection_on_the_host_is_refused_or_waits() -> None:
    """The refusal has exit code 3 and the holder's pid; with `--wait` it runs afterwards."""
    with running(StandIn([FakeModel("a:1b")], latency_s=8)) as host:
        first = start(*arguments(host, "--n-scenarios", "4"))
        wait_until(lambda: bool(host.chats))
        refused = tipbench(*arguments(host))
        host.latency_s = 0.2
        assert refused.code == 3
        assert f"pid {first.pid} " in refused.err
        assert "--wait" in refused.err
        waited = tipbench(*arguments(host, "--n-scenarios", "4", "--wait"))
        first.communicate()
    assert waited.code == 0, waited.err
    assert waited.json["cells"]["skipped"] == 8


def test_cells_that_were_generated_offline_are_recorded_once(tmp_path: Path) -> None:
    """A second run generates nothing again; `sync` records the cells once MLflow is there."""
    server = MlflowServer(tmp_path / "server", ("--artifacts-destination", str(tmp_path / "artifacts")))
    more = ("--n-scenarios", "2", "--mlflow-url", server.url)
    with running(StandIn([FakeModel("a:1b")])) as host:
        down = tipbench(*arguments(host, *more, "--offline"))
        assert down.code == 0, down.err
        assert down.json["unrecorded"] == 4
        assert tipbench(*arguments(host, *more, "--offline")).json["calls"] == 0
        assert tipbench("sync", "--mlflow-url", server.url).code == 3
        with server.running():
            synced = tipbench("sync", "--mlflow-url", server.url)
            assert synced.code == 0, synced.err
            assert "4 cells recorded" in synced.out
            assert len(runs("bench", mlflow_url=server.url)) == 4
            assert tipbench(*arguments(host, *more)).json["cells"]["skipped"] == 4


def test_events_are_streamed_as_json_lines(tmp_path: Path) -> None:
    """`--events` tells of the plan, the load, every cell, the unload and the summary, each with its time."""
    events = tmp_path / "events.jsonl"
    with running(StandIn([FakeModel("a:1b")])) as host:
        assert tipbench(*arguments(host, "--n-scenarios", "1", "--events", str(events))).code == 0
    heard = [json.loads(line) for line in events.read_text().splitlines()]
    kinds = [event["event"] for event in heard]
    assert [kind for kind in kinds if kind not in {"resident", "recording"}] == [
        *("plan", "model_start", "model_loaded", "cell", "cell", "model_unloaded", "summary"),
    ]
    assert all(event["at"].startswith("20") for event in heard)


def test_a_writer_that_is_killed_loses_nothing() -> None:
    """What the killed writer left is recorded by the collector itself before it ends."""
    with running(StandIn([FakeModel("a:1b")], latency_s=0.2)) as host:
        child = start(*arguments(host, "--n-scenarios", "4"))
        wait_until(lambda: len(host.chats) >= 2)
        (writer,) = [p for p in psutil.Process(child.pid).children() if "sync" in p.cmdline()]
        writer.kill()
        out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert json.loads(out)["unrecorded"] == 0
    assert len(runs("bench")) == 8


@pytest.mark.parametrize("events", ["/dev/full", ""])
def test_output_that_cannot_be_written_does_not_stop_the_work(events: str) -> None:
    """A full disk under `--events`, or a reader that went away, costs the output and no cell."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        child = start(*arguments(host, "--n-scenarios", "1", *(("--events", events) if events else ())))
        assert child.stdout
        assert child.stderr
        if not events:
            child.stdout.close()
            child.stderr.close()
        assert child.wait(timeout=100) == 0
        child.stdout.close()
        child.stderr.close()
    assert len(runs("bench")) == 2


def test_failed_cells_make_exit_code_1() -> None:
    """Some cells failed: exit code 1, and the summary counts them."""
    with running(StandIn([FakeModel("a:1b")], fault=lambda n, _b: "404" if n == 1 else None)) as host:
        ran = tipbench(*arguments(host, "--n-scenarios", "1"))
    assert (ran.code, ran.json["cells"]["failed"]) == (1, 1)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--n-tips", "zero"], 2, "--n-tips: 'zero' is not a number"),
        (["--temperature", "nan"], 2, "--temperature"),
        (["--prompts", "v1,nope"], 2, "nope"),
        (["--suite", "tipp"], 2, "did you mean 'tip'"),
        (["--engine", "magic"], 2, "auto, ollama, embedded"),
        (["--keep-alive", "-1"], 2, "for ever"),
        (["--models", "a:1b,a:1b"], 2, "named twice"),
        (["--experiment", "../x"], 2, "--experiment"),
        (["--ollama-url", "ftp://x"], 2, "--ollama-url"),
        (["--mlflow-url", "./mlruns"], 2, "mlruns"),
        (["--events", "no/such/folder/x"], 2, "--events"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(more: list[str], code: int, words: str) -> None:
    """Nothing is generated, nothing is written, and the sentence names the thing."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        ran = tipbench(*arguments(host, *more))
        assert host.chats == []
    assert ran.code == code
    assert words in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert ran.out == ""


def test_no_engine_at_all_says_what_to_do() -> None:
    """Without Ollama, the default models cannot be had from the embedded engine: exit 3 and a way out."""
    with running(StandIn([])) as host:
        gone = host.url
    ran = tipbench("collect", "--ollama-url", gone)
    assert ran.code == 3
    assert "ollama serve" in ran.err or "install Ollama" in ran.err
    assert "smollm2:135m" in ran.err


def test_help_is_quick_to_import() -> None:
    """None of the slow third-party modules is imported for `--help`."""
    code = "import sys, tipbench.cli; print([m for m in %r if m in sys.modules])"
    slow = ["mlflow", "scipy", "ollama", "numpy", "httpx", "jinja2", "starlette", "xllamacpp"]
    done = subprocess.run([sys.executable, "-c", code % slow], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
