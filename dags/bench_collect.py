"""Bench models on several Ollama hosts: collect, export for the judge, wait if asked to, compare.

Each task is one idempotent `tipbench` command in tipbench's own environment, so any of them may be retried or
cleared: what was generated is never generated twice. Conf takes the settings of a collection, and beside them
`hosts` (Ollama addresses; model by model they take turns) and `wait_for_judge` (off, sensor or approval).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import secrets
import socket
import sys
import time
import zlib
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Connection, Param, dag, get_current_context, task, task_group
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

# These files may be in a folder of their own below the one that Airflow looks in for modules.
sys.path.append(str(Path(__file__).parent))

import bench_command
from bench_pools import DAG_ID, SHARED_POOL, hosts_of, is_installed, pool_of, public_url

PARAMS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("bench_collect_params.json").read_text(encoding="utf-8")
)
LEDGER = ("experiment",)
OWN = ("hosts", "wait_for_judge")
# An address may hold a password: it goes by the environment, where no list of processes shows it.
ADDRESSES = {"ollama_url": "OLLAMA_HOST", "mlflow_url": "MLFLOW_TRACKING_URI"}
WAITS = {False: "off", True: "sensor", None: "off"}
LOOK_S = 5.0
# The first task leaves a file of this name in tipbench's home; a later task that finds it has the same home.
MARKER, MARKER_KEPT_S = "airflow-run-", 90 * 24 * 3600
OTHER_MACHINE = "this task runs on another machine than the first; set mlflow_url"
# With the cluster policy each task waits for its host's pool. Without it all wait for each other, and no pool
# needs to be made.
IN_TURN: dict[str, Any] = {"pool": SHARED_POOL} if is_installed() else {"max_active_tis_per_dag": 1}
log = logging.getLogger("tipbench")


def seconds(name: str, usual: int) -> timedelta:
    """A time that whoever runs Airflow may set by an environment variable."""
    return timedelta(seconds=float(os.environ.get(name) or usual))


def conf() -> dict[str, Any]:
    """The run's conf with a default for what it leaves out."""
    params = get_current_context()["params"]
    return {name: row["default"] if params[name] is None else params[name] for name, row in PARAMS.items()}


def options(*, only: tuple[str, ...] = (), **instead: object) -> list[str]:
    """The run's settings as options of a command; addresses are left to the environment."""
    values = {name: value for name, value in conf().items() if name not in (*OWN, *ADDRESSES)} | instead
    return [
        f"--{name.replace('_', '-')}{'' if value is True else f'={_text(value)}'}"
        for name, value in values.items()
        if value is not False and (not only or name in only)
    ]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def tipbench(*arguments: str, host: str = "") -> bench_command.Ended:
    """One command; `host` is where it generates. Bad input fails the task for good, with its sentence."""
    mlflow = conf()["mlflow_url"]
    env = {ADDRESSES["ollama_url"]: with_login(host)} if host else {}
    env |= {ADDRESSES["mlflow_url"]: mlflow} if mlflow else {}
    try:
        return bench_command.run(arguments, say=log.info, env=env)
    except bench_command.NoCommand as error:
        raise AirflowFailException(str(error)) from None


def finished(ended: bench_command.Ended) -> Any:  # noqa: ANN401 - whatever the command printed
    """What a command printed; where it failed the task fails, and is tried again where that may help."""
    if ended.code == 0:
        return ended.result
    if ended.code in {bench_command.BAD_INPUT, bench_command.CHECK_FAILED}:
        raise AirflowFailException(ended.sentence)
    raise AirflowException(ended.sentence or f"tipbench ended with exit code {ended.code}")


def with_login(url: str) -> str:
    """The address with the login of the host's connection, where there is one and it has none of its own."""
    parts = urlsplit(url)
    try:
        known = Connection.get(pool_of(url))
    except AirflowNotFoundException:
        return url
    if "@" in parts.netloc or not known.login:
        return url
    login = f"{quote(known.login, safe='')}:{quote(known.password or '', safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def home() -> Path:
    """The home of tipbench on this worker."""
    ended = tipbench("--home")
    finished(ended)
    return Path(ended.out.strip())


