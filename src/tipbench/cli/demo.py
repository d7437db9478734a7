"""`demo`: the whole path on a real model, in minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.progress import follow
from tipbench.cli.screen import count, out, print_json, say, typed, written

if TYPE_CHECKING:
    from tipbench.compare.table import Table
    from tipbench.workflows.demo import Demo

NOT_PEOPLE = (
    "Judged by the proxy: simple rules about words, not people. It shows how it works, not what to ship."
)


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
        print_json({"judge": "proxy", "leaderboard": found.board.as_dict(), "collection": summary})
    else:
        print_demo(found)
    if found.summary.cells.failed:
        raise typer.Exit(1)


def print_demo(found: Demo) -> None:
    """The table, what can be said, and what to do next."""
    say("Leaderboard (proxy judge)", style="italic")
    print_table(found.table)
    say("")
    say(NOT_PEOPLE, style="yellow")
    with written():
        out().print(" ".join(found.sentences), markup=False)
    where = f"recorded in {found.summary.ledger}"
    say(f"{count(found.summary.cells.planned, 'cell')}, one model in memory at a time, {where}", style="dim")
    say(f"Next: {typed('show', found.example)}   (one cell: prompt, reply, tips)")
    say(f"      {typed('doctor')}, then {typed('collect', '--dry-run')}   (your own models)")


def print_table(table: Table) -> None:
    """Eighty columns are enough for it; rows that may be the best are bold."""
    from rich.table import Table as RichTable

    grid = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column in table.columns:
        grid.add_column(column.title, justify=column.align, overflow="fold")
    for number, row in enumerate(table.rows):
        grid.add_row(*row, style="bold" if number in table.marked else None)
    with written():
        out().print(grid)
