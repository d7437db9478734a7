"""What a job is started with: options from the settings table, and an environment with no more than it needs.

A command line can be read by everybody on the machine, so an address that may hold a password goes by the
environment, and what is kept of it has none.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadSetting
from tipbench.settings import RUN_SETTINGS, Settings, default_of, home, table
from tipbench.text import without_login

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from dataclasses import Field
    from pathlib import Path

    from tipbench.store import Job

JUDGING = (
    "experiment", "mlflow_url", "mlflow_host_header", "suite", "ollama_url", "max_model_b", "engine", "gguf",
    "assume_size", "keep_alive", "pull", "evict", "wait", "timeout", "retries", "unload_timeout",
)  # fmt: skip
SIMULATING = ("mlflow_url", "mlflow_host_header")
ON_AIRFLOW = (*RUN_SETTINGS, "mlflow_host_header")

_KEPT = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP"),
        *("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)
# MLflow's own login and where it keeps artifacts; how llama.cpp uses the processor.
_KEPT_FAMILIES = ("LC_", "MLFLOW_", "AWS_", "AZURE_", "GOOGLE_", "OMP_", "GOMP_", "GGML_", "CUDA_")


def job_arguments(job: Job, settings: Settings, *, events: Path) -> list[str]:
    """The command line of a job; a BadSetting names a value that none can carry."""
    if job.kind == "collect":
        return collect_arguments(settings, events=events)
    if job.kind == "airflow":
        return airflow_arguments(
            settings,
            run_id=run_name(job.job_id),
            hosts=job.params["hosts"],
            wait_for_judge=job.params["wait_for_judge"],
            events=events,
        )
    if job.kind == "gate":
        return gate_arguments(settings, job.params["asked"], events=events)
    if job.kind == "sim":
        return sim_arguments(settings, job.params["asked"], events=events)
    same_family = bool(job.params["same_family"])
    return judge_arguments(settings, job.params["judge"], same_family=same_family, events=events)


def collect_arguments(settings: Settings, *, events: Path) -> list[str]:
    """The command line of a collection that tells its events to a file and its summary as JSON."""
    return ["collect", *settings_argv(settings), "--json", f"--events={events}"]


def judge_arguments(settings: Settings, judge: str, *, same_family: bool, events: Path) -> list[str]:
    """The same for a judging."""
    options = settings_argv(settings, only=JUDGING)
    kin = ["--same-family"] if same_family else []
    return [
        "judge",
        "auto",
        *options,
        f"--judge={_sendable('judge', judge)}",
        *kin,
        "--json",
        f"--events={events}",
    ]


def run_name(job_id: str) -> str:
    """The name of a job's run on Airflow: a job that is resumed finds its own again."""
    return f"tipbench-{job_id}"


def airflow_arguments(
    settings: Settings, *, run_id: str, hosts: Collection[str], wait_for_judge: str, events: Path
) -> list[str]:
    """The same for a collection on Airflow, whose run has this name whenever the job is started."""
    told = {"hosts": ",".join(hosts), "wait-for-judge": wait_for_judge, "run-id": run_id}
    options = [f"--{name}={_sendable(name, text)}" for name, text in told.items()]
    return [
        *("airflow", "run", *settings_argv(settings, only=ON_AIRFLOW), *options),
        *("--json", f"--events={events}"),
    ]


def gate_arguments(settings: Settings, asked: Mapping[str, Any], *, events: Path) -> list[str]:
    """The command line of a gate; `asked` has its options by their names."""
    return ["sim", "gate", *_simulating(settings, asked), "--json", f"--events={events}"]


def sim_arguments(settings: Settings, asked: Mapping[str, Any], *, events: Path) -> list[str]:
    """The same for policies side by side in a world."""
    return ["sim", "run", *_simulating(settings, asked), "--json", f"--events={events}"]


def _simulating(settings: Settings, asked: Mapping[str, Any]) -> list[str]:
    flags = [f"--{name}" for name, value in asked.items() if value is True]
    options = [
        f"--{name}={_sendable(name, str(value))}"
        for name, value in asked.items()
        if not isinstance(value, bool)
    ]
    return [*settings_argv(settings, only=SIMULATING), *options, *flags]


def settings_argv(settings: Settings, *, only: Collection[str] = ()) -> list[str]:
    """The options that give these settings again, for those that are not at their default.

    Addresses that may hold a password are left to `settings_env`. A BadSetting names a value that no command
    line can carry.
    """
    rows = [row for row in table() if not only or row.name in only]
    return [_option(row, getattr(settings, row.name)) for row in rows if _is_told(row, settings)]


def settings_env(settings: Settings) -> dict[str, str]:
    """The addresses that `settings_argv` leaves out, by the variables that the command reads them from."""
    return {
        row.metadata["env"]: _sendable(row.name, getattr(settings, row.name))
        for row in table()
        if _may_hold_a_secret(row, getattr(settings, row.name))
    }


def job_environment(settings: Settings, *, more: Collection[str] = ()) -> dict[str, str]:
    """The whole environment of a job: what a program needs to run, and `more` variables by name."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _KEPT or name in more or name.startswith(_KEPT_FAMILIES)
    }
    for row in table():
        kept.pop(row.metadata["env"], None)
    own = {
        "TIPBENCH_HOME": str(home().absolute()),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONSAFEPATH": "1",
    }
    return kept | own | settings_env(settings)


def kept_settings(settings: Settings) -> dict[str, Any]:
    """All the settings in a form that can be stored and shown: addresses are without user and password."""
    values = asdict(settings)
    secret = {
        row.name: without_login(values[row.name])
        for row in table()
        if _may_hold_a_secret(row, values[row.name])
    }
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in (values | secret).items()
    }


def restored_settings(kept: Mapping[str, Any], full: Mapping[str, str]) -> Settings:
    """The settings behind what `kept_settings` stored; `full` has the addresses with logins, by setting."""
    return replace(Settings.of(kept), **full)  # type: ignore[arg-type] # they are texts


def full_addresses(settings: Settings) -> dict[str, str]:
    """The addresses that are stored without their login, by the setting that they belong to."""
    values = {row.name: getattr(settings, row.name) for row in table()}
    return {row.name: values[row.name] for row in table() if _may_hold_a_secret(row, values[row.name])}


def _is_told(row: Field[Any], settings: Settings) -> bool:
    value = getattr(settings, row.name)
    return bool(value != default_of(row)) and not _may_hold_a_secret(row, value)


def _may_hold_a_secret(row: Field[Any], value: object) -> bool:
    """Whether it is an address with a login in it, or with a query, where a database takes one too."""
    return bool(row.metadata["env"]) and isinstance(value, str) and ("@" in value or "?" in value)


def _option(row: Field[Any], value: object) -> str:
    flag = f"--{row.name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag
    if not isinstance(value, tuple):
        return f"{flag}={_sendable(row.name, str(value))}"
    if any("," in part for part in value):
        raise BadSetting(row.name, "a name with a comma in it cannot be given to a job; rename it")
    return f"{flag}={_sendable(row.name, ','.join(value))}"


def _sendable(name: str, text: str) -> str:
    """The text, where a process can be started with it; a BadSetting otherwise."""
    try:
        good = b"\0" not in text.encode()
    except UnicodeEncodeError:
        good = False
    if not good:
        raise BadSetting(name, "holds a character that cannot be given to a job")
    return text
