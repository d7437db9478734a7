"""`collect` and `doctor` where MLflow is away, goes away, refuses the Host header or refuses cells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from command import here, start, tipbench
from ledger_servers import MlflowServer, Proxy, free_port
from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.ledger.locks import held_file
from tipbench.settings import home as tipbench_home
from tipbench.workflows.recording import collect_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger_servers import Deed, Request

pytestmark = pytest.mark.usefixtures("home")

ALLOWED = "example.test:5000"
JSON = "application/json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--artifacts-destination", str(folder / "artifacts"))
    with MlflowServer(folder, options).running() as found:
        yield found


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--artifacts-destination", str(folder / "artifacts"), "--allowed-hosts", ALLOWED)
    with MlflowServer(folder, options).running() as found:
        yield found


def arguments(host: StandIn, url: str, *more: str) -> list[str]:
    return [
        *("collect", "--models", "a:1b", "--prompts", "v1", "--n-scenarios", "4", "--engine", "ollama"),
        *("--ollama-url", host.url, "--mlflow-url", url, "--json", *more),
    ]


def nowhere() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_nothing_is_generated_where_mlflow_cannot_be_reached() -> None:
    """Exit code 3, and the sentence names the way to generate without it."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        ran = tipbench(*arguments(host, nowhere(), "--experiment", "down"))
        assert (host.chats, host.loads) == ([], [])
    assert ran.code == 3
    assert "cannot be reached" in ran.err
    assert "--offline" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert here("sync", "--list").out == "No cell waits to be recorded\n"


def test_offline_generates_now_and_records_later(server: MlflowServer) -> None:
    """No request goes to MLflow; a second run generates nothing again; `sync` records each cell once."""
    seen_before: list[Request] = []
    with Proxy(server.port).running() as proxy, running(StandIn([FakeModel("a:1b")])) as host:
        command = arguments(host, proxy.url, "--experiment", "offline", "--offline")
        ran = tipbench(*command)
        assert ran.code == 0, ran.err
        assert (ran.json["cells"]["done"], ran.json["unrecorded"]) == (4, 4)
        assert "4 cells kept on this disk, as --offline asks" in ran.err
        assert "until the ledger can be reached" not in ran.err
        planned = tipbench(*command, "--dry-run")
        assert (planned.json["cells"], planned.json["skipped"]) == (0, 4)
        assert tipbench(*command).json["calls"] == 0
        assert proxy.seen == seen_before
        synced = tipbench("sync", "--mlflow-url", proxy.url)
        assert "4 cells recorded, 0 still waiting" in synced.out
        assert tipbench(*command).json["calls"] == 0
        assert tipbench(*arguments(host, proxy.url, "--experiment", "offline")).json["calls"] == 0
    assert len(runs("offline", mlflow_url=server.url)) == 4


