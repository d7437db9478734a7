"""The modes of what tipbench makes: for its owner alone, whatever the umask is."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command import tipbench
from stand_in import FakeModel, StandIn, running
from tip_service import asked, serving, told
from tipbench.errors import NotFound
from tipbench.ledger.cache import Cache
from tipbench.private import make_folder, narrow_database, opener
from tipbench.settings import Settings
from tipbench.store import Store
from tipbench.workflows.browse import runs
from tipbench.workflows.doctor import examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.workflows.doctor import Finding

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(params=[0o022, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that lets others in, for this process and all that it starts."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def loose(folder: Path) -> list[str]:
    """What others may look into, the folder included."""
    return [f"{mode(one):o} {one}" for one in (folder, *folder.rglob("*")) if mode(one) & 0o077]


def loosen(folder: Path) -> None:
    """Give a home the modes that an earlier version gave it."""
    for one in (folder, *folder.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)


def of_the_home() -> Finding:
    found = examine(Settings.of({"ollama_url": NOBODY}), patience_s=1)
    return next(one for one in found if one.name == "home")


def done(*arguments: str) -> None:
    ran = tipbench(*arguments)
    assert ran.code == 0, ran.err


def collect(url: str, *arguments: str) -> None:
    one = ("--models", "a:1b", "--prompts", "v1", "--n-scenarios", "2", "--engine", "ollama")
    done("collect", *one, "--ollama-url", url, *arguments)


@pytest.mark.timeout(300)
def test_all_that_tipbench_makes_is_for_its_owner_alone(umask: int, fresh_home: Path, tmp_path: Path) -> None:
    """Databases, artifacts, jobs, logs and gates are 0700 and 0600; files of --out are as the umask says."""
    home = fresh_home
    files = [tmp_path / name for name in ("report.html", "batch.json", "log.jsonl")]
    files.append(home / "a table of mine.csv")
    with running(StandIn([FakeModel("a:1b")])) as host:
        collect(host.url, "--events", str(tmp_path / "events"))
        done("judge", "auto", "--judge", "proxy")
        done("judge", "export", "--out", str(files[1]))
        done("compare", "--insist", "--format", "html", "--out", str(files[0]))
        done("compare", "--insist", "--format", "csv", "--out", str(files[3]))
        done("judge", "export", "--all", "--reopen", "--out", str(home / "airflow" / "run" / "batches"))
        policies = ("--challenger", "egreedy-v2", "--champion", "egreedy")
        gate = tipbench("sim", "gate", *policies, "--record", "--seeds", "5", "--users", "4", "--rounds", "5")
        assert gate.code in {0, 4}, gate.err
        with serving(home, "--ollama-url", host.url, "--engine", "ollama") as service:
            admin = {"Authorization": f"Bearer {service.said[-1]}"}
            body = {"models": "a:1b", "prompts": "v1", "n_scenarios": 1, "experiment": "job"}
            job = service.client.post("/api/bench/run", json=body, headers=admin).json()
            address = f"/api/jobs/{job['job_id']}"
            while service.client.get(address, headers=admin).json()["state"] in {"queued", "running"}:
                time.sleep(0.5)
            decision = service.client.post("/recommend", json=asked(), headers=admin)
            service.client.post("/reward", json=told(decision), headers=admin)
            assert [one for one in loose(home) if not one.endswith("mine.csv")] == []
    done("bandit", "export", "--out", str(files[2]))
    assert [one for one in loose(home) if not one.endswith("mine.csv")] == []
    names = {one.name for one in home.rglob("*")}
    assert {"mlflow.db", "spool.db", "cache.db", "service.db", "tips.db", "raw.txt", "gates"} <= names
    assert {mode(file) for file in (*files, tmp_path / "events")} == {0o666 & ~umask}


def test_reading_from_python_makes_private_files_too(umask: int, home: Path) -> None:
    """A program that reads an experiment keeps its umask, and its cache is for its owner alone."""
    home.chmod(0o700)
    Cache(home / "cache.db").keep("l", "e", "1", [])
    with Store(home / "service.db") as store:
        store.tokens.create("anna", "judge", now_ms=1)
        assert mode(home / "service.db-wal") == 0o600
    with pytest.raises(NotFound):
        runs("nobody")
    assert os.umask(umask) == umask
    assert mode(home / "cache.db") == 0o600


@pytest.mark.timeout(120)
def test_a_home_of_an_earlier_version_is_closed_to_others(fresh_home: Path) -> None:
    """The first command takes the rights of others from the home and from all that is in it."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        collect(host.url)
    loosen(fresh_home)
    done("experiments")
    assert loose(fresh_home) == []
    assert of_the_home().state == "ok"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("entry", ["", "notes.txt"])
