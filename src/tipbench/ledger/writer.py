"""From the spool into the ledgers: what is spooled is recorded once, whenever a ledger can be reached."""

from __future__ import annotations

import hashlib
import select
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from tipbench.errors import BadInput, LedgerMisconfigured, LedgerUnreachable, SpoolUnusable
from tipbench.ledger.claims import CellsBusy, busy_sentence
from tipbench.ledger.locks import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tipbench.ledger.spool import Entry, Spool, Waiting
    from tipbench.records import Ledger

    LedgerFor = Callable[[str], Ledger]

_BATCH = 25
# A process of low priority records a few cells and lets go of the lock, so that no other process waits long.
_SMALL_BATCH = 5
_BETWEEN_BATCHES_S = 0.1
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class DrainReport:
    """How many results were recorded, how many still wait, and why: one sentence each.

    `busy` counts the results that wait only for another home, which records the same cells. `locked` is true
    where another process of this home records an experiment, `unreachable` where no ledger answered, and
    `misconfigured` where a ledger refuses the settings. `marks_added` and `marks_left` count marks on
    recorded cells. `notices` has a sentence for each experiment of which marks were discarded.
    """

    recorded: int
    left: int
    problems: tuple[str, ...]
    busy: int = 0
    locked: bool = False
    unreachable: bool = False
    misconfigured: bool = False
    marks_added: int = 0
    marks_left: int = 0
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drained:
    """Which results a drain records: all, those of one ledger, or those of one experiment of one ledger.

    `up_to` leaves out results that are put later. `to` is the ledger to record in, if it is another one.
    """

    ledger: str | None = None
    experiment: str | None = None
    up_to: int | None = None
    to: str | None = None


_EVERYTHING = Drained()


def lock_of(lock: Path, ledger: str, experiment: str) -> Path:
    """The file of the lock that a process holds while it records this experiment of this ledger."""
    name = hashlib.sha256(f"{ledger}\n{experiment}".encode()).hexdigest()[:16]
    return lock.with_name(f"{lock.name}-{name}")


def drain(
    spool: Spool,
    ledger_for: LedgerFor,
    *,
    lock: Path,
    patience_s: float = 0,
    which: Drained = _EVERYTHING,
    gently: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _recorded: None,
) -> DrainReport:
    """Record all that waits. What one ledger or experiment refuses does not hold up the others.

    `ledger_for` opens a ledger by its address without credentials. One process at a time records an
    experiment; where another process has its lock for all of `patience_s`, the report says so. A drain that
    goes `gently` holds a lock for one small batch at a time. `stop` is called before each batch and ends the
    drain; `progress` is called after each batch with the number of results recorded so far.
    """
    one = _Pass(
        spool,
        ledger_for,
        lock=partial(_lock_for, lock, patience_s=patience_s),
        which=which,
        gently=gently,
        stop=stop,
        progress=progress,
    )
    return one.run()


@contextmanager
def _lock_for(lock: Path, waiting: Waiting, *, patience_s: float) -> Iterator[bool]:
    path = lock_of(lock, waiting.ledger, waiting.experiment)
    with ExitStack() as stack:
        try:
            held = stack.enter_context(file_lock(path, patience_s=patience_s))
        except OSError as error:
            raise lock_unusable(path, error) from None
        yield held


def lock_unusable(path: Path, error: OSError) -> SpoolUnusable:
    return SpoolUnusable(
        f"{path} cannot be written ({error}); set TIPBENCH_HOME to a folder that you may write to"
    )


def follow(
    spool: Spool, ledger_for: LedgerFor, *, lock: Path, life_line: BinaryIO, ledger: str | None = None
) -> DrainReport:
    """Go on draining until the life line closes, and then stop after the present batch.

    While nothing can be recorded, the pauses grow to half a minute; the end of the life line ends any.
    """
    recorded = 0
    pause = _FIRST_PAUSE_S
    report = DrainReport(recorded=0, left=0, problems=())
    while not _closed_within(life_line, pause):
        report = drain(
            spool,
            ledger_for,
            lock=lock,
            which=Drained(ledger=ledger),
            gently=True,
            stop=lambda: _closed_within(life_line, _BETWEEN_BATCHES_S),
        )
        recorded += report.recorded
        stuck = report.problems and not report.recorded
        pause = min(pause * 2, _LONGEST_PAUSE_S) if stuck else _FIRST_PAUSE_S
    left = sum(waiting.count for waiting in spool.pending(ledger))
    return DrainReport(recorded=recorded, left=left, problems=report.problems)


