"""From the spool into the ledgers: what is spooled is recorded once, whenever a ledger can be reached."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

from tipbench.errors import BadInput, LedgerUnreachable, SpoolUnusable
from tipbench.ledger.claims import CellsBusy, busy_sentence
from tipbench.ledger.locks import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.ledger.spool import Entry, Spool, Waiting
    from tipbench.records import Ledger

    LedgerFor = Callable[[str], Ledger]

_BATCH = 25
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_LAST_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class DrainReport:
    """How many results were recorded, how many still wait, and why: one sentence each.

    `busy` counts those that wait only for another home, which records the same cells.
    """

    recorded: int
    left: int
    problems: tuple[str, ...]
    busy: int = 0


def drain(spool: Spool, ledger_for: LedgerFor, *, lock: Path, patience_s: float = 0) -> DrainReport:
    """Record all that waits. What one ledger or experiment refuses does not hold up the others.

    `ledger_for` opens a ledger by its address without credentials. One process at a time drains a
    home; where another has the lock for all of `patience_s`, the report says so.
    """
    try:
        with file_lock(lock, patience_s=patience_s) as held:
            if held:
                return _Pass(spool, ledger_for).run()
    except OSError as error:
        raise SpoolUnusable(
            f"{lock} cannot be written ({error}); set TIPBENCH_HOME to a folder that you may write to"
        ) from None
    busy = "another tipbench process is recording at the moment"
    return DrainReport(recorded=0, left=_left(spool), problems=(busy,))


def follow(spool: Spool, ledger_for: LedgerFor, *, lock: Path, life_line: BinaryIO) -> DrainReport:
    """Go on draining until the life line closes, and then once more for what came last.

    While nothing can be recorded, the pauses grow to half a minute; the end of the life line ends any.
    """
    recorded = 0
    pause = _FIRST_PAUSE_S
    while not _closed_within(life_line, pause):
        report = drain(spool, ledger_for, lock=lock)
        recorded += report.recorded
        stuck = report.problems and not report.recorded
        pause = min(pause * 2, _LONGEST_PAUSE_S) if stuck else _FIRST_PAUSE_S
    last = drain(spool, ledger_for, lock=lock, patience_s=_LONGEST_PAUSE_S)
    recorded += last.recorded
    for _ in range(_LAST_TRIES):
        if not last.busy:
            break
        time.sleep(_FIRST_PAUSE_S)
        last = drain(spool, ledger_for, lock=lock, patience_s=_LONGEST_PAUSE_S)
        recorded += last.recorded
    return replace(last, recorded=recorded)


def _closed_within(life_line: BinaryIO, seconds: float) -> bool:
    """Wait; True as soon as the other end is closed. What it might say meanwhile is passed over."""
    deadline = time.monotonic() + seconds
    while (rest := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([life_line], [], [], rest)
        if ready and not life_line.read1(1024):  # type: ignore[attr-defined]
            return True
    return False


def _left(spool: Spool) -> int:
    return sum(waiting.count for waiting in spool.pending())


class _Pass:
    """One go over everything that waits."""

    def __init__(self, spool: Spool, ledger_for: LedgerFor) -> None:
        self._spool = spool
        self._ledger_for = ledger_for
        self._unreachable: set[str] = set()
        self._recorded = 0
        self._busy = 0
        self._problems: list[str] = []

    def run(self) -> DrainReport:
        for waiting in self._spool.pending():
            if waiting.ledger in self._unreachable:
                continue
            try:
                self._experiment(waiting)
            except LedgerUnreachable as error:
                self._unreachable.add(waiting.ledger)
                self._problems.append(str(error))
            except BadInput as error:
                self._problems.append(str(error))
        for waiting in self._spool.marked_experiments():
            if waiting.ledger not in self._unreachable:
                self._try_to_mark(waiting)
        if self._busy:
            self._problems.append(busy_sentence(self._busy))
        problems = tuple(dict.fromkeys(self._problems))
        return DrainReport(
            recorded=self._recorded, left=_left(self._spool), problems=problems, busy=self._busy
        )

    def _experiment(self, waiting: Waiting) -> None:
        """Pin first: a run must never be there before what it is held to."""
        ledger = self._ledger_for(waiting.ledger)
        pin = self._spool.known_pin(waiting.ledger, waiting.experiment)
        if pin is not None:
            pinned = ledger.pin(waiting.experiment, pin)
            self._spool.remember(waiting.ledger, waiting.experiment, pinned)
        after = 0
        while entries := self._spool.take(waiting.ledger, waiting.experiment, limit=_BATCH, after=after):
            self._record(ledger, entries)
            after = entries[-1].seq

    def _try_to_mark(self, waiting: Waiting) -> None:
        """Mark recorded cells. Marks of cells that are not recorded yet go on waiting."""
        unrecorded = self._spool.pending_keys(waiting.ledger, waiting.experiment)
        every = self._spool.marks(waiting.ledger, waiting.experiment)
        marks = {key: some for key, some in every.items() if key not in unrecorded}
        try:
            missing = self._ledger_for(waiting.ledger).add_marks(waiting.experiment, marks)
        except LedgerUnreachable as error:
            self._unreachable.add(waiting.ledger)
            self._problems.append(str(error))
        except BadInput as error:
            self._problems.append(str(error))
        else:
            there = {key: some for key, some in marks.items() if key not in missing}
            self._spool.marks_recorded(waiting.ledger, waiting.experiment, there)

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
        self._spool.recorded(recorded)
        self._recorded += len(recorded)
        self._busy += len(entries) - len(recorded)
