"""A judge's desk without a ledger: one batch after the other, applied scores in a list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from suite_files import RUBRIC
from tipbench.errors import NotFound, TipbenchError
from tipbench.judge.judge_file import file_text
from tipbench.records import Batch, Item, Judge, content_hash
from tipbench.suite.rubric_file import rubric_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.judge.answers import Answer
    from tipbench.suite.rubric import Rubric

TWO_SCALES = RUBRIC.replace("  use: 1-3\n", "  use: 1-3\n  tone: 1-5\n").replace("use + ", "use + tone + ")
SMALL = rubric_from_text(TWO_SCALES + "## tone\n### 1\n> bad\n### 5\n> good\n", name="a test")


def batch_of(batch_id: str, count: int) -> Batch:
    """Real items, with an anchor in the second place."""
    items = tuple(
        Item(
            id=f"{batch_id}-{n}",
            role="anchor" if n == 1 else "real",
            scenario_id=f"s{n % 2}",
            text=f"Tip {n}",
            candidate="" if n == 1 else f"secret-candidate-{n}",
            anchor_id="secret-anchor" if n == 1 else "",
            reference={"use": 2, "tone": 3} if n == 1 else {},
            n_references=4 if n == 1 else 0,
        )
        for n in range(count)
    )
    return Batch(
        batch_id=batch_id,
        experiment="secret-experiment",
        created_ms=0,
        purpose="judge",
        judge="agent",
        rubric_id=SMALL.id,
        rubric_hash=content_hash(SMALL.text),
        items=items,
        contexts={"s0": "Ann cooks.", "s1": "Bob swims."},
    )


@dataclass(frozen=True)
class Noted:
    sentence: str


@dataclass
class PlainDesk:
    """`failures` are raised by the next applications, one by one, before any is accepted."""

    batches: list[Batch]
    failures: list[TipbenchError] = field(default_factory=list)
    applied: list[tuple[str, dict[str, Answer]]] = field(default_factory=list)

    def take(self) -> Batch:
        if not self.batches:
            raise NotFound("nothing is left to judge")
        return self.batches[0]

    def rubric(self) -> Rubric:
        return SMALL

    def draft_text(self, batch: Batch) -> str:
        judge = Judge(id="agent", kind="agent", model="m")
        return file_text(batch, rubric_text=SMALL.text, scales=SMALL.scales, judge=judge)

    def apply(self, batch: Batch, answers: Mapping[str, Answer]) -> Noted:
        if self.failures:
            raise self.failures.pop(0)
        self.applied.append((batch.batch_id, dict(answers)))
        self.batches.remove(batch)
        return Noted(f"{len(answers)} recorded")

    def status(self) -> Mapping[str, Any]:
        return {"pending": sum(len(batch.items) for batch in self.batches), "drift": "not checked yet"}
