"""Rejected submissions: when a batch is closed, and which hidden texts its judge must not see again.

The answer to a submission is a hint: rejected or accepted. A judge who changes one score at a time could find
the hidden items with enough hints. So a batch takes three rejected submissions. Then it is closed, and the
judge's next batch hides other texts.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from tipbench.judge.candidates import normalised
from tipbench.records import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tipbench.judge.answers import Answer
    from tipbench.records import Batch


def judge_key(name: str) -> str:
    """A judge's name as it is compared here: `ANNA` and `anna` are one judge."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def submission_id(batch_id: str, answers: Mapping[str, Answer]) -> str:
    """The same id for the same scores of the same items, whoever submits them and by whichever way."""
    scores = {item_id: dict(answer.scores or {}) for item_id, answer in answers.items()}
    return content_hash([batch_id, scores])[:16]


def closed_to(batches: Iterable[Batch], judge: str) -> list[Batch]:
    """The closed batches that were for this judge, or that this judge submitted.

    A batch for an unnamed judge may go to anybody, so for such a batch (`judge` is empty) all closed batches
    for unnamed judges count.
    """
    key = judge_key(judge)
    return [batch for batch in batches if batch.is_closed and key in _judges_of(batch)]


def _judges_of(batch: Batch) -> set[str]:
    return {judge_key(batch.judge), *(judge_key(one.judge.id) for one in batch.rejections)}


def hidden_texts(batches: Iterable[Batch]) -> frozenset[str]:
    """The texts of all anchors and foils in these batches."""
    return frozenset(
        normalised(item.text) for batch in batches for item in batch.items if item.role != "real"
    )


def real_candidates(batches: Iterable[Batch]) -> frozenset[str]:
    """The keys of the candidates in these batches."""
    return frozenset(item.candidate for batch in batches for item in batch.items if item.candidate)
