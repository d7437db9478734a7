"""What a shadow is told to be, what it may take, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class ShadowSpec:
    """A shadow to run: its own name, a policy's name or `package.module:factory`, and whether it learns."""

    name: str
    policy: str
    apprentice: bool = False

    @property
    def signal(self) -> str:
        return f"shadow:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a shadow may take. A decision costs far less than a millisecond: all of these are generous."""

    waiting: int = 512  # decisions and rewards in line
    waiting_bytes: int = 16 * 2**20
    batch: int = 32  # handed over at once
    deadline_s: float = 1.0  # for one decision
    start_s: float = 30.0  # to import and make the policy
    memory_mb: int = 512  # beyond what an idle process has
    rest_s: float = 0.2  # before a process is started again; doubles each time …
    longest_rest_s: float = 30.0  # … up to this
    nap_s: float = 0.005  # the shadow is looked after this much later, and the service woken less often
    users: int = 4096  # whose memory an apprentice keeps at hand
    decisions: int = 16384  # whose vectors an apprentice keeps for a reward to come


class ShadowResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a shadow would have shown. `served_x` is the served tip's vector in the shadow's features."""

    name: str
    decision_id: str
    user_id: str
    tip_id: str
    agrees: bool
    explored: bool
    scores: dict[str, float]
    propensities: dict[str, float]
    policy: str
    policy_version: str
    feature_version: str
    absent: list[str]
    took_us: int
    apprentice: bool
    served_x: bytes


class ShadowLesson(msgspec.Struct, frozen=True, kw_only=True):
    """What an apprentice remembered before a reward and after it, to be kept under its own name."""

    name: str
    decision_id: str
    user_id: str
    reward: float
    was_own: bytes | None
    was_pooled: bytes | None
    own: bytes | None
    pooled: bytes | None
    took_us: int


class ShadowDropped(msgspec.Struct, frozen=True, kw_only=True):
    """How many decisions, and lessons, were dropped since the last time, by reason."""

    name: str
    decisions: dict[str, int]
    lessons: dict[str, int]


Outcome: TypeAlias = "ShadowResult | ShadowLesson | ShadowDropped"


@dataclass(frozen=True, kw_only=True)
class ShadowCounts:
    """How a shadow fared since it was started: decisions, and for an apprentice also lessons."""

    policy: str
    apprentice: bool
    offered: int
    decided: int
    agreed: int
    dropped: Mapping[str, int]
    learned: int
    lessons_dropped: Mapping[str, int]
    waiting: int
    starts: int
    trouble: str  # what went wrong last
