"""`experiments`, `show` and `sync`: what is recorded."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson, metrics_line, print_candidates
from tipbench.cli.options import settings_options
from tipbench.cli.screen import count, heading, print_json, print_rows, say, tell, typed
from tipbench.errors import BadInput, LedgerMisconfigured, LedgerUnreachable
from tipbench.settings import Settings
from tipbench.workflows.hints import ledger_options

if TYPE_CHECKING:
    from tipbench.ledger import DrainReport
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
    from tipbench.workflows.browse import experiments, runs_in

    if name:
        _list_runs(runs_in(replace(settings, experiment=name)), as_json=as_json)
        return
    found = experiments(settings)
    if as_json:
        print_json([asdict(entry) for entry in found])
    elif found:
        _print_experiments(found)
    else:
        say(f"No experiment yet. Start one: {typed('collect', '--dry-run')}, or {typed('demo')}")


def _print_experiments(found: list[ExperimentSummary]) -> None:
    numbers = ("cells", "failed in the engine", "cells to judge", "judged")
    rows = [
        (
            entry.name,
            entry.suite_id,
            entry.rubric_id,
            *(str(number) for number in (entry.done, entry.failed, entry.pending, entry.judged)),
            _when(entry.newest_ms),
        )
        for entry in found
    ]
    print_rows(("experiment", "suite", "rubric", *numbers, "newest"), rows, right=numbers)


def _list_runs(found: list[Run], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(run) for run in found])
        return
    from tipbench.judge.scoring import labels
    from tipbench.workflows.places import by_place, place_of

    names, several = labels(found), len(by_place(found)) > 1
    rows = [
        (
            run.run_id[:8],
            *names[run.variant],
            run.scenario_id,
            *(("failed", run.error or "") if run.status == "failed" else _reading(run)),
            f"{run.metrics['tokens_per_s']:.0f}" if "tokens_per_s" in run.metrics else "",
            *([place_of(run)] if several else []),
        )
        for run in found
    ]
    titles = ("run", "model", "prompt", "scenario", "tips", "read", "tok/s", *(["host"] if several else []))
    print_rows(titles, rows, right=("tok/s",))


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
    from tipbench.workflows.browse import one_run
    from tipbench.workflows.run_views import with_judges_flags

    found, texts = one_run(settings, run)
    found = with_judges_flags(settings, found)
    if as_json:
        print_json(asdict(found) | {"prompt": texts.prompt, "raw": texts.raw, "rubric": texts.rubric})
    else:
        _print_run(found, texts)


def _print_run(run: Run, texts: RunTexts) -> None:
    heading(f"{run.model} × {run.prompt_id} × {run.scenario_id}")
    facts = {
        "run": run.run_id,
        "experiment": run.experiment,
        "status": run.status,
        "model digest": run.digest,
        "suite, rubric": f"{run.suite_id}, {run.rubric_id} ({run.rubric_hash[:12]})",
        "host": run.host,
        "engine": f"{run.host_kind} {run.host_version}".strip() or "not recorded",
        "machine": run.machine or "not recorded",
        "hardware": run.hardware or "not recorded",
        "in VRAM": "not recorded" if run.vram_share is None else f"{100 * run.vram_share:.0f} %",
        "read": run.how,
        "cut": run.cut or "no",
        "marks": ", ".join(run.marks) or "none",
        "size": _size(run),
        "overlong by": run.overlong_by,
        "error": run.error or "none",
    }
    for name, value in facts.items():
        say(f"{name:14} {value}")
    for title, text in (("prompt as sent", texts.prompt), ("reply as it came", texts.raw)):
        heading(title)
        say(text)
    heading("candidates")
    print_candidates(run.candidates)
    say(metrics_line(run.metrics), style="dim")


def _size(run: Run) -> str:
    if run.parameters is None:
        return "not recorded"
    source = {"option": " (assumed, from --assume-size)", "tag": " (assumed, from the tag)"}
    return f"{run.parameters / 1e9:.2f}B parameters{source.get(run.size_assumed, '')}"


@settings_options(*_WHERE)
def sync_command(
    *,
    settings: Settings,
    list_them: Annotated[
        bool, typer.Option("--list", help="list what waits for which address; record nothing")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="record here what waits for another address"),
    ] = None,
    discard: Annotated[
        str | None,
        typer.Option("--discard", metavar="EXPERIMENT", help="delete what waits for EXPERIMENT"),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="with --to, --discard: the address that they wait for"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="with --discard: delete without asking")] = False,
    as_json: AsJson = False,
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False,
) -> None:
    """Record in MLflow the cells that wait on this disk since it could not be reached.

    Example: tipbench sync --list
    """
    from tipbench.workflows.backlog import record_elsewhere
    from tipbench.workflows.recording import sync, sync_until_closed

    _check_choice(list_them=list_them, to=to, discard=discard, source=source, yes=yes)
    if list_them:
        _list_waiting(as_json=as_json)
    elif discard is not None:
        _discard(discard, source=source, yes=yes, as_json=as_json)
    elif to is not None:
        _print_report(record_elsewhere(settings, to=to, source=source), settings, as_json=as_json)
    else:
        _print_report(sync_until_closed(settings) if follow else sync(settings), settings, as_json=as_json)


def _check_choice(
    *, list_them: bool, to: str | None, discard: str | None, source: str | None, yes: bool
) -> None:
    given = {"--list": list_them, "--to": to is not None, "--discard": discard is not None}
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(chosen)} cannot be used together; choose one")
    if source is not None and chosen not in (["--to"], ["--discard"]):
        raise BadInput("--from goes with --to or --discard")
    if yes and chosen != ["--discard"]:
        raise BadInput("--yes goes with --discard")


def _list_waiting(*, as_json: bool) -> None:
    from tipbench.workflows.backlog import has_running_command, waiting_cells, what_waits

    found = [(waiting, has_running_command(waiting)) for waiting in waiting_cells()]
    if as_json:
        print_json([asdict(waiting) | {"running": running} for waiting, running in found])
        return
    rows = [
        (one.ledger, one.experiment, str(one.count), "a running command's" if running else "")
        for one, running in found
        if one.count
    ]
    if rows:
        print_rows(("address", "experiment", "cells", ""), rows, right=("cells",))
    for one, running in found:
        if one.marks:
            verb = "waits" if one.marks == 1 else "wait"
            own = ", and a running command is at work on them" if running else ""
            say(f"{what_waits(0, one.marks)} of {one.experiment!r} {verb} for {one.ledger}{own}")
    if not found:
        say("No cell waits to be recorded")


def _discard(experiment: str, *, source: str | None, yes: bool, as_json: bool) -> None:
    from tipbench.workflows.backlog import discard, waiting_for, what_waits

    waiting = waiting_for(experiment, source=source)
    what = what_waits(waiting.count, waiting.marks)
    cells = f"{what} of {experiment!r} waiting for {waiting.ledger}"
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadInput(f"--discard would delete {cells}; to confirm without a terminal, add --yes")
        if not typer.confirm(f"Delete {cells}? They are stored nowhere else.", err=True):
            say("Nothing was deleted")
            return
    deleted = discard(waiting)
    if as_json:
        numbers = {"deleted": deleted, "marks_deleted": waiting.marks}
        print_json({"ledger": waiting.ledger, "experiment": experiment} | numbers)
    elif deleted:
        say(f"{what} of {experiment!r} deleted; the next collect generates the cells again")
    else:
        say(f"{what} of {experiment!r} deleted; the cells stay, without these marks")


def _print_report(report: DrainReport, settings: Settings, *, as_json: bool) -> None:
    from tipbench.workflows.backlog import what_waits

    for line in (*report.problems, *report.notices):
        tell(line)
    if as_json:
        print_json(asdict(report))
    else:
        say(f"{count(report.recorded, 'cell')} recorded, {report.left} still waiting")
        if report.marks_added or report.marks_left:
            added = count(report.marks_added, "mark")
            say(f"{added} added to recorded cells, {report.marks_left} still waiting")
    if report.left or report.marks_left:
        again = typed("sync", *ledger_options(settings))
        kept = (
            f"{what_waits(report.left, report.marks_left)} safe on this disk; once that is mended: {again} "
            f"(to see which: {typed('sync', '--list')})"
        )
        raise LedgerMisconfigured(kept) if report.misconfigured else LedgerUnreachable(kept)
