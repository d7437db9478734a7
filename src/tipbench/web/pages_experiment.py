"""One experiment: what can be said, the ranking, its pictures, its cells, and all of it as files."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from fastapi import APIRouter, Depends, Request, Response

from tipbench.compare import figures
from tipbench.compare.html import GROUNDS as GROUND_WORDS
from tipbench.compare.html import report_html
from tipbench.compare.html_charts import forest, heat_map, scenario_dots
from tipbench.compare.html_leaderboard import columns, leaderboard, picked
from tipbench.compare.recommendation import CostName, Preferences
from tipbench.compare.table import first_rows
from tipbench.compare.text_reports import report_csv, report_md
from tipbench.errors import BadInput, CheckFailed
from tipbench.suite.problems import listed
from tipbench.web.cells import Filter, cells_of
from tipbench.web.guard import as_sentence, need
from tipbench.web.pages_jobs import at_work
from tipbench.web.paging import Paging, paged
from tipbench.web.render import address, page
from tipbench.workflows.access import Principal
from tipbench.workflows.service_state import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.compare.html_charts import HeatMap, Strips
    from tipbench.compare.html_leaderboard import Column, Picked, Standing
    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.report import Report

router = APIRouter(include_in_schema=False)

# So much is on the page at first, so that it stays light however much was collected.
_ROWS, _TILES, _DOTS, _CELLS = 20, 80, 160, 25
GROUNDS = (
    ("", "whoever counts most"),
    ("human", "people"),
    ("agent", "agents"),
    ("ai", "AI models"),
    ("proxy", "the proxy"),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the address says of how to rank, and how much to show."""

    ground: str | None = None
    insist: bool = False
    max_latency_ms: float | None = None
    accept_loss: float | None = None
    cost: CostName = "parameters"
    top: int = 1

    @property
    def latency_text(self) -> str:
        return "" if self.max_latency_ms is None else f"{self.max_latency_ms:g}"

    @property
    def loss_text(self) -> str:
        return "" if self.accept_loss is None else f"{self.accept_loss:g}"

    @property
    def query(self) -> dict[str, object]:
        """The same in an address, without where one is."""
        return {
            "ground": self.ground,
            "insist": "1" if self.insist else None,
            "max_latency_ms": self.latency_text or None,
            "accept_loss": self.loss_text or None,
            "cost": None if self.cost == "parameters" else self.cost,
        }

    def report(self, service: Service, experiment: str) -> Report:
        return service.report(
            experiment,
            ground=self.ground,
            insist=self.insist,
            max_latency_ms=self.max_latency_ms,
            preferences=Preferences(accept_loss=self.accept_loss, cost=self.cost),
        )


def the_options(
    *,
    ground: str = "",
    insist: str = "",
    max_latency_ms: str = "",
    accept_loss: str = "",
    cost: str = "",
    top: int = 1,
) -> Options:
    """The options of an address; a BadInput for what cannot be meant."""
    if ground not in dict(GROUNDS):
        raise BadInput(f"there is no kind of judge {ground!r}; there are human, agent, ai and proxy")
    return Options(
        ground=ground or None,
        insist=insist not in {"", "0"},
        max_latency_ms=_number(max_latency_ms, what="milliseconds, such as 800", zero=False),
        accept_loss=_number(accept_loss, what="points, such as 0.75", zero=True),
        cost=_cost(cost),
        top=top,
    )


