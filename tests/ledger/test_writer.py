"""Draining: everything once, whatever dies in between, and no ledger holds up another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_samples import sample_pin, sample_result
from ledger_servers import Proxy
from tipbench.errors import BadInput, LedgerUnreachable
from tipbench.ledger import (
    Drained,
    MemoryLedger,
    Spool,
    drain,
    follow,
    lock_of,
    open_ledger,
    public_uri,
)
from tipbench.ledger.chunks import sha256
from tipbench.ledger.locks import file_lock, is_in_use
from tipbench.records import SuitePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ledger_servers import Deed, MlflowServer, Request
    from tipbench.ledger import MlflowLedger
    from tipbench.records import CellResult

PIN = sample_pin()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def spool(home: Path) -> Iterator[Spool]:
    with Spool(home / "spool.db") as opened:
        yield opened


def put(spool: Spool, uri: str, experiment: str, *numbers: int) -> None:
    for n in numbers:
        spool.put(uri, experiment, PIN, sample_result(n))


class Ledgers:
    """Ledgers in memory by address; `down` ones cannot be reached."""

    def __init__(self, *down: str) -> None:
        self.down = set(down)
        self.opened: list[str] = []
        self.by_uri: dict[str, MemoryLedger] = {}

    def __call__(self, uri: str) -> MemoryLedger:
        self.opened.append(uri)
        if uri in self.down:
            raise LedgerUnreachable(f"{uri} is down")
        return self.by_uri.setdefault(uri, MemoryLedger())


def test_everything_is_pinned_recorded_and_struck_out(spool: Spool, home: Path) -> None:
    """More than one batch, several experiments: all of it ends up in its ledger, and nothing waits."""
    put(spool, "http://a:1", "one", *range(60))
    put(spool, "http://a:1", "two", 1)
    put(spool, "http://b:1", "one", 1, 2)
    ledgers = Ledgers()
    report = drain(spool, ledgers, lock=home / "lock")
    assert (report.recorded, report.left, report.problems) == (63, 0, ())
    assert len(ledgers.by_uri["http://a:1"].runs("one")) == 60
    assert len(ledgers.by_uri["http://b:1"].runs("one")) == 2
    assert ledgers.by_uri["http://a:1"].pinned("two") == PIN
    assert len(spool.known_keys("http://a:1", "one")) == 60


def test_the_suite_comes_along(spool: Spool, home: Path) -> None:
    """Cells that were generated without MLflow bring the place and the texts of their suite with them."""
    places = (SuitePlace(place="/somewhere", hash="s" * 64),)
    pin = replace(PIN, places=places, suites={sha256("a suite"): "a suite"})
    spool.put("", "e", pin, sample_result(1))
    ledger = open_ledger("", home=home)
    drain(spool, lambda _: ledger, lock=home / "lock")
    pinned = open_ledger("", home=home).pinned("e")
    assert pinned is not None
    assert pinned.places == places
    assert ledger.suite_texts("e") == ["a suite"]


def test_what_one_ledger_cannot_take_does_not_hold_up_the_others(spool: Spool, home: Path) -> None:
    """An unreachable ledger is asked once; a pin conflict keeps back its own experiment only."""
    put(spool, "http://down:1", "one", 1)
    put(spool, "http://down:1", "two", 1)
    put(spool, "http://up:1", "changed", 1)
    put(spool, "http://up:1", "fine", 1)
    ledgers = Ledgers("http://down:1")
    ledgers("http://up:1").pin("changed", replace(PIN, prompts={"v1": "another text"}))
    ledgers.opened.clear()
    report = drain(spool, ledgers, lock=home / "lock")
    assert (report.recorded, report.left) == (1, 3)
    down, conflict = report.problems
    assert down == "http://down:1 is down"
    assert "'v1'" in conflict
    assert ledgers.opened.count("http://down:1") == 1
    ledgers.down.clear()
    again = drain(spool, ledgers, lock=home / "lock")
    assert (again.recorded, again.left) == (2, 1)


class Picky(MemoryLedger):
    """Refuses a batch that holds one particular cell."""

    def record(self, experiment: str, results: Sequence[CellResult]) -> None:
        if any(result.cell.scenario_id == "s13" for result in results):
            raise BadInput("s13 is not to my taste")
        super().record(experiment, results)


def test_one_bad_result_stays_alone(spool: Spool, home: Path) -> None:
    """A result that a ledger refuses is left and told of; those around it are recorded."""
    put(spool, "http://a:1", "e", *range(40))
    ledger = Picky()
    report = drain(spool, lambda _: ledger, lock=home / "lock")
    assert (report.recorded, report.left, report.problems) == (39, 1, ("s13 is not to my taste",))
    assert len(ledger.runs("e")) == 39


def test_the_pin_of_the_ledger_becomes_known(spool: Spool, home: Path) -> None:
    """Ids that another machine pinned are known here afterwards, for planning without the ledger."""
    put(spool, "http://a:1", "e", 1)
    ledgers = Ledgers()
    ledgers("http://a:1").pin("e", sample_pin(prompts=["theirs"]))
    drain(spool, ledgers, lock=home / "lock")
    assert spool.known_pin("http://a:1", "e") == sample_pin(prompts=["v1", "theirs"])


def test_one_process_records_an_experiment_at_a_time(spool: Spool, home: Path) -> None:
    """While another process holds an experiment's lock, only the other experiments are recorded."""
    put(spool, "http://a:1", "e", 1)
    put(spool, "http://a:1", "other", 1)
    with file_lock(lock_of(home / "lock", "http://a:1", "e"), patience_s=0) as held:
        assert held
        report = drain(spool, Ledgers(), lock=home / "lock")
    assert (report.recorded, report.left, report.locked) == (1, 1, True)
    assert "another tipbench process is recording 'e'" in report.problems[0]


