"""`airflow setup`: for each Ollama host a connection, and a pool of one slot: it never holds two models."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tipbench.airflow import Connection, DagRuns, Pool, set_connection, set_pool
from tipbench.engine.lock import host_name
from tipbench.errors import AirflowUnreachable, BadInput, NotFound, Unavailable
from tipbench.workflows.airflow_address import connect
from tipbench.workflows.dag_conf import DAG, hosts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.airflow.places import Done

SHARED = "tipbench"


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """What was done: for each pool and connection, by name; and what is left to do, as a sentence."""

    pools: dict[str, Done]
    connections: dict[str, Done]
    left: str


def pool_name(url: str) -> str:
    """The id of a host's pool and of its connection, however its address is written."""
    return f"ollama-{host_name(url)}"


def set_up(hosts: Sequence[str]) -> SetUp:
    """Make what is missing in Airflow and set right what differs. Doing it twice changes nothing."""
    urls = _some(hosts)
    client = connect()
    pools = {pool.name: set_pool(client, pool) for pool in _pools(urls)}
    connections = {one.name: set_connection(client, one) for one in map(_connection, urls)}
    return SetUp(pools=pools, connections=connections, left=_left(DagRuns(client, DAG)))


def commands(hosts: Sequence[str]) -> list[str]:
    """The same as commands to type where Airflow is. Passwords are not in them."""
    urls = _some(hosts)
    pools = [
        f"airflow pools set {shlex.quote(pool.name)} {pool.slots} {shlex.quote(pool.about)}"
        for pool in _pools(urls)
    ]
    return [*pools, *(_command(_connection(url)) for url in urls)]


def _some(hosts: Sequence[str]) -> list[str]:
    urls = hosts_of(list(hosts))
    if not urls:
        raise BadInput("no host is named; give Ollama addresses such as http://gpu-1:11434")
    return urls


def _pools(urls: Sequence[str]) -> Iterator[Pool]:
    yield Pool(name=SHARED, about="tipbench: one model at a time, where hosts have no pools of their own")
    for url in urls:
        host = urlsplit(url).netloc.rpartition("@")[2]
        yield Pool(name=pool_name(url), about=f"tipbench: one model at a time on {host}")


def _connection(url: str) -> Connection:
    parts = urlsplit(url)
    return Connection(
        name=pool_name(url),
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        about="tipbench: an Ollama host",
        login=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _command(one: Connection) -> str:
    login = f' --conn-login {shlex.quote(one.login)} --conn-password "$PASSWORD"' if one.login else ""
    where = f"--conn-host {shlex.quote(one.host)} --conn-port {one.port} --conn-schema {one.scheme}"
    return f"airflow connections add {shlex.quote(one.name)} --conn-type http {where}{login}"


def _left(runs: DagRuns) -> str:
    """What keeps the DAG from running, as a sentence; empty where nothing does."""
    try:
        runs.check()
    except AirflowUnreachable:
        raise
    except (NotFound, Unavailable) as error:
        return str(error)
    return ""