def _closed_within(life_line: BinaryIO, seconds: float) -> bool:
    """Wait; True as soon as the other end is closed. What it might say meanwhile is passed over."""
    deadline = time.monotonic() + seconds
    while (rest := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([life_line], [], [], rest)
        if ready and not life_line.read1(1024):  # type: ignore[attr-defined]
            return True
    return False


class _Pass:
    """One go over everything that waits."""

    def __init__(
        self,
        spool: Spool,
        ledger_for: LedgerFor,
        *,
        lock: Callable[[Waiting], AbstractContextManager[bool]],
        which: Drained,
        gently: bool,
        stop: Callable[[], bool],
        progress: Callable[[int], None],
    ) -> None:
        self._spool = spool
        self._ledger_for = ledger_for
        self._lock = lock
        self._which = which
        self._gently = gently
        self._stop = stop
        self._progress = progress
        self._unreachable: set[str] = set()
        self._recorded = 0
        self._busy = 0
        self._locked = False
        self._problems: list[str] = []
        self._misconfigured = False
        self._marks_added = 0
        self._notices: list[str] = []

    def run(self) -> DrainReport:
        for waiting in self._waiting():
            address = self._address(waiting)
            if address in self._unreachable:
                continue
            with self._problem_kept(address):
                self._experiment(waiting)
        for waiting in self._waiting_marks():
            address = self._address(waiting)
            if address not in self._unreachable and not self._stop():
                with self._problem_kept(address):
                    self._add_marks(waiting)
        if self._busy:
            self._problems.append(busy_sentence(self._busy))
        return DrainReport(
            recorded=self._recorded,
            left=sum(waiting.count for waiting in self._waiting()),
            problems=tuple(dict.fromkeys(self._problems)),
            busy=self._busy,
            locked=self._locked,
            unreachable=bool(self._unreachable),
            misconfigured=self._misconfigured,
            marks_added=self._marks_added,
            marks_left=sum(one.marks for one in self._waiting_marks()),
            notices=tuple(self._notices),
        )

    @contextmanager
    def _problem_kept(self, address: str) -> Iterator[None]:
        """Keep the sentence of a ledger that refuses something, or that cannot be reached."""
        try:
            yield
        except LedgerUnreachable as error:
            self._unreachable.add(address)
            self._misconfigured |= isinstance(error, LedgerMisconfigured)
            self._problems.append(str(error))
        except BadInput as error:
            self._problems.append(str(error))

    def _waiting(self) -> list[Waiting]:
        which = self._which
        return self._spool.pending(which.ledger, which.experiment, up_to=which.up_to)

    def _waiting_marks(self) -> list[Waiting]:
        return self._spool.waiting_marks(self._which.ledger, self._which.experiment)

    def _address(self, waiting: Waiting) -> str:
        return waiting.ledger if self._which.to is None else self._which.to

    def _experiment(self, waiting: Waiting) -> None:
        """All batches under one lock; or each batch under a lock of its own, if gently."""
        after: int | None = 0
        while after is not None and not self._stop():
            with self._lock(waiting) as held:
                if not held:
                    self._locked = True
                    self._problems.append(
                        f"another tipbench process is recording {waiting.experiment!r} at the moment"
                    )
                    return
                if not self._gently and self._stop():  # while it waited for the lock
                    return
                after = self._batches(waiting, after)

    def _batches(self, waiting: Waiting, after: int) -> int | None:
        """Pin first: a run must never be there before what it is held to.

        Returns the last result of the present batch if the drain stops after it, None at the end.
        """
        address = self._address(waiting)
        ledger = self._ledger_for(address)
        pin = self._spool.known_pin(waiting.ledger, waiting.experiment)
        if pin is not None:
            pinned = ledger.pin(waiting.experiment, pin)
            self._spool.remember(address, waiting.experiment, pinned)
        limit = _SMALL_BATCH if self._gently else _BATCH
        while entries := self._take(waiting, limit=limit, after=after):
            self._record(ledger, entries)
            self._progress(self._recorded)
            after = entries[-1].seq
            if self._gently or self._stop():
                return after
        return None

    def _take(self, waiting: Waiting, *, limit: int, after: int) -> list[Entry]:
        entries = self._spool.take(waiting.ledger, waiting.experiment, limit=limit, after=after)
        up_to = self._which.up_to
        return [entry for entry in entries if up_to is None or entry.seq <= up_to]

    def _add_marks(self, waiting: Waiting) -> None:
        """Mark recorded cells. Marks of cells that are not recorded yet go on waiting.

        A cell that no longer waits was recorded. If the ledger has no run of such a cell, a person has
        deleted the run, and its marks are discarded. Only the ledger of the marks can prove that.
        """
        # In this order: a cell is put before it is marked.
        every = self._spool.marks(waiting.ledger, waiting.experiment)
        unrecorded = self._spool.pending_keys(waiting.ledger, waiting.experiment)
        marks = {key: some for key, some in every.items() if key not in unrecorded}
        missing = self._ledger_for(self._address(waiting)).add_marks(waiting.experiment, marks)
        added = {key: some for key, some in marks.items() if key not in missing}
        self._spool.marks_recorded(waiting.ledger, waiting.experiment, added)
        self._marks_added += sum(len(some) for some in added.values())
        gone = {key: some for key, some in marks.items() if key in missing}
        if not gone:
            return
        number = sum(len(some) for some in gone.values())
        marked = f"{number} {'mark' if number == 1 else 'marks'} of {waiting.experiment!r}"
        if self._which.to is not None:
            self._problems.append(f"{self._which.to} has no run for {marked}; they wait for {waiting.ledger}")
            return
        self._spool.marks_recorded(waiting.ledger, waiting.experiment, gone)
        self._notices.append(f"{marked} discarded: {waiting.ledger} no longer has the runs of these cells")

    def _record(self, ledger: Ledger, entries: list[Entry]) -> None:
        """A batch at once; should the ledger refuse it, one by one, so that one bad result stays alone."""
        try:
            self._record_batch(ledger, entries)
        except BadInput as error:
            if len(entries) == 1:
                self._problems.append(str(error))
                return
            for entry in entries:
                self._record(ledger, [entry])

    def _record_batch(self, ledger: Ledger, entries: list[Entry]) -> None:
        """Strike out what is recorded; what another home is recording stays, and holds up nothing else."""
        busy: frozenset[str] = frozenset()
        try:
            ledger.record(entries[0].experiment, [entry.result for entry in entries])
        except CellsBusy as error:
            busy = error.keys
        recorded = [entry for entry in entries if entry.result.cell.key not in busy]
        self._spool.recorded(recorded, at=self._which.to)
        self._recorded += len(recorded)
        self._busy += len(entries) - len(recorded)
