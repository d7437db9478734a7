"""A collection on Airflow from a browser: offered beside the local one, and watched to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_stand_in import AirflowStandIn, Frame, Task, environment, frames, running, waiting_frames
from browsing import WIDTH, faults
from job_world import ended, ending_what_runs
from tipbench.service import create_app
from tipbench.settings import Settings, home
from tipbench.store import Job
from tipbench.web.dag_sheet import dag_sheet
from tipbench.workflows.job_progress import Fold
from web_world import Site, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browsing import Opened
    from judged_world import World
    from stand_in import StandIn


@pytest.fixture(scope="module")
def airflow() -> Iterator[AirflowStandIn]:
    with running(AirflowStandIn()) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def site(pages_home: World, host: StandIn, airflow: AirflowStandIn) -> Iterator[Site]:
    settings = Settings.of({"ollama_url": host.url, "engine": "ollama", "n_scenarios": 2})
    listed = ("http://me:s3cret@gpu-1:11434", "http://gpu-2:11434")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(airflow).items():
            patch.setenv(name, value)
        config = {"settings": settings, "airflow_url": airflow.url, "ollama_urls": listed}
        with serving(pages_home, **config) as opened, ending_what_runs(home()):
            yield opened


def test_the_dialog_offers_airflow_beside_the_local_path(page_of: Opened) -> None:
    """With the hosts that the service knows, without their logins; Enter still starts the local one."""
    page = page_of("/experiments")
    assert "s3cret" not in page.content()
    page.get_by_role("button", name="Run collection").click()
    page.get_by_label("small:0.5b").wait_for()
    page.get_by_text("On Airflow", exact=True).click()
    assert page.get_by_label("Ollama hosts").input_value() == "http://gpu-1:11434, http://gpu-2:11434"
    assert page.get_by_role("button", name="Start", exact=True).is_visible()
    assert page.locator("#run-form button[type=submit]").count() == 1
    assert faults(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate(WIDTH) <= 360
    page.get_by_label("Ollama hosts").fill("http://elsewhere:1")
    page.get_by_role("button", name="Run on Airflow").click()
    page.get_by_text("http://elsewhere:1 is not on the list of hosts").wait_for()
    assert page.get_by_label("Ollama hosts").get_attribute("aria-invalid") == "true"


def test_a_run_is_started_and_watched(page_of: Opened, site: Site, airflow: AirflowStandIn) -> None:
    """From the dialog to the job's page, which shows each task and where to find the run in Airflow."""
    airflow.script = [Frame("running", (Task("assign", "success"), Task("collect", "running", 0, "0")))]
    page = page_of("/experiments")
    page.get_by_role("button", name="Run collection").click()
    page.get_by_label("small:0.5b").wait_for()
    page.get_by_text("On Airflow", exact=True).click()
    page.get_by_label("Models there").fill("m0, m1")
    page.get_by_label("Experiment", exact=True).fill("on airflow")
    page.get_by_label("Before the leaderboard").select_option("approval")
    page.get_by_role("button", name="Run on Airflow").click()
    page.wait_for_url("**/jobs/*")
    page.get_by_text("At work: the DAG run is running, 1 of 2 tasks done.").wait_for()
    page.get_by_role("link", name="collect: m0 on http://gpu-1:11434").wait_for()
    name = f"tipbench-{page.url.rsplit('/', 1)[1]}"
    link = page.get_by_role("link", name="The DAG run in Airflow")
    assert link.get_attribute("href") == f"{airflow.url}/dags/bench_collect/runs/{name}"
    assert airflow.runs[name].conf["wait_for_judge"] == "approval"
    assert faults(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate(WIDTH) <= 360
    judge = page.locator("#judge-next")
    assert not judge.is_visible()
    airflow.runs[name].frames, airflow.runs[name].at = waiting_frames(), 0
    judge.wait_for()
    assert page.get_by_text("waits for an approval", exact=True).is_visible()
    airflow.runs[name].frames = frames()
    page.locator("#told", has_text="Done: the DAG run is done, 4 of 4 tasks done.").wait_for()
    page.get_by_text("Nothing is judged yet.").wait_for()
    assert page.get_by_role("link", name="Judge", exact=True).last.is_visible()
    assert "collection on Airflow" in page.locator(".heading").inner_text()


def test_a_failed_run_says_which_task(site: Site, airflow: AirflowStandIn) -> None:
    """On its page, with the log's address; also where the service no longer has an Airflow."""
    airflow.script = frames(last="failed", collect="failed")
    admin = site.api.admin
    body = {"models": "m0,m1", "experiment": "failing"}
    job_id = admin.post("/api/bench/run-on-airflow", json=body).json()["job_id"]
    ended(site.api.service.jobs, site.api.service.jobs.get(job_id))
    kept = site.api.service.config
    try:
        site.api.service.config = replace(kept, airflow_url="")
        text = replace(site.api, app=create_app(site.api.service)).admin.get(f"/jobs/{job_id}").text
    finally:
        site.api.service.config = kept
    assert "failed (no host answers)" in text
    assert f"{airflow.url}/dags/bench_collect/runs/tipbench-{job_id}/tasks/collect/mapped/0" in text


@pytest.mark.parametrize(
    "tasks", [None, 5, [5, {}], [{"name": 3, "state": None, "tries": "x", "url": "javascript:alert(1)"}]]
)
def test_what_is_no_run_breaks_no_page(tasks: object) -> None:
    """Events may be torn; an address that is none of the web's is not linked to."""
    job = Job(job_id="j", kind="airflow", title="", experiment="", params={}, folder="", by="", created_ms=0)
    fold = Fold()
    fold.add({"event": "dag_run", "state": 5, "url": ["x"], "tasks": tasks})
    sheet = dag_sheet(job, fold.progress(ended=False))
    assert sheet is None or (sheet.url, {task.url for task in sheet.tasks} - {""}) == ("", set())
