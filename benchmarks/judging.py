"""Judging and ranking, timed from inside: `judging.py FOLDER SUITE SCENARIOS`. Prints JSON.

An experiment of 12 combinations is planted in an embedded store: nobody has judged it, and the cache is warm.
A batch is exported, filled in and applied; then all else is judged, in batches of the usual size, and ranked.
Last, plain rows are ranked without any ledger.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from judged_world import SCALES, fill, plant
from tipbench import rank
from tipbench.compare.html import report_html
from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import slot_texts
from tipbench.ledger import open_ledger
from tipbench.records import Application, Item, Judge, Verdict
from tipbench.settings import Settings, home
from tipbench.workflows.applying import apply_file
from tipbench.workflows.comparing import compare
from tipbench.workflows.exporting import Order, blank_batch, export
from tipbench.workflows.judged import read_judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.records import Batch, Ledger
    from tipbench.workflows.judged import Judged

MODELS = ("alpha:1b", "beta:1b", "gamma:1b", "delta-big:1b")
PROMPTS = ("v1", "v2-mentor", "v3-few-shot")
N_TIPS = 5
IN_A_BATCH = 50

spent: dict[str, float] = {}


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Wall and CPU seconds of the block, as in a process that has worked out no keys before."""
    candidate_key.cache_clear()
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    spent[f"{name}_s"] = time.perf_counter() - wall
    spent[f"{name}_cpu_s"] = time.process_time() - cpu


def main() -> None:
    folder, suite, scenarios = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = Settings.of({"experiment": "judged", "suite": suite})
    rank(_rows(3, 4, 1))  # loads what ranking needs
    with timed("plant"):
        quality = {(model, prompt): 3.0 for model in MODELS for prompt in PROMPTS}
        world = plant("judged", quality=quality, n_scenarios=scenarios, n_tips=N_TIPS, suite=suite)
    with timed("read"):
        runs = len(_ledger().runs("judged"))
    with timed("export"):
        (written,) = export(settings, Order(judge="anna"), out=str(folder / "batch.json"))
    fill(Path(written.path), world, judge="anna", kind="human", noise=0.3)
    with timed("apply"):
        apply_file(settings, written.path)
    with timed("judge"):
        candidates = judge_the_rest(read_judged(_ledger(), "judged"))
    with timed("rank_after"):
        compare(settings)
    with timed("rank"):
        report = compare(settings)
    with timed("json"):
        json.dumps(report.as_dict())
    with timed("html"):
        report_html(report)
    for name, shape in {"few": (12, 833, 10), "many": (200, 500, 1), "wide": (1000, 100, 1)}.items():
        rows = _rows(*shape)
        with timed(f"rows_{name}"):
            rank(rows)
    print(json.dumps({"runs": runs, "items": written.items, "candidates": candidates, **spent}))


def _ledger() -> Ledger:
    return open_ledger("", home=home())


def _rows(cells: int, scenarios: int, tips: int) -> list[tuple[str, str, str, float | None]]:
    rng = random.Random(0)  # noqa: S311 - the same numbers each time
    return [
        (f"m{cell}", "v1", f"s{scenario}", 10 + 0.01 * cell + rng.gauss(0, 2))
        for cell in range(cells)
        for scenario in range(scenarios)
        for _ in range(tips)
    ]


def judge_the_rest(state: Judged) -> int:
    """Verdicts on every candidate that has none, in batches as large as a person's; how many they are."""
    done = {verdict.candidate for verdict in state.verdicts}
    found = {
        key: Item(id=key, role="real", scenario_id=run.scenario_id, text=text, candidate=key)
        for run in state.runs
        for text in slot_texts(run)
        if (key := candidate_key(run.scenario_id, text)) not in done
    }
    items = list(found.values())
    for start in range(0, len(items), IN_A_BATCH):
        _apply(state, items[start : start + IN_A_BATCH])
    return len(items) + len(done)


def _apply(state: Judged, items: Sequence[Item]) -> None:
    judge = Judge(id="anna", kind="human")
    contexts = {
        item.scenario_id: "Somebody at noon.\nTasks: this, that, and something else." for item in items
    }
    blank = blank_batch(state, purpose="judge", judge=judge.id)
    batch = replace(blank, items=tuple(items), contexts=contexts)
    verdicts = tuple(_verdict(item, judge, batch) for item in items)
    state.ledger.add_batch(batch)
    state.ledger.commit(
        batch,
        Application(
            application_id=f"a{batch.batch_id}",
            judge=judge,
            at_ms=batch.created_ms,
            verdicts=verdicts,
            hidden={},
        ),
    )


def _verdict(item: Item, judge: Judge, batch: Batch) -> Verdict:
    level = int(item.candidate[:4], 16)
    return Verdict(
        candidate=item.candidate,
        scores={name: 1 + (level >> (4 * at)) % 5 for at, name in enumerate(SCALES)},
        judge=judge,
        at_ms=batch.created_ms,
        rubric_hash=batch.rubric_hash,
        batch_id=batch.batch_id,
    )


if __name__ == "__main__":
    main()
