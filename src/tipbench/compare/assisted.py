"""A mean from a few scores by people and all scores by a calibrated AI judge (PPI++).

People scored n scenarios, the judge scored those and N more. The estimate is the people's mean, moved by what
the judge says of the other scenarios: `mean(Y) + weight * (mean(F of the others) - mean(F of the n))`. The
weight is `cov(Y, F) / var(F) / (1 + n / N)`, from 0 to 1. It is valid if the scenarios that people scored are
like the others.

The interval adds the uncertainty of the weight and loses a degree of freedom for it. It is never wider than
the interval from the people's scores alone: if it would be, the judge does not count and the weight is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from tipbench.compare.statistics import t_quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Below this many scenarios by people the weight is too uncertain to use.
LEAST_SCENARIOS = 6
_FLAT = 1e-9

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Assisted:
    """The mean with an interval, and the same from the people's scores alone. A `weight` of 0 is the same."""

    n_people: int
    n_judge: int
    mean: float
    low: float
    high: float
    alone_mean: float
    alone_low: float
    alone_high: float
    weight: float

    @property
    def ratio(self) -> float:
        """The width of the interval as a share of the people's own: at most 1."""
        return (self.high - self.low) / (self.alone_high - self.alone_low)


def assist(
    people: Mapping[str, float],
    judge: Mapping[str, float],
    *,
    alpha: float = 0.05,
    alone: Interval | None = None,
    bounds: Interval = (-math.inf, math.inf),
) -> Assisted | None:
    """The mean over scenarios like these, from values by scenario.

    `alone` is the people's own interval; the t interval if it is not given. Nothing leaves the `bounds` of
    the scale. None if the people's scores alone give no interval, or the judge lacks one of their scenarios.
    """
    if len(people) < 2 or not people.keys() <= judge.keys():
        return None
    scored = sorted(people)
    y, f = [people[name] for name in scored], [judge[name] for name in scored]
    rest = [judge[name] for name in sorted(judge.keys() - people.keys())]
    mean = fmean(y)
    low, high = _within(alone or _t_interval(mean, _variance(y) / len(y), df=len(y) - 1, alpha=alpha), bounds)
    if not high - low > _FLAT * (1 + max(map(abs, y))):
        return None
    weight, moved, ends = 0.0, mean, (low, high)
    if rest and len(y) >= LEAST_SCENARIOS and _variance(f) > 0:
        tried = _weight(y, f, n_rest=len(rest))
        middle = mean + tried * (fmean(rest) - fmean(f))
        own = _t_interval(middle, _error(y, f, rest, tried), df=len(y) - 2, alpha=alpha)
        own = _within(own, bounds)
        if tried > 0 and 0 < own[1] - own[0] < high - low:
            weight, moved, ends = tried, min(max(middle, bounds[0]), bounds[1]), own
    return Assisted(
        n_people=len(y),
        n_judge=len(judge),
        mean=moved,
        low=ends[0],
        high=ends[1],
        alone_mean=mean,
        alone_low=low,
        alone_high=high,
        weight=weight,
    )


def _t_interval(mean: float, variance: float, *, df: int, alpha: float) -> Interval:
    half = t_quantile(1 - alpha / 2, df) * math.sqrt(variance)
    return mean - half, mean + half


def _within(interval: Interval, bounds: Interval) -> Interval:
    return max(interval[0], bounds[0]), min(interval[1], bounds[1])


def _variance(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _weight(y: Sequence[float], f: Sequence[float], *, n_rest: int) -> float:
    middle_y, middle_f = fmean(y), fmean(f)
    covariance = math.fsum((a - middle_y) * (b - middle_f) for a, b in zip(y, f, strict=True)) / (len(y) - 1)
    return min(max(covariance / _variance(f) / (1 + len(y) / n_rest), 0.0), 1.0)


def _error(y: Sequence[float], f: Sequence[float], rest: Sequence[float], weight: float) -> float:
    """The variance of the estimate: of the people's part, of the judge's part, and of the weight."""
    n, n_rest = len(y), len(rest)
    left = [a - weight * b for a, b in zip(y, f, strict=True)]
    residual = _variance(left) * (n - 1) / (n - 2)
    spread = _variance([*f, *rest])
    distance = (fmean(rest) - fmean(f)) / (1 + n / n_rest)
    return residual / n + weight**2 * spread / n_rest + residual * distance**2 / (_variance(f) * (n - 1))
