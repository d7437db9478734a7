"""How different a cell's candidates are from each other, by their letters alone: lexical, not by meaning."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH = 4


def lexical_diversity(tips: Sequence[str], *, context: str) -> float | None:
    """The mean over pairs of 1 − Jaccard on character 4-grams that the scenario does not already hold.

    0 is the same text over and over, 1 nothing in common; None where there are no two to compare.
    """
    given = _grams(context)
    grams = [_grams(tip) - given for tip in tips]
    distances = [_distance(one, other) for one, other in combinations(grams, 2)]
    return fmean(distances) if distances else None


def _grams(text: str) -> frozenset[str]:
    plain = " ".join(text.lower().split())
    return frozenset(plain[at : at + _LENGTH] for at in range(max(1, len(plain) - _LENGTH + 1)))


def _distance(one: frozenset[str], other: frozenset[str]) -> float:
    union = one | other
    return 1 - len(one & other) / len(union) if union else 0.0
