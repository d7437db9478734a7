"""The serving half in small: books of either kind, a clock that stands still, and somebody who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tipbench.bandit import policies
from tipbench.bandit.asked import Candidate, Context, RewardReply, RewardRequest, ScoreReply, ScoreRequest
from tipbench.bandit.asks import Reward, Score
from tipbench.bandit.ridge_codec import decode_ridge
from tipbench.bandit.serving import Tips

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.asks import Answer, Ask
    from tipbench.bandit.books import Books
    from tipbench.bandit.policy import Policy
    from tipbench.bandit.recall import Recall
    from tipbench.bandit.ridge import Ridge

Wanted = TypeVar("Wanted")

KINDS = ("focus", "break", "movement", "admin")
TEXTS = (
    "Close every tab and write the report for 25 minutes",
    "Make tea and look out of the window",
    "Walk around the block before lunch",
    "Answer the oldest email first",
)


@dataclass(kw_only=True)
class Clock:
    """Time that passes when told to."""

    now_ms: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def make_tips(
    books: Books,
    *names: str,
    clock: Clock | None = None,
    own: dict[str, Policy] | None = None,
    recall: Recall | None = None,
    expire_ms: int = 1_000_000,
) -> Tips:
    """Tips from these books with the policies of these names, and with some of one's own."""
    made = {name: policies.make(name) for name in names or ("egreedy", "egreedy-v2", "hybrid")}
    return Tips(
        books,
        {**made, **(own or {})},
        seed=books.seed(),
        clock_ms=clock or Clock(),
        expire_ms=expire_ms,
        recall=recall,
    )


def request(user: str = "anna", request_id: str | None = None, *, hour: float | None = 9.5) -> ScoreRequest:
    tips = zip(KINDS, TEXTS, strict=True)
    return ScoreRequest(
        user_id=user,
        request_id=request_id,
        context=Context(hour=hour, weekday=2, open_tasks=["write the report"]),
        candidates=[Candidate(id=f"tip-{kind}", kind=kind, text=text) for kind, text in tips],
    )


def score(user: str = "anna", request_id: str | None = None, policy: str = "egreedy-v2") -> Score:
    return Score(policy, request(user, request_id))


def reward(
    decision: ScoreReply | str,
    reward_id: str = "r1",
    event: str = "completed",
    *,
    policy: str | None = None,
    worth: float | None = None,
    dwell_s: float | None = None,
) -> Reward:
    decision_id = decision if isinstance(decision, str) else decision.decision_id
    return Reward(
        policy,
        RewardRequest(
            decision_id=decision_id, reward_id=reward_id, event=event, reward=worth, dwell_s=dwell_s
        ),
    )


def one(tips: Tips, ask: Ask) -> Answer:
    """The answer to one ask; raises what was wrong with it."""
    (answer,) = tips.run([ask])
    if isinstance(answer, Exception):
        raise answer
    return answer


def decided(tips: Tips, ask: Score | None = None) -> ScoreReply:
    answer = one(tips, ask or score())
    assert isinstance(answer, ScoreReply)
    return answer


def told(tips: Tips, ask: Reward) -> RewardReply:
    answer = one(tips, ask)
    assert isinstance(answer, RewardReply)
    return answer


def only(kind: type[Wanted], answers: Sequence[object]) -> list[Wanted]:
    """The answers, all of which must be of this kind."""
    assert all(isinstance(answer, kind) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, kind)]


def ridge(books: Books, user: str, policy: str = "egreedy-v2", *, dims: int = 12) -> Ridge | None:
    """What the books hold of what a policy learned about a user."""
    with books.reading() as reading:
        body = reading.memories([(user, policy)]).get((user, policy))
    return None if body is None else decode_ridge(body, dims=dims, what="it")


def seen(books: Books, user: str, policy: str = "egreedy-v2", *, dims: int = 12) -> int:
    """How many rewards a policy has learned from about a user; of a few it has forgotten little."""
    found = ridge(books, user, policy, dims=dims)
    return 0 if found is None else round(float(found.seen))
