"""Tasks of one run on several machines: without a server for all of them, the run ends with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from airflow_world import AirflowHome, DagRun

pytestmark = pytest.mark.airflow
SENTENCE = "this task runs on another machine than the first; set mlflow_url"
SMALL = {"models": "qwen2.5:0.5b", "prompts": "v4-structured", "n_tips": 1, "n_scenarios": 1}


def moved(airflow: AirflowHome, after: str) -> tuple[str, Path]:
    """A command whose home is another folder once a command has run: what comes then is "elsewhere"."""
    folder = airflow.home / f"moved-after-{after.strip('-')}"
    folder.mkdir()
    script = folder / "tipbench"
    script.write_text(
        "#!/bin/sh\n"
        f'[ -e "{folder}/moved" ] && export TIPBENCH_HOME="{folder}/home"\n'
        f'"{airflow.env["TIPBENCH_COMMAND"]}" "$@"\n'
        "code=$?\n"
        f'[ "$1" = {after} ] && touch "{folder}/moved"\n'
        "exit $code\n"
    )
    script.chmod(0o755)
    return str(script), folder / "home"


def fail_elsewhere(airflow: AirflowHome, host: str, *, after: str, **env: str) -> tuple[DagRun, Path]:
    command, other = moved(airflow, after)
    conf = {**SMALL, "hosts": [host], "experiment": f"machines{after}"}
    return airflow.test(conf, TIPBENCH_COMMAND=command, **env), other


def test_a_later_task_on_another_machine_fails_at_once(
    airflow: AirflowHome, tiny_hosts: tuple[str, str]
) -> None:
    """The export does not find the first task's file: it is not tried again, and no store is made there."""
    run, other = fail_elsewhere(airflow, tiny_hosts[0], after="collect")
    assert run.state == "failed"
    assert run.tasks["collect", 0] == "success"
    assert run.tasks["export_for_judge", -1] == "failed"
    assert run.tasks["compare", -1] == "upstream_failed"
    assert SENTENCE in run.log
    assert str(other) in run.log
    assert run.log.count("running task <TaskInstance: bench_collect.export_for_judge ") == 1
    assert not (other / "mlflow.db").exists()


def test_a_collection_on_another_machine_ends_the_run(
    airflow: AirflowHome, tiny_hosts: tuple[str, str]
) -> None:
    """No other host takes the model over, since the host is not at fault: the run ends with the sentence."""
    run, other = fail_elsewhere(airflow, tiny_hosts[0], after="--home")
    assert run.state == "failed"
    assert run.tasks["collect", 0] == run.tasks["hand_over", -1] == "failed"
    assert f"qwen2.5:0.5b on {tiny_hosts[0]}: {SENTENCE}" in run.log
    assert run.log.count("running task <TaskInstance: bench_collect.collect ") == 1
    assert not other.exists()


def test_with_one_store_for_all_the_machine_does_not_matter(
    airflow: AirflowHome, tiny_hosts: tuple[str, str]
) -> None:
    """With MLFLOW_TRACKING_URI no file is written, and a task with another home goes on with the run."""
    before = {*Path(airflow.env["TIPBENCH_HOME"]).iterdir()}
    store = f"sqlite:///{airflow.home / 'shared.db'}"
    run, other = fail_elsewhere(airflow, tiny_hosts[0], after="judge", MLFLOW_TRACKING_URI=store)
    assert run.state == "success", run.log[-4000:]
    assert SENTENCE not in run.log
    assert run.xcom("assign", key="marker") == ""
    markers = {path for path in Path(airflow.env["TIPBENCH_HOME"]).iterdir() if "airflow-run" in path.name}
    assert markers <= before
    assert Path(run.xcom("compare")["json"]).is_relative_to(other)
    assert len(open_ledger(store, home=other).runs("machinesjudge")) == 1
    exported = json.loads(Path(run.xcom("export_for_judge")["path"]).read_text())
    assert exported["items"]
