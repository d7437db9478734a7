"""Which pool a task of `bench_collect` waits for: one per Ollama host, so that no host ever holds two models.

Airflow gives all instances of a mapped task the pool of their operator. A cluster policy may give each its
own: a team's `airflow_local_settings.py` needs the one line

    from bench_pools import task_instance_mutation_hook

Without it the DAG works too, one model after the other.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DAG_ID = "bench_collect"
SHARED_POOL = "tipbench"
USUAL_HOST = "http://localhost:11434"
PLACED = ("collect", "collect_elsewhere")
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 - compared with, never bound


def full_url(text: str) -> str:
    """An Ollama address as people write it (`host`, `host:port`, `:port`) as a full URL.

    ValueError, with a sentence, for what is no address.
    """
    url = _with_scheme(text.strip().rstrip("/"))
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"hosts: {_without_login(text)!r} is not an address such as {USUAL_HOST}")
    return url.replace("://0.0.0.0", "://127.0.0.1")


def _without_login(text: str) -> str:
    """What may be a password is not told, whatever else is wrong with the address."""
    return re.sub(r"^(\w+://)?.*@", r"\1…@", text, flags=re.DOTALL)


def _with_scheme(text: str) -> str:
    if not text:
        return USUAL_HOST
    if "://" in text:
        return text
    text = f"[{text}]" if text.count(":") > 1 and "[" not in text else text
    head, slash, tail = f"{'localhost' if text.startswith(':') else ''}{text}".partition("/")
    return f"http://{head}{'' if re.search(r':[0-9]+$', head) else ':11434'}{slash}{tail}"


def public_url(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def pool_of(url: str) -> str:
    """The id of a host's pool and of its connection, however its address was written."""
    parts = urlsplit(full_url(url))
    name = "localhost" if parts.hostname in _LOOPBACK else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"ollama-{name}-{port}".replace(":", "_")


def hosts_of(conf: Mapping[str, Any]) -> list[str]:
    """The hosts of a DAG run, each once: those in `hosts`, else that in `ollama_url`, else the usual one.

    The usual one is `OLLAMA_HOST` where Airflow's own environment has it, as for the command.
    """
    given = conf.get("hosts") or []
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"hosts: {given!r} is not a list of addresses such as {USUAL_HOST}")
    urls = [full_url(text) for text in texts if text.strip()]
    if not urls:
        alone = conf.get("ollama_url") or USUAL_HOST
        alone = os.environ.get("OLLAMA_HOST", alone) if alone == USUAL_HOST else alone
        urls = [full_url(alone if isinstance(alone, str) else repr(alone))]
    first: dict[str, str] = {}
    for url in urls:
        first.setdefault(pool_of(url), url)
    return list(first.values())


def is_installed() -> bool:
    """Whether this Airflow's settings name the policy, by itself or for a hook of the team's own."""
    named = vars(sys.modules.get("airflow_local_settings", object)).values()
    return any(one is sys.modules[__name__] or getattr(one, "__module__", "") == __name__ for one in named)


def place(task_instance: Any, dag_run: Any, *, there: Callable[[str], bool] = lambda _pool: True) -> None:  # noqa: ANN401 - Airflow's own
    """Give a task that needs a host the host's pool; one whose pool is not `there` stays in the shared one.

    A task in a pool that does not exist would wait for ever.
    """
    index = task_instance.map_index
    if task_instance.dag_id != DAG_ID or task_instance.task_id not in PLACED or index < 0 or dag_run is None:
        return
    try:
        hosts = hosts_of(dag_run.conf or {})
    except ValueError:
        return  # the run's first task refuses it, with the sentence
    pool = pool_of(hosts[index % len(hosts)])
    task_instance.pool = pool if there(pool) else SHARED_POOL


def task_instance_mutation_hook(task_instance: Any, dag_run: Any = None) -> None:  # noqa: ANN401 - as above
    """The cluster policy; Airflow calls it for every task instance that it makes."""
    place(task_instance, dag_run, there=lambda pool: _is_there(pool, dag_run))


def _is_there(pool: str, dag_run: Any) -> bool:  # noqa: ANN401 - as above
    """Whether Airflow has the pool, by the session that the run was read with: a second one could lock it."""
    from airflow.models.pool import Pool
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return True
    with session.no_autoflush:
        return session.scalar(select(Pool.id).where(Pool.pool == pool)) is not None
