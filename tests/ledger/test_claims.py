"""Two homes on one store: who writes which run, and what is left of a writer that died."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from ledger_samples import sample_pin, sample_result
from tipbench.errors import LedgerUnreachable
from tipbench.ledger import Spool, drain, open_ledger
from tipbench.ledger.claims import LEASE_MS, PREFIX, writer_of

if TYPE_CHECKING:
    from pathlib import Path

    from ledger_servers import MlflowServer
    from tipbench.ledger import MlflowLedger


@pytest.fixture
def ledger(server: MlflowServer, tmp_path: Path, experiment: str) -> MlflowLedger:
    ledger = open_ledger(server.url, home=tmp_path / "home")
    ledger.pin(experiment, sample_pin())
    return ledger


def raw_runs(ledger: MlflowLedger, experiment: str) -> list[Any]:
    """What MLflow itself holds, open runs and all."""
    found = ledger._store.experiment(experiment)
    assert found is not None
    return ledger._store.cells(found.experiment_id)


def left_open(ledger: MlflowLedger, experiment: str, n: int, *, writer: str, age_ms: int = 0) -> str:
    """A run as a writer has it between claim and end."""
    found = ledger._store.experiment(experiment)
    assert found is not None
    since = time.time_ns() // 1_000_000 - age_ms
    result = sample_result(n)
    tags = {"tipbench.cell": result.cell.key, "tipbench.kind": "cell", f"{PREFIX}x{n}": f"{since} {writer}"}
    row = ledger._store.create_run(found.experiment_id, name="r", started_ms=1, tags=tags, made=lambda: None)
    return row.run_id


def test_a_run_that_another_home_writes_is_left_to_it(ledger: MlflowLedger, experiment: str) -> None:
    """The other cells of the batch are recorded; the sentence counts those that follow later."""
    held = left_open(ledger, experiment, 1, writer="another")
    before = next(row for row in raw_runs(ledger, experiment) if row.run_id == held)
    with pytest.raises(LedgerUnreachable, match="1 cell is being recorded by another tipbench"):
        ledger.record(experiment, [sample_result(n) for n in range(3)])
    assert [run.scenario_id for run in ledger.runs(experiment)] == ["s0", "s2"]
    rows = raw_runs(ledger, experiment)
    assert len(rows) == 3
    assert before in rows


def drained(home: Path, url: str, experiment: str, start: Barrier) -> int:
    """Spool 40 cells, drain them until none is left, and say how many were recorded from here."""
    ledger = open_ledger(url, home=home)
    with Spool(home / "spool.db") as spool:
        for n in range(40):
            spool.put(url, experiment, sample_pin(), sample_result(n, text=home.name))
        start.wait(timeout=30)
        reports = [drain(spool, lambda _: ledger, lock=home / "lock")]
        while reports[-1].left and len(reports) < 20:
            assert reports[-1].busy == reports[-1].left, reports[-1].problems
            time.sleep(0.3)
            reports.append(drain(spool, lambda _: ledger, lock=home / "lock"))
        assert reports[-1].left == 0
    return sum(report.recorded for report in reports)


def test_two_homes_at_once_leave_one_ended_run_per_cell(
    server: MlflowServer, ledger: MlflowLedger, tmp_path: Path, experiment: str
) -> None:
    """Neither loses a cell or fails, and MLflow holds no other run of these cells, not even an open one."""
    start = Barrier(2)
    homes = [tmp_path / "one", tmp_path / "other"]
    with ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(drained, home, server.url, experiment, start) for home in homes]
        assert [each.result(timeout=200) for each in tries] == [40, 40]
    rows = raw_runs(ledger, experiment)
    assert sorted(row.tags["tipbench.cell"] for row in rows) == sorted(
        sample_result(n).cell.key for n in range(40)
    )
    assert {row.status for row in rows} == {"FINISHED"}


@pytest.mark.parametrize("whose", ["own", "another's, long ago"])
def test_the_run_of_a_writer_that_died_is_completed(
    ledger: MlflowLedger, experiment: str, tmp_path: Path, whose: str
) -> None:
    """One's own at once, another's after the lease: in the same run, with no other beside it."""
    mine = whose == "own"
    writer = writer_of(tmp_path / "home") if mine else "another"
    held = left_open(ledger, experiment, 1, writer=writer, age_ms=0 if mine else LEASE_MS + 1)
    ledger.record(experiment, [sample_result(1)])
    (row,) = raw_runs(ledger, experiment)
    assert (row.run_id, row.status) == (held, "FINISHED")
    assert f"{PREFIX}x1" not in row.tags


def test_what_a_dead_writer_left_beside_a_done_cell_is_cleared(
    ledger: MlflowLedger, experiment: str, tmp_path: Path
) -> None:
    """Its own open run of a cell that is done meanwhile goes; that of a live writer stays its own affair."""
    ledger.record(experiment, [sample_result(1), sample_result(2)])
    left_open(ledger, experiment, 1, writer=writer_of(tmp_path / "home"))
    other = left_open(ledger, experiment, 2, writer="another")
    ledger.record(experiment, [sample_result(1), sample_result(2)])
    assert [row.run_id for row in raw_runs(ledger, experiment) if row.status == "RUNNING"] == [other]


def test_a_failed_run_is_anybodys_at_once(
    server: MlflowServer, ledger: MlflowLedger, tmp_path: Path, experiment: str
) -> None:
    """Another home need not wait until the claim of the one that recorded the failure is old."""
    ledger.record(experiment, [sample_result(error="x")])
    open_ledger(server.url, home=tmp_path / "other").record(experiment, [sample_result()])
    assert [row.status for row in raw_runs(ledger, experiment)] == ["FINISHED"]


def test_what_another_home_writes_holds_up_nothing_else(
    ledger: MlflowLedger, experiment: str, tmp_path: Path
) -> None:
    """A drain strikes out what it recorded, keeps the rest, and says once how many follow later."""
    for n in (3, 30):
        left_open(ledger, experiment, n, writer="another")
    with Spool(tmp_path / "home" / "spool.db") as spool:
        for n in range(40):
            spool.put(ledger.uri, experiment, sample_pin(), sample_result(n))
        report = drain(spool, lambda _: ledger, lock=tmp_path / "lock")
        assert (report.recorded, report.left, report.busy) == (38, 2, 2)
        assert report.problems == (
            "2 cells are being recorded by another tipbench at the moment; they follow later",
        )
        for row in raw_runs(ledger, experiment):
            if row.status == "RUNNING":
                ledger._store.delete_run(row.run_id)
        assert drain(spool, lambda _: ledger, lock=tmp_path / "lock").left == 0
    assert len(ledger.runs(experiment)) == 40


def test_a_home_keeps_its_name_and_a_copy_gets_another(tmp_path: Path) -> None:
    """A crash is made good at once only if the name outlives it, and two homes must never share one."""
    home = tmp_path / "home"
    name = writer_of(home)
    assert writer_of(home) == name
    shutil.copytree(home, tmp_path / "copy")
    assert len({name, writer_of(tmp_path / "copy"), writer_of(tmp_path / "third")}) == 3
    assert [path.name for path in home.iterdir()] == ["writer-id"]


def test_a_home_that_cannot_be_written_still_has_a_name(tmp_path: Path) -> None:
    """It lasts as long as the process."""
    (tmp_path / "file").write_text("")
    assert len(writer_of(tmp_path / "file" / "home")) == 16
