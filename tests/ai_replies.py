"""Replies of an AI judge: for each scale a reason that begins with the level, then the score."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def entry(n: int, **scores: float) -> dict[str, Any]:
    """The entry of text number `n`."""
    each = {name: {"reason": f"level {score}: fits", "score": score} for name, score in scores.items()}
    return {"n": n, **each}


def reply_text(scores: Iterable[Mapping[str, float]]) -> str:
    """A whole reply, with the scores of the texts in the order in which they were sent."""
    return json.dumps({"scores": [entry(n, **one) for n, one in enumerate(scores, 1)]})
