"""`demo`: the whole path on a real model, in minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.compare import print_report
from tipbench.cli.progress import follow
from tipbench.cli.screen import count, print_json, say, typed

if TYPE_CHECKING:
    from tipbench.workflows.demo import Demo


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo_command)


def demo_command(*, as_json: AsJson = False) -> None:
    """Bench a real 135M model on four prompts and eight scenarios, and show the leaderboard. Takes minutes.

    Needs no Ollama and no MLflow server. Run it again: what was generated is not generated again.
    """
    from tipbench.workflows.demo import demo

    with follow(events=None, quiet=as_json) as emit:
        found = demo(emit=emit)
    if as_json:
        summary = found.summary.as_json()
        told = {"judge": "proxy", "leaderboard": found.report.as_dict(), "collection": summary}
        print_json(told | {"report": str(found.page)})
    else:
        print_demo(found)
    if found.summary.cells.failed:
        raise typer.Exit(1)


def print_demo(found: Demo) -> None:
    """The leaderboard, what to do next, and at last where the report is."""
    print_report(found.report)
    say("")
    where = f"recorded in {found.summary.ledger}"
    say(f"{count(found.summary.cells.planned, 'cell')}, one model in memory at a time, {where}", style="dim")
    say(f"Next: {typed('show', found.example)}   (one cell: prompt, reply, tips)")
    export = typed("judge", "export", "--experiment", found.summary.experiment, "--out", "batch.json")
    say(f"      {export}   (judge the tips yourself)")
    say(f"      {typed('doctor')}   (use your own models: what is installed, what is missing)")
    say(f"The whole report, for a browser: {found.page}")
