"""Jobs as processes: they outlive the service, are cancelled and resumed, and share a host with nobody."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from job_world import (
    ended,
    ending_what_runs,
    events_of,
    open_jobs,
    recorded,
    settings_on,
    slow_host,
    wait_until,
)
from stand_in import FakeModel, StandIn, running
from tiny_gguf import write_tiny_gguf
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.errors import BadInput, BadSetting, CheckFailed, HostBusy, NotFound
from tipbench.settings import Settings
from tipbench.store import Job, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.workflows.jobs import Jobs


# The writer that records what a collection made gives way to everything else: a busy machine takes its time.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def jobs(home: Path) -> Iterator[Jobs]:
    with ending_what_runs(home):
        yield open_jobs(home)


def on_tiny(tiny: Path, **changes: Any) -> Settings:  # noqa: ANN401 - any setting
    base = {
        "models": "tiny",
        "gguf": f"tiny={tiny}",
        "engine": "embedded",
        "prompts": "v1,v4-structured",
        "n_tips": 2,
        "num_predict": 200,
        "experiment": "bench",
    }
    return Settings.of(base | changes)


def test_a_collection_on_the_embedded_engine_runs_to_its_end(jobs: Jobs, tiny: Path) -> None:
    """The job is done, its cells are recorded, and its progress, log and summary say so, to its owner."""
    job = jobs.start_collect(on_tiny(tiny, n_scenarios=2), by="anna")
    assert Path(job.folder).stat().st_mode & 0o077 == 0
    assert json.loads(json.dumps(job.params))["settings"]["experiment"] == "bench"
    assert (job.state, job.by, job.experiment) == ("running", "anna", "bench")
    done = ended(jobs, job)
    assert (done.state, done.exit_code) == ("done", 0), jobs.log(job.job_id)
    assert done.ended_ms
    assert done.ended_ms >= (done.started_ms or 0) >= done.created_ms
    assert sum(recorded().values()) == 4
    progress = jobs.progress(job.job_id)
    (model,) = progress.models
    assert (model.done, model.total, model.state) == (4, 4, "done")
    assert model.tokens_per_s
    assert progress.resident_bytes == 0
    assert progress.summary
    assert progress.summary["cells"]["done"] == 4
    assert "started by anna" in jobs.log(job.job_id)
    assert (jobs.reason(done), jobs.reconcile()) == ("", [])


def test_cancelled_half_way_and_resumed_every_cell_is_generated_once(jobs: Jobs, tiny: Path) -> None:
    """Cancelling keeps what was done; resuming does the rest under the same id, and nothing twice."""
    job = jobs.start_collect(on_tiny(tiny, repeats=4), by="anna")
    wait_until(lambda: len(events_of(job)) >= 3)
    assert jobs.cancel(job.job_id).state == "running"  # its end is not waited for
    cancelled = ended(jobs, job)
    assert (cancelled.state, cancelled.exit_code) == ("cancelled", 130), jobs.log(job.job_id)
    before = jobs.progress(job.job_id)
    assert 3 <= before.done < 64
    again = jobs.resume(job.job_id)
    assert (again.job_id, again.state, again.params) == (job.job_id, "running", job.params)
    assert ended(jobs, job).state == "done", jobs.log(job.job_id)
    told = Counter(event["key"] for event in events_of(job))
    assert len(told) == 64
    wait_until(lambda: len(recorded()) == 64)
    assert set(told.values()) == set(recorded().values()) == {1}
    after = jobs.progress(job.job_id)
    assert (after.planned, after.done, after.skipped, after.models[0].total) == (64, 64, 0, 64)


def test_a_new_service_finds_a_job_that_runs_and_one_that_has_ended(home: Path, jobs: Jobs) -> None:
    """After a restart the job is still running and its end is known; it is resumed neither then nor now."""
    with running(slow_host(latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=4), by="anna")
        wait_until(lambda: events_of(job))
        restarted = open_jobs(home)
        assert restarted.reconcile() == []
        assert restarted.get(job.job_id) == job
        with pytest.raises(CheckFailed, match="running"):
            restarted.resume(job.job_id)
        assert ended(restarted, job).state == "done"
        assert open_jobs(home).get(job.job_id).exit_code == 0
        for act in (restarted.cancel, restarted.resume):
            with pytest.raises(CheckFailed, match="done"):
                act(job.job_id)


def test_a_job_whose_service_has_gone_is_told_done_when_it_was(home: Path, jobs: Jobs) -> None:
    """A job that ended while no service ran is done, with its exit code and the time of its end."""
    code = (
        "import os, sys; from job_world import open_jobs, settings_on; from pathlib import Path;"
        "from stand_in import FakeModel, StandIn;"
        "host = StandIn([FakeModel('a:1b')], url=sys.argv[2]);"
        "jobs = open_jobs(Path(sys.argv[1]));"
        "job = jobs.start_collect(settings_on(host, n_scenarios=1), by='anna');"
        "print(job.job_id, flush=True);"
        "os._exit(0)"
    )
    with running(slow_host()) as host:
        service = subprocess.run(
            [sys.executable, "-c", code, str(home), host.url],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        job_id = service.stdout.strip()
        row = Store(home / "service.db").jobs.get(job_id)
        assert row is not None
        wait_until((Path(row.folder) / "exit.json").exists)
        (found,) = jobs.reconcile()
    assert (found.job_id, found.state, found.exit_code) == (job_id, "done", 0)
    assert len(recorded()) == 2


def test_of_two_starts_at_once_one_is_refused(home: Path, jobs: Jobs) -> None:
    """Two services that start a collection on one host at once: one job, one HostBusy that names it."""
    with running(slow_host()) as host:
        together = threading.Barrier(2)
        heard: list[Job | HostBusy] = []

        def start(service: Jobs, by: str) -> None:
            together.wait()
            try:
                heard.append(service.start_collect(settings_on(host), by=by))
            except HostBusy as busy:
                heard.append(busy)

        threads = [
            threading.Thread(target=start, args=(open_jobs(home), by), daemon=True) for by in ("anna", "ben")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        (job,) = [one for one in heard if isinstance(one, Job)]
        (busy,) = [one for one in heard if isinstance(one, HostBusy)]
        assert f"job {job.job_id}" in str(busy)
        assert f"started by {job.by}" in str(busy)
        with pytest.raises(HostBusy, match=job.by):
            jobs.start_judging(settings_on(host), "ollama:b:1b", by="carl")
        assert len(jobs.page()) == 1


def test_a_collection_from_elsewhere_keeps_the_host(jobs: Jobs) -> None:
    """The refusal names who holds the lock; nothing is started, and the lock is left as it was."""
    with running(slow_host()) as host:
        lock = {"folder": lock_folder(), "experiment": "theirs", "wait": False, "waiting": print}
        with hold_host(host_name(host.url), **lock):  # type: ignore[arg-type]
            with pytest.raises(HostBusy, match="collecting 'theirs'"):
                jobs.start_collect(settings_on(host), by="anna")
            assert jobs.page() == []
            waits = jobs.start_collect(settings_on(host, wait=True, n_scenarios=1), by="anna")
            wait_until(lambda: "waiting for it to end" in jobs.log(waits.job_id))
            jobs.cancel(waits.job_id)
            assert ended(jobs, waits).state == "cancelled"


def test_failed_cells_are_a_failed_job_that_can_be_resumed(jobs: Jobs) -> None:
    """The reason counts the cells; resumed, only these are tried again."""
    with running(StandIn([FakeModel("a:1b")], fault=lambda n, _b: "404" if n == 1 else None)) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=1), by="anna")
        failed = ended(jobs, job)
        assert (failed.state, failed.exit_code) == ("failed", 1)
        assert jobs.reason(failed) == "1 of 2 cells failed; resume it to try again"
        assert jobs.progress(job.job_id).failed == 1
        jobs.resume(job.job_id)
        assert ended(jobs, job).state == "done"
        progress = jobs.progress(job.job_id)
        assert (progress.done, progress.failed, len(host.chats)) == (2, 0, 3)


def test_what_went_wrong_is_the_reason(jobs: Jobs) -> None:
    """Any other end is failed, with the command's own last sentence, and without colour in the log."""
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host, models="nope:1b"), by="anna")
        failed = ended(jobs, job)
    assert (failed.state, failed.exit_code) == ("failed", 2)
    assert "does not have nope:1b" in jobs.reason(failed)
    assert "\x1b" not in jobs.log(job.job_id)
    assert jobs.log(job.job_id, tail=1).startswith("tipbench: ")


