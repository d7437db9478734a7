"""A real scheduler and API server: runs side by side, killed tasks, approvals, all by REST."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from airflow_world import (
    DAG,
    DEFAULT_MODELS,
    add_policy,
    add_pools,
    copy_airflow,
    engine_process,
    judge_batch,
    serving,
    wait_until,
)
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_world import AirflowHome, DagRun, ServingAirflow
    from tipbench.records import Run

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]
CONF = (
    '{"models": "qwen2.5:0.5b,qwen2.5:1.5b", "prompts": "v1,v2-mentor", "n_tips": 5, "n_scenarios": 2, '
    '"temperature": 0.7, "experiment": "tip-bench-custom"}'
)
SMALL = {"prompts": "v4-structured", "n_tips": 2, "n_scenarios": 4}


def pool(url: str) -> str:
    return f"ollama-localhost-{url.rpartition(':')[2]}"


@pytest.fixture(scope="module")
def live(
    airflow_made: AirflowHome,
    tiny_hosts: tuple[str, str],
    made_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServingAirflow]:
    """Airflow with the policy and a pool for each of two engines; the first of them is the usual host."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(made_home, folder / "home")
    airflow = copy_airflow(airflow_made, folder / "airflow", tipbench_home=folder / "home")
    airflow.env["OLLAMA_HOST"] = tiny_hosts[0]
    add_policy(airflow)
    add_pools(airflow, "tipbench", *map(pool, tiny_hosts))
    with serving(airflow) as served:
        yield served


def cells(live: ServingAirflow, experiment: str) -> list[Run]:
    """The experiment's cells, each of which is there once; none while nobody has begun it."""
    ledger = open_ledger("", home=Path(live.airflow.env["TIPBENCH_HOME"]))
    known = {one.name for one in ledger.experiments()}
    found = list(ledger.runs(experiment)) if experiment in known else []
    assert len({run.key for run in found}) == len(found)
    return found


def told_done(live: ServingAirflow, run_id: str, model: str) -> int:
    """How many cells of a model the run's logs tell of, which is sooner than the ledger has them."""
    logs = (live.airflow.home / "logs").rglob(f"run_id={run_id}/**/*.log")
    return sum(log.read_text(encoding="utf-8", errors="replace").count(f'"{model} × ') for log in logs)


