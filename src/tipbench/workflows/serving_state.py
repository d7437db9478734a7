"""`bandit`: what the serving half has learned and logged, looked at and looked after."""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.bandit import log_export, policies, upkeep
from tipbench.bandit.opening import open_books
from tipbench.bandit.serving import check_ids
from tipbench.bandit.standing import standing
from tipbench.bandit.suites import use_suite
from tipbench.errors import BadInput, NotFound
from tipbench.settings import home
from tipbench.text import visible, visible_json
from tipbench.workflows.whole_files import check_free, write_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.bandit.books import Books
    from tipbench.bandit.standing import Standing
    from tipbench.bandit.upkeep import Migrated

FILE_NAME = "tips.db"
TIPS_DB_ENV = "TIPBENCH_TIPS_DB"
_DAY_MS = 24 * 3600 * 1000


def location(folder: Path | None = None) -> str:
    """Where tips keep their state: `$TIPBENCH_TIPS_DB` (an address of PostgreSQL, or a file), else a file in
    tipbench's home.
    """
    return os.environ.get(TIPS_DB_ENV) or str((folder or home()) / FILE_NAME)


@contextmanager
def opened(*, must_exist: bool = True) -> Iterator[Books]:
    """The books; NotFound where nothing has been served yet, rather than making them."""
    books = open_books(location(), make=not must_exist)
    try:
        yield books
    finally:
        books.close()


@contextmanager
def suite_switch(shipped_now: str | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that puts a suite's state in use. It does nothing if nothing has been served yet.

    The state in use belongs to the suite that is shipped now, if there is one. Raises before the block if
    the state cannot be opened, so that nothing is shipped then.
    """
    with ExitStack() as stack:
        books: Books | None = None
        with suppress(NotFound):
            books = stack.enter_context(opened())

        def switch(suite_id: str) -> None:
            if books is not None:
                use_suite(books, suite_id)

        if shipped_now is not None:
            switch(shipped_now)
        yield switch


def stats(*, user_id: str | None = None) -> Standing:
    """The statistics of every policy that ships, of one user or overall. NotFound for an unknown user."""
    if user_id is not None:
        check_ids(**{"--user": user_id})
    with opened() as books, books.reading() as reading:
        return standing(reading, [policies.make(name) for name in policies.NAMES], user_id=user_id)


def migrate(source: str, target: str, *, replace: bool = False) -> Migrated:
    """Copy what one policy has learned into another with more dimensions; no weight changes."""
    with opened() as books:
        return upkeep.migrate(books, policies.make(source), policies.make(target), replace=replace)


def compact(*, keep_days: float, tell: Callable[[int, int], None] | None = None) -> int:
    """Drop entries of the log that are older than that; how many. `tell` hears how far it is."""
    if not 0 < keep_days <= 36_500:
        raise BadInput(f"--keep-days: {keep_days:g} is not above 0 and up to 36500")
    before_ms = time.time_ns() // 1_000_000 - int(keep_days * _DAY_MS)
    with opened() as books:
        return upkeep.compact(books, before_ms=before_ms, tell=tell)


def export(*, out: str, form: str, policy: str = "", force: bool = False) -> int:
    """Write the decisions of the log to a file, or to standard output for `-`; how many."""
    if form not in log_export.FORMATS:
        raise BadInput(f"--format: {form!r} is not one of {', '.join(log_export.FORMATS)}")
    path = None if out == "-" else Path(out)
    if path is not None:
        check_free(path, force=force)
        if path.resolve() == Path(location()).expanduser().resolve():
            raise BadInput(f"--out: {path} is the state itself, which an export would take the place of")
    elif sys.stdout is None:
        raise BadInput("standard output is closed; give a file with --out")
    counted = 0

    def lines(books: Books) -> Iterator[str]:
        nonlocal counted
        for line in log_export.export(books, form=form, policy=policy):
            counted += 1
            yield line

    with opened() as books:
        if policy:
            _check_known(books, policy)
        if path is None:
            if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal's character set is not for data
                sys.stdout.reconfigure(encoding="utf-8", errors="strict")
            clean = visible_json if form == "jsonl" else visible
            sys.stdout.writelines(map(clean, lines(books)) if sys.stdout.isatty() else lines(books))
            sys.stdout.flush()  # what is counted is written
        else:
            _write(path, lines(books))
    return counted - (form == "csv")


def _check_known(books: Books, policy: str) -> None:
    """An export of nobody's decisions would look like one of a policy that made none."""
    with books.reading() as reading:
        known = {total.policy for total in reading.totals()} | set(policies.NAMES)
    if policy not in known:
        raise NotFound(f"no decision was ever made by {policy!r}; there are {', '.join(sorted(known))}")


def _write(path: Path, lines: Iterator[str]) -> None:
    try:
        write_pieces(path, lines)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); give another --out") from None
