"""Means with their t intervals: over seeds, and over decisions that come in clusters of one user each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

# Differences this small are rounding. All of one sign, they would else be taken for certainty.
_DIGITS = 12
# Where nearly all values are one cluster's, nothing can be said of the others.
_LEAST_FREE = 0.1


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and the bounds that hold it with the stated confidence."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})"


def t_quantile(probability: float, df: float) -> float:
    from scipy import special  # noqa: PLC0415 - slow to import, and a service starts without it

    return float(special.stdtrit(df, probability))


def interval(values: Array, *, level: float) -> Interval:
    """The mean of independent values (n), and the t interval that misses it with probability `level`."""
    means, lows, highs = bounds(values[None], level=level)
    return Interval(mean=float(means[0]), low=float(lows[0]), high=float(highs[0]), n=len(values))


def bounds(values: Array, *, level: float) -> tuple[Array, Array, Array]:
    """Mean, low and high of every row of values (…, n)."""
    rounded = np.round(values, _DIGITS)
    n = rounded.shape[-1]
    mean = rounded.mean(axis=-1)
    half = t_quantile(1 - level / 2, n - 1) * rounded.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def clustered(
    values: Array, clusters: Array, *, level: float, scale: float = 1.0, mass: Array | None = None
) -> Interval:
    """The mean of values that belong together in clusters (numbered from 0), and its interval.

    What one user does is not independent of what the same user did before: the deviations of a cluster are
    added up before they are squared. A cluster that is a large share of all pulls the mean towards itself, so
    it counts by how far the mean would go without it, and there are as many degrees of freedom as the
    clusters would be if they were alike in size, less one.
    `scale` is by how much a value moves the estimate (for a ratio, one over the mean of its denominator), and
    `mass` what a value counts for in its cluster's size (there, its denominator).
    """
    n, mean = len(values), float(values.mean())
    size = np.bincount(clusters, weights=mass)
    share = size / size.sum()
    alike = 1.0 / float((share**2).sum())
    if alike - 1.0 < _LEAST_FREE:
        return Interval(mean=mean, low=-math.inf, high=math.inf, n=n)
    without = np.bincount(clusters, weights=values - mean) / (1.0 - share)
    spread = math.sqrt(float((without**2).sum()) * (1.0 - 1.0 / len(share))) / n * scale
    half = t_quantile(0.5 + (1 - level) / 2, alike - 1.0) * spread
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def finite(value: Any) -> Any:  # noqa: ANN401 - JSON-like data of any shape
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