def test_a_drain_can_be_limited_to_an_experiment_and_to_older_results(spool: Spool, home: Path) -> None:
    """Other experiments, other ledgers and results that come later wait on, and do not count as left."""
    put(spool, "http://a:1", "e", 1, 2)
    put(spool, "http://a:1", "other", 1)
    put(spool, "http://b:1", "e", 1)
    newest = spool.newest()
    put(spool, "http://a:1", "e", 3)
    which = Drained(ledger="http://a:1", experiment="e", up_to=newest)
    ledgers = Ledgers()
    report = drain(spool, ledgers, lock=home / "lock", which=which)
    assert (report.recorded, report.left) == (2, 0)
    assert ledgers.opened == ["http://a:1"]
    assert sorted((w.ledger, w.experiment, w.count) for w in spool.pending()) == [
        ("http://a:1", "e", 1),
        ("http://a:1", "other", 1),
        ("http://b:1", "e", 1),
    ]


def test_a_gentle_drain_lets_go_of_the_lock_between_small_batches(spool: Spool, home: Path) -> None:
    """A process of low priority never keeps another one waiting for longer than a few cells."""
    put(spool, "http://a:1", "e", *range(12))
    lock = lock_of(home / "lock", "http://a:1", "e")
    held: list[tuple[int, bool]] = []
    between: list[bool] = []

    def stop() -> bool:
        between.append(is_in_use(lock))
        return False

    def progress(recorded: int) -> None:
        held.append((recorded, is_in_use(lock)))

    drain(spool, Ledgers(), lock=home / "lock", gently=True, stop=stop, progress=progress)
    assert held == [(5, True), (10, True), (12, True)]
    assert set(between) == {False}


def test_a_drain_stops_between_batches(spool: Spool, home: Path) -> None:
    """What is recorded by then stays recorded, and the rest waits."""
    put(spool, "http://a:1", "e", *range(12))
    done: list[int] = []
    report = drain(
        spool, Ledgers(), lock=home / "lock", gently=True, stop=lambda: bool(done), progress=done.append
    )
    assert (report.recorded, report.left) == (5, 7)


def test_what_waits_for_one_ledger_can_be_recorded_in_another(spool: Spool, home: Path) -> None:
    """The cells are then known as done there and not where they waited."""
    put(spool, "http://wrong:1", "e", 1, 2)
    ledgers = Ledgers("http://wrong:1")
    which = Drained(ledger="http://wrong:1", to="http://right:1")
    report = drain(spool, ledgers, lock=home / "lock", which=which)
    assert (report.recorded, report.left, report.problems) == (2, 0, ())
    assert len(ledgers.by_uri["http://right:1"].runs("e")) == 2
    assert len(spool.known_keys("http://right:1", "e")) == 2
    assert spool.known_keys("http://wrong:1", "e") == set()
    assert spool.known_pin("http://wrong:1", "e") is None


def test_what_another_ledger_refuses_goes_on_waiting(spool: Spool, home: Path) -> None:
    """A pin conflict there is one sentence, and no cell is lost."""
    put(spool, "http://wrong:1", "e", 1, 2)
    ledgers = Ledgers()
    ledgers("http://right:1").pin("e", replace(PIN, prompts={"v1": "another text"}))
    which = Drained(ledger="http://wrong:1", to="http://right:1")
    report = drain(spool, ledgers, lock=home / "lock", which=which)
    assert (report.recorded, report.left) == (0, 2)
    assert "'v1'" in report.problems[0]
    assert spool.known_pin("http://wrong:1", "e") == PIN
    assert len(spool.take("http://wrong:1", "e", limit=9)) == 2


