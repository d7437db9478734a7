"""The admin service with a real Airflow: set up, triggered, followed, approved, ended and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_world import PASSWORD, USER, AirflowHome, add_policy, judge_batch, serving, wait_until
from api_world import Api, open_api
from command import here
from job_world import ENDED, ending_what_runs
from tipbench.settings import Settings, home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_world import ServingAirflow
    from tipbench.store import Job

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]
RUN = {"models": "qwen2.5:0.5b,gemma3:1b", "prompts": "v4-structured", "n_scenarios": 1, "n_tips": 2}


@pytest.fixture(scope="module")
def live(airflow: AirflowHome, tiny_hosts: tuple[str, str]) -> Iterator[ServingAirflow]:
    add_policy(airflow)
    with pytest.MonkeyPatch.context() as patch, serving(airflow) as opened:
        patch.setenv("TIPBENCH_HOME", airflow.env["TIPBENCH_HOME"])
        patch.setenv("TIPBENCH_AIRFLOW_URL", opened.url)
        patch.setenv("TIPBENCH_AIRFLOW_USER", USER)
        patch.setenv("TIPBENCH_AIRFLOW_PASSWORD", PASSWORD)
        for name in ("OLLAMA_HOST", "MLFLOW_TRACKING_URI", "TIPBENCH_OLLAMA_URLS"):
            patch.delenv(name, raising=False)
        made = here("airflow", "setup", *tiny_hosts, "--json")
        assert (made.code, made.json["left"]) == (0, ""), made.err
        again = here("airflow", "setup", *tiny_hosts, "--json")
        assert {*again.json["pools"].values(), *again.json["connections"].values()} == {"was there"}
        yield opened


@pytest.fixture(scope="module")
def api(live: ServingAirflow) -> Iterator[Api]:
    opened = open_api(None, airflow_url=live.url, settings=Settings.of({}))  # type: ignore[arg-type] # nothing planted
    with ending_what_runs(home()):
        yield opened
    opened.service.close()


def begun(api: Api, hosts: Sequence[str], **more: Any) -> Job:  # noqa: ANN401 - any field
    answer = api.admin.post("/api/bench/run-on-airflow", json={**RUN, "hosts": list(hosts), **more})
    assert answer.status_code == 202, answer.text
    return api.service.jobs.get(answer.json()["job_id"])


def ended(api: Api, job: Job) -> dict[str, Any]:
    wait_until(lambda: api.service.jobs.get(job.job_id).state in ENDED, timeout_s=400)
    told: dict[str, Any] = api.admin.get(f"/api/jobs/{job.job_id}").json()
    return told


def judge_everything(live: ServingAirflow, job: Job) -> None:
    """Fill in and apply the batches that the run has exported."""
    exported = live.airflow.dag_run(f"tipbench-{job.job_id}").xcom("export_for_judge")
    assert exported["pending"] > 0
    for path in exported["batches"]:
        judge_batch(Path(path), home=home())


def test_a_run_waits_for_the_judge_and_is_approved_from_here(
    api: Api, live: ServingAirflow, tiny_hosts: tuple[str, str]
) -> None:
    """Each model on its host and in its pool; judged in the service, answered in Airflow, and compared."""
    job = begun(api, tiny_hosts, experiment="approved", wait_for_judge="approval")
    wait_until(lambda: "it waits until all is judged" in api.service.jobs.log(job.job_id), timeout_s=400)
    judge_everything(live, job)
    told = ended(api, job)
    assert (told["state"], told["reason"]) == ("done", "")
    summary = told["progress"]["summary"]
    assert summary["leaderboard"]["judged"] > 0
    names = [task["name"] for task in summary["tasks"]]
    assert {f"collect: qwen2.5:0.5b on {tiny_hosts[0]}", f"collect: gemma3:1b on {tiny_hosts[1]}"} <= set(
        names
    )
    run = live.airflow.dag_run(f"tipbench-{job.job_id}")
    assert run.pools["collect", 0] != run.pools["collect", 1]
    details = live.get(f"/api/v2/dags/bench_collect/dagRuns/{run.run_id}/hitlDetails")["hitl_details"]
    assert [(one["chosen_options"], one["responded_by_user"]["name"]) for one in details] == [
        (["Approve"], USER)
    ]


def test_a_cancelled_job_ends_its_run_and_is_taken_up_again(
    api: Api, live: ServingAirflow, tiny_hosts: tuple[str, str]
) -> None:
    """The same run, begun again: what was generated before is not generated twice."""
    job = begun(api, tiny_hosts, experiment="cancelled", wait_for_judge="sensor")
    run_id = f"tipbench-{job.job_id}"
    waits = "wait_for_judge.sensor"
    wait_until(lambda: f"{waits}: up for reschedule" in api.service.jobs.log(job.job_id), timeout_s=400)
    assert api.admin.post(f"/api/jobs/{job.job_id}/cancel").status_code == 200
    assert ended(api, job)["state"] == "cancelled"
    assert live.airflow.dag_run(run_id).state == "failed"
    before = api.admin.get("/api/bench/runs/cancelled").json()["total"]
    judge_everything(live, job)
    assert api.admin.post(f"/api/jobs/{job.job_id}/resume").status_code == 202
    assert ended(api, job)["state"] == "done"
    assert api.admin.get("/api/bench/runs/cancelled").json()["total"] == before == 2
    assert live.airflow.dag_run(run_id).state == "success"


def test_a_run_that_airflow_refuses_or_that_fails_says_why(api: Api, tiny_hosts: tuple[str, str]) -> None:
    """A model that no host has: the task, its sentence, and where its log is."""
    told = ended(api, begun(api, tiny_hosts, models="nobody:1b", experiment="failing"))
    assert told["state"] == "failed"
    assert told["reason"].startswith(f"hand_over failed (nobody:1b on {tiny_hosts[0]}: ")
    assert told["reason"].endswith("/tasks/hand_over")
