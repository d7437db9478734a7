"""What a world is: who lives in it, what they are shown, and what makes them follow a tip."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tipbench.records import content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

# Counted up whenever the same file would give other rewards than before.
CONTRACT = 1


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A time at which a person is shown tips; likings are logits, added to those of the persona."""

    id: str
    hour: float
    weekday: int | None
    weight: float
    effort: float
    tasks: tuple[str, ...]
    scenario: str
    likes: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Persona:
    """People of one sort. `share` is their weight among the users."""

    id: str
    share: float
    effort: float
    likes: Mapping[str, float] = field(hash=False)
    slots: tuple[Slot, ...]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Tips of one kind, and the median seconds that people spend on one they complete, or do not."""

    id: str
    tips: tuple[str, ...]
    dwell_completed_s: float
    dwell_otherwise_s: float


@dataclass(frozen=True, kw_only=True)
class KnownBefore:
    """What an app knows of a share of its users: rates per kind, from so many events, of older tastes."""

    share: float
    events: int
    noise: float


@dataclass(frozen=True, kw_only=True)
class Drift:
    """After these shares of the rounds, the kinds of each pair change places in everybody's liking."""

    after: tuple[float, ...]
    swap: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class World:
    """All that decides what a simulated person does. Synthetic: it shows what a policy can learn, no more.

    `same_for_all` is a probability of a reward that replaces all else: no tip is better than another.
    """

    id: str
    title: str
    candidates: int
    intercept: float
    taste: float
    effort: float
    overlap: float
    dismissed: float
    missing: float
    delay: tuple[float, ...]
    dwell_spread: float
    profile: KnownBefore
    drift: Drift
    same_for_all: float | None
    personas: tuple[Persona, ...]
    kinds: tuple[Kind, ...]

    @cached_property
    def tips(self) -> tuple[tuple[str, str], ...]:
        """Every tip as (kind, text), in the order of the file: a tip's number is its place here."""
        return tuple((kind.id, text) for kind in self.kinds for text in kind.tips)

    @cached_property
    def hash(self) -> str:
        """The same for the same content, whatever the file is called and however it is written."""
        return content_hash(
            {"contract": CONTRACT} | {k: v for k, v in asdict(self).items() if k not in _NAMES}
        )


_NAMES = ("id", "title")
