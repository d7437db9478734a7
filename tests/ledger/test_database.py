"""The embedded store's file: made whole by one process, and refused in one sentence when it is not right."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ledger_samples import sample_pin, sample_result
from tipbench.errors import BadInput, LedgerUnreachable
from tipbench.ledger import open_ledger
from tipbench.ledger.address import parse_address
from tipbench.ledger.database import ready_database

RECORD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ledger_samples import sample_pin, sample_result
from tipbench.ledger import open_ledger
ledger = open_ledger("", home=Path(sys.argv[2]))
n = int(sys.argv[3])
print("begin", flush=True)
ledger.pin("e", sample_pin(prompts=[f"v{n}"]))
ledger.record("e", [sample_result(n), sample_result(1000 + n)])
"""


def recorder(tests: Path, home: Path, n: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RECORD, str(tests), str(home), str(n)], stdout=subprocess.PIPE
    )


@pytest.fixture
def tests(request: pytest.FixtureRequest) -> Path:
    return request.config.rootpath / "tests"


def test_two_processes_may_open_a_fresh_home_at_once(tests: Path, tmp_path: Path) -> None:
    """The schema is made once, and both record into it."""
    home = tmp_path / "fresh"
    children = [recorder(tests, home, n) for n in (1, 2)]
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0]
    ledger = open_ledger("", home=home)
    assert {run.scenario_id for run in ledger.runs("e")} == {"s1", "s2", "s1001", "s1002"}


def test_a_kill_while_the_store_is_made_leaves_no_half_store(tests: Path, tmp_path: Path) -> None:
    """Whenever the first process dies, the next one makes the store and goes on."""
    home = tmp_path / "fresh"
    child = recorder(tests, home, 1)
    assert child.stdout is not None
    child.stdout.readline()
    deadline = time.monotonic() + 60
    while not list(home.glob(".mlflow.db.new*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    ledger = open_ledger("", home=home)
    ledger.pin("e", sample_pin())
    ledger.record("e", [sample_result(2)])
    assert "s2" in {run.scenario_id for run in ledger.runs("e")}
    assert not list(home.glob(".mlflow.db.new*"))


@pytest.mark.parametrize("name", ["100%", "a%zz#b c", "é 日本 @:&=+;'"])
def test_a_home_may_have_an_odd_name(tmp_path: Path, name: str) -> None:
    """The store is in the folder of just that name, and nothing is made beside it."""
    ledger = open_ledger("", home=tmp_path / name)
    ledger.pin("e", sample_pin())
    ledger.record("e", [sample_result(text="said")])
    (run,) = ledger.runs("e")
    assert ledger.run(run.run_id)[1].raw == "said"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def refused(home: Path) -> str:
    with pytest.raises(LedgerUnreachable) as refusal:
        open_ledger("", home=home).pinned("e")
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """Whatever lies where the store should be is left alone and named."""
    (tmp_path / "mlflow.db").write_bytes(b"hello" * 1000)
    said = refused(tmp_path)
    assert f"{tmp_path}/mlflow.db" in said
    assert "move it away" in said
    assert (tmp_path / "mlflow.db").read_bytes() == b"hello" * 1000


def test_a_folder_in_the_stores_place_is_named(tmp_path: Path) -> None:
    """A folder named mlflow.db is told to be moved away."""
    (tmp_path / "mlflow.db").mkdir()
    assert "is a folder" in refused(tmp_path)


def test_another_programs_database_is_named(tmp_path: Path) -> None:
    """A SQLite file of something else is not turned into a store."""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
        db.execute("CREATE TABLE notes (text)")
    assert "not one of MLflow" in refused(tmp_path)


@pytest.mark.parametrize("version", ["e9fb0b9b1d0a", "451aebb31d03"])
def test_a_store_of_another_mlflow_is_neither_used_nor_migrated(tmp_path: Path, version: str) -> None:
    """A schema that is newer (unknown here) or older is left as it is, with both ways out."""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
        db.executescript("CREATE TABLE alembic_version (version_num TEXT); CREATE TABLE runs (id TEXT);")
        db.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        db.commit()
    before = (tmp_path / "mlflow.db").read_bytes()
    said = refused(tmp_path)
    assert f"its schema is {version}" in said
    assert "mlflow db upgrade" in said
    assert (tmp_path / "mlflow.db").read_bytes() == before


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A home below a file can hold nothing; the sentence names the setting to change."""
    (tmp_path / "file").write_text("")
    said = refused(tmp_path / "file" / "home")
    assert "TIPBENCH_HOME" in said


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    """A store may be made where somebody only touched a file."""
    (tmp_path / "mlflow.db").touch()
    assert open_ledger("", home=tmp_path).pinned("e") is None


def test_a_sqlite_file_of_ones_own_is_a_ledger_too(tmp_path: Path) -> None:
    """`sqlite:///…` takes a database anywhere; its texts are kept in the home."""
    ledger = open_ledger(f"sqlite:///{tmp_path}/elsewhere/my.db", home=tmp_path / "home")
    ledger.pin("e", sample_pin())
    ledger.record("e", [sample_result()])
    (run,) = ledger.runs("e")
    assert (tmp_path / "home" / "artifacts" / run.run_id / "artifacts" / "raw.txt").exists()


def test_a_database_without_its_driver_or_server_is_explained(tmp_path: Path) -> None:
    """PostgreSQL needs a driver and a server that runs: the sentence says which is missing, no password."""
    with pytest.raises((BadInput, LedgerUnreachable)) as refusal:
        open_ledger("postgresql+psycopg2://ann:pw@127.0.0.1:9/x", home=tmp_path).pinned("e")
    said = str(refusal.value)
    assert "pip install" in said or "cannot be reached" in said
    assert "pw" not in said


def test_a_database_address_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """A port that is no number is bad input, not a crash."""
    with pytest.raises(BadInput, match="is not the address of a database"):
        open_ledger("postgresql://host:port/x", home=tmp_path).pinned("e")


def test_migrations_are_read_once(home: Path, tmp_path: Path) -> None:
    """A ledger that is opened again, as a service does for every page, looks at its own file alone."""
    import mlflow

    migrations = tmp_path / "migrations"
    shutil.copytree(Path(mlflow.__file__).parent / "store" / "db_migrations", migrations)
    address = parse_address("", home=home)
    ready_database(address, migrations=migrations, create=lambda _uri: None)
    shutil.rmtree(migrations)
    ready_database(address, migrations=migrations, create=lambda _uri: None)