def test_offline_knows_the_cells_that_another_home_recorded(server: MlflowServer, home: Path) -> None:
    """A run that reached MLflow remembers which cells are done, also without MLflow."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        command = arguments(host, server.url, "--experiment", "shared")
        assert tipbench(*command).json["cells"]["done"] == 4
        (home / "spool.db").unlink()
        assert tipbench(*command).json["calls"] == 0
        assert tipbench(*command, "--offline").json["calls"] == 0


def test_mlflow_that_goes_away_in_the_middle_costs_nothing(server: MlflowServer) -> None:
    """All cells are generated and kept; exit code 3 with the number of cells that wait."""
    gone: list[bool] = []

    def fault(number: int, _body: dict[str, Any]) -> None:
        if number == 1:
            gone.append(True)

    def decide(_: Request) -> Deed:
        return "drop before" if gone else "pass"

    host = StandIn([FakeModel("a:1b")], fault=fault)
    with Proxy(server.port, decide=decide).running() as proxy, running(host):
        command = arguments(host, proxy.url, "--experiment", "gone")
        ran = tipbench(*command)
        assert ran.code == 3, ran.err
        assert (ran.json["cells"]["done"], ran.json["unrecorded"]) == (4, 4)
        last = ran.err.strip().splitlines()[-1]
        assert last.startswith("tipbench: 4 cells kept on this disk until the ledger can be reached: ")
        gone.clear()
        again = tipbench(*command)
        assert again.code == 0, again.err
        assert (again.json["calls"], again.json["unrecorded"]) == (0, 0)
    assert len(runs("gone", mlflow_url=server.url)) == 4


def cutting(body: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """A host that cuts prompts of more than 300 tokens to 150, without a word."""
    tokens = sum(len(message["content"]) for message in body["messages"]) // 4 + 13
    return {**last, "prompt_eval_count": 150 if tokens > 300 else tokens}


def test_marks_that_cannot_be_written_are_counted(server: MlflowServer) -> None:
    """All cells are recorded; the marks on them wait, and `collect` prints their number and exits with 3."""
    gone: list[bool] = []

    def decide(request: Request) -> Deed:
        writes = request.path.endswith(("runs/log-batch", "runs/set-tag"))
        return "drop before" if gone and writes else "pass"

    host = StandIn([FakeModel("a:1b")], limits=False, amend=cutting)
    with Proxy(server.port, decide=decide).running() as proxy, running(host):
        command = arguments(host, proxy.url, "--experiment", "marks")
        for prompts in ("v1", "v3-few-shot"):
            assert tipbench(*command, "--prompts", prompts).code == 0
        gone.append(True)
        both = (*command, "--prompts", "v1,v3-few-shot")
        ran = tipbench(*both)
        assert ran.code == 3, ran.err
        assert (ran.json["calls"], ran.json["unrecorded"], ran.json["unrecorded_marks"]) == (0, 0, 4)
        last = ran.err.strip().splitlines()[-1]
        assert last.startswith("tipbench: 4 marks on recorded cells kept on this disk until the ledger can")
        gone.clear()
        assert tipbench(*both).code == 0
    found = [
        run.prompt_id for run in runs("marks", mlflow_url=server.url) if run.marks == ("possibly-truncated",)
    ]
    assert found == ["v3-few-shot"] * 3  # the fourth was the first call, too


def test_cells_that_mlflow_refuses_are_not_said_to_wait_for_it(server: MlflowServer) -> None:
    """The ledger was reached, so the sentence gives the true reason."""
    created: list[Request] = []

    def decide(request: Request) -> Deed:
        if not request.path.endswith("runs/create"):
            return "pass"
        created.append(request)
        refusal = b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "no room for it"}'
        return "pass" if len(created) == 1 else (400, JSON, refusal)  # the first one holds the suite

    with Proxy(server.port, decide=decide).running() as proxy, running(StandIn([FakeModel("a:1b")])) as host:
        ran = tipbench(*arguments(host, proxy.url, "--experiment", "refused"))
    assert ran.code == 3
    assert "no room for it" in ran.err
    assert "4 cells kept on this disk, MLflow does not take them" in ran.err
    assert "until the ledger can be reached" not in ran.err


def test_a_server_that_refuses_the_host_header_is_a_mistake_in_the_settings(
    strict_server: MlflowServer,
) -> None:
    """Exit code 2 before anything is generated; `doctor` gives the same remedy; the header helps."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        command = arguments(host, strict_server.url, "--experiment", "strict")
        ran = tipbench(*command)
        assert host.chats == []
        assert (ran.code, ran.out) == (2, "")
        assert "--mlflow-host-header" in ran.err
        assert tipbench(*command, "--dry-run").code == 2
        looked = tipbench("doctor", "--mlflow-url", strict_server.url, "--ollama-url", host.url, "--json")
        (ledger,) = [finding for finding in looked.json if finding["name"] == "ledger"]
        assert ledger["state"] == "bad"
        assert "--mlflow-host-header" in ledger["fix"]
        assert tipbench(*command, "--offline").json["unrecorded"] == 4
        kept = tipbench("sync", "--mlflow-url", strict_server.url)
        assert kept.code == 2
        assert "--mlflow-host-header" in kept.err
        assert "4 cells safe on this disk" in kept.err
        moved = tipbench("sync", "--to", strict_server.url)
        assert moved.code == 2
        helped = tipbench(*command, "--mlflow-host-header", ALLOWED)
    assert helped.code == 0, helped.err
    assert helped.json["unrecorded"] == 0


def test_doctor_does_not_warn_of_cells_that_a_running_command_records() -> None:
    """They are a warning once no command is at work on them."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        url = nowhere()
        tipbench(*arguments(host, url, "--experiment", "bench", "--offline"))
        with held_file(collect_lock(url, "bench"), patience_s=0, shared=True):
            during = here("doctor", "--ollama-url", host.url, "--json")
        after = here("doctor", "--ollama-url", host.url, "--json")

    def spool(findings: list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(one["state"], one["detail"]) for one in findings if one["name"] == "spool"]

    assert spool(during.json) == [("ok", "4 cells of a running command waiting")]
    assert spool(after.json) == [("warn", "4 cells waiting for a ledger")]


def test_doctor_sees_a_running_collection() -> None:
    """Also while its recorder does not come to record anything."""
    with running(StandIn([FakeModel("a:1b")], latency_s=1)) as host:
        child = start(*arguments(host, "", "--experiment", "bench"))
        while len(host.chats) < 2:
            time.sleep(0.05)
        looked = here("doctor", "--ollama-url", host.url, "--json")
        child.communicate(timeout=300)
    assert child.returncode == 0
    assert [one["state"] for one in looked.json if one["name"] == "spool"] in ([], ["ok"])
    assert (tipbench_home() / "locks").is_dir()
