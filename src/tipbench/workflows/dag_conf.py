"""What a run of the DAG `bench_collect` is triggered with, made from the settings; and which model it puts on
which host.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.engine.lock import host_name
from tipbench.errors import BadSetting
from tipbench.settings import RUN_SETTINGS, Settings, default_of, table
from tipbench.suite import SHIPPED
from tipbench.text import without_login

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.airflow import TaskRun

DAG = "bench_collect"
COLLECT, ELSEWHERE, EXPORT, WAIT, COMPARE = (
    "collect", "collect_elsewhere", "export_for_judge", "wait_for_judge", "compare",
)  # fmt: skip
WAYS = ("off", "sensor", "approval")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run is told beyond the settings. Hosts are without logins: Airflow shows all of this."""

    hosts: tuple[str, ...] = ()
    wait_for_judge: str = "off"


def asked_of(hosts: object, wait_for_judge: object) -> Asked:
    """What was asked for, checked; a BadSetting names `hosts` or `wait_for_judge`."""
    off = wait_for_judge is None or wait_for_judge is False or wait_for_judge == ""
    way = "off" if off else "sensor" if wait_for_judge is True else wait_for_judge
    if not isinstance(way, str) or way not in WAYS:
        raise BadSetting("wait_for_judge", f"{wait_for_judge!r} is not one of {', '.join(WAYS)}")
    return Asked(hosts=tuple(without_login(url) for url in hosts_of(hosts)), wait_for_judge=way)


def hosts_of(hosts: object) -> list[str]:
    """The addresses in a list or a text with commas, in full, each host once however it is written."""
    parts = hosts.split(",") if isinstance(hosts, str) else [] if hosts is None else hosts
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise BadSetting("hosts", "this is not a list of addresses such as http://localhost:11434")
    found: dict[str, str] = {}
    for part in parts:
        if part.strip():
            url = _address(part)
            found.setdefault(host_name(url), url)
    return list(found.values())


def _address(text: str) -> str:
    try:
        return Settings.of({"ollama_url": text}).ollama_url
    except BadSetting as error:
        raise BadSetting("hosts", error.message) from None


def conf_of(settings: Settings, asked: Asked) -> dict[str, Any]:
    """The conf of a run: what differs from the defaults, under the names that a request has.

    Everybody who may look at the run in Airflow may read it. So a login of an Ollama is left to the host's
    connection there, and one of an MLflow server is refused.
    """
    if "@" in settings.mlflow_url or "?" in settings.mlflow_url:
        raise BadSetting(
            "mlflow_url",
            "holds a login, which Airflow would show; give the address without it, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD here and on Airflow's workers",
        )
    changed = [
        row.name
        for row in table()
        if row.name in RUN_SETTINGS and getattr(settings, row.name) != default_of(row)
    ]
    conf = {name: _told(name, getattr(settings, name)) for name in changed}
    if asked.hosts:
        conf["hosts"] = list(asked.hosts)
    if asked.wait_for_judge != "off":
        conf["wait_for_judge"] = asked.wait_for_judge
    return conf


def _told(name: str, value: Any) -> Any:  # noqa: ANN401 - a setting may be of any type
    if name == "ollama_url":
        return without_login(value)
    if name == "suite" and value not in SHIPPED:
        # a worker's folder is another one
        return str(Path(value).expanduser().absolute())
    return list(value) if isinstance(value, tuple) else value


def name_of(task: TaskRun, *, models: Sequence[str], hosts: Sequence[str]) -> str:
    """A task as people are told of it: a mapped one by its model and its host, also before it has run.

    Where no hosts are named, Airflow's workers know theirs.
    """
    if task.index < 0:
        return task.task
    host = hosts[task.index % len(hosts)] if hosts else ""
    known = task.named or str(task.index + 1)
    if task.task == COLLECT and task.index < len(models):
        known = f"{models[task.index]} on {host}" if host else models[task.index]
    elif task.task == ELSEWHERE and host:
        known = host
    return f"{task.task}: {known}"


def named_hosts(conf: Mapping[str, Any]) -> tuple[str, ...]:
    """The hosts that a conf names, in their order."""
    alone = conf.get("ollama_url")
    return tuple(conf.get("hosts") or ([alone] if alone else []))
