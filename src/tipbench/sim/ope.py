"""Off-policy estimates: what the logged decisions say about a policy that did not make them.

They are weak where the log explored little, which the effective sample size shows. So they may veto a
promotion, and never bring one about; with too small a sample they say nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tipbench.sim.intervals import Interval, clustered, finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.ridge import Array

LEVEL = 0.05
FEWEST_EFFECTIVE = 100.0
FEWEST_USERS = 10
FOLDS = 5

Stance = Literal["neutral", "no objection", "veto"]


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One decision that was served, what came of it, and what the policy in question would have done."""

    user: str
    x: Array  # (K, D) the candidates, as the policy in question sees them
    chosen: int
    propensity: float  # with which it was chosen
    reward: float
    target: Array  # (K) the propensities of the policy in question


@dataclass(frozen=True, kw_only=True)
class OffPolicy:
    """Estimates of the mean reward. `gain` is the doubly robust one less what the log itself earned."""

    stance: Stance
    reason: str
    n: int
    users: int
    effective: float
    logged: Interval | None = None
    snips: Interval | None = None
    doubly_robust: Interval | None = None
    gain: Interval | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it: a bound that is not there is None."""
        plain: dict[str, Any] = finite(asdict(self))
        return plain


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The decisions as arrays: weight, reward and user of each, and q̂ of what was done and would be done."""

    weight: Array
    reward: Array
    user: Array
    done: Array
    would: Array


def estimate(
    decisions: Sequence[Logged],
    *,
    level: float = LEVEL,
    fewest_effective: float = FEWEST_EFFECTIVE,
    fewest_users: int = FEWEST_USERS,
) -> OffPolicy:
    """SNIPS and doubly robust estimates, clustered by user, and what follows from them."""
    if not decisions:
        return OffPolicy(stance="neutral", reason=_NOTHING, n=0, users=0, effective=0.0)
    columns = _columns(decisions)
    effective = effective_size(columns.weight)
    users = int(columns.user.max()) + 1
    logged = clustered(columns.reward, columns.user, level=level)
    robust = columns.would + columns.weight * (columns.reward - columns.done)
    gain = clustered(robust - columns.reward, columns.user, level=level)
    enough = effective >= fewest_effective and users >= fewest_users and math.isfinite(gain.high)
    stance: Stance = "neutral" if not enough else "veto" if gain.high < 0 else "no objection"
    return OffPolicy(
        stance=stance,
        reason=_reason(stance, effective, users, gain, (fewest_effective, fewest_users)),
        n=len(decisions),
        users=users,
        effective=effective,
        logged=logged,
        snips=snips(columns.weight, columns.reward, columns.user, level=level),
        doubly_robust=clustered(robust, columns.user, level=level),
        gain=gain,
    )


_NOTHING = "no decision with a reward was logged, so the log says nothing"


def _reason(stance: Stance, effective: float, users: int, gain: Interval, fewest: tuple[float, int]) -> str:
    if stance == "neutral" and not math.isfinite(gain.high):
        return "nearly all that was logged is of one user, so the log says nothing"
    if stance == "neutral":
        return (
            f"the logged decisions are worth {effective:.0f} of its own, of {users} users; an estimate needs "
            f"{fewest[0]:g}, of {fewest[1]} users, so the log says nothing"
        )
    if stance == "veto":
        return (
            f"the logged decisions say that its reward would be {-gain.mean:.4f} lower, "
            f"at least {-gain.high:.4f}"
        )
    return f"the logged decisions do not speak against it (gain {gain})"


def effective_size(weights: Array) -> float:
    """How many decisions of the policy itself the weighted ones are worth: (Σw)² / Σw²."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def snips(weights: Array, rewards: Array, users: Array, *, level: float) -> Interval:
    """Σwr / Σw. Its interval is that of its first-order change with every decision, clustered by user."""
    total = float(weights.sum())
    if total <= 0:
        return Interval(mean=0.0, low=-np.inf, high=np.inf, n=len(weights))
    value = float((weights * rewards).sum()) / total
    scale = len(weights) / total
    moved = clustered(weights * (rewards - value), users, level=level, scale=scale, mass=weights)
    half = moved.high - moved.mean
    return Interval(mean=value, low=value - half, high=value + half, n=len(weights))


def _columns(decisions: Sequence[Logged]) -> _Columns:
    _, user = np.unique([each.user for each in decisions], return_inverse=True)
    picked = np.array([each.x[each.chosen] for each in decisions])
    reward = np.array([each.reward for each in decisions])
    models = _cross_fitted(picked, reward, user)
    pairs = [_would(each, models[number % len(models)]) for each, number in zip(decisions, user, strict=True)]
    return _Columns(
        weight=np.array([each.target[each.chosen] / each.propensity for each in decisions]),
        reward=reward,
        user=user,
        done=np.array([done for done, _ in pairs]),
        would=np.array([would for _, would in pairs]),
    )


def _would(decision: Logged, weights: Array) -> tuple[float, float]:
    guessed = decision.x @ weights
    return float(guessed[decision.chosen]), float(decision.target @ guessed)


def _cross_fitted(x: Array, reward: Array, user: Array, *, penalty: float = 1.0) -> list[Array]:
    """A ridge for every fold of users, learned from all others: nobody's guess knows their own rewards."""
    folds = min(FOLDS, int(user.max()) + 1)
    return [_ridge(x[user % folds != fold], reward[user % folds != fold], penalty) for fold in range(folds)]


def _ridge(x: Array, reward: Array, penalty: float) -> Array:
    fitted: Array = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[-1]), x.T @ reward)
    return fitted