def run_folder() -> Path:
    """The folder of this run's files in tipbench's home. Its name suits any disk, and no other run has it."""
    run_id = get_current_context()["run_id"]
    name = re.sub(r"[^A-Za-z0-9_+-]", "_", run_id)[:100]
    mark = "" if name == run_id else f"-{zlib.crc32(run_id.encode()):08x}"
    folder = home() / "airflow" / f"{name}{mark}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def has_server() -> bool:
    """Whether the conf or this worker's environment names an MLflow store."""
    return bool(conf()["mlflow_url"] or os.environ.get(ADDRESSES["mlflow_url"], "").strip())


def leave_marker() -> None:
    """Write a file with a random name into tipbench's home and pass its name on; remove files of old runs.

    With a server no file is needed, and the name is empty.
    """
    name = "" if has_server() else f"{MARKER}{secrets.token_hex(16)}"
    if name:
        folder = home()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / name).touch(mode=0o600, exist_ok=False)
            remove_old_markers(folder)
        except OSError as error:
            raise AirflowFailException(
                f"{folder} cannot be written ({error.strerror}); set TIPBENCH_HOME to another folder"
            ) from None
        log.info("mlflow_url is not set: the embedded store %s is used", folder / "mlflow.db")
    get_current_context()["ti"].xcom_push(key="marker", value=name)


def remove_old_markers(folder: Path) -> None:
    for old in folder.glob(f"{MARKER}*"):
        with suppress(FileNotFoundError):  # another run may do the same
            if old.stat().st_mtime < time.time() - MARKER_KEPT_S:
                old.unlink()


def check_machine() -> None:
    """Fail without retries if this task would record in another store than the first task of the run."""
    name = get_current_context()["ti"].xcom_pull(task_ids="assign", key="marker")
    if name is None or (has_server() and not name):  # None: the first task was one of an earlier version
        return
    folder = home()
    if has_server():
        raise AirflowFailException(f"{OTHER_MACHINE} (only this one has {ADDRESSES['mlflow_url']})")
    if not name or not (folder / name).exists():
        raise AirflowFailException(f"{OTHER_MACHINE} ({folder} does not hold the first task's file)")
    log.info("mlflow_url is not set: the embedded store %s is used", folder / "mlflow.db")


def check_conf() -> None:
    """Refuse what no Param knows: Airflow itself lets it pass."""
    for name in get_current_context()["dag_run"].conf or {}:
        if name not in PARAMS:
            near = get_close_matches(name, PARAMS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(PARAMS)}"
            raise AirflowFailException(f"conf: there is no key {name!r}; {hint}")


def named(setting: str) -> list[str]:
    """The names in a list, however it was written."""
    value = conf()[setting]
    # The command that a name is given to takes a comma for the end of it, also for one out of a list.
    parts = (value if isinstance(value, str) else ",".join(value)).split(",")
    found = [part.strip() for part in parts if part.strip()]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice or not found:
        wrong = f"{', '.join(twice)} is named twice" if twice else "names nothing"
        raise AirflowFailException(f"conf: {setting!r}: {wrong}")
    return found


def hosts() -> list[str]:
    try:
        return hosts_of(conf())
    except ValueError as error:
        raise AirflowFailException(f"conf: {error}") from None


def address_of(public: str) -> str:
    """A host's address as the conf has it: what is passed from task to task has no password."""
    return next(url for url in hosts() if pool_of(url) == pool_of(public))


