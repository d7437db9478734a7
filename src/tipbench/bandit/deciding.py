"""Decisions: which tip, with which probability, and what is written down about it.

Decisions for different users are weighed in one go, which is several times quicker than one by one.
"""

from __future__ import annotations

import logging
import math
import time
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tipbench.bandit import draws
from tipbench.bandit.asks import Signal
from tipbench.bandit.books import SERVE, Entry, Past, Total
from tipbench.bandit.decisions import FORM, Decision, Logged, decode, encode, reply_to
from tipbench.bandit.features import vectors
from tipbench.bandit.stacks import stacked
from tipbench.errors import BadInput, PolicyFailed, TipbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.bandit.asked import ScoreReply, ScoreRequest
    from tipbench.bandit.features import Vectors
    from tipbench.bandit.line_up import Served
    from tipbench.bandit.policy import Memory, Weighed
    from tipbench.bandit.profiles import Profile
    from tipbench.bandit.recall import Work
    from tipbench.bandit.ridge import Array


class Question(NamedTuple):
    """A request to one policy, with the decision that it has or will have, and its one random number."""

    served: Served
    request: ScoreRequest
    request_id: str
    decision_id: str
    u: float
    source: str = ""


class Open(NamedTuple):
    """A question with all that it is decided by."""

    question: Question
    profile: Profile
    memory: Memory
    features: Vectors


class Choice(NamedTuple):
    """What a policy made of the candidates, and which was drawn."""

    x: bytes
    scores: list[float]
    propensities: list[float]
    chosen: int
    explored: bool
    took_us: float


_LOG = logging.getLogger(__name__)

Decided = tuple["ScoreReply", "Signal"]
_NEAR = 1e-6  # how far from 1 probabilities may sum up


def open_question(asked: Question, work: Work) -> ScoreReply | Open:
    """What the question is decided by; where it has been decided before, the answer as it was given."""
    past = work.past(asked.decision_id)
    if past is not None:
        return reply_to(past.entry, decode(past.entry))
    request = asked.request
    profile = work.profile(request.user_id)
    memory = work.memory(asked.served.policy, request.user_id, asked.served.fresh, work.suite)
    return Open(asked, profile, memory, _features(asked, profile))


def _features(asked: Question, profile: Profile) -> Vectors:
    """What a request is made into. Should that ever fail, it fails this one and not those in its batch."""
    try:
        return vectors(asked.served.policy.features, asked.request, profile)
    except TipbenchError:
        raise
    except Exception as error:
        _LOG.exception("a request could not be made into features")
        raise PolicyFailed(
            "the request could not be made into features; the service's log says why"
        ) from error


def decide_all(questions: Sequence[Open], work: Work) -> list[Decided | TipbenchError]:
    """Decide for different users, each as if it had been asked alone; they are logged in their order."""
    groups: dict[tuple[str, int], list[Open]] = {}
    for one in questions:
        groups.setdefault((one.question.served.name, len(one.features.x)), []).append(one)
    made_of = {
        one.question.decision_id: choice
        for group in groups.values()
        for one, choice in zip(group, choices(group), strict=True)
    }
    made = [_kept(one, made_of[one.question.decision_id], work) for one in questions]
    replies = [one[0] for one in made if not isinstance(one, TipbenchError)]
    for name in {reply.policy for reply in replies}:
        explored = [reply.explored for reply in replies if reply.policy == name]
        work.count(Total(name, len(explored), sum(explored), 0, 0.0))
    return made


def _kept(one: Open, choice: Choice | TipbenchError, work: Work) -> Decided | TipbenchError:
    try:
        return choice if isinstance(choice, TipbenchError) else _written(one, choice, work)
    except BadInput as error:  # text that cannot be kept
        return error


def choices(group: Sequence[Open]) -> list[Choice | TipbenchError]:
    """What the policy makes of these; where it fails, each is tried by itself."""
    try:
        return [*_drawn(group)] if len(group) > 1 else [_drawn_alone(group[0])]
    except TipbenchError as error:
        if len(group) == 1:
            return [error]
    return [choice for one in group for choice in choices([one])]


