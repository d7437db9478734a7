"""What is still to be judged, in an order that leaves a balanced design wherever judging stops."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import slot_texts

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Sequence

    from tipbench.judge.scoring import Variant
    from tipbench.records import Run

NOTHING: frozenset[str] = frozenset()
NOBODY: frozenset[Variant] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Block:
    """Texts of one scenario that are judged close together, so that a judge's drift touches all alike."""

    scenario_id: str
    texts: tuple[str, ...]


def wanted_blocks(
    runs: Iterable[Run],
    *,
    scenarios: Sequence[str],
    tips_per_cell: int = 0,
    raced_out: Collection[Variant] = NOBODY,
    done: Collection[str] = NOTHING,
) -> list[Block]:
    """One slot of one scenario from every cell in play, the first slot of all `scenarios` before the second.

    `tips_per_cell` bounds the slots, 0 is all; `raced_out` has variants (`Run.variant`), `done` the keys
    of candidates that are not wanted. A text stands where it first appears in its scenario. Runs that
    failed and scenarios that are not listed, which nobody could be shown, are left out.
    """
    places = {scenario_id: place for place, scenario_id in enumerate(scenarios)}
    layers: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for run in runs:
        if run.scenario_id in places and run.variant not in raced_out:
            for slot, text in enumerate(slot_texts(run, tips_per_cell=tips_per_cell)):
                layers[slot, run.repeat, places[run.scenario_id]].append(text)
    ordered = [
        Block(scenario_id=scenarios[place], texts=tuple(layers[slot, repeat, place]))
        for slot, repeat, place in sorted(layers)
    ]
    return distinct(ordered, done=done)


def unseen_first(blocks: Iterable[Block], seen: Collection[str]) -> list[Block]:
    """The blocks in their order, those texts last whose candidates are in `seen`."""
    if not seen:
        return list(blocks)
    fresh, known = list[Block](), list[Block]()
    for block in blocks:
        for into, wanted in ((fresh, False), (known, True)):
            texts = tuple(t for t in block.texts if (candidate_key(block.scenario_id, t) in seen) is wanted)
            if texts:
                into.append(Block(scenario_id=block.scenario_id, texts=texts))
    return [*fresh, *known]


def blocks_of(texts: Iterable[tuple[str, str]]) -> list[Block]:
    """Blocks of an explicit list of (scenario id, text), one per scenario in the order of appearance."""
    by_scenario: dict[str, list[str]] = defaultdict(list)
    for scenario_id, text in texts:
        by_scenario[scenario_id].append(text)
    return distinct([Block(scenario_id=name, texts=tuple(found)) for name, found in by_scenario.items()])


def distinct(blocks: Iterable[Block], *, done: Collection[str] = NOTHING) -> list[Block]:
    """The blocks with each text of a scenario where it first appears, without those whose keys are `done`."""
    seen, kept = set(done), []
    for block in blocks:
        keys = {candidate_key(block.scenario_id, text): text for text in reversed(block.texts)}
        fresh = tuple(text for key, text in reversed(keys.items()) if key not in seen)
        seen |= set(keys)
        if fresh:
            kept.append(Block(scenario_id=block.scenario_id, texts=fresh))
    return kept


def take(blocks: Sequence[Block], *, most: int, rng: random.Random) -> tuple[list[Block], list[Block]]:
    """The whole blocks at the beginning that hold at most `most` texts, and the rest.

    A block that is larger by itself is cut into even portions, at random, so that no cell is always among
    the first.
    """
    if blocks and len(blocks[0].texts) > most:
        portion, left = _cut(blocks[0], most=most, rng=rng)
        return [portion], [left, *blocks[1:]]
    held, end = 0, 0
    while end < len(blocks) and held + len(blocks[end].texts) <= most:
        held += len(blocks[end].texts)
        end += 1
    return list(blocks[:end]), list(blocks[end:])


def _cut(block: Block, *, most: int, rng: random.Random) -> tuple[Block, Block]:
    texts = rng.sample(block.texts, len(block.texts))
    portion = math.ceil(len(texts) / math.ceil(len(texts) / most))
    first, left = texts[:portion], texts[portion:]
    return (
        Block(scenario_id=block.scenario_id, texts=tuple(first)),
        Block(scenario_id=block.scenario_id, texts=tuple(left)),
    )
