"""How the policies stand: counts, shares and weights, of one user or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tipbench.bandit.books import POOLED
from tipbench.bandit.features import FEATURES
from tipbench.bandit.policies import NAMES, version
from tipbench.bandit.profiles import Profile, Served, Watched
from tipbench.bandit.ridge_codec import decode_ridge
from tipbench.bandit.suites import owner_of_state, state_key
from tipbench.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tipbench.bandit.books import Reading, ShadowTotal
    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Ridge


_SAMPLE = 1000


class PolicyStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy did and earned. What nothing is known of is None, never 0.

    `weights` are those of the user who was asked about, else the mean of `weights_of` users;
    `pooled_weights` are those that all users share.
    """

    policy: str
    policy_version: str
    feature_version: str
    decisions: int
    explored: int
    exploration_share: float | None
    rewards: int
    mean_reward: float | None
    weights: dict[str, float] | None
    weights_of: int
    pooled_weights: dict[str, float] | None


class ShadowStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How often a shadow decided as the policy that served did, and how often it was dropped.

    Drops are not counted by user: of one user they are None.
    """

    signal: str
    decisions: int
    agreed: int
    agreement: float | None
    dropped: int | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """All policies, all shadows, and what was chosen for every process that serves."""

    user_id: str | None
    policies: list[PolicyStanding]
    shadows: list[ShadowStanding]
    choices: dict[str, str]


def standing(reading: Reading, policies: Iterable[Policy], *, user_id: str | None = None) -> Standing:
    """Return the statistics of these policies, of one user or overall. NotFound for an unknown user."""
    profile = None if user_id is None else _of_user(reading, user_id)
    counts = _overall(reading) if profile is None else profile.served
    choices = reading.choices()
    suite = owner_of_state(choices)
    if user_id is not None:
        _check_user(reading, user_id, suite)
    return Standing(
        user_id=user_id,
        policies=[_of_policy(reading, policy, counts, user_id, suite) for policy in policies],
        shadows=[_of_shadow(total, profile) for total in reading.shadows()],
        choices=choices,
    )


def _check_user(reading: Reading, user_id: str, suite: str) -> None:
    """Raise NotFound for a user without a profile and without learned state, of whatever policy."""
    keys = [(user_id, state_key(name, owner)) for name in NAMES for owner in {"", suite}]
    if not reading.profiles([user_id]) and not reading.memories(keys):
        raise NotFound(
            f"no such user {user_id!r}: there are no decisions and no learned state for this id; "
            "`tipbench bandit export` lists the ids"
        )


def told(found: Standing) -> dict[str, Any]:
    """In plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def _of_user(reading: Reading, user_id: str) -> Profile:
    body = reading.profiles([user_id]).get(user_id)
    return Profile() if body is None else Profile.decode(body, what=f"the profile of user {user_id!r}")


def _overall(reading: Reading) -> dict[str, Served]:
    return {total.policy: Served(*total[1:]) for total in reading.totals()}


def _of_policy(
    reading: Reading, policy: Policy, counts: dict[str, Served], user_id: str | None, suite: str
) -> PolicyStanding:
    count, fresh = counts.get(policy.name, Served()), policy.fresh()
    key = state_key(policy.name, suite)
    users = _users(reading, key, user_id) if fresh.own is not None else []
    return PolicyStanding(
        policy=policy.name,
        policy_version=version(policy),
        feature_version=policy.features,
        decisions=count.decisions,
        explored=count.explored,
        exploration_share=_share(count.explored, count.decisions),
        rewards=count.rewards,
        mean_reward=_share(count.reward_sum, count.rewards),
        weights=_weights(policy, users, fresh.own),
        weights_of=len(users),
        pooled_weights=_weights(policy, _users(reading, key, POOLED), fresh.pooled),
    )


def _users(reading: Reading, key: str, user_id: str | None) -> list[tuple[str, bytes]]:
    """Return what is stored under a policy's key about a user; with None, about the first users."""
    if user_id is None:
        return reading.memories_of(key, after=POOLED, limit=_SAMPLE)
    body = reading.memories([(user_id, key)]).get((user_id, key))
    return [] if body is None else [(user_id, body)]


def _weights(
    policy: Policy, users: Sequence[tuple[str, bytes]], fresh: Ridge | None
) -> dict[str, float] | None:
    """The mean of these users' weights, by the names of the features; None where nothing has been learned."""
    if fresh is None or not users:
        return None
    each = [
        decode_ridge(body, dims=fresh.dims, what=f"what {policy.name} has learned about {_whose(user)}")
        for user, body in users
    ]
    means = np.mean([ridge.weights for ridge in each], axis=0).tolist()
    return dict(zip(FEATURES[policy.features].names, means, strict=False))


def _whose(user: str) -> str:
    return "all users" if user == POOLED else f"user {user!r}"


def _of_shadow(total: ShadowTotal, profile: Profile | None) -> ShadowStanding:
    """Overall, or of the user with this profile."""
    count = total if profile is None else profile.shadows.get(total.signal, Watched())
    return ShadowStanding(
        signal=total.signal,
        decisions=count.decisions,
        agreed=count.agreed,
        agreement=_share(count.agreed, count.decisions),
        dropped=total.dropped if profile is None else None,
    )


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
