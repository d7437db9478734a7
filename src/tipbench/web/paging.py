"""Lists in pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


@dataclass(frozen=True, kw_only=True)
class Paging(Generic[Thing]):
    """One page of a list: what is on it, and where the others are."""

    shown: Sequence[Thing]
    total: int
    number: int
    pages: int
    size: int
    before: str
    after: str

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.number * self.size, self.total)


def paged(things: Sequence[Thing], *, number: int, size: int, link: Callable[[int], str]) -> Paging[Thing]:
    """The page of this number, or the nearest that there is."""
    pages = max(1, -(-len(things) // size))
    here = min(max(number, 1), pages)
    return Paging(
        shown=things[(here - 1) * size : here * size],
        total=len(things),
        number=here,
        pages=pages,
        size=size,
        before=link(here - 1) if here > 1 else "",
        after=link(here + 1) if here < pages else "",
    )