def _number(text: str, *, what: str, zero: bool) -> float | None:
    """The number in a field of the form, None for an empty one. `what` names the unit, with an example."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or (value == 0 and not zero):
        raise BadInput(f"{text!r} is not a number of {what}")
    return value


def _cost(text: str) -> CostName:
    for name in get_args(CostName):
        if name == (text or "parameters"):
            return cast("CostName", name)
    raise BadInput(f"there is no cost {text!r}; there are {listed(get_args(CostName))}")


@dataclass(frozen=True, kw_only=True)
class View:
    """The report as the page lays it out."""

    report: Report
    compared: str
    provenance: list[str]
    picked: Picked | None
    columns: list[Column]
    rows: list[Standing]
    n_first: int
    paging: Paging[LeaderboardRow]
    forest: Strips | None
    heat: HeatMap | None
    dots: Strips | None
    too_many_dots: int


@router.get("/experiments/{experiment}")
def the_experiment(
    request: Request,
    experiment: str,
    options: Options = Depends(the_options),
    chosen: Filter = Depends(Filter),
    number: int = 1,
    _who: Principal = need("admin"),
) -> Response:
    service: Service = request.app.state.service
    report, refused = _reported(service, experiment, options)
    found = cells_of(request, experiment, report or _insisted(service, experiment))
    matching = found.matching(chosen)
    paging = paged(
        matching,
        number=number,
        size=_CELLS,
        link=lambda at: (
            address("experiments", experiment, **chosen.query, **options.query, number=at) + "#cells"
        ),
    )
    return page(
        request,
        "experiment.html.j2",
        experiment=experiment,
        options=options,
        grounds=GROUNDS,
        refused=refused,
        view=report and _view(report, options),
        filters=found.filters(chosen),
        filtered=bool(chosen.query),
        waits=any(run.judge_pending for run in found.runs),
        running=at_work(service, experiment),
        cells=[found.shown(run) for run in paging.shown],
        several_hosts=found.on_several_hosts,
        paging=paging,
    )


def _reported(service: Service, experiment: str, options: Options) -> tuple[Report | None, str]:
    """The report, or why there is none to stand on."""
    try:
        return options.report(service, experiment), ""
    except CheckFailed as error:
        return None, as_sentence(str(error).partition("; let a person")[0])


def _insisted(service: Service, experiment: str) -> Report | None:
    """For the cells' titles, where there is nothing that a ranking could stand on."""
    try:
        return Options(insist=True).report(service, experiment)
    except CheckFailed:
        return None


def _view(report: Report, options: Options) -> View:
    rows = report.board.rows

    def link(at: int) -> str:
        return address("experiments", report.title, **options.query, top=at) + "#leaderboard"

    paging = paged(rows, number=options.top, size=_ROWS, link=link)
    here = slice(max(0, paging.first - 1), paging.last)
    means = forest(report)
    best = replace(report, board=replace(report.board, rows=rows[:_TILES]))
    dots = sum(
        len(report.facts[row.combination].by_scenario) for row in rows if row.combination in report.facts
    )
    return View(
        report=report,
        compared=_compared(report),
        provenance=_provenance(report),
        picked=picked(report),
        columns=columns(report),
        rows=leaderboard(report)[here],
        n_first=len(first_rows(report.board)),
        paging=paging,
        forest=means and replace(means, rows=means.rows[here]),
        heat=heat_map(best),
        dots=scenario_dots(report) if dots <= _DOTS else None,
        too_many_dots=dots if dots > _DOTS else 0,
    )


def _compared(report: Report) -> str:
    rows = report.board.rows
    counted = {
        "model": len({row.model for row in rows}),
        "prompt": len({row.prompt for row in rows}),
        "scenario": len(report.titles),
    }
    return " × ".join(figures.count(many, noun) for noun, many in counted.items())


def _provenance(report: Report) -> list[str]:
    board = report.board
    parts = [
        GROUND_WORDS.get(report.ground or "", "nothing judged yet"),
        f"{board.n_judged} judged" if board.n_judged else "",
        f"{board.n_unjudged} waiting" if board.n_unjudged else "",
        f"rubric {report.rubric_id}",
    ]
    return [part for part in parts if part]


_TELLERS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "html": ("text/html", report_html),
    "csv": ("text/csv", report_csv),
    "md": ("text/markdown", report_md),
    "json": ("application/json", lambda report: json.dumps(report.as_dict(), ensure_ascii=False, indent=2)),
}


@router.get("/experiments/{experiment}/report.{ending}")
def the_report(
    request: Request,
    experiment: str,
    ending: Literal["html", "csv", "md", "json"],
    options: Options = Depends(the_options),
    _who: Principal = need("admin"),
) -> Response:
    """The report as a file of its own, the same that `tipbench compare` writes."""
    report = options.report(request.app.state.service, experiment)
    kind, tell = _TELLERS[ending]
    return Response(tell(report), media_type=f"{kind}; charset=utf-8", headers=_as_file(experiment, ending))


def _as_file(experiment: str, ending: str) -> dict[str, Any]:
    """A name that every system takes. A report is saved too: it holds styles, which pages here forbid."""
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "-" for one in experiment)
    return {
        "content-disposition": f'attachment; filename="{plain or "report"}.{ending}"',
        "cache-control": "no-store",
    }
