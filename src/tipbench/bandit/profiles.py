"""What is known of one user from the service's own log: counters, per kind of tip and overall.

A profile belongs to the user: every policy reads the same one. What a policy has *learned* is kept elsewhere.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import msgspec

from tipbench.errors import BadInput, BadState

if TYPE_CHECKING:
    from collections.abc import Iterable

RECENT = 10
MOST_DWELL_S = 600.0
# A caller may send a new kind with every tip; the kind shown least is then forgotten, the totals keep it.
MOST_KINDS = 64

_TURN = 2.0 * math.pi / 24.0
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Amount = Annotated[float, msgspec.Meta(ge=0)]


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happened to tips, of one kind or of all."""

    shown: _Count = 0
    ended: _Count = 0
    completed: _Amount = 0.0  # the sum of the rewards of what ended
    dismissed: _Count = 0
    dwell_n: _Count = 0
    dwell_sum: _Amount = 0.0  # of min(seconds, 600)
    hour_n: _Amount = 0.0  # completions whose hour is known; each weighs its reward
    hour_cos: float = 0.0
    hour_sin: float = 0.0

    def after_shown(self) -> Tally:
        return Tally(
            self.shown + 1,
            self.ended,
            self.completed,
            self.dismissed,
            self.dwell_n,
            self.dwell_sum,
            self.hour_n,
            self.hour_cos,
            self.hour_sin,
        )

    def after_ended(self, reward: float, *, dismissed: bool, hour: float | None) -> Tally:
        weight = 0.0 if hour is None else reward
        turn = _TURN * (hour or 0.0)
        return Tally(
            self.shown,
            self.ended + 1,
            self.completed + reward,
            self.dismissed + dismissed,
            self.dwell_n,
            self.dwell_sum,
            self.hour_n + weight,
            self.hour_cos + weight * math.cos(turn),
            self.hour_sin + weight * math.sin(turn),
        )

    def after_dwelt(self, seconds: float) -> Tally:
        return msgspec.structs.replace(
            self, dwell_n=self.dwell_n + 1, dwell_sum=self.dwell_sum + min(seconds, MOST_DWELL_S)
        )


class Served(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one policy did for the user."""

    decisions: _Count = 0
    explored: _Count = 0
    rewards: _Count = 0
    reward_sum: _Amount = 0.0


class Watched(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How often a shadow decided on what the user was served, and how often it would have served the same."""

    decisions: _Count = 0
    agreed: _Count = 0


_NOTHING = Tally()
_NEVER = Served()
_UNWATCHED = Watched()


class Profile(msgspec.Struct, frozen=True, array_like=True):
    """One user's counters. Every change gives a new profile and leaves this one whole."""

    recent: tuple[str, ...] = ()  # the kinds of the last tips shown, the newest last
    total: Tally = _NOTHING
    kinds: dict[str, Tally] = {}
    served: dict[str, Served] = {}
    floor: _Count = 0  # decisions up to this entry of the log (a reset) teach nothing
    shadows: dict[str, Watched] = {}  # by signal; no policy reads it

    def shown(self, kind: str, policy: str, explored: bool) -> Profile:  # noqa: FBT001 - as it is logged
        """After a tip of this kind was picked by this policy."""
        was = self.served.get(policy, _NEVER)
        served = Served(was.decisions + 1, was.explored + explored, was.rewards, was.reward_sum)
        return Profile(
            (*self.recent[1 - RECENT :], kind),
            self.total.after_shown(),
            self._with(kind, self.kinds.get(kind, _NOTHING).after_shown()),
            {**self.served, policy: served},
            self.floor,
            self.shadows,
        )

    def ended(self, kind: str, policy: str, reward: float, event: str, hour: float | None) -> Profile:
        """After the terminal event of a tip that was shown at this hour."""
        _refuse_unless(0.0 <= reward <= 1.0, f"a reward must be a number from 0 to 1, not {reward}")
        _refuse_unless(hour is None or 0.0 <= hour <= 24.0, f"an hour must be from 0 to 24, not {hour}")
        was = self.served.get(policy, _NEVER)
        served = Served(was.decisions, was.explored, was.rewards + 1, was.reward_sum + reward)
        dismissed = event == "dismissed"
        tally = self.kinds.get(kind, _NOTHING).after_ended(reward, dismissed=dismissed, hour=hour)
        return Profile(
            self.recent,
            self.total.after_ended(reward, dismissed=dismissed, hour=hour),
            self._with(kind, tally),
            {**self.served, policy: served},
            self.floor,
            self.shadows,
        )

    def dwelt(self, kind: str, seconds: float) -> Profile:
        """After the user stayed this long with a tip. Above ten minutes nothing is added."""
        _refuse_unless(0.0 <= seconds < math.inf, f"seconds of dwell must be 0 or more, not {seconds}")
        return msgspec.structs.replace(
            self,
            total=self.total.after_dwelt(seconds),
            kinds=self._with(kind, self.kinds.get(kind, _NOTHING).after_dwelt(seconds)),
        )

    def watched(self, signal: str, *, agreed: bool) -> Profile:
        """After a shadow decided on what the user was served."""
        was = self.shadows.get(signal, _UNWATCHED)
        now = Watched(was.decisions + 1, was.agreed + agreed)
        return msgspec.structs.replace(self, shadows={**self.shadows, signal: now})

    def _with(self, kind: str, tally: Tally) -> dict[str, Tally]:
        kinds = {**self.kinds, kind: tally}
        if len(kinds) > MOST_KINDS:
            del kinds[min((name for name in kinds if name != kind), key=lambda name: kinds[name].shown)]
        return kinds

    def encode(self) -> bytes:
        """The bytes that `decode` reads."""
        body = _ENCODER.encode(self)
        return _HEAD.pack(_MAGIC, _VERSION, crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes, *, what: str = "a user's profile") -> Profile:
        """The profile that was encoded, or a BadState that names it as `what`."""
        if len(data) < _HEAD.size:
            raise BadState(what, "it is cut short")
        magic, version, check = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise BadState(what, "it is not a profile")
        if version != _VERSION:
            raise BadState(what, f"it is of version {version}, and this release reads version {_VERSION}")
        body = memoryview(data)[_HEAD.size :]
        if crc32(body) != check:
            raise BadState(what, "its checksum is wrong")
        return _decoded(body, what)


def _decoded(body: memoryview, what: str) -> Profile:
    try:
        profile = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise BadState(what, f"it does not have the form of a profile ({error})") from error
    if not _finite((profile.total, *profile.kinds.values(), *profile.served.values())):
        raise BadState(what, "it holds a number that is not finite")
    return profile


def _finite(tallies: Iterable[Tally | Served]) -> bool:
    return all(math.isfinite(sum(msgspec.structs.astuple(tally))) for tally in tallies)


def _refuse_unless(holds: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise BadInput(message)


_HEAD = struct.Struct("<3sBI")
_MAGIC = b"TBP"
_VERSION = 1
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Profile)
