"""Books of both kinds, the one in a file and the one in a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postgres_cluster import running_cluster
from tipbench.bandit.postgres_books import PostgresBooks
from tipbench.bandit.sqlite_books import SqliteBooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from postgres_cluster import Cluster
    from tipbench.bandit.books import Books

    OpenBooks = Callable[[], Books]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One server for all tests of a process; each has a database of its own."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where books are kept: a path, or the address of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "tips.db")
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.new_database()


@pytest.fixture
def open_books(location: str, tmp_path: Path) -> Iterator[OpenBooks]:
    """Opens the same place once more, as another process would."""
    opened: list[Books] = []

    def open_() -> Books:
        in_file = not location.startswith("postgresql:")
        books: Books = SqliteBooks(tmp_path / "tips.db") if in_file else PostgresBooks(location)
        opened.append(books)
        return books

    yield open_
    for books in opened:
        books.close()


@pytest.fixture
def books(open_books: OpenBooks) -> Books:
    return open_books()
