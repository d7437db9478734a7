"""Getting results into the ledger: a durable spool in front, a process of its own that drains it behind."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tipbench.errors import LedgerMisconfigured, LedgerUnreachable, SpoolUnusable
from tipbench.ledger import (
    Drained,
    Spool,
    drain,
    follow,
    lock_of,
    lock_unusable,
    merge_pins,
    open_ledger,
    public_uri,
)
from tipbench.ledger.locks import file_lock, held_file
from tipbench.settings import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tipbench.ledger import DrainReport
    from tipbench.ledger.spool import UncheckedCell
    from tipbench.records import CellResult, Emit, Ledger, Pin, Sampling
    from tipbench.settings import Settings

_NICEST = 19
# How long the child process may take to finish its batch before this process ends it.
_HAND_OVER_S = 2.0
_ENDING_S = 0.2
# How long the batch that this process records may take to end after Ctrl-C.
_BATCH_END_S = 1.2
# How long another process may hold an experiment without recording a single cell of it.
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 1.0
_BUSY_TRIES = 5
_BUSY_PAUSE_S = 0.5
_WAITING_AT_ONCE = 100
_CUT = "possibly-truncated"
_log = logging.getLogger(__name__)

# Why cells still wait when a collection ends: another process or another home records them, MLflow does not
# take them, MLflow cannot be reached, or the user asked for it.
Because = Literal["", "busy", "refused", "unreachable", "offline"]


def the_ledger(settings: Settings) -> Ledger:
    return open_ledger(settings.mlflow_url, home=home(), host_header=settings.mlflow_host_header)


def the_spool() -> Spool:
    return Spool(home() / "spool.db")


def record_lock(ledger: str, experiment: str) -> Path:
    """The lock that a process holds while it records this experiment of this ledger."""
    return lock_of(record_locks(), ledger, experiment)


def collect_lock(ledger: str, experiment: str) -> Path:
    """The lock that all collections of this experiment of this ledger share while they run."""
    return lock_of(home() / "locks" / "collect", ledger, experiment)


def record_locks() -> Path:
    """How the names of all locks of recording begin."""
    return home() / "locks" / "record"


def sync(settings: Settings) -> DrainReport:
    """Move everything that waits in the spool into its ledger, now."""
    with the_spool() as spool:
        return drain(spool, ledgers(settings), lock=record_locks())


def sync_until_closed(settings: Settings) -> DrainReport:
    """Record what waits for the ledger of the settings until standard input closes.

    The command that started this process closes it when it records the rest itself, and by ending.
    """
    _stand_back()
    own = public_uri(settings.mlflow_url, home=home())
    with the_spool() as spool:
        line = sys.stdin.buffer
        return follow(spool, ledgers(settings), lock=record_locks(), life_line=line, ledger=own)


def _stand_back() -> None:
    """Run only where no other process wants the processor: recording must not slow the generation down."""
    os.nice(_NICEST)
    # Linux shares the processor between sessions first, and this process has one of its own.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICEST), encoding="ascii")


def synced_ledger(settings: Settings) -> Ledger:
    """The ledger to read from, after what waited for it has been recorded."""
    with the_spool() as spool:
        waiting = spool.waiting()
    if waiting:
        for notice in sync(settings).notices:
            _log.warning(notice)
    return the_ledger(settings)


def ledgers(settings: Settings) -> Callable[[str], Ledger]:
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
    """One collection's way into the ledger. A ledger that goes away delays recording, no more."""

    def __init__(self, *, settings: Settings, spool: Spool, emit: Emit) -> None:
        self._settings = settings
        self._spool = spool
        self._emit = emit
        self._pin: Pin | None = None
        self.used_options: set[tuple[str, Sampling]] = set()
        self._writer: subprocess.Popen[bytes] | None = None
        # By cell key, as the host counted them; without the prompts that are known to be cut.
        self.prompt_tokens: dict[str, float | None] = {}
        self._newest: int | None = None
        self._stopped = False
        self._finishing = threading.Lock()
        self._running = ExitStack()
        self.ledger_uri = public_uri(settings.mlflow_url, home=home())
        self.because: Because = "offline" if settings.offline else ""

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, *, emit: Emit) -> Iterator[Recorder]:
        with the_spool() as spool:
            recorder = cls(settings=settings, spool=spool, emit=emit)
            with recorder._running:
                try:
                    yield recorder
                finally:
                    recorder.stop()

    def check(self) -> None:
        """Raise where the ledger is on a server that cannot be reached, before anything is generated."""
        if self._settings.offline or self.ledger_uri == public_uri("", home=home()):
            return
        with self._offline_named():
            the_ledger(self._settings).pinned(self._settings.experiment)

    def begin(self, pin: Pin) -> set[str]:
        """Pin the experiment; the keys of cells that need not be generated again."""
        experiment = self._settings.experiment
        lock = collect_lock(self.ledger_uri, experiment)
        try:
            self._running.enter_context(held_file(lock, patience_s=_PATIENCE_S, shared=True))
        except OSError as error:
            raise lock_unusable(lock, error) from None
        # Before the ledger is read: what an older writer moves from here to there meanwhile is then in both.
        waiting = self._spool.pending_keys(self.ledger_uri, experiment)
        late = self._spool.marks(self.ledger_uri, experiment)
        self._add_waiting_counts(late)
        if self._settings.offline:
            known = self._spool.known_pin(self.ledger_uri, experiment)
            self._pin = merge_pins(experiment, known, pin) if known else pin
            return self._spool.known_keys(self.ledger_uri, experiment)
        with self._offline_named():
            ledger = the_ledger(self._settings)
            self._pin = ledger.pin(experiment, pin)
            recorded = [run for run in ledger.runs(experiment) if run.status == "done"]
            done = {run.key for run in recorded}
            self.used_options = {(run.prompt_hash, run.sampling) for run in recorded if run.sampling}
        for run in recorded:
            if _CUT not in (*run.marks, *late.get(run.key, ())) and run.cut != "prompt":
                self.prompt_tokens[run.key] = run.metrics.get("prompt_tokens")
        self._spool.remember(self.ledger_uri, experiment, self._pin, done)
        return done | waiting

    @contextmanager
    def _offline_named(self) -> Iterator[None]:
        try:
            yield
        except LedgerMisconfigured:
            raise
        except LedgerUnreachable as error:
            raise LedgerUnreachable(f"{error}; or pass --offline to generate now and record later") from None

    def put(self, result: CellResult) -> None:
        """Durable when this returns."""
        assert self._pin is not None  # noqa: S101 - `begin` comes first
        self._spool.put(self.ledger_uri, self._settings.experiment, self._pin, result)

    def _add_waiting_counts(self, late: Mapping[str, Sequence[str]]) -> None:
        """Read the token counts of cells that were stored earlier and are not recorded yet."""
        after, where = 0, (self.ledger_uri, self._settings.experiment)
        while entries := self._spool.take(*where, limit=_WAITING_AT_ONCE, after=after):
            after = entries[-1].seq
            for result in (entry.result for entry in entries):
                key, reply = result.cell.key, result.completion
                if reply is not None and _CUT not in (*result.marks, *late.get(key, ())):
                    self.prompt_tokens[key] = reply.prompt_tokens

    def unchecked(self) -> list[UncheckedCell]:
        """The stored cells whose models were not read again on their hosts."""
        return self._spool.unchecked(self.ledger_uri, self._settings.experiment)

    def checked(self, keys: Sequence[str]) -> None:
        """Store that the models of these cells were read again."""
        self._spool.checked(self.ledger_uri, self._settings.experiment, keys)

    def mark(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Add marks to stored cells, recorded or not, by cell key. They are on disk when this returns."""
        self._spool.add_marks(self.ledger_uri, self._settings.experiment, marks)

    def start(self) -> None:
        """Start to record, in a process of low priority, while cells are generated."""
        if not self._settings.offline:
            self._start_writer()

    def finish(self) -> None:
        """Record this experiment's cells here, at normal priority. Cells that come later are left out."""
        if self._settings.offline:
            return
        with self._finishing:
            if self._stopped:
                return
            try:
                self._record_rest()
            except SpoolUnusable:  # `stop` has sealed the spool while a batch was under way: its cells wait
                if not self._stopped:
                    raise

    def _record_rest(self) -> None:
        self._newest = self._spool.newest()
        self._let_go()
        total = self.left()
        if not total and not self.marks_left():
            return
        progress = _Progress(total, self._emit)
        report = self._drain(progress, patience_s=_HAND_OVER_S)
        self.kill()
        give_up = time.monotonic() + _PATIENCE_S
        while report.locked and not self._stopped and time.monotonic() < give_up:
            before = self.left()
            report = self._drain(progress, patience_s=_LOOK_EVERY_S)
            if self.left() < before:
                give_up = time.monotonic() + _PATIENCE_S
                progress.left(self.left())
        for _ in range(_BUSY_TRIES):
            if not report.busy or self._stopped:
                break
            time.sleep(_BUSY_PAUSE_S)
            report = self._drain(progress, patience_s=_LOOK_EVERY_S)
        if self._stopped:
            return
        for notice in report.notices:
            self._emit({"event": "notice", "message": notice})
        if self.left() or self.marks_left():
            self.because = _because(report)
            for problem in report.problems:
                self._emit({"event": "notice", "message": problem})

    def _drain(self, progress: _Progress, *, patience_s: float) -> DrainReport:
        which = Drained(ledger=self.ledger_uri, experiment=self._settings.experiment, up_to=self._newest)
        return drain(
            self._spool,
            ledgers(self._settings),
            lock=record_locks(),
            patience_s=patience_s,
            which=which,
            stop=lambda: self._stopped,
            progress=lambda _recorded: progress.left(self.left()),
        )

    def left(self) -> int:
        """How many cells are only on this disk yet."""
        waiting = self._spool.pending(self.ledger_uri, self._settings.experiment, up_to=self._newest)
        return sum(entry.count for entry in waiting)

    def marks_left(self) -> int:
        """How many marks on recorded cells are only on this disk yet."""
        waiting = self._spool.waiting_marks(self.ledger_uri, self._settings.experiment)
        return sum(one.marks for one in waiting)

    def stop(self) -> None:
        """Record nothing more, and leave no process behind. The counts of what waits are final after this.

        The batch under way, if any, has a moment to end. After that its cells count as waiting.
        """
        if self._stopped:
            return
        self._stopped = True
        self._let_go()
        if self._finishing.acquire(timeout=_BATCH_END_S):
            self._finishing.release()
        if self._writer is not None and self._writer.poll() is None:
            lock = record_lock(self.ledger_uri, self._settings.experiment)
            with suppress(OSError), file_lock(lock, patience_s=_ENDING_S):
                self.kill()
            with suppress(subprocess.TimeoutExpired):
                self._writer.wait(_ENDING_S / 2)
        self._spool.seal()

    def stop_at_once(self) -> None:
        """As `stop`, without a moment for the batch under way."""
        self._stopped = True
        self.kill()
        self._spool.seal()

    def kill(self) -> None:
        """End the child process at once; what it was recording is completed by the next command."""
        if self._writer is not None:
            self._writer.kill()

    def _start_writer(self) -> None:
        env = os.environ | {
            "MLFLOW_TRACKING_URI": self._settings.mlflow_url,
            "TIPBENCH_MLFLOW_HOST_HEADER": self._settings.mlflow_host_header,
            "TIPBENCH_HOME": str(home()),
        }
        # A session of its own: Ctrl-C reaches this process alone, which tells the child when to stop.
        self._writer = subprocess.Popen(
            [sys.executable, "-m", "tipbench", "sync", "--follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
        # A killed process of low priority takes long to end where others want the processor.
        threading.Thread(target=self._writer.wait, name="writer", daemon=True).start()

    def _let_go(self) -> None:
        """Close the writer's life line: it ends after its present batch."""
        if self._writer is not None and self._writer.stdin is not None:
            self._writer.stdin.close()


def _because(report: DrainReport) -> Because:
    if report.misconfigured:
        return "refused"
    if report.unreachable:
        return "unreachable"
    only_busy = report.locked or len(report.problems) == bool(report.busy)
    return "busy" if only_busy else "refused"


class _Progress:
    """Reports how many cells are left: at the beginning, once a second, at the end."""

    def __init__(self, total: int, emit: Emit) -> None:
        self._total = total
        self._emit = emit
        self._next = 0.0
        self._last = -1
        self.left(total)

    def left(self, left: int) -> None:
        if left == self._last or (left and time.monotonic() < self._next):
            return
        self._last, self._next = left, time.monotonic() + _LOOK_EVERY_S
        self._emit({"event": "recording", "total": max(self._total, left), "left": left})
