"""What is told about a decision, and what is learned from it: once, from the first event that ends it.

Everything that can be refused is refused before anything changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tipbench.bandit.asked import RewardReply
from tipbench.bandit.books import POOLED, Event, Outcome, Total
from tipbench.bandit.lessons import Learned, Lesson, learn
from tipbench.bandit.suites import state_key
from tipbench.errors import BadInput, Conflict, NotFound, TipbenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.asked import RewardRequest
    from tipbench.bandit.asks import Reward
    from tipbench.bandit.decisions import Decision
    from tipbench.bandit.line_up import LineUp, Served
    from tipbench.bandit.profiles import Profile
    from tipbench.bandit.recall import Work

DWELL = "dwell"
WORTH = {"completed": 1.0, "dismissed": 0.0}


class Due(NamedTuple):
    """A reward that is to be learned from: the lesson in it, and the user's profile afterwards."""

    request: RewardRequest
    decision: Decision
    served: Served
    lesson: Lesson
    profile: Profile


def tell(asked: Reward, work: Work, line_up: LineUp, *, expire_ms: int) -> RewardReply | Due:
    """Count what happened, but for what is to be learned: that is handed back, to be learned with others."""
    request = asked.request
    decision = work.decision(request.decision_id)
    if decision is None:
        raise NotFound(f"there is no decision {request.decision_id!r}, or it is older than the log is kept")
    if asked.policy is not None and line_up.asked_as(asked.policy).name != decision.policy:
        raise Conflict(
            f"decision {request.decision_id} is one of {decision.policy}, not of {asked.policy}; "
            f"send the reward there, or to /reward"
        )
    reward = _reward(request)
    if work.told(decision, request.reward_id):
        return _ignored(request, f"reward {request.reward_id!r} has been counted before")
    if work.now_ms - decision.ms > expire_ms:
        raise Conflict(f"decision {request.decision_id} is too old to learn from; it expired")
    return _told(request, reward, decision, work, line_up)


def _reward(request: RewardRequest) -> float | None:
    """What the event is worth, None where it ends nothing; a BadInput where it means nothing."""
    dwell, given = request.dwell_s, request.reward
    if dwell is not None and not 0.0 <= dwell < math.inf:
        raise BadInput(f"dwell_s is {dwell}; it is the seconds that somebody stayed, 0 or more")
    if given is not None and not 0.0 <= given <= 1.0:
        raise BadInput(f"reward is {given}; it is a number from 0 to 1")
    if request.event == DWELL:
        if dwell is None:
            raise BadInput("a dwell event needs dwell_s, the seconds that somebody stayed")
        return None
    if given is not None:
        return given
    if request.event not in WORTH:
        raise BadInput(
            f"the event {request.event!r} has no reward of its own; send completed, dismissed or dwell, "
            "or a reward from 0 to 1 with it"
        )
    return WORTH[request.event]


def _told(
    request: RewardRequest, reward: float | None, decision: Decision, work: Work, line_up: LineUp
) -> RewardReply | Due:
    if decision.seq <= work.floor_of(decision.user_id):
        return _kept_only(request, reward, decision, work, "the user was reset after this decision")
    profile = work.profile(decision.user_id)
    if reward is None:
        work.keep_profile(decision.user_id, profile.dwelt(decision.kind, request.dwell_s or 0.0))
        return _kept_only(
            request, None, decision, work, "dwell feeds the profile and never trains", ignored=False
        )
    if decision.ended:
        return _kept_only(request, reward, decision, work, "the decision has ended with an earlier event")
    served = line_up.called(decision.policy)
    if served is None or served.policy.features != decision.feature_version:
        raise Conflict(
            f"decision {request.decision_id} was made by {decision.policy} with features "
            f"{decision.feature_version}, which is no longer served here"
        )
    memory = work.memory(served.policy, decision.user_id, served.fresh, decision.suite)
    profile = profile.ended(decision.kind, decision.policy, reward, request.event, decision.hour)
    if request.dwell_s is not None:
        profile = profile.dwelt(decision.kind, request.dwell_s)
    return Due(request, decision, served, Lesson(memory, decision.x, reward), profile)


def learn_all(due: Sequence[Due], work: Work) -> list[RewardReply | TipbenchError]:
    """Learn from rewards of different users, each as if it had come alone."""
    answers: dict[str, RewardReply | TipbenchError] = {}
    for served, suite in {
        (one.served.name, one.decision.suite): (one.served, one.decision.suite) for one in due
    }.values():
        its = [one for one in due if one.served is served and one.decision.suite == suite]
        for one, after in zip(its, learn(served, [one.lesson for one in its]), strict=True):
            answers[one.request.decision_id] = (
                after if isinstance(after, TipbenchError) else _kept(one, after, work)
            )
    return [answers[one.request.decision_id] for one in due]


def _kept(due: Due, learned: Learned, work: Work) -> RewardReply:
    request, decision, reward = due.request, due.decision, due.lesson.reward
    work.keep_profile(decision.user_id, due.profile)
    key = state_key(decision.policy, decision.suite)
    if learned.own is not None:
        work.keep_ridge((decision.user_id, key), *learned.own)
    if learned.pooled is not None:
        work.keep_ridge((POOLED, key), *learned.pooled)
    work.keep_decision(request.decision_id, msgspec.structs.replace(decision, ended=True))
    work.tell(
        _event(request, reward, decision, work, learned=1),
        Outcome(decision.seq, reward, request.event, work.now_ms),
    )
    work.count(Total(decision.policy, 0, 0, 1, reward))
    return RewardReply(decision_id=request.decision_id, learned=True, ignored=False)


def _kept_only(
    request: RewardRequest,
    reward: float | None,
    decision: Decision,
    work: Work,
    reason: str,
    *,
    ignored: bool = True,
) -> RewardReply:
    work.tell(_event(request, reward, decision, work, learned=0), None)
    return RewardReply(decision_id=request.decision_id, learned=False, ignored=ignored, reason=reason)


def _event(
    request: RewardRequest, reward: float | None, decision: Decision, work: Work, *, learned: int
) -> Event:
    return Event(
        decision.seq, request.reward_id, request.event, reward, request.dwell_s, work.now_ms, learned
    )


def _ignored(request: RewardRequest, reason: str) -> RewardReply:
    return RewardReply(decision_id=request.decision_id, learned=False, ignored=True, reason=reason)
