"""What a policy would have done at the decisions in a log, having learned from the first part of it.

Only a policy that stands still can be judged by decisions it did not make. So it learns from the older part
of the log, is frozen, and is asked about the newer part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit.features import FEATURES, Decisions, matrix
from tipbench.bandit.formulae import Dial
from tipbench.bandit.policy import Memory
from tipbench.bandit.profiles import Profile, Tally
from tipbench.sim.ope import Logged
from tipbench.sim.strangers import theirs, weighed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Array, Ridge

LEARN_SHARE = 0.5
_OWN_DIMS = FEATURES["v1"].dims


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A decision of the log in the order in which it was made; `reward` is None where nothing was heard."""

    user: str
    features: str
    x: Array  # (K, D)
    kinds: tuple[str, ...]
    hour: float | None
    chosen: int
    propensity: float
    reward: float | None
    event: str = ""


def replay(policy: Policy, served: Sequence[Served], *, learn_share: float = LEARN_SHARE) -> list[Logged]:
    """The newer decisions that have a reward, each with what the frozen policy would have done there."""
    rewarded = sum(each.reward is not None for each in served)
    still_to_learn = int(learn_share * rewarded)
    student, judged = _Student(policy), []
    for each in served:
        x = student.sees(each)
        if each.reward is not None:
            if still_to_learn > 0:
                student.learn(each, x, each.reward)
                still_to_learn -= 1
            else:
                judged.append(student.would(each, x, each.reward))
        student.saw(each)
    return judged


class _Student:
    """A policy on its way through a log, and what it has seen of every user there."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        fresh = policy.fresh()
        self.fresh, self.pooled = fresh, fresh.pooled
        self.own: dict[str, Ridge] = {}
        self.profiles: dict[str, Profile] = {}

    def sees(self, each: Served) -> Array:
        """The candidates as this policy sees them; what the log lacks is rebuilt from what came before."""
        if self.policy.features == each.features:
            return each.x
        first = each.x[:, :_OWN_DIMS]
        if self.policy.features == "v1":
            return first
        return np.concatenate([first, _of_user(each, self.profiles.get(each.user, Profile()))], axis=-1)

    def saw(self, each: Served) -> None:
        kind, name = each.kinds[each.chosen], self.policy.name
        profile = self.profiles.get(each.user, Profile()).shown(kind, name, explored=False)
        if each.reward is not None:
            profile = profile.ended(kind, name, each.reward, each.event, each.hour)
        self.profiles[each.user] = profile

    def learn(self, each: Served, x: Array, reward: float) -> None:
        with theirs(self.policy):
            taught = self.policy.learn(self._memory(each.user), x[each.chosen], np.asarray(reward))
        if taught.own is not None:
            self.own[each.user] = taught.own
        self.pooled = taught.pooled

    def would(self, each: Served, x: Array, reward: float) -> Logged:
        return Logged(
            user=each.user,
            x=x,
            chosen=each.chosen,
            propensity=each.propensity,
            reward=reward,
            target=weighed(self.policy, self._memory(each.user), x),
        )

    def _memory(self, user: str) -> Memory:
        return Memory(own=self.own.get(user, self.fresh.own), pooled=self.pooled)


def _of_user(each: Served, profile: Profile) -> Array:
    """(K, 5): what the second version of the features adds, from the counters of the log so far."""
    nothing = np.zeros(len(each.kinds))
    decisions = Decisions(
        effort=nothing,
        overlap=nothing,
        hour=np.array(np.nan if each.hour is None else each.hour),
        open_tasks=np.array(0.0),
        alike=nothing,
        recent=np.array(0.0),
        suits=Dial(nothing, nothing),
        of_kind=_Columns([profile.kinds.get(kind, Tally()) for kind in each.kinds]),
        of_all=_Columns(profile.total),
    )
    return matrix("v2", decisions)[:, _OWN_DIMS:]


class _Columns:
    """One tally or several, with their fields as arrays."""

    def __init__(self, tallies: Tally | list[Tally]) -> None:
        self._tallies = tallies

    def __getattr__(self, name: str) -> Array:
        if isinstance(self._tallies, list):
            return np.array([float(getattr(each, name)) for each in self._tallies])
        return np.array(float(getattr(self._tallies, name)))
