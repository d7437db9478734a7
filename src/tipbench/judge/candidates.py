"""Who is who among candidates: a verdict is on a text within a scenario, whichever cells wrote it."""

from __future__ import annotations

from functools import lru_cache

from tipbench.records import content_hash
from tipbench.suite.anchors import normalised

__all__ = ["candidate_key", "normalised"]

_KEY_LENGTH = 16
_REMEMBERED = 65_536


@lru_cache(maxsize=_REMEMBERED)
def candidate_key(scenario_id: str, text: str) -> str:
    """What verdicts on a text within a scenario are kept under."""
    return content_hash([scenario_id, normalised(text)])[:_KEY_LENGTH]
