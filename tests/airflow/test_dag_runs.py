"""The whole DAG by `airflow dags test`, on two embedded engines on two loopback ports."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_world import AirflowHome, DagRun, judge_batch, wait_until
from tipbench.ledger import open_ledger

pytestmark = pytest.mark.airflow

# As people are told to type it.
WRITTEN: dict[str, Any] = {
    "models": "qwen2.5:0.5b,qwen2.5:1.5b",
    "prompts": "v1,v2-mentor",
    "n_tips": 5,
    "n_scenarios": 2,
    "temperature": 0.7,
    "experiment": "tip-bench-custom",
}
MODELS = ["qwen2.5:0.5b", "qwen2.5:1.5b"]


@pytest.fixture(scope="module")
def first_run(airflow: AirflowHome, tiny_hosts: tuple[str, str]) -> DagRun:
    """The conf on both hosts, where nothing is judged yet. The home has files of a run of last year."""
    home = Path(airflow.env["TIPBENCH_HOME"])
    for name, days in (("airflow-run-old", 365), ("airflow-run-recent", 20)):
        (home / name).touch()
        os.utime(home / name, (time.time() - days * 24 * 3600,) * 2)
    return airflow.test({**WRITTEN, "hosts": list(tiny_hosts)})


@pytest.fixture(scope="module")
def second_run(airflow: AirflowHome, tiny_hosts: tuple[str, str], first_run: DagRun) -> DagRun:
    """One prompt more, on the usual host, waiting for the judge, who applies the batch once it waits."""
    conf = {**WRITTEN, "prompts": "v1,v2-mentor,v4-structured", "wait_for_judge": "sensor"}
    with ThreadPoolExecutor() as pool:
        judging = pool.submit(judge_while_waiting, airflow)
        run = airflow.test(conf, OLLAMA_HOST=tiny_hosts[0])
        judging.result()
    return run


def judge_while_waiting(airflow: AirflowHome) -> None:
    waiting = "select run_id from task_instance where task_id = ? and state = 'up_for_reschedule'"
    wait_until(lambda: airflow.rows(waiting, "wait_for_judge.sensor"), timeout_s=480)
    [(run_id,)] = airflow.rows(waiting, "wait_for_judge.sensor")
    for batch in airflow.dag_run(run_id).xcom("export_for_judge")["batches"]:
        judge_batch(Path(batch), Path(airflow.env["TIPBENCH_HOME"]))


def test_the_models_take_turns_on_the_hosts(first_run: DagRun, tiny_hosts: tuple[str, str]) -> None:
    """Each model is collected whole on its own host, and the counts and the host come through XCom."""
    assert first_run.state == "success", first_run.log[-4000:]
    assert [(one["model"], one["host"]) for one in first_run.collected] == list(
        zip(MODELS, tiny_hosts, strict=True)
    )
    assert [(one["planned"], one["done"]) for one in first_run.collected] == [(4, 4), (4, 4)]
    assert first_run.tasks["collect_elsewhere", -1] == "skipped"


def test_a_cell_says_where_it_was_generated(
    first_run: DagRun, airflow: AirflowHome, tiny_hosts: tuple[str, str]
) -> None:
    """Every cell is in the ledger once, with the host of its model."""
    every = open_ledger("", home=Path(airflow.env["TIPBENCH_HOME"])).runs("tip-bench-custom")
    runs = [run for run in every if run.prompt_id in WRITTEN["prompts"]]
    assert len(runs) == len({run.key for run in runs}) == 8
    assert {(run.model, run.host) for run in runs} == set(zip(MODELS, tiny_hosts, strict=True))


def test_nothing_judged_is_said(first_run: DagRun) -> None:
    """With nothing judged `compare` succeeds, writes both files and says so."""
    compared = first_run.xcom("compare")
    assert compared["judged"] == 0
    assert compared["verdict"].startswith("Nothing is judged yet")
    assert json.loads(Path(compared["json"]).read_text())["title"] == "tip-bench-custom"
    assert "<html" in Path(compared["html"]).read_text()
    assert first_run.tasks["wait_for_judge.sensor", -1] == "skipped"
    assert first_run.tasks["wait_for_judge.approval", -1] == "skipped"


def test_no_pool_is_needed_without_the_policy(first_run: DagRun) -> None:
    """Nobody made one, so both models are where all tasks are; they take turns by a limit of their own."""
    assert {first_run.pools["collect", index] for index in (0, 1)} == {"default_pool"}


def test_what_is_there_is_not_generated_again(second_run: DagRun, tiny_hosts: tuple[str, str]) -> None:
    """Also on another host: without hosts it is the usual one alone, which adds what is new."""
    assert second_run.state == "success", second_run.log[-4000:]
    assert [one["host"] for one in second_run.collected] == [tiny_hosts[0], tiny_hosts[0]]
    assert [(one["planned"], one["skipped"], one["done"]) for one in second_run.collected] == [(6, 4, 2)] * 2


def test_the_judge_file_comes_through_xcom(second_run: DagRun, airflow: AirflowHome) -> None:
    """`export_for_judge` pushes the path of one blinded file in the run's folder, and what is pending."""
    exported = second_run.xcom("export_for_judge")
    path = Path(exported["path"])
    assert path.is_relative_to(Path(airflow.env["TIPBENCH_HOME"]) / "airflow")
    assert exported["batches"] == [str(path)]
    ledger = open_ledger("", home=Path(airflow.env["TIPBENCH_HOME"]))
    items = json.loads(path.read_text())["items"]
    real = {item.id for batch in ledger.batches("tip-bench-custom") for item in batch.items if item.candidate}
    assert len(real & {item["id"] for item in items}) == exported["pending"] > 0


def test_the_first_task_leaves_a_file_in_the_home(first_run: DagRun, airflow: AirflowHome) -> None:
    """Its random name goes through XCom, files of old runs are removed, and the log has the store's path."""
    home = Path(airflow.env["TIPBENCH_HOME"])
    name = first_run.xcom("assign", key="marker")
    assert (home / name).stat().st_mode & 0o777 == 0o600
    assert len(name) > 32
    assert not (home / "airflow-run-old").exists()
    assert (home / "airflow-run-recent").exists()
    assert f"the embedded store {home / 'mlflow.db'} is used" in first_run.log


def test_the_sensor_waits_until_nothing_is_pending(second_run: DagRun) -> None:
    """It looked while candidates were waiting, as the judge saw, then went on once the batch was applied."""
    assert second_run.tasks["wait_for_judge.sensor", -1] == "success"
    assert second_run.tasks["wait_for_judge.approval", -1] == "skipped"


def test_the_leaderboard_comes_through_xcom(second_run: DagRun) -> None:
    """What was judged is ranked, as JSON and as a page."""
    compared = second_run.xcom("compare")
    assert compared["judged"] > 0
    board = json.loads(Path(compared["json"]).read_text())
    assert {row["model"] for row in board["rows"]} == set(MODELS)
    assert compared["verdict"] == " ".join(board["sentences"])
    page = Path(compared["html"]).read_text()
    assert all(model in page for model in MODELS)
