"""Ledgers of every kind. Servers take seconds to start, so each is started once, when first asked for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ledger_servers import MlflowServer
from tipbench.ledger import MemoryLedger, MlflowLedger, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ALLOWED_HOST = "example.test:5000"
PASSWORD = "correct horse@battery/staple"  # noqa: S105 - of a server that lives for one test session


@dataclass(frozen=True)
class Place:
    """How to open a ledger of one kind, again and again, and the same one from another home."""

    open: Callable[[], MlflowLedger | MemoryLedger]
    elsewhere: Callable[[], MlflowLedger | MemoryLedger]


@pytest.fixture
def experiment() -> str:
    """A name of its own: the stores are shared by all tests."""
    return f"bench {uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def embedded_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a home") / "of #tipbench 100%"


def _server(folder: Path, *options: str, **rest: object) -> Iterator[MlflowServer]:
    with MlflowServer(folder, options, **rest).running() as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    yield from _server(folder, "--artifacts-destination", str(folder / "artifacts"))


@pytest.fixture(scope="session")
def server_without_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    root = (folder / "out-of-reach").as_uri()
    yield from _server(folder, "--no-serve-artifacts", "--default-artifact-root", root)


@pytest.fixture(scope="session")
def server_behind_prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--static-prefix", "/mlflow", "--allowed-hosts", ALLOWED_HOST)
    yield from _server(folder, *options, prefix="/mlflow")


@pytest.fixture(scope="session")
def server_with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    config = folder / "auth.ini"
    config.write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{folder}/auth.db\n"
        f"admin_username = admin\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    env = {"MLFLOW_AUTH_CONFIG_PATH": str(config), "MLFLOW_FLASK_SERVER_SECRET_KEY": "only for tests"}
    yield from _server(folder, "--app-name", "basic-auth", env=env)


def _memory(_: pytest.FixtureRequest, __: Path) -> Callable[[], MemoryLedger]:
    ledger = MemoryLedger()
    return lambda: ledger


def _embedded(request: pytest.FixtureRequest, _: Path) -> Callable[[], MlflowLedger]:
    home: Path = request.getfixturevalue("embedded_home")
    return lambda: open_ledger("", home=home)


def _at(fixture: str, *, user: str = "", host_header: str = "") -> _Opener:
    def opener(request: pytest.FixtureRequest, home: Path) -> Callable[[], MlflowLedger]:
        server: MlflowServer = request.getfixturevalue(fixture)
        url = server.url.replace("://", f"://{user}")
        return lambda: open_ledger(url, home=home, host_header=host_header)

    return opener


if TYPE_CHECKING:
    _Opener = Callable[[pytest.FixtureRequest, Path], Callable[[], MlflowLedger | MemoryLedger]]

_OPENERS: dict[str, _Opener] = {
    "memory": _memory,
    "embedded": _embedded,
    "server": _at("server"),
    "server without artifacts": _at("server_without_artifacts"),
    "server behind prefix": _at("server_behind_prefix", host_header=ALLOWED_HOST),
    "server with accounts": _at("server_with_accounts", user="admin:correct%20horse%40battery%2Fstaple@"),
}


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    opener = _OPENERS[request.param](request, tmp_path)

    def elsewhere() -> MlflowLedger | MemoryLedger:
        here = opener()
        return here if isinstance(here, MemoryLedger) else open_ledger(here.uri, home=tmp_path / "other")

    return Place(open=opener, elsewhere=elsewhere)


@pytest.fixture(params=["memory", "embedded", "server", "server without artifacts"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The kinds of ledger that differ in what they keep where."""
    return _place(request, tmp_path)


@pytest.fixture(params=["server behind prefix", "server with accounts"])
def guarded_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Servers that differ in how they are reached; one that checks a password takes its time for it."""
    return _place(request, tmp_path)


@pytest.fixture
def ledger(place: Place) -> MlflowLedger | MemoryLedger:
    return place.open()


@pytest.fixture(params=["embedded", "server", "server without artifacts"])
def mlflow_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> MlflowLedger:
    opened = _OPENERS[request.param](request, tmp_path)()
    assert isinstance(opened, MlflowLedger)
    return opened
