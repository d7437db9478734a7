"""`compare`: the leaderboard, as a table, a page or data."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.options import AcceptLoss, Cost, CostOption, settings_options
from tipbench.cli.screen import (
    json_text,
    plain_text,
    print_rows,
    screen_class,
    tell,
    with_program,
    write,
    written,
)
from tipbench.cli.screen import out as console
from tipbench.errors import BadInput, CheckFailed, Inconclusive
from tipbench.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from tipbench.compare.report import Report
    from tipbench.compare.table import Table

_WIDE = 200


class Format(str, Enum):
    """How the leaderboard is told."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    html = "html"


def add_to(app: typer.Typer) -> None:
    app.command("compare")(compare_command)


@settings_options("experiment", "mlflow_url", "mlflow_host_header", experiment_argument=True)
def compare_command(
    *,
    settings: Settings,
    form: Annotated[Format, typer.Option("--format", help="how to tell it")] = Format.table,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="write it to FILE instead of standard output")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="with --out: overwrite a file that is not a report by tipbench")
    ] = False,
    scores: Annotated[
        str | None,
        typer.Option(
            "--scores",
            metavar="FILE",
            help=(
                "rank the scores of a CSV file (model,prompt,scenario,composite; - is standard input); "
                "no MLflow needed"
            ),
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="EXPERIMENT",
            help="exit 4 if anything is worse than in EXPERIMENT, 5 if that cannot be judged",
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", min=0, help="with --baseline: points that a drop may have")
    ] = 0.5,
    accept_loss: AcceptLoss = None,
    cost: CostOption = Cost.parameters,
    max_latency_ms: Annotated[
        float | None,
        typer.Option(
            "--max-latency-ms",
            min=0,
            help="leave out combinations whose median latency is higher on every host that made them",
        ),
    ] = None,
    check_self: Annotated[
        bool,
        typer.Option(
            "--self-check",
            help="also measure how often a board like this names a winner among equals (an A/A test)",
        ),
    ] = False,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="SCALE=NUMBER,…", help="explore: does the winner change with these weights?"
        ),
    ] = None,
    ground: Annotated[
        str | None,
        typer.Option(
            "--ground", metavar="KIND", help="rank by the verdicts of this kind: human, agent, ai or proxy"
        ),
    ] = None,
    insist: Annotated[
        bool,
        typer.Option(
            "--insist", help="rank by an AI judge or the proxy although it is not known to agree with people"
        ),
    ] = False,
) -> None:
    """Rank (model, prompt) variants by what was judged, claiming no more than the data hold.

    Rows marked 1= cannot be told apart from the first. The sentences below the table name a winner if there
    is one, recommend the cheapest variant that is close enough to the best, and say what it would take to
    say more.

    Example: tipbench compare --experiment tip-bench-may --format html --out report.html
    """
    from tipbench.compare.recommendation import Preferences
    from tipbench.judge.scoring import parse_weights
    from tipbench.workflows.comparing import compare, compare_scores

    _check_options(scores, baseline, margin)
    _check_out(out, form, force=force)
    if scores is not None:
        needing = (baseline, weights, max_latency_ms, ground)
        if any(one is not None for one in needing) or cost is not Cost.parameters:
            raise BadInput(
                "--scores ranks a file as it is; --baseline, --weights, --max-latency-ms, --ground and "
                "--cost need an experiment"
            )
        report = compare_scores(scores, accept_loss=accept_loss, check_self=check_self)
    else:
        report = compare(
            settings,
            ground=ground,
            insist=insist,
            weights=parse_weights(weights) if weights is not None else None,
            max_latency_ms=max_latency_ms,
            preferences=Preferences(accept_loss=accept_loss, cost=cost.value),
            baseline=baseline,
            margin=margin,
            check_self=check_self,
        )
    _tell(report, form, out)
    if report.baseline is not None and not report.baseline.passed:
        error = CheckFailed if report.baseline.result == "BLOCK" else Inconclusive
        raise error(" ".join(report.baseline.sentences))


def _check_options(scores: str | None, baseline: str | None, margin: float) -> None:
    """What a script with an empty variable would hand in must not pass for what was not asked for."""
    if scores == "":
        raise BadInput("--scores is empty; give a CSV file, or - for standard input")
    if baseline == "":
        raise BadInput("--baseline is empty; give the name of an experiment")
    if not math.isfinite(margin):
        raise BadInput("--margin must be a number of points, such as 0.5")


def _check_out(out: str, form: Format, *, force: bool) -> None:
    from tipbench.compare.recognise import is_report
    from tipbench.workflows.whole_files import check_replaceable

    if out:
        check_replaceable(Path(out), lambda data: is_report(data, form.value), force=force)


def _tell(report: Report, form: Format, out: str) -> None:
    if form is Format.table and not out:
        print_report(report)
        return
    text = _text(report, form)
    if form is Format.csv:  # a table of numbers has no place for it
        for line in report.first:
            tell(line)
    if not out:
        write(text)
        return
    from tipbench.workflows.whole_files import write_whole

    try:
        write_whole(Path(out), text)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}); give another --out") from None
    tell(f"written to {out}")


def _text(report: Report, form: Format) -> str:
    from tipbench.compare.html import report_html
    from tipbench.compare.text_reports import report_csv, report_md

    if form is Format.json:
        return json_text(report.as_dict())
    tellers = {Format.csv: report_csv, Format.md: report_md, Format.html: report_html, Format.table: _plain}
    return tellers[form](report)


def _plain(report: Report) -> str:
    """What a terminal would show, without colour and without anything left out."""
    from io import StringIO

    from tipbench.compare.recognise import MARK
    from tipbench.text import visible

    text = StringIO()
    text.write(f"{MARK}: {visible(report.title)}\n")
    screen = screen_class()(
        file=text, width=_WIDE, highlight=False, markup=False, emoji=False, force_terminal=False
    )
    print_report(report, screen)
    return text.getvalue()


def print_report(report: Report, screen: Console | None = None) -> None:
    """What must be known first, the table, what can be said, and what stands beside it."""
    from tipbench.compare.table import report_table

    screen = screen or console()
    width = screen.width if screen.is_terminal else None

    def line(text: str, style: str | None = None) -> None:
        screen.print(with_program(text), soft_wrap=width is None, style=style)

    with written():
        for first in report.first:
            line(first, "yellow")
        table = report_table(report, width=width)
        print_table(table, screen)
        if table.caption:
            line(table.caption, "dim")
        line("")
        if report.headline:
            line(report.headline, "bold")
        for sentence in report.sentences:
            line(sentence)
        if report.exploration is not None:
            weights = ", ".join(f"{name}={one:g}" for name, one in report.exploration.weights.items())
            line(f"Exploration, no result ({weights}): {report.exploration.sentence}", "italic")
        for sentence in report.baseline.sentences if report.baseline is not None else ():
            line(sentence)
        for note in report.notes:
            line(note, "dim")


def print_table(table: Table, screen: Console) -> None:
    """The table in columns, rows that may be the best in bold; tabs between where output is piped."""
    if screen is console() and not screen.is_terminal:
        print_rows([column.title for column in table.columns], table.rows)
        return
    from rich.table import Table as RichTable

    grid = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column in table.columns:
        grid.add_column(column.title, justify=column.align, overflow="fold")
    for number, row in enumerate(table.rows):
        cells = [plain_text(cell) for cell in row]
        grid.add_row(*cells, style="bold" if number in table.marked else None)
    screen.print(grid)
