"""The database of a store without a server: looked at before MLflow opens it, made whole or not at all.

MLflow alone would try a broken database ten times over two minutes, migrate an older one without
asking, and leave half a schema behind when it is killed while making one.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, LedgerUnreachable
from tipbench.ledger.faults import other_version
from tipbench.ledger.locks import file_lock
from tipbench.private import make_file, narrow_database
from tipbench.text import hide_logins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.ledger.address import Address

_VERSION = "SELECT version_num FROM alembic_version"


def ready_database(address: Address, *, migrations: Path, create: Callable[[str], None]) -> None:
    """See that MLflow can open the database; a file that is not there is made with `create(uri)`."""
    if address.path is None:
        found = _server_version(address)
    else:
        if address.kind == "embedded":
            narrow_database(address.path)
        found = _file_version(address.path)
        if found is None:
            _make(address.path, create)
    if found is None:
        return
    expected = _newest(migrations)
    if found != expected:
        raise other_version(address, found=found, expected=expected)


@cache
def _newest(migrations: Path) -> str:
    """The version that MLflow as it is loaded here expects.

    Read once: alembic imports every migration to find the last one, which takes longer than all else that is
    done to open a ledger, and MLflow installed anew meanwhile would not be the one that is loaded.
    """
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - slow to import, and a server needs none

    return str(ScriptDirectory(str(migrations)).get_current_head())


def _file_version(path: Path) -> str | None:
    """The version of the schema in a SQLite file, None where there is no schema yet."""
    if path.is_dir():
        raise LedgerUnreachable(f"{path} is a folder, where MLflow's database should be; move it away")
    try:
        if not path.exists() or not path.stat().st_size:
            return None
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=20)) as db:
            return _version_in(db, path)
    except (OSError, sqlite3.Error) as error:
        raise LedgerUnreachable(
            f"{path} cannot be read as MLflow's database ({error}); "
            "restore it from a copy, or move it away to start a new one"
        ) from None


def _version_in(db: sqlite3.Connection, path: Path) -> str | None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    row = db.execute(_VERSION).fetchone() if "alembic_version" in tables else None
    if row is None:
        raise LedgerUnreachable(f"{path} is a database, but not one of MLflow; move it away or name another")
    return str(row[0])


def _make(path: Path, create: Callable[[str], None]) -> None:
    """Make the database beside its place and move it there whole; one process at a time."""
    try:
        with file_lock(path.with_name(f"{path.name}.lock"), patience_s=120) as held:
            if not held:
                raise LedgerUnreachable(f"another process is still making {path}; try again in a minute")
            if _file_version(path) is None:
                _make_alone(path, create)
    except (OSError, sqlite3.Error) as error:
        raise LedgerUnreachable(
            f"{path} cannot be made ({error}); set TIPBENCH_HOME to a folder that you may write to"
        ) from None


def _make_alone(path: Path, create: Callable[[str], None]) -> None:
    fresh = path.with_name(f".{path.name}.new")
    for leftover in path.parent.glob(f"{fresh.name}*"):
        leftover.unlink()
    make_file(fresh)
    create(f"sqlite:///{fresh}")
    with closing(sqlite3.connect(fresh)) as db:
        # readers and the writer do not wait for each other, and a commit is one write to disk
        db.execute("PRAGMA journal_mode = WAL")
    fresh.replace(path)


def _server_version(address: Address) -> str | None:
    """The version of the schema in a database server, None where it has none yet."""
    import sqlalchemy as sa

    try:
        engine = sa.create_engine(
            address.uri, poolclass=sa.pool.NullPool, connect_args={"connect_timeout": 5}
        )
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            return str(connection.execute(sa.text(_VERSION)).scalar())
    except (ImportError, sa.exc.NoSuchModuleError) as error:
        raise BadInput(
            f"{address.public} needs a driver that is not installed ({error}): "
            "run `pip install 'psycopg[binary]'` and write postgresql+psycopg://…"
        ) from None
    except (ValueError, sa.exc.ArgumentError):
        raise BadInput(
            f"{address.public} is not the address of a database (postgresql://host/name)"
        ) from None
    except sa.exc.SQLAlchemyError as error:
        first = str(error.__cause__ or error).strip().splitlines()[0]
        # A driver takes a password with an @ in it for the beginning of the host's name.
        reason = re.sub(r"[^\s\"']*@", "", hide_logins(first, of=address.uri))
        raise LedgerUnreachable(
            f"the database {address.public} cannot be reached ({reason}); start it, or correct the address"
        ) from None
