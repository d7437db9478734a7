"""`demo`: the whole path on a real model: collect, judge by simple rules, rank."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from tipbench.compare.leaderboard import Leaderboard, rank
from tipbench.compare.table import UNKNOWN, Table, leaderboard_table
from tipbench.compare.wording import sentences
from tipbench.engine.embedded import SMOLLM2, pull_weights
from tipbench.judge.proxy import proxy_scores
from tipbench.judge.scoring import cell_rows, labels
from tipbench.settings import Settings
from tipbench.suite import load_suite
from tipbench.workflows.browse import runs_in
from tipbench.workflows.collect import Summary, collect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.records import Emit, Run
    from tipbench.suite import Suite

EXPERIMENT = "tipbench-demo"
PROMPTS = ("v1", "v2-mentor", "v3-few-shot", "v4-structured")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found. `board` is by the proxy judge: rules, no people. `example` is a run to look at."""

    summary: Summary
    board: Leaderboard
    table: Table
    sentences: tuple[str, str]
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
    found = runs_in(settings)
    board = rank(_rows(found, load_suite(settings.suite)), cost=_costs(found))
    table = leaderboard_table(board, _speeds(found))
    well_formed = max(found, key=lambda run: (run.metrics.get("format_ok", 0), len(run.candidates)))
    example = well_formed.run_id[:8]
    return Demo(
        summary=summary, board=board, table=table, sentences=sentences(board, advise=False), example=example
    )


def _rows(found: Sequence[Run], suite: Suite) -> list[tuple[str, str, str, float | None]]:
    """Every candidate scored by the proxy, and from there what a judge's scores would become."""
    scales = [(scale.name, scale.low, scale.high) for scale in suite.rubric.scales]
    judged = [
        (run, [proxy_scores(c.text, suite.scenario(run.scenario_id).text, scales) for c in run.candidates])
        for run in found
    ]
    return cell_rows(judged, rubric=suite.rubric)


def _costs(found: Sequence[Run]) -> dict[tuple[str, str], Sequence[float | None]]:
    """What a tie is resolved by: the fewest parameters, then the lowest latency."""
    return {
        name: (runs[0].parameters, _median(runs, "latency_ms")) for name, runs in _combinations(found).items()
    }


def _speeds(found: Sequence[Run]) -> dict[tuple[str, str], Mapping[str, str]]:
    return {name: {"tok/s": _speed(runs)} for name, runs in _combinations(found).items()}


def _speed(runs: Sequence[Run]) -> str:
    speed = _median(runs, "tokens_per_s")
    return f"{speed:.0f}" if speed is not None else UNKNOWN


def _combinations(found: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    names = labels(found)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in found:
        groups.setdefault(names[run.digest, run.prompt_hash], []).append(run)
    return groups


def _median(runs: Sequence[Run], metric: str) -> float | None:
    known = [run.metrics[metric] for run in runs if metric in run.metrics]
    return median(known) if known else None
