"""A decision as it is kept in the log, and what is read out of it again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tipbench.bandit.asked import Context, RecommendReply, ScoreReply, Tip
from tipbench.errors import BadInput, BadState

if TYPE_CHECKING:
    from tipbench.bandit.books import Entry, Past
    from tipbench.bandit.ridge import Array

FORM = 1


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """The body of a served decision: all that is needed to replay it, and to judge another policy by it.

    `x` is (K, D) row by row, as float64, little endian.
    """

    form: int
    request_id: str
    context: Context
    ids: list[str]
    kinds: tuple[str, ...]
    x: bytes
    scores: list[float]
    propensities: list[float]
    chosen: int
    explored: bool
    policy_version: str
    feature_version: str
    absent: tuple[str, ...]
    source: str = ""  # where the candidates came from, when an app asked for a tip
    text: str | None = None  # of the tip that was shown then
    took_us: float = 0.0  # to weigh the candidates; decisions that were weighed together share the time
    suite: str = ""  # whose state it was decided with; empty for the first suite

    def matrix(self) -> Array:
        """The features of the candidates, (K, D)."""
        return np.frombuffer(self.x, dtype=_FLOAT).reshape(len(self.ids), -1)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What must be known of a decision when something is told about it."""

    seq: int
    ms: int
    user_id: str
    policy: str
    kind: str
    hour: float | None
    feature_version: str
    x: Array  # (D) of the tip that was shown
    ended: bool
    suite: str = ""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Logged)
_FLOAT = np.dtype("<f8")


def encode(logged: Logged) -> bytes:
    try:
        return _ENCODER.encode(logged)
    except UnicodeEncodeError:
        raise BadInput("the request holds text that is not valid Unicode; send it as UTF-8") from None
    except OverflowError:
        raise BadInput("the request holds a whole number of more than 64 bits; send a smaller one") from None


def decode(entry: Entry) -> Logged:
    """The body of an entry of the log, or a BadState that names the decision."""
    what = f"decision {entry.decision_id} in the log"
    try:
        logged = _DECODER.decode(entry.body)
        whole = logged.form == FORM and _whole(logged)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadState(what, f"it does not have the form of a decision ({error})") from None
    if not whole:
        raise BadState(what, "its parts do not fit together, or are of a newer form")
    return logged


def _whole(logged: Logged) -> bool:
    many = len(logged.ids)
    fits = len(logged.kinds) == many == len(logged.scores) == len(logged.propensities)
    finite = (
        math.isfinite(sum(logged.scores) + sum(logged.propensities)) and np.isfinite(logged.matrix()).all()
    )
    return fits and 0 <= logged.chosen < many and bool(finite)


def reply_to(entry: Entry, logged: Logged) -> ScoreReply:
    """The answer as it was given when the decision was made, to the byte."""
    tip_id = logged.ids[logged.chosen]
    reply = ScoreReply(
        decision_id=entry.decision_id,
        tip_id=tip_id,
        scores=dict(zip(logged.ids, logged.scores, strict=True)),
        propensities=dict(zip(logged.ids, logged.propensities, strict=True)),
        policy=entry.policy,
        policy_version=logged.policy_version,
        feature_version=logged.feature_version,
        explored=logged.explored,
        absent=list(logged.absent),
    )
    if not logged.source:
        return reply
    tip = Tip(id=tip_id, kind=logged.kinds[logged.chosen], text=logged.text)
    return RecommendReply(**msgspec.structs.asdict(reply), tip=tip, source=logged.source)


def recalled(past: Past) -> Decision:
    """What is learned from, out of the log."""
    entry, logged = past.entry, decode(past.entry)
    return Decision(
        seq=entry.seq,
        ms=entry.ms,
        user_id=entry.user_id,
        policy=entry.policy,
        kind=logged.kinds[logged.chosen],
        hour=logged.context.hour,
        feature_version=logged.feature_version,
        x=logged.matrix()[logged.chosen].astype(np.float64),
        ended=past.outcome is not None,
        suite=logged.suite,
    )
