"""Pools and connections: made where they are missing, set right where they differ, else left as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from tipbench.errors import Conflict, NotFound

if TYPE_CHECKING:
    from tipbench.airflow.client import Client

Done = Literal["made", "corrected", "was there"]


@dataclass(frozen=True, kw_only=True)
class Pool:
    name: str
    about: str
    slots: int = 1


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where a host is, and the login that it asks for, if it does."""

    name: str
    scheme: str
    host: str
    port: int
    about: str
    login: str = ""
    password: str = field(default="", repr=False)


def set_pool(client: Client, pool: Pool) -> Done:
    """See to it that there is such a pool with so many slots. What else it has stays."""
    path = f"/pools/{quote(pool.name, safe='')}"
    found = _there(client, path)
    if found is None:
        body = {"name": pool.name, "slots": pool.slots, "description": pool.about, "include_deferred": False}
        if _made(client, "/pools", body):
            return "made"
        found = _there(client, path) or {}
    if found.get("slots") == pool.slots:
        return "was there"
    about = found.get("description")
    body = {
        "name": pool.name,
        "slots": pool.slots,
        "description": about if isinstance(about, str) else pool.about,
        "include_deferred": found.get("include_deferred") is True,
    }
    client.ask("PATCH", path, body=body)
    return "corrected"


def set_connection(client: Client, connection: Connection) -> Done:
    """See to it that there is such a connection.

    A login that it has stays, where none is given. One that is given is always written: nobody is told a
    password that is stored, so whether it is the same cannot be known.
    """
    path = f"/connections/{quote(connection.name, safe='')}"
    body = _body(connection)
    found = _there(client, path)
    if found is None:
        if _made(client, "/connections", body | {"description": connection.about}):
            return "made"
        found = _there(client, path) or {}
    if not connection.login and all(found.get(name) == value for name, value in body.items()):
        return "was there"
    client.ask("PATCH", path, body=body)
    return "corrected"


def _body(connection: Connection) -> dict[str, Any]:
    login = {"login": connection.login, "password": connection.password} if connection.login else {}
    return {
        "connection_id": connection.name,
        "conn_type": "http",
        "host": connection.host,
        "port": connection.port,
        "schema": connection.scheme,
        **login,
    }


def _there(client: Client, path: str) -> dict[str, Any] | None:
    try:
        found = client.ask("GET", path)
    except NotFound:
        return None
    return found if isinstance(found, dict) else {}


def _made(client: Client, path: str, body: dict[str, Any]) -> bool:
    """Whether it was made; False where somebody else has made it meanwhile."""
    try:
        client.ask("POST", path, body=body)
    except Conflict:
        return False
    return True
