"""Judges who score anchors with a known spread and drift, to measure how often the gate is right.

Each judge sees the true quality of a tip through noise and gives whole numbers. The noise is such that the
sum of the three scales has the spread that the gate assumes. References are means of such judges, so they
have an error of their own, and the bank is used in turn: no anchor comes back within three batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tipbench.judge.gate import Drift, Past, check_drift
from tipbench.records import Batch, Item, Judge
from tipbench.suite.rubric import Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALES = [Scale(name=name, low=1, high=5) for name in ("relevance", "actionability", "tone")]
JUDGE = Judge(id="ann", kind="human")
NAMES = [scale.name for scale in SCALES]
REFERENCES = 4
_NOISE = 0.385


def given(numbers: NDArray[Any]) -> dict[str, float]:
    return dict(zip(NAMES, numbers.tolist(), strict=True))


def batch_of(items: tuple[Item, ...], *, batch_id: str = "b1") -> Batch:
    return Batch(
        batch_id=batch_id,
        experiment="x",
        created_ms=0,
        purpose="judge",
        judge="",
        rubric_id="tip-v1",
        rubric_hash="rh",
        items=items,
        contexts={},
    )


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Anchors with their true qualities and the references that four judges gave them."""

    truth: NDArray[Any]
    reference: NDArray[Any]

    @classmethod
    def of(cls, *, rng: np.random.Generator, size: int = 32) -> Bank:
        truth = rng.uniform(1.5, 4.5, (size, 3))
        several = [scored(truth, shift=0.0, rng=rng) for _ in range(REFERENCES)]
        return cls(truth=truth, reference=np.mean(several, axis=0))

    def batch(self, number: int, *, n: int = 8) -> tuple[Batch, NDArray[Any]]:
        """The next anchors in turn, as a batch of nothing else, and which of the bank they are."""
        chosen = (np.arange(n) + number * n) % len(self.truth)
        items = tuple(
            Item(
                id=str(at),
                role="anchor",
                scenario_id="s",
                text="t",
                reference=given(self.reference[at]),
                n_references=REFERENCES,
            )
            for at in chosen
        )
        return batch_of(items, batch_id=f"b{number}"), chosen


def scored(truth: NDArray[Any], *, shift: float, rng: np.random.Generator) -> NDArray[Any]:
    """One judge's whole numbers; `shift` is in points of the sum."""
    latent = truth + shift / 3 + rng.normal(0, _NOISE, truth.shape)
    return np.clip(np.rint(latent), 1, 5)


def judged_batches(n: int, *, shift: float, rng: np.random.Generator, anchors: int = 8) -> list[Drift]:
    """What the gate says of a judge's batches up to the first that it rejects."""
    bank = Bank.of(rng=rng)
    history: list[Past] = []
    found: list[Drift] = []
    for number in range(n):
        batch, chosen = bank.batch(number, n=anchors)
        scores = scored(bank.truth[chosen], shift=shift, rng=rng)
        hidden = {str(at): given(numbers) for at, numbers in zip(chosen, scores, strict=True)}
        found.append(
            check_drift(batch, judge=JUDGE, scores_by_item_id=hidden, history=history, scales=SCALES)
        )
        if found[-1].state == "reject":
            break
        history.append(Past(batch_id=batch.batch_id, z=found[-1].z or 0.0))
    return found


def rejected(n: int, *, shift: float, runs: int, seed: int, anchors: int = 8) -> float:
    """How often one of `n` batches is rejected."""
    rng = np.random.default_rng(seed)
    chains = [judged_batches(n, shift=shift, rng=rng, anchors=anchors) for _ in range(runs)]
    return sum(chain[-1].state == "reject" for chain in chains) / runs
