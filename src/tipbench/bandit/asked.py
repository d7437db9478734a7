"""What may be asked of the serving half, in the shapes that travel: decoded and encoded by msgspec."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
ProfileFeatures: TypeAlias = dict[str, float | dict[str, float | None] | None]


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A tip that may be shown. `text` is made into features here; `features` are used as they are."""

    id: Id
    kind: Annotated[str, msgspec.Meta(max_length=100)] = ""
    text: Annotated[str, msgspec.Meta(max_length=4000)] | None = None
    features: Annotated[list[float], msgspec.Meta(max_length=64)] | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """When and where. The decision marks each field that is missing or null, and does not fail."""

    hour: Annotated[float, msgspec.Meta(ge=0, le=24)] | None = None
    weekday: Annotated[int, msgspec.Meta(ge=0, le=6)] | None = None
    open_tasks: (
        Annotated[list[str], msgspec.Meta(max_length=200)]
        | Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
        | None
    ) = None
    persona: str | None = None
    scenario: str | None = None


_NO_CONTEXT = Context()


class _DecisionRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    user_id: Id
    request_id: Id | None = None
    context: Context | None = None
    profile_features: ProfileFeatures | None = None

    @property
    def situation(self) -> Context:
        """The context; an empty one if the request has none."""
        return self.context or _NO_CONTEXT


class ScoreRequest(_DecisionRequest, frozen=True, kw_only=True, gc=False):
    """A request for a decision by one policy."""

    candidates: Annotated[list[Candidate], msgspec.Meta(min_length=1, max_length=200)]


class RecommendRequest(_DecisionRequest, frozen=True, kw_only=True, gc=False):
    """A request for a tip by the active policy. Without candidates, the shipped generator provides them."""

    candidates: Annotated[list[Candidate], msgspec.Meta(min_length=1, max_length=200)] | None = None


class RewardRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The result of a decision. `reward` overrides the value of the event.

    `profile_features` are accepted and not used: the decision has those of its own request.
    """

    decision_id: Id
    reward_id: Id
    event: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    reward: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    dwell_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    profile_features: ProfileFeatures | None = None


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user whose state is deleted, or everybody."""

    user_id: Id | None = None
    everybody: bool = False


class ScoreReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which tip, and why. `scores` and `propensities` are by the id of the candidate."""

    decision_id: str
    tip_id: str
    scores: dict[str, float]
    propensities: dict[str, float]
    policy: str
    policy_version: str
    feature_version: str
    explored: bool
    absent: list[str]


class Tip(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tip to show. A candidate that came with features has no text."""

    id: str
    kind: str
    text: str | None


class RecommendReply(ScoreReply, frozen=True, kw_only=True, gc=False):
    """As for a score, with the tip itself and where it is from: `given`, `fresh` or `judged`."""

    tip: Tip
    source: str


class RewardReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was done with it. When it taught nothing, `reason` says why."""

    decision_id: str
    learned: bool
    ignored: bool
    reason: str = ""
