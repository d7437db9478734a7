"""Scenarios, anchors, runs and batches to judge, small enough to see through."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tipbench.judge.blocks import Block
from tipbench.judge.compose import Pool, compose
from tipbench.records import Batch, Candidate, Run, content_hash
from tipbench.suite.rubric import Scale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCALES = tuple(Scale(name=name, low=1, high=5) for name in ("relevance", "actionability", "tone"))
RUBRIC_TEXT = '# How to score\n\n> "five" is best.\n\ttab, \\ and ☕\n'
# Labels that every scenario has, then words that no other has.
CONTEXTS = {
    "bakery": "Person\nwhen: early\ntasks: knead dough, shape rolls, order flour",
    "clinic": "Person\nwhen: night\ntasks: read charts, check medicine, visit patients",
    "garden": "Person\nwhen: noon\ntasks: prune roses, water tomatoes, mend fence",
    "office": "Person\nwhen: late\ntasks: finish slides, answer complaint, book dentist",
}
FITTING = {
    "bakery": "Knead the dough before you shape rolls.",
    "clinic": "Read the charts before you visit patients.",
    "garden": "Prune the roses, then water tomatoes.",
    "office": "Finish the slides and answer the complaint.",
}
KEY = b"a secret of the ledger"
LEVELS = (15.0, 12.0, 9.0, 6.0, 3.0)


@dataclass(frozen=True, kw_only=True)
class KnownText:
    """An anchor as judging sees it."""

    id: str
    scenario_id: str
    text: str
    reference: Mapping[str, float] = field(hash=False)
    n_references: int = 4
    by_people: bool = False


def dice(seed: int = 0) -> random.Random:
    return random.Random(seed)  # noqa: S311 - nothing secret in a test


def anchor(
    scenario_id: str, total: float, *, text: str | None = None, relevance: float | None = None
) -> KnownText:
    """An anchor whose scores add up to `total`."""
    first = total / 3 if relevance is None else relevance
    rest = (total - first) / 2
    return KnownText(
        id=f"{scenario_id}-{total:g}",
        scenario_id=scenario_id,
        text=text or f"{FITTING[scenario_id]} ({total:g})",
        reference={"relevance": first, "actionability": rest, "tone": rest},
    )


def bank(levels: Sequence[float] = LEVELS) -> list[KnownText]:
    return [anchor(scenario_id, total) for scenario_id in CONTEXTS for total in levels]


def pool(*, anchors: Sequence[KnownText] | None = None, scales: Sequence[Scale] = SCALES) -> Pool:
    return Pool(contexts=CONTEXTS, scales=scales, anchors=bank() if anchors is None else anchors)


def run(
    scenario_id: str = "bakery",
    *tips: str,
    model: str = "m",
    prompt: str = "v1",
    repeat: int = 0,
    n_tips: int = 2,
    status: str = "done",
    how: str = "strict",
) -> Run:
    return Run(
        run_id=f"{model}-{prompt}-{scenario_id}-{repeat}",
        experiment="x",
        key="k",
        status=status,  # type: ignore[arg-type]
        model=model,
        digest=f"digest of {model}",
        parameters=None,
        prompt_id=prompt,
        prompt_hash=f"hash of {prompt}",
        scenario_id=scenario_id,
        scenario_hash="h",
        repeat=repeat,
        n_tips=n_tips,
        suite_id="s",
        rubric_id="tip-v1",
        rubric_hash=content_hash(RUBRIC_TEXT),
        host="h",
        host_kind="ollama",
        host_version="0.9",
        machine="",
        hardware="",
        vram_share=None,
        how=how,  # type: ignore[arg-type]
        cut=None,
        error=None,
        judge_pending=True,
        started_ms=0,
        metrics={"format_ok": 1.0},
        candidates=tuple(Candidate(text=tip, overlong=False) for tip in tips),
    )


def blank(batch_id: str = "batch-1") -> Batch:
    return Batch(
        batch_id=batch_id,
        experiment="a secret name",
        created_ms=1,
        purpose="judge",
        judge="",
        rubric_id="tip-v1",
        rubric_hash=content_hash(RUBRIC_TEXT),
        items=(),
        contexts={},
    )


def block(scenario_id: str, n: int, *, word: str = "tip") -> Block:
    return Block(scenario_id=scenario_id, texts=tuple(f"{word} {i} for {scenario_id}" for i in range(n)))


def small_batch(seed: int = 0) -> Batch:
    """Eight real items of two scenarios, two anchors, two foils."""
    blocks = [block("bakery", 4), block("clinic", 4)]
    batch = compose(blocks, blank=blank(), pool=pool(), key=KEY, rng=dice(seed), size=12)
    assert batch is not None
    return batch
