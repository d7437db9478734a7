"""One cell: what was asked, what came back, what was made of it; beside it another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from tipbench.compare import figures
from tipbench.compare.html_candidates import Tip, candidate_groups
from tipbench.errors import CheckFailed, NotFound
from tipbench.web.cells import Cells, cells_of
from tipbench.web.guard import need
from tipbench.web.render import address, page
from tipbench.workflows.access import Principal
from tipbench.workflows.browse import one_run
from tipbench.workflows.service_state import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.compare.report import Report
    from tipbench.records import Run, RunTexts

router = APIRouter(include_in_schema=False)

_HOW = {
    "strict": "in the asked form",
    "fenced": "out of a code block",
    "wrapped": "out of other text",
    "repaired": "after repair",
    "lines": "line by line",
    "none": "not at all",
}
_MOST_OFFERED = 400


@dataclass(frozen=True, kw_only=True)
class CellView:
    """A cell as its column shows it."""

    run_id: str
    model: str
    prompt: str
    scenario: str
    numbers: Sequence[tuple[str, str]]
    place: Sequence[tuple[str, str]]
    tips: Sequence[Tip]
    why_none: str
    error: str | None
    texts: RunTexts


@router.get("/experiments/{experiment}/runs/{run_id}")
def the_run(
    request: Request, experiment: str, run_id: str, beside: str = "", _who: Principal = need("admin")
) -> Response:
    service: Service = request.app.state.service
    report = _report(service, experiment)
    found = cells_of(request, experiment, report)
    by_id = {run.run_id: run for run in found.runs}
    shown = [_the_one(by_id, one, experiment) for one in (run_id, beside) if one]
    views = [_view(service, found, run, report) for run in shown]
    return page(
        request,
        "run.html.j2",
        experiment=experiment,
        scenario=views[0].scenario,
        cells=views,
        others=_others(found, shown[0]),
        around=_neighbours(found, shown[0], experiment),
    )


def _report(service: Service, experiment: str) -> Report | None:
    """For the verdicts and titles; a judge who is no ground for a ranking is still worth reading here."""
    try:
        return service.report(experiment, ground=None, insist=True, max_latency_ms=None)
    except CheckFailed:
        return None


def _the_one(by_id: dict[str, Run], run_id: str, experiment: str) -> Run:
    if run_id not in by_id:
        raise NotFound(f"there is no cell {run_id!r} in {experiment!r}")
    return by_id[run_id]


def _view(service: Service, found: Cells, run: Run, report: Report | None) -> CellView:
    _, texts = one_run(service.settings({"experiment": run.experiment}), run.run_id)
    name = found.names[run.run_id]
    return CellView(
        run_id=run.run_id,
        model=name.model,
        prompt=name.prompt,
        scenario=found.title(run.scenario_id),
        numbers=_numbers(run),
        place=_place(run),
        tips=_tips(found, run, report),
        why_none="the engine failed" if run.status == "failed" else "the reply held nothing to judge",
        error=run.error,
        texts=texts,
    )


def _tips(found: Cells, run: Run, report: Report | None) -> Sequence[Tip]:
    """The slots of this cell, as the report tells them."""
    name = found.names[run.run_id]
    facts = report.facts.get(name) if report else None
    if report is None or facts is None or run.status == "failed":
        return ()
    own = tuple(
        one for one in facts.candidates if (one.scenario, one.repeat) == (run.scenario_id, run.repeat)
    )
    rows = tuple(row for row in report.board.rows if row.combination == name)
    board = replace(report.board, rows=rows)
    groups = candidate_groups(replace(report, board=board, facts={name: replace(facts, candidates=own)}))
    return groups[0].scenarios[0].tips if groups else ()


def _numbers(run: Run) -> list[tuple[str, str]]:
    metrics = run.metrics
    texts = {
        "score": figures.number(metrics.get("composite")),
        "latency": figures.duration(metrics.get("latency_ms")),
        "tokens/s": figures.rate(metrics.get("tokens_per_s")),
        "tokens": figures.UNKNOWN if "output_tokens" not in metrics else f"{metrics['output_tokens']:.0f}",
        "memory": figures.gigabytes(metrics.get("memory_bytes")),
        "size": figures.parameters(run.parameters),
        "read": _HOW[run.how] if run.status == "done" else figures.UNKNOWN,
        "cut off": {"prompt": "the prompt", "reply": "the reply"}.get(run.cut or "", figures.UNKNOWN),
        "marks": ", ".join(mark.replace("-", " ") for mark in run.marks) or figures.UNKNOWN,
    }
    return [(title, text) for title, text in texts.items() if text != figures.UNKNOWN]


def _place(run: Run) -> list[tuple[str, str]]:
    """Where the cell was made, as far as that was recorded."""
    engine = {"ollama": "Ollama", "embedded": "embedded engine"}.get(run.host_kind, run.host_kind)
    texts = {
        "host": run.host,
        "engine": f"{engine} {run.host_version}".strip(),
        "machine": run.machine,
        "hardware": run.hardware,
        "in VRAM": "" if run.vram_share is None else figures.percent(run.vram_share),
    }
    return [(title, text) for title, text in texts.items() if text]


def _others(found: Cells, run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """What may stand beside a cell: the same scenario by others, and the others of the same combination."""
    name = found.names[run.run_id]
    same_scenario = [
        (one.run_id, _label(found, one))
        for one in found.runs
        if one.scenario_id == run.scenario_id and one.run_id != run.run_id
    ]
    same_cell = [
        (one.run_id, found.title(one.scenario_id))
        for one in found.runs
        if found.names[one.run_id] == name and one.scenario_id != run.scenario_id
    ]
    groups = [("The same scenario", same_scenario), (str(name), same_cell)]
    return [(title, some[:_MOST_OFFERED]) for title, some in groups if some]


def _label(found: Cells, run: Run) -> str:
    again = f", repeat {run.repeat + 1}" if run.repeat else ""
    return f"{found.names[run.run_id]}{again}"


def _neighbours(found: Cells, run: Run, experiment: str) -> dict[str, str]:
    """The cells of the same combination before and after this one."""
    own = [one for one in found.runs if found.names[one.run_id] == found.names[run.run_id]]
    at = own.index(run)

    def link(to: int) -> str:
        there = 0 <= to < len(own)
        return address("experiments", experiment, "runs", own[to].run_id) if there else ""

    return {"previous": link(at - 1), "following": link(at + 1)}
