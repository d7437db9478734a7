"""The cells and marks that wait on this disk: list them, record them at another address, delete them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tipbench.compare.figures import count
from tipbench.errors import BadInput, NotFound, Unavailable
from tipbench.ledger import Drained, drain, lock_unusable, open_ledger, public_uri
from tipbench.ledger.locks import file_lock, is_in_use
from tipbench.settings import home
from tipbench.workflows.recording import collect_lock, record_lock, record_locks, the_spool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tipbench.ledger import DrainReport, Waiting
    from tipbench.settings import Settings


def waiting_cells() -> list[Waiting]:
    """How many cells and marks wait for which experiment of which ledger. Contacts no ledger."""
    with the_spool() as spool:
        return spool.waiting()


def what_waits(cells: int, marks: int) -> str:
    """`2 cells`, `1 mark on recorded cells`, `2 cells and 1 mark on recorded cells`."""
    parts = [count(cells, "cell")] if cells or not marks else []
    if marks:
        parts.append(f"{count(marks, 'mark')} on recorded cells")
    return " and ".join(parts)


def has_running_command(waiting: Waiting) -> bool:
    """Whether a process collects or records this experiment at the moment."""
    return any(is_in_use(path) for path in _locks(waiting))


def record_elsewhere(settings: Settings, *, to: str, source: str | None = None) -> DrainReport:
    """Record in the ledger `to` what waits for another address: the only one, or `source`.

    A cell that `to` does not take, and a mark on a cell that `to` does not have, wait on for their address.
    """
    target = public_uri(to, home=home())
    with the_spool() as spool:
        others = [waiting for waiting in spool.waiting() if waiting.ledger != target]
        if source is None and not others:
            raise NotFound(f"no cell waits for another address than {target}")
        address = _chosen(others, source)
        moving = [waiting for waiting in others if waiting.ledger == address]
        for waiting in moving:
            if has_running_command(waiting):
                raise _running(waiting)
        ledger = open_ledger(to, home=home(), host_header=settings.mlflow_host_header)
        which = Drained(ledger=address, to=target)
        return drain(spool, lambda _: ledger, lock=record_locks(), which=which)


def waiting_for(experiment: str, *, source: str | None = None) -> Waiting:
    """What waits for an experiment: at the only address that it waits for, or at `source`."""
    every = waiting_cells()
    found = [waiting for waiting in every if waiting.experiment == experiment]
    if not found:
        names = ", ".join(sorted({repr(waiting.experiment) for waiting in every}))
        rest = f"cells of {names} wait" if names else "no cell waits at all"
        raise NotFound(f"no cell of {experiment!r} waits to be recorded: {rest}")
    address = _chosen(found, source)
    return next(waiting for waiting in found if waiting.ledger == address)


def discard(waiting: Waiting) -> int:
    """Delete the cells and marks that wait for one experiment of one ledger; return how many cells."""
    with the_spool() as spool, ExitStack() as stack:
        for path in _locks(waiting):
            try:
                held = stack.enter_context(file_lock(path, patience_s=0))
            except OSError as error:
                raise lock_unusable(path, error) from None
            if not held:
                raise _running(waiting)
        return spool.discard(waiting.ledger, waiting.experiment)


def _locks(waiting: Waiting) -> tuple[Path, Path]:
    where = waiting.ledger, waiting.experiment
    return collect_lock(*where), record_lock(*where)


def _chosen(found: Sequence[Waiting], source: str | None) -> str:
    """The address that `--from` names, or the only address that cells wait for."""
    addresses = list(dict.fromkeys(waiting.ledger for waiting in found))
    if source is not None:
        asked = public_uri(source, home=home())
        if asked not in addresses:
            known = ", ".join(addresses) or "no address"
            raise NotFound(f"--from: no such cell waits for {asked}; cells wait for {known}")
        return asked
    if len(addresses) > 1:
        raise BadInput(f"cells wait for several addresses: choose one with --from ({', '.join(addresses)})")
    return addresses[0]


def _running(waiting: Waiting) -> Unavailable:
    return Unavailable(
        f"a running command collects or records {waiting.experiment!r} at {waiting.ledger}; "
        "wait for it to end, then run the same command"
    )
