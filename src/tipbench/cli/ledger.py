"""`experiments`, `show` and `sync`: what is recorded."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.options import settings_options
from tipbench.cli.screen import command, err, out, print_json
from tipbench.errors import LedgerUnreachable
from tipbench.judge.scoring import labels
from tipbench.settings import Settings
from tipbench.workflows.browse import experiments, one_run, runs_in
from tipbench.workflows.recording import sync, sync_until_closed

if TYPE_CHECKING:
    from tipbench.records import ExperimentSummary, Run, RunTexts

_WHERE = ("mlflow_url", "mlflow_host_header")


def add_to(app: typer.Typer) -> None:
    app.command("experiments")(experiments_command)
    app.command("show")(show_command)
    app.command("sync")(sync_command)


@settings_options(*_WHERE)
def experiments_command(
    *,
    settings: Settings,
    name: Annotated[str, typer.Argument(help="an experiment, to list its cells")] = "",
    as_json: AsJson = False,
) -> None:
    """List the experiments that hold tipbench cells, the newest first; or the cells of one."""
    if name:
        _list_runs(runs_in(replace(settings, experiment=name)), as_json=as_json)
        return
    found = experiments(settings)
    if as_json:
        print_json([asdict(entry) for entry in found])
    elif found:
        _print_experiments(found)
    else:
        out().print(f"No experiment yet. Start one: {command()} collect --dry-run, or {command()} demo")


def _print_experiments(found: list[ExperimentSummary]) -> None:
    from rich.table import Table

    table = Table("experiment", "suite", "rubric", "cells", "failed", "to judge", "newest")
    for entry in found:
        counts = [str(count) for count in (entry.done, entry.failed, entry.pending)]
        table.add_row(entry.name, entry.suite_id, entry.rubric_id, *counts, _when(entry.newest_ms))
    out().print(table)


def _list_runs(found: list[Run], *, as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        print_json([asdict(run) for run in found])
        return
    names = labels(found)
    table = Table("run", "model", "prompt", "scenario", "tips", "read", "tok/s", box=None)
    for run in found:
        model, prompt = names[run.digest, run.prompt_hash]
        outcome = ("failed", run.error or "") if run.status == "failed" else _reading(run)
        speed = run.metrics.get("tokens_per_s")
        table.add_row(
            run.run_id[:8], model, prompt, run.scenario_id, *outcome, f"{speed:.0f}" if speed else ""
        )
    out().print(table)


def _reading(run: Run) -> tuple[str, str]:
    return f"{len(run.candidates)} of {run.n_tips}", run.how + (f", {run.cut} cut" if run.cut else "")


def _when(moment_ms: int | None) -> str:
    if moment_ms is None:
        return "–"
    return datetime.fromtimestamp(moment_ms / 1000, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


@settings_options(*_WHERE)
def show_command(
    *,
    settings: Settings,
    run: Annotated[str, typer.Argument(help="a run's id, its first characters, or a cell's key")],
    as_json: AsJson = False,
) -> None:
    """Show one cell: its prompt as sent, the reply as it came, and the candidates read from it."""
    found, texts = one_run(settings, run)
    if as_json:
        print_json(asdict(found) | {"prompt": texts.prompt, "raw": texts.raw})
    else:
        _print_run(found, texts)


def _print_run(run: Run, texts: RunTexts) -> None:
    out().rule(f"{run.model} × {run.prompt_id} × {run.scenario_id}")
    facts = {
        "run": run.run_id,
        "experiment": run.experiment,
        "status": run.status,
        "model digest": run.digest,
        "suite, rubric": f"{run.suite_id}, {run.rubric_id} ({run.rubric_hash[:12]})",
        "host": run.host,
        "read": run.how,
        "cut": run.cut or "no",
        "error": run.error or "none",
    }
    for name, value in facts.items():
        out().print(f"{name:14} {value}", markup=False, soft_wrap=True)
    for title, text in (("prompt as sent", texts.prompt), ("reply as it came", texts.raw)):
        out().rule(title, style="dim")
        out().print(text, markup=False, soft_wrap=True)
    out().rule("candidates", style="dim")
    for number, candidate in enumerate(run.candidates, start=1):
        mark = "  (overlong)" if candidate.overlong else ""
        out().print(f"{number}. {candidate.text}{mark}", markup=False, soft_wrap=True)
    out().print("  ".join(f"{name} {value:.4g}" for name, value in run.metrics.items()), style="dim")


@settings_options(*_WHERE)
def sync_command(
    *,
    settings: Settings,
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False,
) -> None:
    """Record in MLflow the cells that wait on this disk since it could not be reached."""
    report = sync_until_closed(settings) if follow else sync(settings)
    for problem in report.problems:
        err().print(problem, markup=False, soft_wrap=True)
    out().print(f"{report.recorded} cells recorded, {report.left} still waiting")
    if report.left:
        raise LedgerUnreachable(
            f"{report.left} cells are safe on this disk; run `tipbench sync` once that is mended"
        )
