"""A grid on the real embedded engine: by default, unloading after every reply, and with the prompt cache.

By default a model is loaded once and no prompt is reused, so that the same seed gives the same text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from measures import Measure
from processes import TIPBENCH, clean_env, run

if TYPE_CHECKING:
    from pathlib import Path

    from measures import Options

MODEL = "smollm2:135m"
PROMPTS = ("v1", "v2-mentor", "v3-few-shot", "v4-structured")
DEFAULT, STRICT, CACHED = "default", "--keep-alive 0", "--prompt-cache"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What one collection took. `prompt_s` is the time of the cells that was not spent on output tokens."""

    wall_s: float
    prompt_s: float
    load_s: float
    loads: int
    cached_tokens: float
    prompt_tokens: float
    output_tokens: float
    lengths: dict[str, float]


def bench_engine(options: Options) -> list[Measure]:
    prompts, scenarios, rounds = (PROMPTS[:2], 2, 1) if options.quick else (PROMPTS, 4, 2)
    grids: dict[str, list[Grid]] = {DEFAULT: [], STRICT: [], CACHED: []}
    for number in range(rounds):
        for place, (variant, done) in enumerate(grids.items()):
            done.append(_collected(options.work / f"{number}-{place}", variant, prompts, scenarios))
    cells = len(prompts) * scenarios
    return [
        Measure(what="cells in the grid", value=cells, unit=""),
        *(measure for variant in grids for measure in _measures(variant, grids)),
    ]


def _collected(folder: Path, variant: str, prompts: tuple[str, ...], scenarios: int) -> Grid:
    events = folder / "events"
    more = [] if variant == DEFAULT else variant.split()
    ran = run(
        [
            *TIPBENCH, "collect", "--engine", "embedded", "--models", MODEL, "--prompts", ",".join(prompts),
            "--n-scenarios", str(scenarios), "--n-tips", "3", "--json", "--events", str(events), *more,
        ],
        env=clean_env(folder),
    )  # fmt: skip
    told = [json.loads(line) for line in events.read_text().splitlines()]
    cells = [event for event in told if event["event"] == "cell"]
    (model,) = json.loads(ran.out)["models"]
    started = next(_moment(event) for event in told if event["event"] == "model_start")
    return Grid(
        wall_s=_moment(cells[-1]) - started,
        prompt_s=sum(
            cell["latency_ms"] / 1e3 - cell["output_tokens"] / cell["tokens_per_s"] for cell in cells
        ),
        load_s=model["load_s"],
        loads=model["loads"],
        cached_tokens=sum(cell.get("cached_tokens", 0) for cell in cells),
        prompt_tokens=sum(cell["prompt_tokens"] for cell in cells),
        output_tokens=sum(cell["output_tokens"] for cell in cells),
        lengths={cell["key"]: cell["output_tokens"] for cell in cells},
    )


def _moment(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


def _measures(variant: str, grids: dict[str, list[Grid]]) -> list[Measure]:
    these, usual = grids[variant], grids[DEFAULT]
    pairs = list(zip(these, usual, strict=True))

    def row(what: str, value: float, unit: str = "") -> Measure:
        return Measure(what=f"{variant}: {what}", value=value, unit=unit)

    same = sum(length == usual[0].lengths[key] for key, length in these[-1].lengths.items())
    walls = median(each.wall_s / other.wall_s for each, other in pairs)
    readings = median(each.prompt_s / other.prompt_s for each, other in pairs)
    ratios = [row("wall ÷ default", walls, "×"), row("reading prompts ÷ default", readings, "×")]
    return [
        row("first model to last cell durable", median(each.wall_s for each in these), "s"),
        row("reading prompts", median(each.prompt_s for each in these), "s"),
        *(ratios if variant != DEFAULT else ()),
        row("loads", these[0].loads),
        row("seconds of loading", median(each.load_s for each in these), "s"),
        row("prompt tokens", these[0].prompt_tokens),
        row("of them from the cache", these[0].cached_tokens),
        row("output tokens", these[0].output_tokens),
        row("replies as long as in the first default run", same),
    ]
