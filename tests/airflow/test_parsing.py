"""Nothing happens when Airflow reads the DAG's file."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from airflow_world import AIRFLOW_BIN, ROOT

if TYPE_CHECKING:
    from airflow_world import AirflowHome

pytestmark = pytest.mark.airflow

# Reads the file as the DAG processor does, in a folder below the one it looks in; says what that did.
READ = """
import importlib.util, json, sys
from types import SimpleNamespace
from airflow.sdk import DAG, task
DAG("other", schedule=None)  # so that Airflow has loaded what it loads for any
done = []
sys.addaudithook(lambda event, args: done.append(event))
spec = importlib.util.spec_from_file_location("bench_collect", sys.argv[1])
bench_collect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_collect)
dag = bench_collect.bench_collect()
approval, jinja = dag.get_task("wait_for_judge.approval"), dag.get_template_env()
def asked(*batches, **params):
    ti = SimpleNamespace(xcom_pull=lambda task_ids: {"batches": batches})
    texts = approval.subject, approval.body
    return [jinja.from_string(text).render(ti=ti, params=params) for text in texts]
told = {
    "events": sorted(set(done)),
    "modules": sorted(set(sys.modules)),
    "tasks": {
        name: [[task.pool, task.max_active_tis_per_dag], task.retries, sorted(task.downstream_task_ids)]
        for name, task in dag.task_dict.items()
    },
    "params": list(dag.params),
    "paused": dag.is_paused_upon_creation,
    "schedule": str(dag.schedule),
    "asked": [asked("a.json", "b.json", experiment="mine"), asked(experiment=None)],
    "logins": [
        bench_collect.with_login(url)
        for url in ("http://gpu:8000", "http://bob:own@gpu:8000", "https://other")
    ],
    "models": [],
}
for models in ("a, b,", ["a ", "b"], ["a,b"], ["a,b", "b"], " , "):
    bench_collect.conf = lambda: {"models": models}
    try:
        told["models"].append(bench_collect.named("models"))
    except bench_collect.AirflowFailException as error:
        told["models"].append(str(error))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def parsed(airflow_made: AirflowHome) -> dict[str, Any]:
    read = subprocess.run(
        [AIRFLOW_BIN / "python", "-c", READ, ROOT / "dags" / "bench_collect.py"],
        env={**airflow_made.env, "AIRFLOW_CONN_OLLAMA-GPU-8000": "http://ann:p%40ss%2F@gpu:8000"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    told: dict[str, Any] = json.loads(read.stdout.splitlines()[-1])
    return told


def test_nothing_is_reached_for(parsed: dict[str, Any]) -> None:
    """No socket, no name looked up, no process, and no module of tipbench or MLflow."""
    acts = (
        "socket.",
        "subprocess.",
        "os.fork",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "sqlite3.",
        "urllib.",
    )
    assert [event for event in parsed["events"] if event.startswith(acts)] == []
    loaded = {name.partition(".")[0] for name in parsed["modules"]}
    assert loaded.isdisjoint({"mlflow", "tipbench", "ollama", "numpy", "xllamacpp"})
    assert "bench_command" in loaded


def test_what_needs_a_host_waits_its_turn(parsed: dict[str, Any]) -> None:
    """Without the policy no two of these run at once, and no pool has to be there; all but a person's answer
    is tried again.
    """
    turns = {name: turn for name, (turn, _, _) in parsed["tasks"].items() if turn != ["default_pool", None]}
    assert turns == {name: ["default_pool", 1] for name in ("collect", "collect_elsewhere")}
    assert {name for name, (_, retries, _) in parsed["tasks"].items() if retries == 0} == {
        "wait_for_judge.approval"
    }


def test_it_waits_for_nobody_to_trigger_it(parsed: dict[str, Any]) -> None:
    """The DAG has no schedule and is not paused, so that a trigger is all it takes."""
    assert parsed["paused"] is False
    assert parsed["schedule"] == "None"


def test_one_task_is_last(parsed: dict[str, Any]) -> None:
    """A run is what its last tasks are: `compare` alone."""
    assert [name for name, (_, _, after) in parsed["tasks"].items() if not after] == ["compare"]


def test_a_host_gets_the_login_of_its_connection(parsed: dict[str, Any]) -> None:
    """The connection has the id of the host's pool; a login in the address itself comes first."""
    assert parsed["logins"] == [
        "http://ann:p%40ss%2F@gpu:8000",
        "http://bob:own@gpu:8000",
        "https://other",
    ]


def test_a_model_is_one_task_however_the_list_is_written(parsed: dict[str, Any]) -> None:
    """A comma separates names also within a list, as in the command that each task is."""
    both = ["a", "b"]
    twice, nothing = "conf: 'models': b is named twice", "conf: 'models': names nothing"
    assert parsed["models"] == [both, both, both, twice, nothing]


def test_an_approval_says_what_is_to_be_judged(parsed: dict[str, Any]) -> None:
    """It lists the batches; where there is none it says so, and an experiment left out has its usual name."""
    (subject, body), (usual, empty) = parsed["asked"]
    assert subject == "Compare the models of mine now?"
    assert body.endswith("- `a.json`\n- `b.json`\n")
    assert usual == "Compare the models of tip-bench-auto now?"
    assert empty == "Nothing waits for a judge: approve to go on; a rejection ends the run."
