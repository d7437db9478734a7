"""Anchors for a batch: which texts of known quality are hidden among those to be judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping, Sequence

REST = 3


class Anchor(Protocol):
    """What judging asks of an anchor: a text of a scenario, and what it was agreed to be worth."""

    @property
    def id(self) -> str: ...

    @property
    def scenario_id(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def reference(self) -> Mapping[str, float]: ...

    @property
    def n_references(self) -> int: ...

    @property
    def by_people(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Usage:
    """When anchors were last shown: `recent` has the anchor ids of each earlier batch, the oldest first."""

    recent: Sequence[Collection[str]]

    def age(self, anchor_id: str) -> int:
        """0 for one that has rested for three batches or was never shown, more the later it was shown."""
        shown = [n for n, ids in enumerate(self.recent[-REST:], start=1) if anchor_id in ids]
        return max(shown, default=0)


def draw_anchors(
    bank: Sequence[Anchor], *, n: int, room: Mapping[str, int], usage: Usage, rng: random.Random
) -> list[Anchor]:
    """Up to `n` anchors, spread evenly over the scenarios and over the range of the reference sums.

    `room` says how many each scenario can take at most. Anchors that were shown lately come only where the
    others do not suffice, those that have rested longest first.
    """
    worth = {anchor.id: sum(anchor.reference.values()) for anchor in bank}
    age = {anchor.id: usage.age(anchor.id) for anchor in bank}
    left, given, drawn = list(bank), Counter[str](), list[Anchor]()
    for level in _levels(list(worth.values()), n=n, rng=rng):
        usable = [anchor for anchor in left if given[anchor.scenario_id] < room.get(anchor.scenario_id, 0)]
        if not usable:
            break
        rank = {
            one.id: (age[one.id], given[one.scenario_id], abs(worth[one.id] - level), rng.random())
            for one in usable
        }
        best = min(usable, key=lambda one: rank[one.id])
        left.remove(best)
        given[best.scenario_id] += 1
        drawn.append(best)
    return drawn


def _levels(sums: Sequence[float], *, n: int, rng: random.Random) -> list[float]:
    """One point in each of `n` equal parts of the range, in random order."""
    if not sums:
        return []
    low, width = min(sums), max(sums) - min(sums)
    return rng.sample([low + width * (part + rng.random()) / n for part in range(n)], n)