class Following:
    """`follow` in a thread, with a pipe as its life line."""

    def __init__(self, spool: Spool, ledger_for: Callable[[str], MemoryLedger], lock: Path) -> None:
        read, self._write = os.pipe()
        self._line = os.fdopen(read, "rb")
        self._reports: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._run, args=(spool, ledger_for, lock))
        self._thread.start()

    def _run(self, spool: Spool, ledger_for: Callable[[str], MemoryLedger], lock: Path) -> None:
        report = follow(spool, ledger_for, lock=lock, life_line=self._line)
        self._reports.append((report.recorded, report.left))

    def say(self, word: bytes) -> None:
        os.write(self._write, word)

    def let_go(self) -> tuple[int, int]:
        os.close(self._write)
        self._thread.join(timeout=30)
        self._line.close()
        return self._reports[0]


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert done()


def test_following_records_what_comes_until_let_go(spool: Spool, home: Path) -> None:
    """Results are recorded while they come; the rest is left to the command that closes the life line."""
    ledgers = Ledgers()
    following = Following(spool, ledgers, home / "lock")
    put(spool, "http://a:1", "e", 1)
    wait_for(lambda: not spool.pending())
    following.say(b"still here")
    put(spool, "http://a:1", "e", 2)
    wait_for(lambda: not spool.pending())
    with file_lock(lock_of(home / "lock", "http://a:1", "e"), patience_s=5):
        put(spool, "http://a:1", "e", 3)
        assert following.let_go() == (2, 1)
    assert len(ledgers.by_uri["http://a:1"].runs("e")) == 2


def test_following_ends_though_the_ledger_is_down(spool: Spool, home: Path) -> None:
    """A ledger that never comes back does not keep the writer alive; what waits is still there."""
    put(spool, "http://a:1", "e", 1, 2)
    following = Following(spool, Ledgers("http://a:1"), home / "lock")
    time.sleep(1.2)
    started = time.monotonic()
    assert following.let_go() == (0, 2)
    assert time.monotonic() - started < 30
    assert len(spool.take("http://a:1", "e", limit=9)) == 2


def test_a_server_that_comes_back_gets_everything(
    spool: Spool, home: Path, server: MlflowServer, experiment: str
) -> None:
    """With the server down the results wait; once it is up they are recorded, each once."""
    proxy = Proxy(server.port)
    put(spool, proxy.url, experiment, 1, 2, 3)
    ledger = open_ledger(proxy.url, home=home)
    down = drain(spool, lambda _: ledger, lock=home / "lock")
    assert (down.recorded, down.left) == (0, 3)
    assert f"{proxy.url} cannot be reached" in down.problems[0]
    with proxy.running():
        up = drain(spool, lambda _: ledger, lock=home / "lock")
        assert (up.recorded, up.left, up.problems) == (3, 0, ())
        assert len(ledger.runs(experiment)) == 3


DRAIN = """
import sys
from pathlib import Path
from tipbench.ledger import Spool, drain, open_ledger
home = Path(sys.argv[1])
with Spool(home / "spool.db") as spool:
    print("begin", flush=True)
    drain(spool, lambda uri: open_ledger(uri, home=home), lock=home / "lock")
"""


def drainer(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", DRAIN, str(home)], stdout=subprocess.PIPE)


def assert_recorded_once(ledger: MlflowLedger, experiment: str, count: int) -> None:
    """One run per cell in MLflow itself, all of them ended, every one readable."""
    found = ledger._store.experiment(experiment)
    assert found is not None
    rows = ledger._store.cells(found.experiment_id)
    assert sorted(row.tags["tipbench.cell"] for row in rows) == sorted(
        sample_result(n).cell.key for n in range(count)
    )
    assert {row.status for row in rows} == {"FINISHED"}
    runs = ledger.runs(experiment)
    assert [run.candidates for run in runs] == [sample_result(n).candidates for n in range(count)]
    assert ledger.run(runs[-1].run_id)[1].raw == sample_result(count - 1).completion.text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "step",
    [
        ("experiments/create", 1, "drop after"),
        ("runs/create", 2, "drop after"),
        ("runs/log-batch", 2, "drop before"),
        ("mlflow-artifacts/", 5, "drop after"),
        ("runs/update", 2, "drop after"),
        ("set-experiment-tag", 1, "drop before"),
    ],
    ids=lambda step: step[0],
)
def test_killed_at_any_step_each_cell_is_recorded_once(
    spool: Spool, home: Path, server: MlflowServer, experiment: str, step: tuple[str, int, str]
) -> None:
    """The writer is killed at one request, before or after the server acted on it; the next completes."""
    path, nth, deed = step
    seen: list[Request] = []
    child: list[subprocess.Popen[bytes]] = []

    def decide(request: Request) -> Deed:
        if child and path in request.path:
            seen.append(request)
            if len(seen) == nth:
                os.kill(child[0].pid, signal.SIGKILL)
                return deed
        return "pass"

    with Proxy(server.port, decide=decide).running() as proxy:
        put(spool, proxy.url, experiment, *range(4))
        child.append(drainer(home))
        child[0].communicate()
        assert child.pop().returncode == -signal.SIGKILL
        ledger = open_ledger(proxy.url, home=home)
        report = drain(spool, lambda _: ledger, lock=home / "lock")
        assert (report.left, report.problems) == (0, ())
        assert_recorded_once(ledger, experiment, 4)


