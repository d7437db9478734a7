"""`airflow`: a collection on a team's Airflow, over several hosts. Listed only where one is configured."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.options import settings_options
from tipbench.cli.progress import follow
from tipbench.cli.screen import err, print_json, say, tell
from tipbench.errors import BadInput
from tipbench.settings import RUN_SETTINGS, Settings

HOSTS_ENV = "TIPBENCH_OLLAMA_URLS"
app = typer.Typer(help="Collect on a team's Airflow, over several Ollama hosts.")


@app.command("setup")
def setup_command(
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="HOST…", help=f"Ollama addresses; without any, those in {HOSTS_ENV}"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the airflow commands that do the same; change nothing")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pool of one slot and a connection in Airflow for each Ollama host.

    Doing it again changes nothing. An address with a login belongs into the environment, where others cannot
    read it: the login goes into the host's connection.

    Example: tipbench airflow setup http://gpu-1:11434 http://gpu-2:11434
    """
    from tipbench.workflows.airflow_setup import commands, set_up

    named = _named(hosts or [])
    if dry_run:
        lines = commands(named)
        print_json({"commands": lines}) if as_json else say("\n".join(lines))
        return
    done = set_up(named)
    if as_json:
        print_json({"pools": done.pools, "connections": done.connections, "left": done.left})
    else:
        for kind, names in (("pool", done.pools), ("connection", done.connections)):
            for name, what in names.items():
                say(f"{kind} {name}: {what}")
    if done.left:
        tell(f"one thing is left: {done.left}")


def _named(hosts: list[str]) -> list[str]:
    for host in hosts:
        if "@" in host:
            bare = urlsplit(host).netloc.rpartition("@")[2] or "it"
            raise BadInput(
                f"the address of {bare} holds a login, and others can read a command line; put it into "
                f"{HOSTS_ENV} and name no host here"
            )
    return hosts or os.environ.get(HOSTS_ENV, "").split(",")


@app.command("run")
@settings_options(*RUN_SETTINGS, "mlflow_host_header")
def run_command(
    *,
    settings: Settings,
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts", metavar="URL,…", help="Ollama hosts to share the models among (default: --ollama-url)"
        ),
    ] = "",
    wait_for_judge: Annotated[
        str,
        typer.Option(
            "--wait-for-judge",
            metavar="off|sensor|approval",
            help="before the leaderboard: go on at once, or wait until nothing is pending or for an approval",
        ),
    ] = "off",
    run_id: Annotated[
        str,
        typer.Option(
            "--run-id",
            help="a name for the DAG run; one that is there is followed, one that failed begun again",
        ),
    ] = "",
    every: Annotated[
        float, typer.Option("--every", min=0.05, max=3600, help="seconds between two looks at Airflow")
    ] = 3.0,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="seconds that Airflow may be away while it is followed")
    ] = 600.0,
    as_json: AsJson = False,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="append progress to FILE as JSON lines")
    ] = None,
) -> None:
    """Trigger the DAG bench_collect and follow its run to the end.

    Ctrl-C ends the DAG run too; what it has done is kept, and the same --run-id goes on with it. An approval
    that the run waits for is given when nothing is left to judge. Exit code 1: the DAG run failed.

    Example: tipbench airflow run --models qwen2.5:0.5b,gemma3:1b --hosts http://gpu-1:11434,http://gpu-2:11434
    """
    from tipbench.workflows.dag_conf import asked_of
    from tipbench.workflows.dag_following import Pace
    from tipbench.workflows.dag_runs import run_on_airflow

    asked = asked_of(hosts, wait_for_judge)
    pace = Pace(every_s=every, patience_s=patience)
    with follow(events=events, quiet=as_json and not err().is_terminal) as emit:
        outcome = run_on_airflow(settings, asked, emit=emit, run_id=run_id, pace=pace)
    if as_json:
        print_json(outcome)
        return
    say(f"{outcome['experiment']}: the DAG run {outcome['run_id']} is done: {outcome['url']}", style="bold")
    if outcome["verdict"]:
        say(str(outcome["verdict"]))
    if outcome["leaderboard"].get("html"):
        say(f"leaderboard, where the worker wrote it: {outcome['leaderboard']['html']}")
