"""A canary: is the new policy worse than the one it is to replace? Asked again and again, as rewards come.

The interval of the difference holds at all moments together, however often somebody looks: it is the normal
mixture of Robbins, as wide as the information in hand asks for. What one user does is alike, so users and
not decisions are what is sampled: the variance between users is estimated from both sides together, which
keeps a few users on the new side from looking surer than they are. The rule is fixed before it begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.bandit.ridge import Array

Metric = Literal["reward", "dismissed", "slow", "failed"]
Ruling = Literal["wait", "complete", "roll back"]

DAY_MS = 24 * 3600 * 1000
SLOW_US = 20_000.0
# The interval is narrowest, for what it promises, when the difference has this standard error.
_AIM = 0.08
_MOST_INFORMATION = 1e8


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When to roll back and when to complete. Shares and rewards are from 0 to 1.

    It is rolled back when for some metric the whole interval is on the wrong side of its margin; completed
    when reward and dismissals are shown to be no worse than `tolerance`, or after `days` with at least
    `fewest` outcomes if they do not look worse than that.
    """

    level: float = 0.05
    reward: float = 0.02
    dismissed: float = 0.05
    slow: float = 0.05
    failed: float = 0.02
    tolerance: float = 0.05
    days: float = 7.0
    fewest: int = 100
    fewest_users: int = 2

    def margin(self, metric: Metric) -> float:
        found: float = getattr(self, metric)
        return found


