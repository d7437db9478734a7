"""`judge anchors`: the texts of known quality that keep judges honest."""

from __future__ import annotations

from typing import Annotated

import typer

from tipbench.cli.options import settings_options
from tipbench.cli.screen import count, print_rows, say, typed
from tipbench.settings import Settings
from tipbench.workflows.hints import ledger_options

_WHERE = ("mlflow_url", "mlflow_host_header")
OfExperiment = Annotated[
    str, typer.Option("--experiment", metavar="NAME", help="take the suite of this experiment")
]

app = typer.Typer(help="Texts of known quality, hidden in batches to notice drift.")


@app.command("list")
@settings_options("suite", *_WHERE, of_experiment=True)
def list_command(*, settings: Settings, experiment: OfExperiment = "") -> None:
    """List the anchors of a suite, or of an experiment's suite, with their agreed scores."""
    from tipbench.workflows.anchoring import list_anchors

    bank = list_anchors(settings, experiment=experiment)
    if not bank.anchors:
        say(f"{bank.suite_id} has no anchors: judge drift is not checked")
        return
    scales = list(bank.anchors[0].reference)
    rows = [
        (
            one.scenario_id,
            *(f"{one.reference[scale]:.1f}" for scale in scales),
            f"{one.n_references} by {'people' if one.by_people else 'agents'}",
            one.text,
        )
        for one in bank.anchors
    ]
    print_rows(("scenario", *scales, "references", "text"), rows, right=scales)
    people = (
        f"{bank.by_people} of them judged by people"
        if bank.by_people
        else "none judged by people yet: provisional"
    )
    say(f"{bank.suite_id}: {count(len(bank.anchors), 'anchor')} for {bank.rubric_id}, {people}", style="dim")


@app.command("add")
@settings_options("experiment", "suite", *_WHERE, of_experiment=True)
def add_command(
    *,
    settings: Settings,
    per_scenario: Annotated[
        int, typer.Option("--per-scenario", min=1, max=50, help="at most so many of each scenario")
    ] = 4,
) -> None:
    """Take candidates that two or more judges scored alike into the bank of their suite."""
    from tipbench.workflows.anchoring import add_anchors

    grown = add_anchors(settings, per_scenario=per_scenario)
    say(f"{count(grown.added, 'anchor')} added, kept in {grown.path}")


@app.command("export")
@settings_options("suite", *_WHERE, of_experiment=True)
def export_command(
    *,
    settings: Settings,
    experiment: OfExperiment = "",
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="the file to write")] = "anchors.json",
    judge: Annotated[str, typer.Option("--judge", metavar="NAME", help="who will judge them")] = "",
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing file")] = False,
) -> None:
    """Write all anchors as a judge file, so that a person can recalibrate them.

    Where people have judged an anchor, their mean takes the place of what agents gave, and the drift check
    is no longer provisional.
    """
    from tipbench.workflows.anchoring import export_anchors

    items = export_anchors(settings, judge=judge.strip(), out=out, force=force, experiment=experiment)
    named = ["--suite", settings.suite] if settings.suite else []
    say(f"{out}: {count(items, 'anchor')}")
    say(f"Next: fill it in, then {typed('judge', 'apply', out, *named, *ledger_options(settings))}")
