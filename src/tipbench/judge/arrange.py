"""The order of a batch: short runs of one scenario, so that a judge stays in it, yet sees all of them mixed.

Within a scenario everything is shuffled together before it is cut, and no run holds hidden items alone:
neither a place nor a neighbour tells them from the others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from tipbench.records import Item

SHORTEST, LONGEST = 2, 5
_TRIES = 100


def room_for_hidden(n_real: int) -> int:
    """How many hidden items a scenario can take without a run of them alone."""
    return n_real * (LONGEST - 1)


def arranged(items: Iterable[Item], *, rng: random.Random) -> list[Item]:
    """All items in runs of 2 to 5 of one scenario; two runs of the same do not touch where avoidable."""
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[item.scenario_id].append(item)
    return [item for run in _interleaved(_runs(list(groups.values()), rng), rng) for item in run]


def _runs(groups: Sequence[Sequence[Item]], rng: random.Random) -> list[list[Item]]:
    for _ in range(_TRIES):
        runs = [run for group in groups for run in _dealt(group, _random_cut(group, rng), rng)]
        if _can_be_parted(runs):
            return runs
    largest = max(groups, key=len)
    cuts = [(group, _fewest(group) if group is largest else _most(group)) for group in groups]
    return [run for group, sizes in cuts for run in _dealt(group, sizes, rng)]


def _dealt(group: Sequence[Item], sizes: Sequence[int], rng: random.Random) -> list[list[Item]]:
    """The group shuffled and cut, with something real in every run where there is enough of it."""
    for _ in range(_TRIES):
        shuffled = iter(rng.sample(group, len(group)))
        runs = [[next(shuffled) for _ in range(size)] for size in sizes]
        if all(map(_n_real, runs)):
            break
    return runs


def _random_cut(group: Sequence[Item], rng: random.Random) -> list[int]:
    """Random sizes, no more of them than there are real items."""
    for _ in range(_TRIES):
        sizes = _random_sizes(len(group), rng)
        if len(sizes) <= _n_real(group):
            return sizes
    return _fewest(group)


def _random_sizes(left: int, rng: random.Random) -> list[int]:
    sizes: list[int] = []
    while left:
        fitting = [size for size in range(SHORTEST, LONGEST + 1) if size <= left and left - size != 1]
        sizes.append(rng.choice(fitting or [left]))
        left -= sizes[-1]
    return rng.sample(sizes, len(sizes))


def _fewest(group: Sequence[Item]) -> list[int]:
    return _even(len(group), math.ceil(len(group) / LONGEST))


def _most(group: Sequence[Item]) -> list[int]:
    return _even(len(group), max(1, min(len(group) // SHORTEST, _n_real(group))))


def _even(n: int, parts: int) -> list[int]:
    return [n // parts + (part < n % parts) for part in range(parts)]


def _n_real(items: Sequence[Item]) -> int:
    return sum(item.role == "real" for item in items)


def _can_be_parted(runs: Sequence[Sequence[Item]]) -> bool:
    """Whether the runs can be laid so that no two of one scenario touch."""
    return max(Counter(run[0].scenario_id for run in runs).values()) <= (len(runs) + 1) // 2


def _interleaved(runs: Sequence[list[Item]], rng: random.Random) -> list[list[Item]]:
    waiting: dict[str, list[list[Item]]] = defaultdict(list)
    for run in rng.sample(runs, len(runs)):
        waiting[run[0].scenario_id].append(run)
    order: list[list[Item]] = []
    while len(order) < len(runs):
        last = order[-1][0].scenario_id if order else None
        chosen = _next_scenario({name: len(left) for name, left in waiting.items() if left}, last, rng)
        order.append(waiting[chosen].pop())
    return order


def _next_scenario(left: dict[str, int], last: str | None, rng: random.Random) -> str:
    """A scenario other than the last; one that has more than half of what is left must go now."""
    free = [name for name in left if name != last] or list(left)
    crowded = [name for name in free if 2 * left[name] > sum(left.values())]
    return crowded[0] if crowded else rng.choices(free, weights=[left[name] for name in free])[0]