def _drawn(group: Sequence[Open]) -> Iterator[Choice]:
    began = time.perf_counter()
    x = np.array([one.features.x for one in group])
    served = group[0].question.served
    weighed = _weighed(served, stacked([one.memory for one in group]), x)
    shares = weighed.propensities
    near = np.abs(shares.sum(axis=-1) - 1.0) < _NEAR
    if not (np.isfinite(weighed.scores).all() and (shares >= 0.0).all() and near.all()):
        raise _no_chances(served)
    chosen = draws.pick(weighed.propensities, np.array([one.question.u for one in group]))
    drawn = weighed.scores[np.arange(len(group)), chosen]
    explored = drawn < weighed.scores.max(axis=-1)
    little = x.astype("<f8", copy=False)
    took_us = round((time.perf_counter() - began) * 1e6 / len(group), 1)
    return map(
        Choice,
        (row.tobytes() for row in little),
        weighed.scores.tolist(),
        weighed.propensities.tolist(),
        chosen.tolist(),
        explored.tolist(),
        repeat(took_us),
    )


def _drawn_alone(one: Open) -> Choice:
    """The same for one decision: for a few candidates plain floats take a third of the time of arrays."""
    began = time.perf_counter()
    x = one.features.x
    weighed = _weighed(one.question.served, one.memory, x)
    scores, shares = weighed.scores.tolist(), weighed.propensities.tolist()
    if not (all(map(math.isfinite, scores)) and min(shares) >= 0.0 and abs(sum(shares) - 1.0) < _NEAR):
        raise _no_chances(one.question.served)
    chosen = draws.pick_one(shares, one.question.u)
    took_us = round((time.perf_counter() - began) * 1e6, 1)
    body = x.astype("<f8", copy=False).tobytes()
    return Choice(body, scores, shares, chosen, scores[chosen] < max(scores), took_us)


def _weighed(served: Served, memory: Memory, x: Array) -> Weighed:
    """What the policy makes of it, once that has been seen to have the right shape."""
    try:
        weighed = served.policy.weigh(memory, x)
    except TipbenchError:
        raise
    except Exception as error:  # a policy may be anybody's code, and others are in this batch
        raise PolicyFailed(f"the policy {served.name} failed: {type(error).__name__}: {error}") from error
    if weighed.scores.shape != x.shape[:-1] or weighed.propensities.shape != x.shape[:-1]:
        raise PolicyFailed(f"the policy {served.name} did not give one score and share for each candidate")
    return weighed


def _no_chances(served: Served) -> PolicyFailed:
    return PolicyFailed(
        f"the policy {served.name} gave scores that are not finite, or probabilities that are none"
    )


def _written(one: Open, choice: Choice, work: Work) -> Decided:
    asked, request, served = one.question, one.question.request, one.question.served
    logged = Logged(
        FORM,
        asked.request_id,
        request.situation,
        [candidate.id for candidate in request.candidates],
        one.features.kinds,
        choice.x,
        choice.scores,
        choice.propensities,
        choice.chosen,
        choice.explored,
        served.version,
        served.policy.features,
        one.features.absent,
        asked.source,
        request.candidates[choice.chosen].text if asked.source else None,
        choice.took_us,
        work.suite,
    )
    user, body = request.user_id, encode(logged)
    entry = Entry(work.seq + 1, work.now_ms, SERVE, asked.decision_id, user, served.name, body)
    kind = one.features.kinds[choice.chosen]
    x = one.features.x[choice.chosen].copy()
    decision = Decision(
        entry.seq,
        entry.ms,
        user,
        served.name,
        kind,
        request.situation.hour,
        served.policy.features,
        x,
        False,
        work.suite,
    )
    work.log(entry)
    work.keep_past(Past(entry, None))
    work.keep_decision(asked.decision_id, decision)
    work.keep_profile(user, one.profile.shown(kind, served.name, choice.explored))
    tip_id = request.candidates[choice.chosen].id
    return reply_to(entry, logged), Signal(entry, request, one.profile, asked.u, tip_id, asked.source)
