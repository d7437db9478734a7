"""Two experiments to take pictures of: one that is judged, and one that waits for a judge."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from judged_world import plant, with_tips
from tipbench.ledger import open_ledger
from tipbench.records import Judge, Model
from tipbench.suite import load_suite
from tipbench.workflows.judged import read_judged
from verdict_planting import anchor, by_scenario, judge

if TYPE_CHECKING:
    from pathlib import Path

    from judged_world import World
    from tipbench.records import CellResult

JUDGED, WAITING = "tip-bench-may", "tip-bench-june"
QWEN, GEMMA, LLAMA = "qwen2.5:0.5b", "gemma3:1b", "llama3.2:3b"
# parameters, bytes in memory, milliseconds for a reply, tokens in a second
MODELS = {
    QWEN: (494_000_000, 690_000_000, 900.0, 84.0),
    GEMMA: (1_000_000_000, 1_250_000_000, 1600.0, 47.0),
    LLAMA: (3_210_000_000, 2_900_000_000, 4100.0, 19.0),
}
# Points of 15 in each of the eight scenarios.
POINTS = {
    (LLAMA, "v2-mentor"): (14, 13, 12, 14, 13, 13, 12, 14),
    (GEMMA, "v2-mentor"): (13, 13, 13, 14, 12, 13, 12, 13),
    (LLAMA, "v1"): (12, 11, 12, 13, 11, 12, 10, 12),
    (GEMMA, "v1"): (11, 10, 12, 11, 10, 11, 9, 11),
    (QWEN, "v2-mentor"): (9, 10, 8, 10, 9, 8, 9, 10),
    (QWEN, "v1"): (8, 7, 9, 8, 7, 8, 6, 8),
}
TIPS = {
    (QWEN, "maya-monday-morning"): "Try to organise your tasks and stay positive, you can do it!",
    (
        GEMMA,
        "maya-monday-morning",
    ): "Close your mail and finish the slides until 10:15, then write the customer two honest sentences.",
    (
        LLAMA,
        "maya-monday-morning",
    ): "Slides first, inbox after 11:00. Ring the dentist on your way to the kettle.",
    (QWEN, "jonas-before-shift"): "You should cook food, walk the dog and read the notes before work.",
    (
        GEMMA,
        "jonas-before-shift",
    ): "Put rice on now and walk the dog while it cooks; the notes can wait for the tram.",
    (
        LLAMA,
        "jonas-before-shift",
    ): "Lie down for twenty minutes first. Leftovers in a box are dinner enough tonight.",
    (QWEN, "priya-sunday-afternoon"): "Call your grandmother and tell her about the lab report.",
    (
        GEMMA,
        "priya-sunday-afternoon",
    ): "Phone into the kitchen drawer, one ugly first paragraph by 14:30, then a walk to the shop.",
    (
        LLAMA,
        "priya-sunday-afternoon",
    ): "Write what your graph shows in three plain sentences; that is half of the discussion already.",
    (QWEN, "carl-after-the-rush"): "Leverage the quiet hour to optimise your bakery workflow.",
    (GEMMA, "carl-after-the-rush"): "Sit down with a roll and order the flour by phone while you eat.",
    (
        LLAMA,
        "carl-after-the-rush",
    ): "Let the apprentice shape ten rolls while you sit and watch: good for both of your backs.",
}


def plant_pictures(home: Path) -> World:
    """Plant both; the world is that of the one that waits."""
    ledger = open_ledger("", home=home)
    plant(JUDGED, quality=dict.fromkeys(POINTS, 3.0), n_scenarios=8, changed=_as_measured, ledger=ledger)
    anna, anchors = Judge(id="anna", kind="human"), [anchor(number, by_people=True) for number in range(8)]
    judge(ledger, JUDGED, anna, by_scenario(POINTS), anchors=anchors, drift_z=0.4)
    ledger.mark(JUDGED, read_judged(ledger, JUDGED).marks())
    return plant(
        WAITING,
        quality={(name, "v1"): 3.0 for name in MODELS},
        n_scenarios=4,
        n_tips=1,
        changed=_with_its_tip,
        ledger=ledger,
    )


def _with_its_tip(result: CellResult) -> CellResult:
    tip = TIPS[result.cell.model.name, result.cell.scenario_id]
    return with_tips(_as_measured(result), [tip], suite=load_suite("tip"))


def _as_measured(result: CellResult) -> CellResult:
    """The result with its model's own size and speed, which varies a little from cell to cell."""
    model = result.cell.model
    parameters, size, latency_ms, rate = MODELS[model.name]
    varied = 0.9 + 0.2 * random.Random(result.cell.key).random()  # noqa: S311 - the same each time
    assert result.completion
    return replace(
        result,
        cell=replace(result.cell, model=_sized(model, parameters, size)),
        completion=replace(result.completion, latency_ms=latency_ms * varied, tokens_per_s=rate / varied),
        memory_bytes=size,
    )


def _sized(model: Model, parameters: int, size: int) -> Model:
    return replace(model, parameters=parameters, size_bytes=size)
