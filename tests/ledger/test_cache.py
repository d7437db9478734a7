"""The read cache: right or absent, whatever happens to its file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_batches import sample_application, sample_batch
from ledger_samples import sample_pin, sample_result
from tipbench.ledger import MemoryLedger
from tipbench.ledger.cache import Cache, Counts

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import Run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    ledger = MemoryLedger()
    ledger.pin("e", sample_pin())
    ledger.record("e", [sample_result(1), sample_result(2, error="x"), sample_result(3, tips=["\ufffd ☕"])])
    return ledger.runs("e")


def test_what_was_kept_comes_back_equal(tmp_path: Path, runs: list[Run]) -> None:
    """Runs and their counts survive the round trip, for another opening too."""
    Cache(tmp_path / "c.db").keep("uri", "1", "r1", runs)
    assert Cache(tmp_path / "c.db").runs("uri", "1", "r1") == runs
    assert Cache(tmp_path / "c.db").counts("uri", "1", "r1") == Counts.of(runs)
    assert Counts.of(runs) == Counts(done=2, failed=1, pending=2, newest_ms=1_000_003)


@pytest.mark.parametrize(
    "asked", [("uri", "1", "r2"), ("uri", "2", "r1"), ("other", "1", "r1"), ("uri", "1", "")]
)
def test_anything_else_is_a_miss(tmp_path: Path, runs: list[Run], asked: tuple[str, str, str]) -> None:
    """Another revision, experiment or ledger has nothing in the cache; no revision never has."""
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    cache.keep("uri", "1", "", runs)
    assert cache.runs(*asked) is None
    assert cache.counts(*asked) is None


def test_a_newer_revision_takes_the_place_of_the_older(tmp_path: Path, runs: list[Run]) -> None:
    """The file does not grow with every write to an experiment."""
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    cache.keep("uri", "1", "r2", runs[:1])
    assert cache.runs("uri", "1", "r1") is None
    assert cache.runs("uri", "1", "r2") == runs[:1]


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, b"SQLite format 3\x00" + bytes(5000)])
def test_a_broken_file_is_a_miss(tmp_path: Path, runs: list[Run], content: bytes) -> None:
    """A file that is no database does not answer, and is made anew by the second who keeps something."""
    (tmp_path / "c.db").write_bytes(content)
    cache = Cache(tmp_path / "c.db")
    assert cache.runs("uri", "1", "r1") is None
    cache.keep("uri", "1", "r1", runs)
    cache.keep("uri", "1", "r1", runs)
    assert cache.runs("uri", "1", "r1") == runs


@pytest.mark.parametrize("text", ["{", "[1]", '[{"run_id": "x"}]', json.dumps([{"candidates": []}])])
def test_a_snapshot_of_another_shape_is_a_miss(tmp_path: Path, runs: list[Run], text: str) -> None:
    """What an older or newer version kept is read anew, not guessed at."""
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    with closing(sqlite3.connect(tmp_path / "c.db")) as db:
        db.execute("UPDATE snapshot_2 SET runs = ?", (text,))
        db.commit()
    assert cache.runs("uri", "1", "r1") is None


def test_a_snapshot_without_the_machines_is_a_miss(tmp_path: Path, runs: list[Run]) -> None:
    """The engine's kind was recorded long before it was kept here: without it, hosts would be guessed at."""
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    with closing(sqlite3.connect(tmp_path / "c.db")) as db:
        (text,) = db.execute("SELECT runs FROM snapshot_2").fetchone()
        old = json.loads(text)
        for run in old:
            del run["host_kind"]
        db.execute("UPDATE snapshot_2 SET runs = ?", (json.dumps(old),))
        db.commit()
    assert cache.runs("uri", "1", "r1") is None


def test_batches_are_kept_beside_the_runs(tmp_path: Path, runs: list[Run]) -> None:
    """Each under a revision of its own; an empty revision keeps nothing."""
    batch = sample_batch("e")
    judged = replace(batch, applications=(sample_application(batch),))
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    cache.keep_batches("uri", "1", "w1", [batch, judged])
    cache.keep_batches("uri", "1", "", [])
    assert Cache(tmp_path / "c.db").batches("uri", "1", "w1") == [batch, judged]
    assert cache.runs("uri", "1", "r1") == runs
    for asked in (("uri", "1", "r1"), ("uri", "2", "w1"), ("other", "1", "w1"), ("uri", "1", "")):
        assert cache.batches(*asked) is None


@pytest.mark.parametrize("text", ["{", "[1]", '[{"batch_id": "x"}]', '[{"items": [], "applications": [1]}]'])
def test_batches_of_another_shape_are_a_miss(tmp_path: Path, text: str) -> None:
    """What an older or newer version kept is read anew."""
    cache = Cache(tmp_path / "c.db")
    cache.keep_batches("uri", "1", "w1", [sample_batch("e")])
    with closing(sqlite3.connect(tmp_path / "c.db")) as db:
        db.execute("UPDATE batches_1 SET batches = ?", (text,))
        db.commit()
    assert cache.batches("uri", "1", "w1") is None


def test_a_locked_file_is_a_miss(tmp_path: Path, runs: list[Run]) -> None:
    """While another process has the file to itself, the ledger is read instead."""
    cache = Cache(tmp_path / "c.db")
    cache.keep("uri", "1", "r1", runs)
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert cache.runs("uri", "1", "r1") is None
        cache.keep("uri", "1", "r2", runs)


def test_a_place_that_cannot_be_written_is_a_miss(tmp_path: Path, runs: list[Run]) -> None:
    """A home that is no folder costs time, nothing else."""
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "c.db")
    cache.keep("uri", "1", "r1", runs)
    assert cache.runs("uri", "1", "r1") is None
