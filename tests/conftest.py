"""What every test has: a home of its own, and no network but loopback."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from network import REACHABLE
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# The same cases in every run, however busy the machine: what passes here passes elsewhere. To find others,
# say `--hypothesis-profile=search`.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", _PATIENT)
settings.register_profile("same", _PATIENT, derandomize=True)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a few tests take minutes for comes first, or whoever is given it last keeps everybody waiting."""
    items.sort(key=lambda item: "airflow" not in item.keywords)


@pytest.fixture(scope="session", autouse=True)
def _only_loopback() -> Iterator[None]:
    """A test that reaches for the network fails at once instead of depending on it."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:  # noqa: ANN401 - the library's own signature
        loopback = self.family == socket.AF_UNIX or str(address[0]).startswith(("127.", "::1", "localhost"))
        if not loopback and address[0] not in REACHABLE:
            self.close()  # whoever connects closes it on an OSError only
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    socket.socket.connect = guarded  # type: ignore[assignment, method-assign]
    yield
    socket.socket.connect = connect  # type: ignore[method-assign]


@pytest.fixture(scope="module", autouse=True)
def _let_go_of_stores() -> Iterator[None]:
    """MLflow keeps the databases of every home open for as long as the process lives; tests make hundreds."""
    yield
    for kind in ("tracking", "model_registry"):
        module = sys.modules.get(f"mlflow.store.{kind}.sqlalchemy_store")
        for engine in list(module.SqlAlchemyStore._engine_map.values()) if module else ():
            engine.dispose()


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose embedded store has its tables, which takes two seconds to make."""
    home = tmp_path_factory.mktemp("made-home")
    open_ledger("", home=home).experiments()
    return home


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that nothing has touched."""
    home = tmp_path / "home"
    monkeypatch.setenv("TIPBENCH_HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Locks of engines are where temporary files are, and Python looks that up once in a process.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("OLLAMA_HOST", "MLFLOW_TRACKING_URI", "TIPBENCH_MLFLOW_HOST_HEADER"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def recorded_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the collector itself, as when its writer was killed: one takes seconds to start, and has tests."""
    monkeypatch.setattr("tipbench.workflows.recording.Recorder._start_writer", lambda _self: None)


@pytest.fixture
def home(fresh_home: Path, made_home: Path) -> Path:
    """A home with an embedded store that is ready to use and empty."""
    shutil.copytree(made_home, fresh_home)
    return fresh_home
