"""Applying while processes are killed, servers die and answers get lost: all of it or nothing, and once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_batches import begun, ids, raw_runs, sample_application, sample_batch, words_of
from ledger_samples import sample_pin
from ledger_servers import Proxy
from tipbench.errors import LedgerUnreachable
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from ledger_servers import MlflowServer, Request
    from tipbench.records import Application, Batch


def test_a_server_that_dies_leaves_all_or_nothing(
    server: MlflowServer, tmp_path: Path, experiment: str
) -> None:
    """Whichever request is its last, cached readers agree, and the same commit later counts once."""
    ledger, reader = (open_ledger(server.url, home=tmp_path / name) for name in ("one", "other"))
    seen: list[int] = []
    done = False
    while not done:
        batch = begun(ledger, f"{experiment} {len(seen)}", f"{experiment[-12:]}-{len(seen)}")
        application = sample_application(batch)
        assert reader.batches(batch.experiment) == [batch]
        done = dying_commit(server, tmp_path / "home", batch, application, last=len(seen))
        (now,) = reader.batches(batch.experiment)
        assert now == ledger.batch(batch.batch_id)
        assert now.applications in ((), (application,))
        seen.append(len(now.applications))
        ledger.commit(batch, application)
        assert reader.batches(batch.experiment) == [replace(batch, applications=(application,))]
    assert seen == sorted(seen)
    assert (seen.count(0) > 3, seen.count(1) > 2) == (True, True)


def dying_commit(
    server: MlflowServer, home: Path, batch: Batch, application: Application, *, last: int
) -> bool:
    """Commit through a server that takes in the request `last` and is never heard of again."""

    def decide(request: Request) -> str:
        return "pass" if request.number < last else "drop after" if request.number == last else "drop before"

    with Proxy(server.port, decide=decide).running() as proxy:
        try:
            open_ledger(proxy.url, home=home).commit(batch, application)
        except LedgerUnreachable:
            return False
    return True


def test_a_lost_answer_is_made_good(server: MlflowServer, tmp_path: Path, experiment: str) -> None:
    """Whichever answer is lost, keeping a batch and applying to it come through, once each."""
    direct = open_ledger(server.url, home=tmp_path / "direct")
    direct.pin(experiment, sample_pin())
    for lost in range(5):
        batch = sample_batch(experiment, f"{experiment[-12:]}-{lost}")
        application = sample_application(batch)

        def decide(request: Request, lost: int = lost) -> str:
            return "drop after" if request.number % 5 == lost else "pass"

        with Proxy(server.port, decide=decide).running() as proxy:
            ledger = open_ledger(proxy.url, home=tmp_path / "home")
            ledger.add_batch(batch)
            ledger.commit(batch, application)
            assert len(proxy.seen) > 17
        assert direct.batch(batch.batch_id).applications == (application,)
    assert len(raw_runs(direct, experiment)) == 5
    assert list(words_of(direct, experiment).values()) == ["written"]


def test_a_server_that_is_away_is_named(tmp_path: Path, experiment: str) -> None:
    """Every verb of judging says where the ledger should be and what to do."""
    ledger = open_ledger("http://127.0.0.1:9", home=tmp_path)
    batch = sample_batch(experiment)
    deeds = (
        lambda: ledger.add_batch(batch),
        lambda: ledger.batches(experiment),
        lambda: ledger.batch("b1"),
        lambda: ledger.commit(batch, sample_application(batch)),
        lambda: ledger.mark(experiment, {}),
        lambda: ledger.change_rubric(experiment, rubric_id="a", rubric_hash="b", rubric_text="c"),
    )
    with ThreadPoolExecutor(len(deeds)) as pool:
        for deed in [pool.submit(deed) for deed in deeds]:
            with pytest.raises(LedgerUnreachable, match=r"127.0.0.1:9 cannot be reached; start it"):
                deed.result()


COMMIT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ledger_batches import sample_application
from tipbench.ledger import open_ledger
ledger = open_ledger("", home=Path(sys.argv[2]))
batch = ledger.batch(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
ledger.commit(batch, sample_application(batch, sys.argv[4]))
"""


def committing(home: Path, batch: Batch, application_id: str, tests: Path) -> subprocess.Popen[bytes]:
    """A process of its own that is ready to commit, and does once it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMIT, str(tests), str(home), batch.batch_id, application_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=60)
    return process.returncode


def test_a_killed_commit_leaves_all_or_nothing(
    embedded_home: Path, experiment: str, request: pytest.FixtureRequest
) -> None:
    """After `kill -9` at any moment, all readers see the whole of it or none, and a retry makes it one."""
    ledger = open_ledger("", home=embedded_home)
    batch = begun(ledger, experiment, experiment[-12:], size=60)
    tests = request.config.rootpath / "tests"
    for delay_ms in (0, 10, 25, 60):
        application = sample_application(batch, f"x{delay_ms:03}")
        before = ledger.batches(experiment)[0].applications
        process = committing(embedded_home, batch, application.application_id, tests)
        go(process)
        time.sleep(delay_ms / 1000)
        os.kill(process.pid, signal.SIGKILL)
        assert ended(process) in (0, -signal.SIGKILL)
        after = ledger.batches(experiment)[0].applications
        assert after == ledger.batch(batch.batch_id).applications
        assert after in (before, (*before, application))
        ledger.commit(batch, application)
        assert ledger.batches(experiment)[0].applications == (*before, application)


def test_two_processes_that_apply_at_once_keep_both(
    embedded_home: Path, experiment: str, request: pytest.FixtureRequest
) -> None:
    """The embedded store has one writer at a time; neither application is lost or refused."""
    ledger = open_ledger("", home=embedded_home)
    batch = begun(ledger, experiment, experiment[-12:], size=60)
    assert ledger.batches(experiment) == [batch]
    tests = request.config.rootpath / "tests"
    processes = [committing(embedded_home, batch, name, tests) for name in ("one", "other")]
    for process in processes:
        go(process)
    assert [ended(process) for process in processes] == [0, 0]
    assert ids(ledger.batches(experiment)[0]) == ["one", "other"]
    assert ledger.batch(batch.batch_id) == ledger.batches(experiment)[0]
