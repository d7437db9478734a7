"""What the serving half can be asked to do, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tipbench.bandit.asked import RecommendReply, RewardReply, RewardRequest, ScoreReply, ScoreRequest
    from tipbench.bandit.books import Entry
    from tipbench.bandit.profiles import Profile


class Score(NamedTuple):
    """Pick a tip with this policy.

    `scope` is what a repeated request id is looked up in: the policy, or what stands before a policy that may
    change meanwhile. `source` says where the candidates come from; with it, the tip itself is answered too.
    """

    policy: str
    request: ScoreRequest
    scope: str = ""
    source: str = ""


class Reward(NamedTuple):
    """What came of a decision. With a policy, it must be that policy's decision."""

    policy: str | None
    request: RewardRequest


class Reset(NamedTuple):
    """Forget what was learned from a user, by every policy; None is everybody. Nothing served before it
    teaches anything any more. What all users share is forgotten only with everybody.
    """

    user_id: str | None
    body: bytes = b""


class Remembered(NamedTuple):
    """What a shadow knew of a user, or of all of them, before a lesson and after it: encoded ridges."""

    user_id: str
    was: bytes | None
    now: bytes


class Note(NamedTuple):
    """What a shadow did: `body` goes into the log under `signal`. Without a decision it was dropped.

    `memories` is what a shadow has learned (under `policy`), where it may learn at all, and `lesson` the
    decision it learned it from: after a reset of its user nothing of it is kept. Where something else is kept
    than what it `was`, it is a Conflict: another process has taught the same shadow, or had a user forgotten.
    """

    signal: str
    decision_id: str
    user_id: str
    policy: str
    body: bytes = b""
    agreed: bool = False
    dropped: int = 0
    memories: tuple[Remembered, ...] = ()
    lesson: str = ""


class Choose(NamedTuple):
    """Keep a value under a name, for every process that serves: the active policy, for one.

    With `checked` it is kept only while `was` stands there (None: nothing), else it is a Conflict: of two who
    change the same thing, one does. With a `signal` it is logged, in the same transaction.
    """

    name: str
    value: str
    checked: bool = False
    was: str | None = None
    signal: str = ""
    policy: str = ""
    body: bytes = b""


class Remark(NamedTuple):
    """Something about a policy and a user that belongs into the log, and changes nothing else."""

    signal: str
    user_id: str
    policy: str
    body: bytes = b""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What Reset, Note, Choose and Remark answer: it is on disk."""

    seq: int


Ask: TypeAlias = "Score | Reward | Reset | Note | Choose | Remark"
Answer: TypeAlias = "ScoreReply | RecommendReply | RewardReply | Done"


class Signal(NamedTuple):
    """An entry of the log that was just committed. For a decision that was served also the request, the
    user's profile as the policy saw it and the number it drew with, so that a shadow can decide on the very
    same, and the tip that was picked.
    """

    entry: Entry
    request: ScoreRequest | None = None
    profile: Profile | None = None
    u: float = 0.0
    tip_id: str = ""
    source: str = ""
