"""Getting results into the ledger: a durable spool in front, a process of its own that drains it behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import LedgerUnreachable
from tipbench.ledger import Spool, drain, follow, merge_pins, open_ledger, public_uri
from tipbench.settings import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tipbench.ledger import DrainReport
    from tipbench.records import CellResult, Emit, Ledger, Pin, Run, Sampling
    from tipbench.settings import Settings

_LOOK_EVERY_S = 0.05
_NICEST = 19


def the_ledger(settings: Settings) -> Ledger:
    return open_ledger(settings.mlflow_url, home=home(), host_header=settings.mlflow_host_header)


def the_spool() -> Spool:
    return Spool(home() / "spool.db")


def sync(settings: Settings) -> DrainReport:
    """Move everything that waits in the spool into its ledger, now."""
    with the_spool() as spool:
        return drain(spool, _ledgers(settings), lock=home() / "writer.lock")


def sync_until_closed(settings: Settings) -> DrainReport:
    """Go on moving until standard input closes, which it does when the collector ends, however it ends."""
    _stand_back()
    with the_spool() as spool:
        return follow(spool, _ledgers(settings), lock=home() / "writer.lock", life_line=sys.stdin.buffer)


def _stand_back() -> None:
    """Run only where nobody else wants the processor: recording must not slow the generation down.

    On a machine that is always busy this can take long; `TIPBENCH_RECORDER_NICE=0` asks for a fair share.
    """
    given = os.environ.get("TIPBENCH_RECORDER_NICE", "")
    niceness = int(given) if given.isdecimal() and int(given) < _NICEST else _NICEST
    os.nice(niceness)
    # Linux shares the processor between sessions first, and this process has one of its own.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")


def synced_ledger(settings: Settings) -> Ledger:
    """The ledger to read from, after what waited for it has been recorded."""
    with the_spool() as spool:
        waiting = spool.pending() or spool.marked_experiments()
    if waiting:
        sync(settings)
    return the_ledger(settings)


def _ledgers(settings: Settings) -> Callable[[str], Ledger]:
    """Ledgers by address, each opened once.

    The spool knows them by addresses without passwords; the one in use is opened with its own.
    """

    @cache
    def opened(uri: str) -> Ledger:
        if uri == public_uri(settings.mlflow_url, home=home()):
            return the_ledger(settings)
        return open_ledger(uri, home=home(), host_header=settings.mlflow_host_header)

    return opened


class Recorder:
    """One collection's way into the ledger. A ledger that cannot be reached delays recording, no more."""

    def __init__(self, *, settings: Settings, spool: Spool, emit: Emit) -> None:
        self._settings = settings
        self._spool = spool
        self._emit = emit
        self._pin: Pin | None = None
        self.used_options: set[tuple[str, Sampling]] = set()
        self._writer: subprocess.Popen[bytes] | None = None
        self.recorded: dict[str, Run] = {}
        self.ledger_uri = public_uri(settings.mlflow_url, home=home())

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, *, emit: Emit) -> Iterator[Recorder]:
        with the_spool() as spool:
            recorder = cls(settings=settings, spool=spool, emit=emit)
            try:
                yield recorder
            finally:
                recorder._let_go()

    def begin(self, pin: Pin) -> set[str]:
        """Pin the experiment and start the writer; the keys of cells that need not be generated again."""
        experiment = self._settings.experiment
        # Before the ledger is read: what an older writer moves from here to there meanwhile is then in both.
        waiting = self._spool.pending_keys(self.ledger_uri, experiment)
        try:
            ledger = the_ledger(self._settings)
            self._pin = ledger.pin(experiment, pin)
            self.recorded = {run.key: run for run in ledger.runs(experiment) if run.status == "done"}
            done = set(self.recorded)
            every = self.recorded.values()
            self.used_options = {(run.prompt_hash, run.sampling) for run in every if run.sampling}
            self._spool.remember(self.ledger_uri, experiment, self._pin)
        except LedgerUnreachable as error:
            self._emit(
                {"event": "notice", "message": f"{error}; going on: cells are kept on this disk meanwhile"}
            )
            known = self._spool.known_pin(self.ledger_uri, experiment)
            self._pin = merge_pins(experiment, known, pin) if known else pin
            done = self._spool.known_keys(self.ledger_uri, experiment)
        self._start_writer()
        return done | waiting

    def put(self, result: CellResult) -> None:
        """Durable when this returns."""
        assert self._pin is not None  # noqa: S101 - `begin` comes first
        self._spool.put(self.ledger_uri, self._settings.experiment, self._pin, result)

    def mark(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Add marks to stored cells, recorded or not, by cell key. They are on disk when this returns."""
        self._spool.add_marks(self.ledger_uri, self._settings.experiment, marks)

    def finish(self) -> None:
        """Wait for the writer to record what it can. Interrupted, it goes on without us."""
        self._let_go()
        total, told = self.left(), 0
        while self._writer is not None and self._writer.poll() is None:
            left = self.left()
            if left and left != told:
                told = left
                self._emit({"event": "recording", "total": total, "left": left})
            time.sleep(_LOOK_EVERY_S)
        if self.left():
            self._record_the_rest()

    def _record_the_rest(self) -> None:
        """The writer gave up, or was killed: try once more here, where the reason can be told."""
        for problem in sync(self._settings).problems:
            self._emit({"event": "notice", "message": problem})

    def left(self) -> int:
        """How many cells are only on this disk yet."""
        waiting = self._spool.pending(self.ledger_uri)
        return sum(entry.count for entry in waiting if entry.experiment == self._settings.experiment)

    def _start_writer(self) -> None:
        env = os.environ | {
            "MLFLOW_TRACKING_URI": self._settings.mlflow_url,
            "TIPBENCH_MLFLOW_HOST_HEADER": self._settings.mlflow_host_header,
            "TIPBENCH_HOME": str(home()),
        }
        # A session of its own: Ctrl-C must not end it before it has recorded what is there.
        self._writer = subprocess.Popen(
            [sys.executable, "-m", "tipbench", "sync", "--follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )

    def _let_go(self) -> None:
        """Close the writer's life line: it drains what is there and ends by itself."""
        if self._writer is not None and self._writer.stdin is not None:
            self._writer.stdin.close()
