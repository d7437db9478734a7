"""`demo`: the whole path on a real model: collect, judge by simple rules, rank, write the report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tipbench.compare.html import report_html
from tipbench.engine.embedded import SMOLLM2, pull_weights
from tipbench.errors import NotFound
from tipbench.judge.proxy import NAME as PROXY
from tipbench.private import make_folder
from tipbench.settings import Settings, home
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.browse import runs_in
from tipbench.workflows.collect import Summary, collect
from tipbench.workflows.comparing import compare
from tipbench.workflows.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.compare.report import Report
    from tipbench.records import Emit

EXPERIMENT = "tipbench-demo"
DO_NOT_SHIP = "Demo scores come from simple word rules. Do not ship on them."
PROMPTS = ("v1", "v2-mentor", "v3-few-shot", "v4-structured")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found. The report is by the proxy judge: rules, no people. `example` is a run to look
    at.
    """

    summary: Summary
    report: Report
    page: Path
    example: str


def demo_settings() -> Settings:
    return Settings.of(
        {
            "models": [SMOLLM2],
            "prompts": list(PROMPTS),
            "n_tips": 3,
            "num_predict": 200,
            "experiment": EXPERIMENT,
            "engine": "embedded",
            "mlflow_url": "",
            "diversity": True,
        }
    )


def demo(*, emit: Emit) -> Demo:
    """Bench the embedded 135M model on four prompts and eight scenarios; rank the prompts by the proxy."""
    settings = demo_settings()
    pull_weights(report=lambda line: emit({"event": "notice", "message": line}))
    summary = collect(settings, emit=emit)
    with suppress(NotFound):  # all of it was judged the last time
        judge_automatically(settings, PROXY, emit=emit)
    report = compare(settings, ground=PROXY, insist=True)
    report = replace(report, first=(DO_NOT_SHIP, *report.first[1:]))
    page = home() / "reports" / f"{EXPERIMENT}.html"
    make_folder(page.parent)
    write_whole(page, report_html(report))
    found = runs_in(settings)
    well_formed = max(found, key=lambda run: (run.metrics.get("format_ok", 0), len(run.candidates)))
    return Demo(summary=summary, report=report, page=page, example=well_formed.run_id[:8])