def answers(url: str) -> bool:
    """Whether somebody listens at a host."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=LOOK_S).close()
    except OSError:
        return False
    return True


def counts(ended: bench_command.Ended, **where: Any) -> dict[str, Any]:  # noqa: ANN401 - model and host
    """What a collection did. Cells that failed are told of; a collection that did nothing has failed."""
    cells = (ended.result or {}).get("cells", {})
    if ended.code == bench_command.SOME_FAILED and cells.get("done", 0) + cells.get("skipped", 0):
        log.warning("%s cells failed; the same conf triggered again tries them again", cells["failed"])
    else:
        finished(ended)
    return {**where, **cells, "unrecorded": ended.result["unrecorded"], "wall_s": ended.result["wall_s"]}


def generate(models: list[str], host: str) -> bench_command.Ended:
    fixed = ("--json", "--wait", "--engine=ollama", "--events=/dev/stderr")
    return tipbench("collect", *fixed, *options(models=models), host=address_of(host))


def told(key: str) -> list[dict[str, Any]]:
    """What the tries of `collect` that went through (or were refused) have pushed under a key."""
    return [one for one in get_current_context()["ti"].xcom_pull(task_ids=["collect"], key=key) if one]


def living(away: set[str], proven: set[str]) -> list[str]:
    """The hosts to hand models to: those where a collection of this run went well, else those that answer.

    One that had stayed away and is back comes last.
    """
    every = [public_url(url) for url in hosts()]
    proven_others = [url for url in every if url in proven - away]
    answering = [] if proven_others else [url for url in every if answers(url)]
    return proven_others or [url for url in answering if url not in away] or answering


def shared_out(left: list[str], takers: list[str]) -> list[dict[str, Any]]:
    """What each host of the run is to take over, in the order of its hosts: the pools go by their index."""
    return [
        {"host": public, "models": left[takers.index(public) :: len(takers)] if public in takers else []}
        for public in map(public_url, hosts())
    ]


@task
def assign() -> list[dict[str, str]]:
    """One entry per model; the hosts take turns."""
    check_conf()
    leave_marker()
    where = [public_url(url) for url in hosts()]
    return [{"model": name, "host": where[index % len(where)]} for index, name in enumerate(named("models"))]


@task(**IN_TURN, map_index_template="{{ task.op_kwargs['job']['model'] }}")
def collect(job: dict[str, str]) -> dict[str, Any]:
    """The model's cells that are missing, on its host."""
    try:
        check_machine()
    except AirflowFailException as error:
        refuse(job, str(error))
        raise
    ended = generate([job["model"]], job["host"])
    if ended.code == bench_command.BAD_INPUT:
        refuse(job, ended.sentence)
    return counts(ended, **job)


def refuse(job: dict[str, str], why: str) -> None:
    """Tell `hand_over` that another host is no remedy."""
    get_current_context()["ti"].xcom_push(key="refused", value={**job, "why": why})