def test_bad_settings_start_nothing(jobs: Jobs) -> None:
    """What a command line would refuse, or could not carry, is refused before there is a job."""
    for changes, kind in (
        ({"prompts": "nope"}, BadInput),
        ({"suite": "a\0b"}, BadInput),
        ({"gguf": ["a=x,y.gguf"]}, BadSetting),
        ({"keep_alive": "0", "parallel": 2}, BadSetting),
    ):
        with pytest.raises(kind):
            jobs.start_collect(Settings.of({"engine": "ollama"} | changes), by="anna")
    for spec in ("", "ollama:", "magic:x", "openai:\0"):
        with pytest.raises(BadSetting):
            jobs.start_judging(Settings.of({"engine": "ollama"}), spec, by="anna")
    assert jobs.page() == []


def test_a_job_that_does_not_listen_is_told_more_firmly(home: Path, jobs: Jobs) -> None:
    """A host that will not let go of its model holds up the end no longer than the grace."""
    impatient = open_jobs(home, grace_s=1.0)
    with running(slow_host(unloads=False, latency_s=0.5)) as host:
        job = impatient.start_collect(settings_on(host), by="anna")
        wait_until(lambda: len(events_of(job)) >= 2)
        began = time.monotonic()
        assert impatient.cancel(job.job_id).state == "running"
        assert ended(impatient, job).state == "cancelled"
        assert 0.9 < time.monotonic() - began < 20
        assert len(host.chats) < 16


