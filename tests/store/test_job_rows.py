"""Jobs: each change is made by one, from a state that the job is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_processes import at_once
from tipbench.store import Job, new_job_id

if TYPE_CHECKING:
    from tipbench.store import Store


def job(job_id: str = "j1") -> Job:
    return Job(
        job_id=job_id,
        kind="collect",
        title="Tips für “May”",
        experiment="tip-bench-may",
        params={"models": ["a", "b"], "seed": 1, "diversity": False, "mlflow_url": None},
        folder=f"jobs/{job_id}",
        by="anna",
        created_ms=1,
    )


def test_a_job_comes_back_as_it_was(store: Store) -> None:
    """All that was said of a job is kept; one that is not there is None."""
    store.jobs.add(job())
    assert store.jobs.get("j1") == job()
    assert store.jobs.get("nobody") is None
    assert store.jobs.get("\ud800") is None


def test_ids_do_not_repeat() -> None:
    """An id is short, fit for a folder's name, and new."""
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(one.isalnum() and len(one) == 12 for one in ids)


def test_a_change_happens_only_from_the_state_it_expects(store: Store) -> None:
    """A job that is elsewhere by now is left alone, and the one who tried is told."""
    store.jobs.add(job())
    assert store.jobs.change("j1", ("queued",), state="running", pid=7, pid_started=1.25, started_ms=2)
    assert not store.jobs.change("j1", ("queued",), state="cancelled")
    assert store.jobs.change("j1", ("queued", "running"), state="done", exit_code=0, ended_ms=3, pid=None)
    found = store.jobs.get("j1")
    assert found is not None
    assert (found.state, found.pid, found.pid_started, found.exit_code) == ("done", None, 1.25, 0)
    assert (found.started_ms, found.ended_ms, found.revision) == (2, 3, 2)
    assert not store.jobs.change("nobody", ("queued",), state="running")
    assert not store.jobs.change("j1", (), state="running")


def test_who_acts_on_an_old_look_changes_nothing(store: Store) -> None:
    """A job that was resumed since is not marked as interrupted for the process it had before."""
    store.jobs.add(job())
    store.jobs.change("j1", ("queued",), state="running", pid=7)
    seen = store.jobs.get("j1")
    assert seen is not None
    store.jobs.change("j1", ("running",), state="interrupted")
    store.jobs.change("j1", ("interrupted",), state="running", pid=8)
    assert not store.jobs.change("j1", ("running",), revision=seen.revision, state="interrupted")
    assert store.jobs.change("j1", ("running",), revision=seen.revision + 2, state="interrupted")


@pytest.mark.parametrize("names", [{"job_id": "x"}, {"state": "done", "revision_": 1}, {}])
def test_what_makes_a_job_cannot_be_changed(store: Store, names: dict[str, object]) -> None:
    """Only how far it is may change; anything else is a mistake of the caller's."""
    store.jobs.add(job())
    with pytest.raises(TypeError):
        store.jobs.change("j1", ("queued",), **names)  # type: ignore[arg-type]
    assert store.jobs.get("j1") == job()


def test_jobs_are_told_newest_first_in_pages(store: Store) -> None:
    """Pages go from the newest to the oldest, of all or of those in some states."""
    for number in range(5):
        store.jobs.add(job(f"j{number}"))
    store.jobs.change("j1", ("queued",), state="running")
    store.jobs.change("j3", ("queued",), state="running")
    page = store.jobs.page(limit=2)
    assert [one.job_id for one in page] == ["j4", "j3"]
    rest = store.jobs.page(before=page[-1].job_id)
    assert [one.job_id for one in rest] == ["j2", "j1", "j0"]
    assert [one.job_id for one in store.jobs.page(states=("running", "done"))] == ["j3", "j1"]
    assert [one.job_id for one in store.jobs.page(states=("running",), before="j3", limit=10**30)] == ["j1"]
    assert store.jobs.page(before="nobody") == ()


def test_of_several_processes_one_starts_a_job(store: Store) -> None:
    """Each of twenty queued jobs is started by one of those who try."""
    for number in range(20):
        store.jobs.add(job(f"j{number}"))
    code = "print(sum(store.jobs.change(f'j{n}', ('queued',), state='running') for n in range(20)))"
    printed = at_once(store.path, code, count=3)
    assert sum(int(line) for line in printed) == 20
