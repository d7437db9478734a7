"""How likely each cell is the best, how much worse it may be, and its mean once luck is allowed for.

One small hierarchical model. A cell's mean is its true value plus noise, whose variance is known only as well
as the data allow (scaled inverse chi-squared); true values are normal around a common mean, with a spread
that is uniform between 0 and five times the spread of the means, or of their noise if that is larger. The
posterior is taken on a grid of noise and spread; true values are drawn from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SPREADS = 60
_NOISES = 64
_DRAWS = 10_000
_MOST_NUMBERS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Shrunken:
    """By cell: its estimate, drawn towards the common mean, and how often it was the largest draw.

    `p_loss` is how often the largest draw was more than the margin above the cell's own. `gap_low` and
    `gap_high` are quantiles of how far the cell is behind the first one.
    """

    estimate: NDArray[Any]
    p_best: NDArray[Any]
    p_loss: NDArray[Any]
    gap_low: NDArray[Any]
    gap_high: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Posterior:
    """Grid points (noise and spread): their weight, and at each the common mean and its precision.

    `noise` and `spread` are variances; `noise` is that of a single scenario's value.
    """

    weight: NDArray[Any]
    noise: NDArray[Any]
    spread: NDArray[Any]
    centre: NDArray[Any]
    precision: NDArray[Any]


def shrink(
    means: NDArray[Any],
    sizes: NDArray[Any],
    *,
    noise: float,
    df: int,
    first: int,
    margin: float,
    alpha: float,
    rng: np.random.Generator,
) -> Shrunken:
    """The model's answer for cells with these means over `sizes` scenarios each, with positive `noise`.

    `first` is the cell that the gaps are measured from.
    """
    import numpy as np

    middle = float(means.mean())
    centred = means - middle
    posterior = _posterior(centred, sizes, noise=noise, df=df)
    true = _draws(centred, sizes, posterior, rng)
    best = true.max(axis=1, keepdims=True)
    low, high = _quantiles(true[:, [first]] - true, alpha=alpha)
    return Shrunken(
        estimate=middle + _expected(centred, sizes, posterior),
        p_best=np.bincount(true.argmax(axis=1), minlength=len(means)) / len(true),
        p_loss=np.count_nonzero(best - true > margin, axis=0) / len(true),
        gap_low=low,
        gap_high=high,
    )


def _posterior(means: NDArray[Any], sizes: NDArray[Any], *, noise: float, df: int) -> _Posterior:
    """Cells judged on equally many scenarios enter by their sums, so that thousands cost no more than ten."""
    import numpy as np
    from scipy import special

    quantiles = (np.arange(_NOISES) + 0.5) / _NOISES
    variances = noise * df / (2 * special.gammaincinv(df / 2, quantiles))
    widest = 5 * max(float(np.std(means, ddof=1)), math.sqrt(noise / float(np.median(sizes))))
    spreads = ((np.arange(_SPREADS) + 0.5) / _SPREADS * widest) ** 2
    variance, spread = (axis.ravel() for axis in np.meshgrid(variances, spreads, indexing="ij"))

    kinds, group = np.unique(sizes, return_inverse=True)
    count = np.bincount(group)
    total, squares = np.bincount(group, means), np.bincount(group, means**2)
    total_variance = variance[:, None] / kinds + spread[:, None]
    precision = (count / total_variance).sum(axis=1)
    centre = (total / total_variance).sum(axis=1) / precision
    misfit = (squares / total_variance).sum(axis=1) - precision * centre**2
    log = -0.5 * ((count * np.log(total_variance)).sum(axis=1) + np.log(precision) + misfit)
    weight = np.exp(log - log.max())
    return _Posterior(
        weight=weight / weight.sum(), noise=variance, spread=spread, centre=centre, precision=precision
    )


def _expected(means: NDArray[Any], sizes: NDArray[Any], at: _Posterior) -> NDArray[Any]:
    """The mean of the draws, without the noise of drawing."""
    import numpy as np

    kinds, group = np.unique(sizes, return_inverse=True)
    kept = at.spread[:, None] / (at.spread[:, None] + at.noise[:, None] / kinds)
    slope = at.weight @ kept
    level = (at.weight * at.centre) @ (1 - kept)
    return np.asarray(slope[group] * means + level[group])


def _draws(
    means: NDArray[Any], sizes: NDArray[Any], at: _Posterior, rng: np.random.Generator
) -> NDArray[Any]:
    """True values drawn from the posterior, one row for each draw."""
    import numpy as np

    draws = max(1000, min(_DRAWS, _MOST_NUMBERS // len(means)))
    points = np.searchsorted(np.cumsum(at.weight), rng.random(draws)).clip(max=len(at.weight) - 1)
    noise = at.noise[points, None] / sizes
    kept = at.spread[points, None] / (at.spread[points, None] + noise)
    centre = at.centre[points] + rng.standard_normal(draws) / np.sqrt(at.precision[points])
    normal = rng.standard_normal((draws, len(means)), dtype=np.float32)
    return np.asarray(kept * means + (1 - kept) * centre[:, None] + np.sqrt(kept * noise) * normal)


def _quantiles(draws: NDArray[Any], *, alpha: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """By column, the draws that alpha / 2 of all are below and above."""
    import numpy as np

    at = round(alpha / 2 * (len(draws) - 1))
    ordered = np.partition(draws, [at, len(draws) - 1 - at], axis=0)
    return ordered[at], ordered[len(draws) - 1 - at]