class Watch:
    """Looks at `/api/ps` of hosts again and again, and keeps what it saw."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.most = dict.fromkeys(hosts, 0)
        self.looks = 0
        self.ended = threading.Event()

    def look(self) -> None:
        with httpx.Client(timeout=10, trust_env=False) as client:
            while not self.ended.wait(0.1):
                for host in self.most:
                    loaded = len(client.get(f"{host}/api/ps").json()["models"])
                    self.most[host] = max(self.most[host], loaded)
                self.looks += 1


@contextmanager
def watched(hosts: Sequence[str]) -> Iterator[Watch]:
    watch = Watch(hosts)
    thread = threading.Thread(target=watch.look)
    thread.start()
    try:
        yield watch
    finally:
        watch.ended.set()
        thread.join()


def spans(live: ServingAirflow, run_id: str) -> list[tuple[str, float, float]]:
    """When each task held which pool."""
    return [
        (one["pool"], *(datetime.fromisoformat(one[end]).timestamp() for end in ("start_date", "end_date")))
        for one in live.task_instances(run_id)
        if one["task_id"] == "collect"
    ]


def test_two_runs_at_once_and_never_two_models_on_a_host(
    live: ServingAirflow, tiny_hosts: tuple[str, str]
) -> None:
    """Two runs of four models on the same two hosts: no host has two models at a time, nor two tasks."""
    confs = [
        {
            **SMALL,
            "models": list(DEFAULT_MODELS),
            "hosts": list(tiny_hosts),
            "experiment": f"side-{seed}",
            "seed": seed,
        }
        for seed in (1, 2)
    ]
    with watched(tiny_hosts) as watch:
        ids = [live.trigger(conf) for conf in confs]
        runs = [live.wait(run_id, timeout_s=600) for run_id in ids]
    assert [run.state for run in runs] == ["success", "success"]
    assert watch.most == dict.fromkeys(tiny_hosts, 1), f"seen in {watch.looks} looks"
    held = sorted(span for run_id in ids for span in spans(live, run_id))
    assert {name for name, _, _ in held} == set(map(pool, tiny_hosts))
    assert len(held) == 8
    for (name, _, end), (following, begin, _) in pairwise(held):
        assert name != following or end <= begin
    for run, conf in zip(runs, confs, strict=True):
        assert len(cells(live, str(conf["experiment"]))) == 16
        assert sum(one["done"] for one in run.collected) == 16


def test_a_killed_task_is_retried_and_nothing_is_done_twice(
    live: ServingAirflow, tiny_hosts: tuple[str, str]
) -> None:
    """SIGKILL to the process of a collection: its second try goes on where the first one was."""
    run_id = live.trigger(
        {
            **SMALL,
            "n_scenarios": 0,
            "repeats": 5,
            "models": "gemma3:1b",
            "hosts": [tiny_hosts[1]],
            "experiment": "killed",
        }
    )
    wait_until(lambda: told_done(live, run_id, "gemma3:1b") > 2, timeout_s=240, every_s=0.1)
    [collecting] = [one for one in live.task_instances(run_id) if one["task_id"] == "collect"]
    assert collecting["state"] == "running"
    os.kill(collecting["pid"], signal.SIGKILL)
    run = live.wait(run_id, timeout_s=600)
    assert run.state == "success"
    [collected] = [one for one in live.task_instances(run_id) if one["task_id"] == "collect"]
    assert collected["try_number"] == 2
    summary = run.collected[0]
    assert summary["skipped"] > 0
    assert summary["skipped"] + summary["done"] == summary["planned"] == len(cells(live, "killed"))


def test_a_host_that_dies_under_a_run_loses_nothing(
    live: ServingAirflow, tiny: dict[str, Path], tiny_hosts: tuple[str, str]
) -> None:
    """Killed half way through a model, it stays away: another host does the rest, and no cell twice."""
    with engine_process(tiny) as (dying, process):
        conf = {
            **SMALL,
            "n_scenarios": 0,
            "repeats": 5,
            "models": "gemma3:1b,qwen2.5:0.5b",
            "experiment": "died",
        }
        run_id = live.trigger({**conf, "hosts": [dying, tiny_hosts[1]]})
        wait_until(lambda: told_done(live, run_id, "gemma3:1b") > 2, timeout_s=240, every_s=0.1)
        os.killpg(process.pid, signal.SIGKILL)
    run = live.wait(run_id, timeout_s=600)
    assert run.state == "success"
    assert run.tasks["collect", 0] == "failed"
    handed = run.xcom("collect_elsewhere", 1)
    assert handed["skipped"] > 0
    assert handed["skipped"] + handed["done"] == handed["planned"]
    found = cells(live, "died")
    assert len(found) == 2 * handed["planned"]
    assert {run.status for run in found} == {"done"}
    assert {run.host for run in found if run.model == "gemma3:1b"} == {dying, tiny_hosts[1]}


def test_a_model_that_is_refused_ends_the_run_with_its_sentence(
    live: ServingAirflow, tiny_hosts: tuple[str, str]
) -> None:
    """The host does not have it: the task is not tried again, and the other model's cells are kept."""
    run_id = live.trigger(
        {**SMALL, "models": "qwen2.5:0.5b,unknown:1b", "hosts": list(tiny_hosts), "experiment": "refused"}
    )
    run = live.wait(run_id)
    assert run.state == "failed"
    assert f"{tiny_hosts[1]} does not have unknown:1b" in run.xcom("collect", 1, "refused")["why"]
    states = {(one["task_id"], one["map_index"]): one for one in live.task_instances(run_id)}
    assert (states["collect", 1]["state"], states["collect", 1]["try_number"]) == ("failed", 1)
    assert [states["collect", index]["rendered_map_index"] for index in (0, 1)] == [
        "qwen2.5:0.5b",
        "unknown:1b",
    ]
    assert states["hand_over", -1]["state"] == "failed"
    assert len(cells(live, "refused")) == 4