def test_killed_again_and_again_the_embedded_store_holds_each_cell_once(spool: Spool, home: Path) -> None:
    """However often the writer dies while it fills a fresh embedded store, the next one completes it."""
    count = 30
    put(spool, "", "e", *range(count))
    rng = random.Random(11)  # noqa: S311 - moments, not secrets
    for _ in range(3):
        child = drainer(home)
        assert child.stdout is not None
        child.stdout.readline()
        wait_for((home / "mlflow.db").exists)
        time.sleep(rng.uniform(0.1, 2.0))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    ledger = open_ledger("", home=home)
    report = drain(spool, lambda _: ledger, lock=home / "lock")
    assert (report.left, report.problems) == (0, ())
    assert_recorded_once(ledger, "e", count)
    assert [w.ledger for w in spool.pending()] == []
    assert ledger.uri == public_uri("", home=home)


def marks_of(ledger: MemoryLedger, experiment: str = "e") -> list[tuple[str, ...]]:
    return [run.marks for run in ledger.runs(experiment)]


def test_late_marks_reach_cells_that_are_recorded_and_cells_that_wait(spool: Spool, home: Path) -> None:
    """Marks survive a ledger that is down, and arrive after the cell that they belong to."""
    ledgers = Ledgers()
    put(spool, "", "e", 0)
    drain(spool, ledgers, lock=home / "lock")
    put(spool, "", "e", 1)
    keys = [sample_result(n).cell.key for n in (0, 1)]
    spool.add_marks("", "e", {key: ["digest-changed"] for key in keys})
    ledgers.down = {public_uri("", home=home)}
    report = drain(spool, ledgers, lock=home / "lock")
    assert report.problems
    assert set(spool.marks("", "e")) == set(keys)
    ledgers.down = set()
    assert drain(spool, ledgers, lock=home / "lock").problems == ()
    (ledger,) = ledgers.by_uri.values()
    assert marks_of(ledger) == [("digest-changed",), ("digest-changed",)]
    assert spool.waiting() == []


def test_marks_without_a_run_are_discarded_with_one_line(spool: Spool, home: Path) -> None:
    """The run of a recorded cell is gone, or its whole experiment; other marks are added."""
    ledgers = Ledgers()
    put(spool, "", "e", 0)
    drain(spool, ledgers, lock=home / "lock")
    there, gone = (sample_result(n).cell.key for n in (0, 1))
    spool.add_marks("", "e", {there: ["digest-changed"], gone: ["digest-changed", "possibly-truncated"]})
    spool.add_marks("", "no such experiment", {gone: ["digest-changed"]})
    report = drain(spool, ledgers, lock=home / "lock")
    where = public_uri("", home=home)
    assert report.notices == (
        f"2 marks of 'e' discarded: {where} no longer has the runs of these cells",
        f"1 mark of 'no such experiment' discarded: {where} no longer has the runs of these cells",
    )
    assert (report.problems, report.marks_added, report.marks_left) == ((), 1, 0)
    assert spool.waiting() == []
    (ledger,) = ledgers.by_uri.values()
    assert marks_of(ledger) == [("digest-changed",)]


def test_a_mark_of_a_cell_that_waits_is_not_discarded(spool: Spool, home: Path) -> None:
    """Another process holds the experiment, so the cell has no run yet; it brings its mark later."""
    ledgers = Ledgers()
    put(spool, "", "e", 0)
    drain(spool, ledgers, lock=home / "lock")
    put(spool, "", "e", 1)
    recorded, waits = (sample_result(n).cell.key for n in (0, 1))
    spool.add_marks("", "e", {recorded: ["digest-changed"], waits: ["digest-changed"]})
    with file_lock(lock_of(home / "lock", public_uri("", home=home), "e"), patience_s=0):
        report = drain(spool, ledgers, lock=home / "lock")
    assert (report.left, report.marks_added, report.marks_left, report.notices) == (1, 1, 0, ())
    assert set(spool.marks("", "e")) == {waits}
    drain(spool, ledgers, lock=home / "lock")
    (ledger,) = ledgers.by_uri.values()
    assert marks_of(ledger) == [("digest-changed",), ("digest-changed",)]