RULE = Rule()
METRICS: tuple[Metric, ...] = ("reward", "dismissed", "slow", "failed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """What was seen on one side: for every user how often, the sum, and the sum of squares (U)."""

    n: Array
    total: Array
    squares: Array

    @classmethod
    def of(cls, users: Mapping[str, Sequence[float]]) -> Sample:
        """From (n, sum, sum of squares) of each user."""
        rows = np.array([*users.values()], dtype=float).reshape(-1, 3)
        seen = rows[rows[:, 0] > 0]
        return cls(n=seen[:, 0], total=seen[:, 1], squares=seen[:, 2])

    @property
    def users(self) -> int:
        return len(self.n)

    @property
    def count(self) -> float:
        return float(self.n.sum())


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One side in short; the mean is None where nothing was seen."""

    mean: float | None
    count: int
    users: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """New less old in one metric, with its interval; None where too few have been seen to have one."""

    metric: Metric
    margin: float
    new: Seen
    old: Seen
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def worse(self) -> bool:
        """Shown to be worse beyond the margin: a lower reward, or more of anything else."""
        if self.low is None or self.high is None:
            return False
        return self.high < -self.margin if self.metric == "reward" else self.low > self.margin

    def no_worse(self, tolerance: float) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > -tolerance if self.metric == "reward" else self.high < tolerance

    def looks_no_worse(self, tolerance: float) -> bool:
        if self.difference is None:
            return False
        return self.difference >= -tolerance if self.metric == "reward" else self.difference <= tolerance


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a canary stands: what follows by the rule, in one sentence, and the numbers."""

    ruling: Ruling
    reason: str
    findings: tuple[Finding, ...]


def rule_on(
    new: Mapping[Metric, Sample], old: Mapping[Metric, Sample], *, elapsed_ms: float, rule: Rule = RULE
) -> Trial:
    """What the rule says now. May be asked at any moment, as often as one likes."""
    findings = tuple(find(metric, new[metric], old[metric], rule) for metric in METRICS)
    ruling, reason = _ruled(findings, elapsed_ms, rule)
    return Trial(ruling=ruling, reason=reason, findings=findings)


def _ruled(findings: Sequence[Finding], elapsed_ms: float, rule: Rule) -> tuple[Ruling, str]:
    worse = [one for one in findings if one.worse]
    if worse:
        return "roll back", f"it is worse: {_sentence(worse[0])}"
    judged = [one for one in findings if one.metric in {"reward", "dismissed"}]
    if all(one.no_worse(rule.tolerance) for one in judged):
        return "complete", f"it is shown to be no worse by {rule.tolerance:g}: {_sentence(judged[0])}"
    reward = judged[0]
    if elapsed_ms < rule.days * DAY_MS:
        return "wait", f"not decided yet: {_sentence(reward)}"
    if reward.new.count < rule.fewest or reward.difference is None:
        return "wait", f"{rule.days:g} days are over, but {reward.new.count} outcomes are too few to go by"
    if all(one.looks_no_worse(rule.tolerance) for one in judged):
        return "complete", f"after {rule.days:g} days nothing speaks against it: {_sentence(reward)}"
    worst = next(one for one in judged if not one.looks_no_worse(rule.tolerance))
    return "roll back", f"after {rule.days:g} days it looks worse: {_sentence(worst)}"


_NAMES = {"reward": "reward", "dismissed": "dismiss rate", "slow": "slow decisions", "failed": "failures"}


def _sentence(one: Finding) -> str:
    name = _NAMES[one.metric]
    if one.difference is None or one.low is None or one.high is None:
        return f"{name} of {one.new.count} decisions against {one.old.count}, too few to compare"
    return (
        f"{name} {one.new.mean:.3f} against {one.old.mean:.3f}, a difference of {one.difference:+.3f} "
        f"({one.low:+.3f} to {one.high:+.3f})"
    )


def find(metric: Metric, new: Sample, old: Sample, rule: Rule = RULE) -> Finding:
    """The difference in one metric. The level is shared among the metrics, as any of them can roll back."""
    within, between = variances(new, old)
    ours, theirs = (_weighted(side, within, between) for side in (new, old))
    seen = Finding(
        metric=metric,
        margin=rule.margin(metric),
        new=Seen(mean=ours[0] if new.users else None, count=int(new.count), users=new.users),
        old=Seen(mean=theirs[0] if old.users else None, count=int(old.count), users=old.users),
    )
    if min(new.users, old.users) < rule.fewest_users:
        return seen
    difference = ours[0] - theirs[0]
    half = half_width(new, old, ours[1] + theirs[1], level=rule.level / len(METRICS))
    return replace(seen, difference=difference, low=difference - half, high=difference + half)


def half_width(new: Sample, old: Sample, variance: float, *, level: float) -> float:
    """Half of the interval of the difference, which holds at all moments together with 1 - `level`."""
    information = 1.0 / max(variance, 1.0 / _MOST_INFORMATION)
    z = boundary(information, level=level)
    # What is rare is not normal: the first failures of a side must not be taken for all of it.
    jump = z**2 / 6.0 * (1.0 / new.count + 1.0 / old.count)
    return _as_student(z, new.users + old.users - 2) * math.sqrt(1.0 / information) + jump


def boundary(information: float, *, level: float) -> float:
    """How many standard errors the difference may stray with this much information, at any moment."""
    aim = -2.0 * math.log(level)
    rho = 1.0 / _AIM**2 / (aim + math.log(aim) + 1.0)
    return math.sqrt((1.0 + rho / information) * (math.log((information + rho) / rho) + aim))


def variances(new: Sample, old: Sample) -> tuple[float, float]:
    """Of one decision about its user's mean, and of the means of users: from both sides together."""
    within, free, scatter, of_users, of_decisions = 0.0, 0.0, 0.0, 0.0, 0.0
    for side in (side for side in (new, old) if side.users):
        n, count = side.n, side.count
        within += float((side.squares - side.total**2 / n).sum())
        free += float((n - 1.0).sum())
        scatter += float(((side.total - (side.total.sum() / count) * n) ** 2).sum())
        of_users += float((n**2 - 2 * n**3 / count + n**2 * (n**2).sum() / count**2).sum())
        of_decisions += float((n * (1.0 - n / count)).sum())
    if free < 1.0:
        return scatter / max(of_decisions, 1.0), 0.0
    inner = max(within / free, 0.0)
    outer = (scatter - of_decisions * inner) / of_users if of_users > 0.0 else 0.0
    return inner, max(outer, 0.0)


def _weighted(side: Sample, within: float, between: float) -> tuple[float, float]:
    """The mean of one side and its variance. Users count by how well they are known, so that one who is heard
    of a thousand times is not taken for a thousand users.
    """
    if not side.users:
        return 0.0, math.inf
    weights = 1.0 / np.maximum(between + within / side.n, 1e-12 / side.n)
    mean = float((weights * side.total / side.n).sum() / weights.sum())
    return mean, float(1.0 / weights.sum())


def _as_student(z: float, free: int) -> float:
    """The point of Student's distribution that is passed as rarely as z in the normal one (Wallace)."""
    if free < 1:
        return math.inf
    scaled = z * (8.0 * free + 3.0) / (8.0 * free + 1.0)
    return math.sqrt(free * math.expm1(min(scaled**2 / free, 700.0)))