def test_a_cancellation_is_brought_to_its_end_by_the_next_service(home: Path, jobs: Jobs) -> None:
    """The service ends right after the cancellation; the next one that looks goes on with it."""
    with running(slow_host(unloads=False, latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host), by="anna")
        wait_until(lambda: len(events_of(job)) >= 2)
        jobs.cancel(job.job_id)
        time.sleep(0.5)
        assert jobs.get(job.job_id).state == "running"
        began = time.monotonic()
        assert ended(open_jobs(home, grace_s=0.5), job).state == "cancelled"
        assert time.monotonic() - began < 20


def test_a_password_is_on_no_command_line_and_in_no_file(
    home: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the process by the environment alone; a resume needs it from the service's own."""
    url = "http://anna:geheim@127.0.0.1:9/mlflow"
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host, mlflow_url=url, offline=True), by="anna")
        process = psutil.Process(job.pid)
        assert "geheim" not in " ".join(process.cmdline())
        assert process.environ()["MLFLOW_TRACKING_URI"] == url
        process.send_signal(signal.SIGKILL)
        assert ended(jobs, job).state == "interrupted"
        files = [path for path in home.rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if b"geheim" in path.read_bytes()]
        with pytest.raises(BadInput, match="service with MLFLOW_TRACKING_URI set"):
            open_jobs(home).resume(job.job_id)
        again = open_jobs(home, own=settings_on(host, mlflow_url=url)).resume(job.job_id)
        psutil.Process(again.pid).kill()
        assert ended(jobs, job).state == "interrupted"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        again = open_jobs(home).resume(job.job_id)
        assert psutil.Process(again.pid).environ()["MLFLOW_TRACKING_URI"] == url


def test_rules_and_models_judge_as_jobs(jobs: Jobs) -> None:
    """The proxy's summary is what the command printed, a model's progress is read from its events."""
    with running(StandIn([FakeModel("a:1b"), FakeModel("judge:1b")])) as host:
        collected = jobs.start_collect(settings_on(host, models="a:1b", n_scenarios=1), by="anna")
        assert ended(jobs, collected).state == "done"
        asked = settings_on(host)
        judging = ended(jobs, jobs.start_judging(asked, "ollama:judge:1b", by="anna", same_family=True))
    progress = jobs.progress(judging.job_id)
    assert progress.to_judge, jobs.log(judging.job_id)
    assert progress.judged == progress.to_judge
    assert [model.name for model in progress.models] == ["judge:1b"]
    by_rules = ended(jobs, jobs.start_judging(Settings.of({"experiment": "bench"}), "proxy", by="anna"))
    assert (by_rules.state, by_rules.kind) == ("done", "judge"), jobs.log(by_rules.job_id)
    summary = jobs.progress(by_rules.job_id).summary
    assert summary
    assert (summary["judge"], summary["judged"]) == ("proxy", 5)
    again = ended(jobs, jobs.start_judging(Settings.of({"experiment": "bench"}), "proxy", by="anna"))
    assert "nothing that proxy has not judged" in jobs.reason(again)


def test_there_is_no_such_job(jobs: Jobs) -> None:
    """Whatever is asked of a job that is not there is NotFound."""
    for act in (jobs.get, jobs.cancel, jobs.resume, jobs.log, jobs.progress, jobs.follow):
        with pytest.raises(NotFound, match="nope"):
            act("nope")


async def test_fifty_watch_a_job_to_its_end(jobs: Jobs) -> None:
    """All are told the same events with the same ids; one that comes back is told the rest."""
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=2), by="anna")

        async def watch(after: int = 0) -> list[tuple[int, str]]:
            return [(at, event["event"]) async for at, event in jobs.follow(job.job_id, after=after)]

        seen = await asyncio.gather(*(watch() for _ in range(50)))
    assert jobs.get(job.job_id).state == "done", jobs.log(job.job_id)
    assert all(one == seen[0] for one in seen)
    assert [kind for _, kind in seen[0]].count("cell") == 4
    assert seen[0][-1] == ((Path(job.folder) / "events.jsonl").stat().st_size, "summary")
    assert await watch(seen[0][2][0]) == seen[0][3:]