def test_a_folder_that_was_there_before_stays_as_it_is(fresh_home: Path, entry: str) -> None:
    """Only tipbench's own files in it are private; `doctor` warns and says what to type."""
    fresh_home.mkdir()
    fresh_home.chmod(0o755)
    if entry:
        (fresh_home / entry).touch(mode=0o644)
    with running(StandIn([FakeModel("a:1b")])) as host:
        collect(host.url)
        collect(host.url, "--experiment", "second")
    done("token", "create", "--role", "judge", "--name", "anna")
    assert loose(fresh_home) == [f"755 {fresh_home}", *([f"644 {fresh_home / entry}"] if entry else [])]
    finding = of_the_home()
    assert (finding.state, finding.fix) == ("warn", f"chmod 700 {fresh_home}")
    fresh_home.chmod(0o700)
    assert of_the_home().state == "ok"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("foreign", ["notes.txt", "my notes", ".DS_Store"])
def test_a_foreign_name_does_not_keep_an_old_home_open(fresh_home: Path, foreign: str) -> None:
    """Files and folders of tipbench are closed to others; the home and the foreign name stay as they were."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        collect(host.url)
    done("token", "create", "--role", "judge", "--name", "anna")
    for folder in ("anchors", "gates/plans", "jobs/1", "locks/collect", "reports", "airflow/run"):
        (fresh_home / folder).mkdir(parents=True, exist_ok=True)
        (fresh_home / folder / "file").touch()
    for file in ("shipped.json", ".shipped.json.0a1b2c3d", "ship.lock", "tips.db", "mlflow.db.lock"):
        (fresh_home / file).touch()
    other = fresh_home / foreign
    if "." in foreign:
        other.touch()
    else:
        other.mkdir()
        (other / "artifacts").touch()
    loosen(fresh_home)
    foreign_files = [one for one in loose(fresh_home) if str(other) in one]
    assert foreign_files
    done("experiments")
    assert loose(fresh_home) == [f"755 {fresh_home}", *foreign_files]
    assert of_the_home().state == "warn"


def test_folders_are_closed_also_where_the_databases_are_private(home: Path) -> None:
    """An open folder beside private databases is closed; a link to a folder elsewhere is not followed."""
    (home / "artifacts").rename(home.parent / "elsewhere")
    (home / "artifacts").symlink_to(home.parent / "elsewhere")
    (home / "jobs" / "1").mkdir(parents=True)
    (home / "jobs" / "1" / "log").touch()
    (home / "cache.db").unlink(missing_ok=True)
    (home / "tips.db").symlink_to("nowhere")
    for one in (home / "jobs", home / "jobs" / "1", home / "jobs" / "1" / "log", home.parent / "elsewhere"):
        one.chmod(0o755)
    with Store(home / "service.db") as store:
        store.tokens.list()
    assert loose(home / "jobs") == []
    assert mode(home.parent / "elsewhere") == 0o755


@pytest.fixture
def _ordinary_user() -> Iterator[None]:
    """Nobody's rights: root may change every mode."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("_ordinary_user")
def test_a_mode_that_cannot_be_changed_is_left() -> None:
    """Where the system refuses, nothing is raised, and the file is read as before."""
    of_root = Path("/etc/passwd")
    with pytest.raises(PermissionError):
        of_root.chmod(0o400)
    narrow_database(of_root)
    with open(of_root, opener=opener) as file:
        assert file.read()


def test_folders_above_are_private_too(tmp_path: Path, umask: int) -> None:
    """Each folder that is missing is made for its owner; one that exists is not changed."""
    (tmp_path / "a").mkdir(mode=0o777)
    make_folder(tmp_path / "a" / "b" / "c")
    assert mode(tmp_path / "a") == 0o777 & ~umask
    assert loose(tmp_path / "a" / "b") == []
    make_folder(tmp_path / "a")
    (tmp_path / "a" / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "file")


def test_another_folder_than_the_home_stays_as_it_is(home: Path, tmp_path: Path) -> None:
    """A database that was put elsewhere is private, and its folder is its owner's."""
    copy = shutil.copytree(home, tmp_path / "copy")
    loosen(copy)
    narrow_database(copy / "mlflow.db")
    assert (mode(copy / "mlflow.db"), mode(copy)) == (0o600, 0o755)
