"""The report as one page: a file that needs nothing else, no script, no network.

What is worth saying is put into small records here; the template only sets them, and escapes every text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tipbench.compare import figures
from tipbench.compare.html_candidates import candidate_groups
from tipbench.compare.html_charts import forest, fronts, heat_map, scenario_dots
from tipbench.compare.html_leaderboard import columns, leaderboard, picked
from tipbench.compare.table import first_rows, interval_title, ranks

if TYPE_CHECKING:
    from jinja2 import Template

    from tipbench.compare.baseline import BaselineReport
    from tipbench.compare.report import Exploration, Report

GROUNDS = {
    "human": "judged by people",
    "agent": "judged by an agent",
    "ai": "judged by an AI model",
    "proxy": "judged by the proxy, which is rules and no judge",
}


def report_html(report: Report) -> str:
    """The whole page as a text."""
    board = report.board
    return _template().render(
        report=report,
        board=board,
        compared=_compared(report),
        provenance=_provenance(report),
        interval=interval_title(board),
        picked=picked(report),
        columns=columns(report),
        rows=leaderboard(report),
        n_first=len(first_rows(board)),
        forest=forest(report),
        heat=heat_map(report),
        dots=scenario_dots(report),
        fronts=fronts(report),
        inflated=_inflated(report),
        explored=report.exploration and _explored(report, report.exploration),
        baseline=report.baseline and _baseline(report, report.baseline),
        groups=candidate_groups(report),
    )


@cache
def _template() -> Template:
    from jinja2 import DictLoader, Environment, StrictUndefined

    here = files("tipbench.compare")
    names = ("report_template.html.j2", "report.css")
    environment = Environment(
        loader=DictLoader({name: here.joinpath(name).read_text(encoding="utf-8") for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    return environment.get_template("report_template.html.j2")


def _finalized(value: object) -> object:
    """Every text made fit for a page; what is markup already stays as it is."""
    return figures.readable(value) if type(value) is str else value


def _compared(report: Report) -> str:
    rows = report.board.rows
    parts = {
        "model": len({row.model for row in rows}),
        "prompt": len({row.prompt for row in rows}),
        "scenario": len(report.titles) or report.board.n_scenarios,
    }
    return " × ".join(figures.count(many, noun) for noun, many in parts.items())


def _provenance(report: Report) -> list[str]:
    board = report.board
    judged = f"{board.n_judged} judged" + (f", {board.n_unjudged} waiting" if board.n_unjudged else "")
    rubric = f"rubric {report.rubric_id}" if report.rubric_id else ""
    parts = [_ground(report), judged, rubric, figures.moment(report.made_ms)]
    return [part for part in parts if part]


def _ground(report: Report) -> str:
    if report.ground is None:
        return "scores from a file" if report.board.n_judged else "nothing judged yet"
    return GROUNDS.get(report.ground, f"judged by {report.ground}")


@dataclass(frozen=True, kw_only=True)
class _Inflated:
    """The first row's mean beside what to expect of it."""

    name: str
    mean: str
    estimate: str

    @property
    def differs(self) -> bool:
        return self.mean != self.estimate


def _inflated(report: Report) -> _Inflated | None:
    top = report.board.rows[0] if report.board.rows else None
    if top is None or top.mean is None or top.estimate is None:
        return None
    digits = figures.decimals(report.board)
    mean, estimate = figures.number(top.mean, digits), figures.number(top.estimate, digits)
    return _Inflated(name=str(top.combination), mean=mean, estimate=estimate)


@dataclass(frozen=True, kw_only=True)
class _Explored:
    weights: str
    sentence: str
    rows: tuple[tuple[str, str, str, str, str], ...]


def _explored(report: Report, exploration: Exploration) -> _Explored:
    """The rows under other weights, each with the rank that it has in the result."""
    result = dict(zip((row.combination for row in report.board.rows), ranks(report.board), strict=True))
    board = exploration.board
    digits = figures.decimals(board)
    rows = tuple(
        (rank, row.model, row.prompt, figures.number(row.mean, digits), result.get(row.combination, "–"))
        for rank, row in zip(ranks(board), board.rows, strict=True)
    )
    weights = ", ".join(f"{name} × {figures.short(weight)}" for name, weight in exploration.weights.items())
    return _Explored(weights=weights, sentence=exploration.sentence, rows=rows)


@dataclass(frozen=True, kw_only=True)
class _Baseline:
    """A comparison with an older experiment. A row has model, prompt, then, now, change, range and a word."""

    sentences: tuple[str, ...]
    interval: str
    rows: tuple[tuple[str, ...], ...]
    new: tuple[str, ...]


def _baseline(report: Report, found: BaselineReport) -> _Baseline:
    digits = figures.decimals(report.board)
    compared = tuple(
        (
            row.model,
            row.prompt,
            figures.number(row.baseline_mean, digits),
            figures.number(row.mean, digits),
            f"{row.change:+.{digits}f}",
            figures.span(row.low, row.high, digits),
            {"PASS": ""}.get(row.result, row.result),
        )
        for row in found.rows
    )
    missing = tuple((one.model, one.prompt, *[figures.UNKNOWN] * 4, one.reason) for one in found.missing)
    return _Baseline(
        sentences=found.sentences,
        interval=f"{100 * (1 - found.alpha):g} %",
        rows=compared + missing,
        new=tuple(map(str, found.new)),
    )
