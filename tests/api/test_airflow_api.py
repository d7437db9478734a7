"""A collection on Airflow over the API: checked as a local one, started as a job, followed and ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from airflow_stand_in import (
    PASSWORD,
    AirflowStandIn,
    Frame,
    Task,
    environment,
    frames,
    running,
    waiting_frames,
)
from api_world import EXPERIMENT, Api, judge_all, open_api
from job_world import ended, ending_what_runs, wait_until
from tipbench.settings import Settings
from tipbench.workflows.announcing import Announcer
from tipbench.workflows.webhooks import Hook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judged_world import World
    from tipbench.store import Job

ROUTE = "/api/bench/run-on-airflow"
GPU, SECRET_URL = "http://gpu-1:11434", "http://me:s3cret@gpu-2:11434"
RUN = {
    "models": "m0,m1",
    "prompts": "v1",
    "n_tips": 2,
    "experiment": "new",
    "hosts": [GPU, "http://gpu-2:11434"],
}
SLOW = [Frame("running", (Task("collect", "running", 0, "0"), Task("compare", None, tries=0)))]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowStandIn]:
    with running(AirflowStandIn()) as stand_in:
        for name, value in environment(stand_in).items():
            monkeypatch.setenv(name, value)
        yield stand_in


@pytest.fixture
def api(world: World, airflow: AirflowStandIn, fresh_home: Path) -> Iterator[Api]:
    settings = Settings.of({"ollama_url": "http://localhost:11434"})
    opened = open_api(world, airflow_url=airflow.url, ollama_urls=(GPU, SECRET_URL), settings=settings)
    with ending_what_runs(fresh_home):
        yield opened
    opened.service.close()


def started(api: Api, **changes: Any) -> Job:  # noqa: ANN401 - any field
    answer = api.admin.post(ROUTE, json={**RUN, **changes})
    assert answer.status_code == 202, answer.text
    return api.service.jobs.get(answer.json()["job_id"])


def all_of(api: Api, job: Job) -> str:
    """Everything that is kept or shown of a job."""
    kept = "".join(path.read_text(errors="replace") for path in Path(job.folder).iterdir() if path.is_file())
    row = json.dumps(dict(api.service.jobs.get(job.job_id).params))
    shown = [api.admin.get(f"/api/jobs/{job.job_id}{more}").text for more in ("", "/log")]
    return "\n".join([kept, row, *shown, api.admin.get("/api/audit").text])


def test_a_job_follows_its_run_to_the_end(api: Api, airflow: AirflowStandIn) -> None:
    """The run is named after the job; its state and tasks are in the progress; nothing secret is kept."""
    job = started(api)
    done = ended(api.service.jobs, job)
    assert (done.state, done.kind) == ("done", "airflow")
    run = airflow.runs[f"tipbench-{job.job_id}"]
    assert run.conf == {
        "models": ["m0", "m1"],
        "prompts": ["v1"],
        "n_tips": 2,
        "experiment": "new",
        "hosts": [GPU, "http://gpu-2:11434"],
    }
    told = api.admin.get(f"/api/jobs/{job.job_id}").json()["progress"]["summary"]
    assert (told["state"], told["verdict"]) == ("success", "Nothing is judged yet.")
    assert told["tasks"][1]["name"] == f"collect: m0 on {GPU}"
    everything = all_of(api, job)
    assert PASSWORD not in everything
    assert "s3cret" not in everything


def test_the_password_is_on_no_command_line(api: Api, airflow: AirflowStandIn) -> None:
    """It goes by the environment alone."""
    airflow.script = SLOW
    job = started(api)
    assert job.pid is not None
    words = " ".join(psutil.Process(job.pid).cmdline())
    assert "run" in words
    assert PASSWORD not in words


def test_two_run_at_once_and_one_is_cancelled(api: Api, airflow: AirflowStandIn) -> None:
    """Neither waits for the other; who cancels a job ends its run, and no other."""
    airflow.script = SLOW
    first, second = started(api), started(api)
    wait_until(lambda: len(airflow.runs) == 2)
    names = [f"tipbench-{job.job_id}" for job in (first, second)]
    wait_until(lambda: all(f"/{name}/taskInstances" in str(airflow.requests) for name in names))
    assert api.admin.post(f"/api/jobs/{first.job_id}/cancel").status_code == 200
    assert ended(api.service.jobs, first).state == "cancelled"
    assert [airflow.runs[name].now.state for name in names] == ["failed", "running"]
    airflow.script = frames()
    assert api.admin.post(f"/api/jobs/{first.job_id}/resume").status_code == 202
    assert ended(api.service.jobs, first).state == "done"
    assert (len(airflow.runs), airflow.runs[names[0]].cleared) == (2, 1)


def test_a_follower_that_is_killed_is_resumed(api: Api, airflow: AirflowStandIn) -> None:
    """The run went on meanwhile, and is followed, not triggered again."""
    airflow.script = SLOW
    job = started(api)
    name = f"tipbench-{job.job_id}"
    wait_until(lambda: f"/{name}/taskInstances" in str(airflow.requests))
    psutil.Process(job.pid).kill()
    assert ended(api.service.jobs, job).state == "interrupted"
    airflow.runs[name].frames = frames()
    assert api.admin.post(f"/api/jobs/{job.job_id}/resume").status_code == 202
    assert ended(api.service.jobs, job).state == "done"
    assert (len(airflow.runs), airflow.runs[name].cleared) == (1, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"script": frames(last="failed", collect="failed")},
            f"collect: m0 on {GPU} failed (no host answers)",
        ),
        ({"paused": True}, "is paused in Airflow"),
        ({"has_dag": False}, "has no DAG bench_collect"),
        ({"password": "other"}, "does not let 'bench' in"),
        ({"refuse": "Invalid input for param n_tips: no\n\nmore"}, "Invalid input for param n_tips: no"),
    ],
)
def test_why_a_run_failed_is_one_sentence(
    api: Api, airflow: AirflowStandIn, change: dict[str, Any], reason: str
) -> None:
    """On the job, as the last thing that it said."""
    for name, value in change.items():
        setattr(airflow, name, value)
    job = ended(api.service.jobs, started(api))
    told = api.admin.get(f"/api/jobs/{job.job_id}").json()
    assert (told["state"], told["resumable"]) == ("failed", True)
    assert reason in told["reason"]
    assert "\n" not in told["reason"]
    assert PASSWORD not in all_of(api, job)


def test_the_approval_is_given_when_the_last_batch_is_applied(
    api: Api, airflow: AirflowStandIn, world: World
) -> None:
    """Judged here, answered there: the run goes on as soon as nothing is pending."""
    airflow.script = waiting_frames()
    job = started(api, experiment=EXPERIMENT, wait_for_judge="approval")
    name = f"tipbench-{job.job_id}"
    wait_until(lambda: "it waits until all is judged" in api.service.jobs.log(job.job_id))
    assert airflow.runs[name].answers == []
    while api.ann.get(f"/api/judge/{EXPERIMENT}/batch").status_code == 200:
        batch = judge_all(api.ann, world)
        assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    assert ended(api.service.jobs, job).state == "done"
    assert airflow.runs[name].answers == ["Approve"]


def test_a_batch_is_announced_while_the_run_waits_for_it(api: Api, airflow: AirflowStandIn) -> None:
    """The run does not end before it is judged, so the webhook does not wait for its end."""
    announcer = Announcer(api.service, Hook(url="http://127.0.0.1:9/", secret="s"))  # noqa: S106 - of a test
    airflow.script = SLOW
    job = started(api, experiment=EXPERIMENT, wait_for_judge="approval")
    name = f"tipbench-{job.job_id}"
    wait_until(lambda: f"/{name}/taskInstances" in str(airflow.requests))
    assert announcer.look() == 0
    airflow.runs[name].frames = waiting_frames()
    wait_until(lambda: "it waits until all is judged" in api.service.jobs.log(job.job_id))
    assert [announcer.look(), announcer.look()] == [1, 0]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"hosts": "http://elsewhere:11434"}, {"hosts"}),
        ({"hosts": [GPU, "http://gpu-1:1"]}, {"hosts"}),
        ({"hosts": 5}, {"hosts"}),
        ({"hosts": "ftp://x"}, {"hosts"}),
        ({"hosts": "a\x00b"}, {"hosts"}),
        ({"hosts": "http://gpu-1:11434\\@evil"}, {"hosts"}),
        ({"wait_for_judge": "maybe"}, {"wait_for_judge"}),
        ({"n_tips": 99, "hosts": "ftp://x", "wait_for_judge": []}, {"n_tips", "hosts", "wait_for_judge"}),
        ({"ollama_url": "http://elsewhere:1"}, {"ollama_url"}),
        ({"mlflow_url": "http://elsewhere:1"}, {"mlflow_url"}),
        ({"suite": "nope"}, {"suite"}),
        ({"prompts": "nope"}, {"prompts"}),
        ({"nope": 1}, {"nope"}),
        ({"on": "airflow"}, {"on"}),
    ],
)
def test_every_field_that_is_wrong_is_named(
    api: Api, airflow: AirflowStandIn, body: dict[str, Any], fields: set[str]
) -> None:
    """422 per field as for a local collection; nothing is started and Airflow is not asked."""
    refused = api.admin.post(ROUTE, json={**RUN, **body})
    assert refused.status_code == 422
    assert set(refused.json()["error"]["fields"]) == fields
    assert (airflow.requests, api.service.jobs.page()) == ([], [])


def test_hosts_of_this_machine_and_listed_ones_may_be_named(api: Api, airflow: AirflowStandIn) -> None:
    """As an address without its login, or with another one, which goes nowhere."""
    job = started(api, hosts="localhost, http://you:w0rd@gpu-2:11434/, :11434")
    ended(api.service.jobs, job)
    assert airflow.runs[f"tipbench-{job.job_id}"].conf["hosts"] == [
        "http://localhost:11434",
        "http://gpu-2:11434",
    ]
    assert "w0rd" not in all_of(api, job)
