"""Which policy picks the tips that an app asks for: in the books, so that all processes serve the same.

A policy that was just promoted is a canary: a share of the users get it, the others what it is to replace.
Who is on which side is a keyed hash of the user's id, so everybody stays where they are while it lasts.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from tipbench.bandit.asks import Choose, Remark
from tipbench.errors import BadState

KEY = "active"
FIRST = "egreedy"
CANARY = "canary"  # the signal under which every step stands in the log
FAILED = "failed"  # and that of a policy that failed while it was watched
_MOST_STEPS = 100
_MOST_BENEATH = 20
_WORDS = 2**64
_LONGEST_ERROR = 300


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that was in force before."""

    policy: str
    version: str = ""
    since_ms: int = 0
    gate: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done: `promoted`, `completed`, `rolled back`; `by` whom, and why."""

    ms: int
    what: str
    policy: str
    against: str
    share: float
    by: str
    gate: str = ""
    reason: str = ""


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force. While `share` is below 1 it is a canary, and `replaced` serves everybody else.

    `beneath` is what can be gone back to, the nearest last. `after` is the number of the last entry of the
    log when it was promoted, and `revision` counts the changes.
    """

    policy: str = FIRST
    version: str = ""
    since_ms: int = 0
    gate: str = ""
    share: float = 1.0
    after: int = 0
    revision: int = 0
    beneath: tuple[Place, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def replaced(self) -> str:
        """What it took, or is to take, the place of; empty for the first policy."""
        return self.beneath[-1].policy if self.beneath else ""

    @property
    def on_trial(self) -> bool:
        return self.share < 1.0

    def is_new(self, seed: bytes, user_id: str) -> bool:
        """Whether this user is among those who get the new policy."""
        return not self.on_trial or _place(seed, self._trial, user_id) < self.share

    def policy_for(self, seed: bytes, user_id: str) -> str:
        return self.policy if self.is_new(seed, user_id) else self.replaced

    @property
    def _trial(self) -> str:
        """With another promotion, others are the first."""
        return f"{self.policy}\0{self.gate}\0{self.since_ms}\0{self.after}"

    def told(self) -> dict[str, Any]:
        """In plain values, without what was before."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        del plain["steps"], plain["beneath"]
        return {**plain, "replaced": self.replaced, "on_trial": self.on_trial}

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    # -- what may follow

    def promoted(self, place: Place, *, share: float, after: int, step: Step) -> Active:
        """Another one in its place, for a share of the users."""
        mine = Place(policy=self.policy, version=self.version, since_ms=self.since_ms, gate=self.gate)
        return Active(
            policy=place.policy,
            version=place.version,
            since_ms=place.since_ms,
            gate=place.gate,
            share=share,
            after=after,
            revision=self.revision + 1,
            beneath=(*self.beneath, mine)[-_MOST_BENEATH:],
            steps=self._with(step),
        )

    def completed(self, step: Step) -> Active:
        """The same for everybody."""
        return msgspec.structs.replace(self, share=1.0, revision=self.revision + 1, steps=self._with(step))

    def rolled_back(self, step: Step) -> Active:
        """What it replaced, for everybody; what that had replaced can still be gone back to."""
        *rest, last = self.beneath
        return Active(
            policy=last.policy,
            version=last.version,
            since_ms=step.ms,
            gate=last.gate,
            revision=self.revision + 1,
            beneath=tuple(rest),
            steps=self._with(step),
        )

    def _with(self, step: Step) -> tuple[Step, ...]:
        return (*self.steps, step)[-_MOST_STEPS:]


def decode(text: str | None) -> Active:
    """What is written in the books; the first policy where nothing is."""
    if text is None:
        return Active()
    try:
        found = msgspec.json.decode(text, type=Active)
    except msgspec.MsgspecError as error:
        raise BadState("which policy is active", f"it does not have its form ({error})") from None
    if not 0.0 < found.share <= 1.0 or (found.on_trial and not found.beneath):
        raise BadState("which policy is active", "its parts do not fit together")
    return found


def change(was: str | None, now: Active) -> Choose:
    """What brings it about: unless somebody else was quicker, and with its last step in the log."""
    return Choose(
        KEY,
        now.encode(),
        checked=True,
        was=was,
        signal=CANARY,
        policy=now.policy,
        body=msgspec.msgpack.encode(now.steps[-1]),
    )


def failure(policy: str, user_id: str, error: Exception) -> Remark:
    """What is logged when a policy fails while it is watched."""
    body = msgspec.msgpack.encode({"error": str(error)[:_LONGEST_ERROR]})
    return Remark(FAILED, user_id, policy, body)


def _place(seed: bytes, trial: str, user_id: str) -> float:
    """Where a user stands between 0 and 1: not to be foreseen without the server's seed."""
    said = f"{len(trial)}\0{trial}\0{user_id}".encode()
    word = blake2b(said, key=seed[:64], person=b"canary", digest_size=8).digest()
    return int.from_bytes(word, "big") / _WORDS