@task(trigger_rule="all_done_min_one_success")
def hand_over(jobs: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Models whose host stayed away go to hosts that answer; one that was refused ends the run here."""
    for one in told("refused"):
        raise AirflowFailException(f"{one['model']} on {one['host']}: {one['why']}")
    done = {one["model"]: one["host"] for one in told("return_value")}
    left = [job for job in jobs if job["model"] not in done]
    away = {job["host"] for job in left}
    takers = living(away, set(done.values())) if left else []
    if left and not takers:
        raise AirflowFailException(
            f"{', '.join(job['model'] for job in left)}: {', '.join(sorted(away))} stayed away and no "
            "other host answers; what was generated is kept: trigger the same conf again"
        )
    return shared_out([job["model"] for job in left], takers) if left else []


@task(**IN_TURN, map_index_template="{{ task.op_kwargs['job']['host'] }}")
def collect_elsewhere(job: dict[str, Any]) -> dict[str, Any]:
    """What a host takes over from those that stayed away."""
    if not job["models"]:
        raise AirflowSkipException("nothing to take over")
    check_machine()
    return counts(generate(job["models"], job["host"]), **job)


@task(trigger_rule="none_failed")
def export_for_judge() -> dict[str, Any]:
    """One blinded file with all candidates that nobody has judged. Open batches are not made twice."""
    check_machine()
    written = export_into(run_folder())
    path = written[0]["path"] if written else None
    return {"path": path, "batches": [path] if path else [], "pending": pending()}


def export_into(folder: Path) -> list[dict[str, Any]]:
    """Export into the file of an earlier try, or into a new one where that file lacks candidates.

    The command leaves a file that holds all of them as it is: it may be half judged.
    """
    files = sorted(folder.glob("candidates-*.json"))
    names = (folder / f"candidates-{number:03d}.json" for number in itertools.count(1))
    new = next(path for path in names if path not in files)
    for path in (*files[-1:], new):
        fixed = ("--all", "--reopen", "--json", f"--out={path}")
        ended = tipbench("judge", "export", *fixed, *options(only=LEDGER))
        if ended.code != bench_command.BAD_INPUT:
            break
    written: list[dict[str, Any]] = finished(ended)
    return written


def pending() -> int:
    """How many candidates wait for a judge."""
    status = finished(tipbench("judge", "status", "--json", *options(only=LEDGER)))
    return int(status["pending"])


@task.branch
def choose() -> str:
    """Whom to wait for."""
    asked = conf()["wait_for_judge"]
    chosen = WAITS.get(asked, asked)
    return "compare" if chosen == "off" else f"wait_for_judge.{chosen}"


@task.sensor(
    mode="reschedule", poke_interval=seconds("TIPBENCH_POKE_SECONDS", 60), timeout=timedelta(days=30)
)
def sensor() -> bool:
    """Wait until nothing is pending."""
    check_machine()
    ended = tipbench("judge", "status", "--json", *options(only=LEDGER))
    if ended.code == bench_command.UNAVAILABLE:
        return False
    left = int(finished(ended)["pending"])
    log.info("%s candidates wait for a judge", left)
    return left == 0


@task(trigger_rule="none_failed")
def compare() -> dict[str, Any]:
    """The leaderboard as JSON and as a page; where nothing is judged it says so."""
    check_machine()
    folder = run_folder()
    files = {form: folder / f"leaderboard.{form}" for form in ("json", "html")}
    for form, path in files.items():
        finished(tipbench("compare", f"--format={form}", f"--out={path}", *options(only=LEDGER)))
    board = json.loads(files["json"].read_text(encoding="utf-8"))
    judged = sum(row["n_judged"] for row in board["rows"])
    verdict = " ".join(board["sentences"])
    log.info(verdict)
    return {**{form: str(path) for form, path in files.items()}, "judged": judged, "verdict": verdict}


@task_group
def wait_for_judge() -> Any:  # noqa: ANN401 - Airflow's own
    """Nothing to wait for, the sensor, or a person's approval."""
    chosen, usual = choose(), PARAMS["experiment"]["default"]
    approval = ApprovalOperator(
        task_id="approval",
        subject=f"Compare the models of {{{{ params.experiment or '{usual}' }}}} now?",
        body="{% set batches = ti.xcom_pull(task_ids='export_for_judge')['batches'] %}"
        "{% if batches %}Judge this file and apply it, then approve; a rejection ends the run.\n\n"
        "{% for path in batches %}- `{{ path }}`\n{% endfor %}"
        "{% else %}Nothing waits for a judge: approve to go on; a rejection ends the run.{% endif %}",
        fail_on_reject=True,
        retries=0,
    )
    waiting = [sensor(), approval]
    chosen >> waiting
    return [chosen, *waiting]


@dag(
    dag_id=DAG_ID,
    schedule=None,
    catchup=False,
    is_paused_upon_creation=False,
    params={name: Param(**row) for name, row in PARAMS.items()},
    default_args={"retries": 2, "retry_delay": seconds("TIPBENCH_RETRY_SECONDS", 60)},
    doc_md=__doc__,
    tags=["tipbench"],
)
def bench_collect() -> None:
    """The tasks in their order; what a task needs of the conf it reads itself."""
    jobs = assign()
    left = hand_over(jobs)
    exported = export_for_judge()
    compared = compare()
    collect.expand(job=jobs) >> left
    collect_elsewhere.expand(job=left) >> exported
    waited = wait_for_judge()
    exported >> waited[0]
    waited >> compared


bench_collect()