def test_an_approval_is_answered_by_rest(live: ServingAirflow, tiny_hosts: tuple[str, str]) -> None:
    """The run waits for a person; once the batch is applied and approved, it compares what was judged."""
    run_id = live.trigger(
        {
            **SMALL,
            "models": "qwen2.5:0.5b",
            "hosts": list(tiny_hosts),
            "experiment": "asked",
            "wait_for_judge": "approval",
        }
    )
    approve(live, run_id, "Approve", judged=True)
    run = live.wait(run_id)
    assert run.state == "success"
    assert run.xcom("compare")["judged"] > 0


def test_a_rejection_ends_the_run(live: ServingAirflow, tiny_hosts: tuple[str, str]) -> None:
    """Rejected, nothing is compared and the run has failed, once and for all."""
    run_id = live.trigger(
        {
            **SMALL,
            "models": "qwen2.5:0.5b",
            "hosts": list(tiny_hosts),
            "experiment": "no",
            "wait_for_judge": "approval",
        }
    )
    approve(live, run_id, "Reject")
    run = live.wait(run_id)
    assert run.state == "failed"
    assert run.tasks["compare", -1] == "upstream_failed"


def approve(live: ServingAirflow, run_id: str, answer: str, *, judged: bool = False) -> None:
    """Wait until the run asks, judge what it exported if told to, and answer."""

    def asks() -> bool:
        states = {one["task_id"]: one["state"] for one in live.task_instances(run_id)}
        return states.get("wait_for_judge.approval") == "awaiting_input"

    wait_until(asks, timeout_s=240)
    exported = live.airflow.dag_run(run_id).xcom("export_for_judge")
    for batch in exported["batches"] if judged else ():
        judge_batch(Path(batch), Path(live.airflow.env["TIPBENCH_HOME"]))
    where = f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/wait_for_judge.approval/-1/hitlDetails"
    answered = live.client.patch(where, json={"chosen_options": [answer], "params_input": {}})
    assert answered.status_code == 200, answered.text


def test_a_conf_of_the_wrong_type_is_refused_by_rest(live: ServingAirflow) -> None:
    """The answer is 400 and names the key; no run is made."""
    before = live.airflow.run_ids()
    body: dict[str, Any] = {"conf": {"n_tips": "many"}, "logical_date": None}
    refused = live.client.post(f"/api/v2/dags/{DAG}/dagRuns", json=body)
    assert refused.status_code == 400
    assert "n_tips" in refused.text
    assert live.airflow.run_ids() == before


@pytest.mark.parametrize("conf", [["--conf", CONF], []], ids=["with a conf", "without"])
def test_trigger_lines_work_as_written(
    live: ServingAirflow, conf: list[str], tiny_hosts: tuple[str, str]
) -> None:
    """`airflow dags trigger` as people are told to type it, on the usual host."""
    run = triggered(live, *conf)
    assert run.state == "success"
    models = ["qwen2.5:0.5b", "qwen2.5:1.5b"] if conf else list(DEFAULT_MODELS)
    assert [(one["model"], one["host"]) for one in run.collected] == [
        (name, tiny_hosts[0]) for name in models
    ]
    assert all(one["planned"] == one["done"] + one["skipped"] for one in run.collected)


def triggered(live: ServingAirflow, *conf: str) -> DagRun:
    before = set(live.airflow.run_ids())
    ran = live.airflow.run("dags", "trigger", DAG, *conf)
    assert ran.code == 0, ran.err[-3000:]
    (run_id,) = set(live.airflow.run_ids()) - before
    return live.wait(run_id, timeout_s=800)
