"""Books by where they are: a path, or the address of a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import BadInput, StateUnusable

if TYPE_CHECKING:
    from tipbench.bandit.books import Books

_ADDRESSES = ("postgresql://", "postgres://")
_ALMOST = re.compile(
    r"\s*(postgres(ql)?:|(host|hostaddr|port|dbname|user|password|service)\s*=)", re.IGNORECASE
)


def open_books(location: str, *, make: bool = True) -> Books:
    """The books at this place. Where there are none yet they are made; without `make` that is NotFound."""
    check_place(location)
    if location.startswith(_ADDRESSES):
        return _in_postgres(location, make=make)
    return SqliteBooks(Path(location), make=make)


def check_place(location: str) -> None:
    """Refuse what is neither a file nor an address, without looking for it."""
    if location.startswith(_ADDRESSES):
        return
    if "://" in location:
        scheme = location.partition(":")[0]
        raise BadInput(f"state cannot be kept in {scheme}: name a file, or a postgresql:// address")
    if _ALMOST.match(location):  # as a file it would be this machine's alone, and have a password for a name
        raise BadInput(
            "the place of the state looks like PostgreSQL's, but not like an address; write it as "
            "postgresql://host:port/database, with user:password@ before the host"
        )
    try:
        Path(location).expanduser()
    except RuntimeError:
        raise BadInput(
            f"state cannot be kept in {location}: there is no such user; write the path out"
        ) from None


def _in_postgres(url: str, *, make: bool) -> Books:
    try:
        from tipbench.bandit.postgres_books import PostgresBooks  # noqa: PLC0415 - its driver is an extra
    except ImportError:
        raise StateUnusable(
            "state in PostgreSQL needs psycopg; install it with: pip install 'tipbench[postgres]'"
        ) from None
    return PostgresBooks(url, make=make)
