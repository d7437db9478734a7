"""How different the tips of one reply are from each other, by their letters alone."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GRAM = 4
_MOST_TIPS = 100


def lexical_diversity(tips: Sequence[str], *, context: str) -> float | None:
    """0 where all tips are the same, 1 where no two share a run of four characters; None below two tips.

    What a tip repeats from the scenario (`context`) is no sign of its being like another one and is left
    out. The measure is lexical: two ways of saying the same thing count as different. Of a runaway reply
    only the first hundred tips are looked at.
    """
    given = _grams(context)
    own = [_grams(tip) - given for tip in tips[:_MOST_TIPS]]
    distances = [_distance(one, other) for one, other in combinations(own, 2)]
    return sum(distances) / len(distances) if distances else None


def _grams(text: str) -> set[str]:
    """Runs of four characters; a shorter text is a run of its own."""
    text = " ".join(text.lower().split())
    return {text[at : at + _GRAM] for at in range(max(len(text) - _GRAM, 0) + 1)} - {""}


def _distance(one: set[str], other: set[str]) -> float:
    """1 minus the shared part (Jaccard); two tips that only repeat the scenario do not differ."""
    union = len(one | other)
    return 1 - len(one & other) / union if union else 0.0
