"""A real PostgreSQL server of the tests' own, in a folder that is removed again."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

# As it is before a test has one of its own: no other user may look into that.
_TEMPORARY = tempfile.gettempdir()


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the server listens."""

    port: int
    folder: Path

    def url(self, database: str) -> str:
        return f"postgresql://tipbench:not-secret@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, encoding: str = "UTF8") -> str:
        """The address of an empty database."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
        return self.url(name)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A server that listens on loopback. PostgreSQL refuses to run as root, so it does not."""
    folder = Path(tempfile.mkdtemp(prefix="tipbench-postgres-", dir=_TEMPORARY))
    try:
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        _make(folder)
        with _server(folder) as port:
            yield Cluster(port=port, folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("not-secret\n")
    secret.chmod(0o644)
    command = [_tool("initdb"), "-D", str(folder / "data"), "-U", "tipbench", "--pwfile", str(secret)]
    command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **_as_owner())


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": folder,
        "shared_buffers": "16MB",
        "fsync": "off",  # the server is never killed, and what is tested is who writes when
        "max_connections": 50,
    }
    command = [_tool("postgres"), "-D", str(folder / "data")]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **_as_owner())
    try:
        _wait(port, server, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        if server.poll() is not None:
            break
        try:
            url = f"postgresql://tipbench:not-secret@127.0.0.1:{port}/postgres"
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the tests' PostgreSQL did not start: {log.read_text()}")


def _as_owner() -> dict[str, Any]:
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}


def _tool(name: str) -> str:
    """A program of PostgreSQL's, which Debian keeps apart from the others, by version."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: -int(place.parent.name))
    places += [Path("/opt/homebrew/opt/postgresql/bin"), Path("/usr/local/opt/postgresql/bin")]
    found = shutil.which(name) or next((str(p / name) for p in places if (p / name).exists()), None)
    assert found, f"the tests need PostgreSQL's {name}; .ci/postgres installs it"
    return found
