"""What a job is found to be: by its lock alone, whatever became of its service, its folder and the clock."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from stand_in import running
from tipbench.errors import CheckFailed, HostBusy, Unavailable
from tipbench.store import Job, Store
from tipbench.workflows.job_command import collect_arguments, job_environment
from tipbench.workflows.job_process import JobFolder, Started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.workflows.jobs import Jobs


pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def jobs(home: Path) -> Iterator[Jobs]:
    with ending_what_runs(home):
        yield open_jobs(home)


def test_killed_is_interrupted_and_resumable(jobs: Jobs) -> None:
    """After `kill -9` the job is interrupted and says so; resumed, it records each cell once."""
    with running(slow_host(latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host), by="anna")
        wait_until(lambda: len(events_of(job)) >= 4)
        psutil.Process(job.pid).kill()
        broken = ended(jobs, job)
        assert (broken.state, broken.exit_code) == ("interrupted", None)
        assert "killed" in jobs.reason(broken)
        assert jobs.progress(job.job_id).resident == ()
        with (Path(job.folder) / "events.jsonl").open("a") as events:
            events.write('{"event": "cell", "torn')
        host.latency_s = 0
        jobs.resume(job.job_id)
        assert ended(jobs, job).state == "done", jobs.log(job.job_id)
        assert jobs.progress(job.job_id).done >= 15
        assert len(events_of(job, "plan")) == 2
        assert len(host.chats) <= 17
    wait_until(lambda: len(recorded()) == 16)
    assert set(recorded().values()) == {1}


def test_a_killed_process_runs_until_it_has_let_go_of_its_locks(tmp_path: Path) -> None:
    """The first thread of a killed process is seen dead before the others: only then are its locks free."""
    folder, lock = JobFolder(tmp_path / "job"), tmp_path / "its.lock"
    code = (
        "import fcntl, sys, threading, time;"
        "file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); weight = bytearray(10**8);"
        "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(8)];"
        "print(flush=True); time.sleep(60)"
    )
    for _ in range(5):
        command = [sys.executable, "-c", code, str(lock), str(folder.path)]
        with folder.claimed() as held:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(held,))
        with child, lock.open("a") as probe:
            assert child.stdout
            child.stdout.readline()
            process = Started(pid=child.pid, at=0)
            assert folder.find(process)
            assert folder.runs(process)
            child.kill()
            while folder.runs(process):
                pass
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_strangers_process_is_never_signalled(home: Path, jobs: Jobs) -> None:
    """A pid that is another process's by now is left alone, even one that was given the job's folder."""
    rows = Store(home / "service.db").jobs
    for number, locked in enumerate((False, True)):
        folder = home / "jobs" / str(number)
        folder.mkdir(parents=True)
        if locked:
            (folder / "running.lock").touch()
        command = [sys.executable, "-c", "input()", *([str(folder)] if locked else [])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as stranger:
            job = Job(
                job_id=str(number),
                kind="collect",
                title="",
                experiment="bench",
                params={"host": "h", "settings": {}, "logins": [], "cwd": "/"},
                folder=str(folder),
                by="anna",
                created_ms=0,
                state="running",
                pid=stranger.pid,
                pid_started=psutil.Process(stranger.pid).create_time(),
            )
            rows.add(job)
            with pytest.raises(CheckFailed, match="interrupted"):
                jobs.cancel(job.job_id)
            assert stranger.poll() is None
            stranger.kill()


def test_a_clock_that_is_set_while_a_job_runs_ends_nothing(home: Path, jobs: Jobs) -> None:
    """By the new clock the process began at another time; it is found again and cancelled all the same."""
    rows = Store(home / "service.db").jobs
    with running(slow_host(latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host), by="anna")
        rows.change(job.job_id, ("running",), pid_started=(job.pid_started or 0) - 7200)
        restarted = open_jobs(home)
        assert restarted.reconcile() == []
        assert restarted.get(job.job_id).state == "running"
        with pytest.raises(HostBusy, match=job.job_id):
            restarted.start_collect(settings_on(host), by="ben")
        restarted.cancel(job.job_id)
        assert ended(restarted, job).state == "cancelled"


def test_a_job_that_never_began_is_known_for_it_at_once(home: Path, jobs: Jobs) -> None:
    """The service was killed before it had a process: no waiting until the job is seen to be dead."""
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=1), by="anna")
        assert ended(jobs, job).state == "done"
        rows, folder = Store(home / "service.db").jobs, home / "jobs" / "early"
        early = replace(job, job_id="early", folder=str(folder), state="queued", pid=None, created_ms=2**50)
        with JobFolder(folder).claimed():
            JobFolder(folder).prepare("started")
            rows.add(early)
            assert jobs.get("early").state == "queued"
        assert jobs.get("early").state == "interrupted"
        jobs.resume("early")
        assert ended(jobs, early).state == "done"


def test_a_process_that_was_cancelled_before_it_had_a_name_does_nothing(home: Path, jobs: Jobs) -> None:
    """Nobody could know its pid yet: it looks for itself, and generates nothing."""
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=1), by="anna")
        assert ended(jobs, job).state == "done"
        before = len(host.chats)
        rows, folder = Store(home / "service.db").jobs, JobFolder(home / "jobs" / "early")
        early = replace(job, job_id="early", folder=str(folder.path), state="queued", pid=None, revision=0)
        with folder.claimed() as lock:
            folder.prepare("started")
            rows.add(early)
            assert jobs.cancel("early").state == "queued"
            arguments = collect_arguments(settings_on(host, repeats=2), events=folder.events)
            folder.spawn(arguments, lock=lock, env=job_environment(settings_on(host)), cwd=str(home))
        assert ended(jobs, early).state == "cancelled"
        assert (jobs.get("early").exit_code, len(host.chats)) == (130, before)


def test_a_job_whose_folder_was_deleted_runs_on_and_can_be_cancelled(jobs: Jobs) -> None:
    """It is still there for everybody who asks, tells what it can, and ends when it is told to."""
    with running(slow_host(latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host), by="anna")
        wait_until(lambda: events_of(job))
        shutil.rmtree(job.folder)
        assert jobs.get(job.job_id).state == "running"
        assert (jobs.log(job.job_id), jobs.progress(job.job_id).summary) == ("", None)
        jobs.cancel(job.job_id)
        assert ended(jobs, job).state == "cancelled"
        host.latency_s = 0
        jobs.resume(job.job_id)
        assert ended(jobs, job).state == "done", jobs.log(job.job_id)
        assert jobs.progress(job.job_id).summary
    wait_until(lambda: len(recorded()) == 16)
    assert set(recorded().values()) == {1}


def test_a_process_whose_service_died_too_soon_is_found(home: Path, jobs: Jobs) -> None:
    """A service that ends before it can write down the pid leaves a job that the next one takes up."""
    with running(slow_host(latency_s=0.5)) as host:
        job = jobs.start_collect(settings_on(host, n_scenarios=4), by="anna")
        wait_until(lambda: events_of(job))
        Store(home / "service.db").jobs.change(
            job.job_id, ("running",), state="queued", pid=None, pid_started=None
        )
        found = open_jobs(home).get(job.job_id)
        assert (found.state, found.pid) == ("running", job.pid)
        assert open_jobs(home).cancel(job.job_id).job_id == job.job_id
        assert ended(jobs, job).state == "cancelled"


def test_a_process_that_cannot_be_started_is_a_failed_job(home: Path, jobs: Jobs, tmp_path: Path) -> None:
    """The folder that it was started from is gone: the job says so and can be resumed once it is back."""
    with running(slow_host()) as host:
        job = jobs.start_collect(settings_on(host), by="anna")
        psutil.Process(job.pid).kill()
        ended(jobs, job)
    gone = replace(job, job_id="gone", state="failed", params={**job.params, "cwd": str(tmp_path / "gone")})
    Store(home / "service.db").jobs.add(gone)
    with pytest.raises(Unavailable, match="gone"):
        jobs.resume("gone")
    assert jobs.get("gone").state == "failed"
    assert "could be started" in jobs.reason(jobs.get("gone"))
