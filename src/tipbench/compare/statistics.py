"""The tests and bounds that the leaderboard is made of; `scipy.special` alone, as `scipy.stats` is slow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

Interval = tuple[float, float]

POWER = 0.8
FEWEST_SCENARIOS = 4
HALF = 0.5
_FLAT = 1e-9
_MOST_BORROWED = 4.0
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A mean of `n` independent values with their standard deviation, None where one value has none."""

    n: int
    mean: float
    sd: float | None

    @property
    def flat(self) -> bool:
        """Whether all values are the same: a spread of zero measures coarse scores, not certainty."""
        return self.sd == 0


def summary(*, n: int, mean: float, squares: float, scale: float) -> Summary:
    """A summary from the sum of squared deviations; a spread that is only rounding counts as none."""
    sd = math.sqrt(squares / (n - 1)) if n > 1 else None
    return Summary(n=n, mean=mean, sd=0.0 if sd is not None and sd <= _FLAT * scale else sd)


def t_quantile(probability: float, df: float) -> float:
    from scipy import special

    return float(special.stdtrit(df, probability))


def normal_quantile(probability: float) -> float:
    from scipy import special

    return float(special.ndtri(probability))


def interval(values: Summary, *, alpha: float) -> Interval | None:
    """The t interval of a mean, for scenarios like these.

    None on one value, and where all values are the same: nothing was seen of how much others would vary.
    """
    if values.sd is None or values.flat:
        return None
    half = t_quantile(1 - alpha / 2, values.n - 1) * values.sd / math.sqrt(values.n)
    return values.mean - half, values.mean + half


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The variance of scenario values within a row, pooled over rows, and how many rows' worth it is.

    Rows share scenarios, so that their variances are not independent: `rows` is the number of independent
    rows that would estimate the variance equally well.
    """

    variance: float
    rows: float


def pooled_spread(rows: Iterable[Summary], *, noise: float) -> Spread | None:
    """The pooled spread of rows; `noise` is the variance that rows do not share. None without two values."""
    known = [row for row in rows if row.sd is not None]
    df = sum(row.n - 1 for row in known)
    if not df:
        return None
    variance = sum((row.n - 1) * (row.sd or 0.0) ** 2 for row in known) / df
    shared = min(max(1 - noise / variance, 0.0), 1.0) if variance > 0 else 1.0
    return Spread(variance=variance, rows=len(known) / (1 + (len(known) - 1) * shared**2))


def interval_on_scale(
    values: Summary, *, spread: Spread | None, bounds: Interval, alpha: float
) -> Interval | None:
    """The interval of a mean on a scale with bounds: a t interval of its logit, so it stays inside the scale.

    From four scenarios on, the row's own variance is mixed with the pooled one. The pool counts for the
    degrees of freedom that it has beyond the row's own, at most four. A row that failed nowhere by luck, or
    that reached the top of the scale everywhere, has no narrower interval than the board supports.
    """
    if values.sd is None:
        return None
    low, high = bounds
    df, variance = float(values.n - 1), values.sd**2
    if spread is not None and values.n >= FEWEST_SCENARIOS:
        borrowed = min(_MOST_BORROWED, df * max(spread.rows - 1, 0.0))
        variance = (df * variance + borrowed * spread.variance) / (df + borrowed)
        df += borrowed
    if variance <= 0 or not low < high:
        return None
    error = math.sqrt(variance / values.n) / (high - low)
    position = (values.mean - low) / (high - low)
    centre = min(max(position, error), 1 - error) if error < HALF else HALF
    half = t_quantile(1 - alpha / 2, df) * error / (centre * (1 - centre))
    logit = math.log(centre / (1 - centre))
    ends = (min(_logistic(logit - half), position), max(_logistic(logit + half), position))
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -_LARGEST_EXPONENT else 0.0


def pooled_p(differences: Summary, *, noise: float, df: int) -> float | None:
    """The p of a mean difference, from the variant × scenario variance `noise` of the whole board.

    The paired test uses only the spread of these two rows: where their differences agree by luck, it is too
    sure. None without a spread.
    """
    from scipy import special

    if not differences.n or noise <= 0 or df < 1:
        return None
    t = differences.mean / math.sqrt(2 * noise / differences.n)
    return float(2 * special.stdtr(df, -abs(t)))


def p_beyond(differences: Summary, margin: float, *, noise: float, df: int) -> float:
    """The probability that the true difference exceeds `margin`: no prior, the spread of the whole board."""
    from scipy import special

    if not differences.n or noise <= 0 or df < 1:
        return 1.0
    t = (differences.mean - margin) / math.sqrt(2 * noise / differences.n)
    return float(special.stdtr(df, t))


def t_statistic(differences: Summary) -> float | None:
    """How many standard errors a mean difference is away from zero; infinite where all are the same."""
    if differences.sd is None:
        return None
    if differences.flat:
        return math.copysign(math.inf, differences.mean) if differences.mean else 0.0
    return differences.mean / (differences.sd / math.sqrt(differences.n))


def two_sided_p(differences: Summary) -> float | None:
    """The paired t-test. Where all differences are the same and not zero, the t-test would be certain from
    two scenarios on; the sign-flip test is used instead, whose p is 2 / 2**n.
    """
    from scipy import special

    t = t_statistic(differences)
    if t is None or not math.isinf(t):
        return None if t is None else float(2 * special.stdtr(differences.n - 1, -abs(t)))
    return _sign_flip(differences.n) * 2


def not_ruled_out(behind: Summary, *, others: int, alpha: float) -> bool | None:
    """Whether a cell that is this far behind the top may still be the best (Dunnett, one-sided).

    None where there are too few shared scenarios to say.
    """
    t = t_statistic(behind)
    if t is None:
        return None
    if math.isinf(t) and t > 0:
        return _sign_flip(behind.n) > alpha / others
    return t <= dunnett_critical(others, _coarse(behind.n - 1), alpha)


def _sign_flip(n: int) -> float:
    return math.ldexp(1.0, -min(n, 1000))


def _coarse(df: int) -> int:
    """Degrees of freedom rounded down to two digits, so that an uneven grid needs few critical values."""
    step = int(10 ** max(len(str(df)) - 2, 0))
    return df // step * step


@lru_cache(maxsize=512)
def dunnett_critical(others: int, df: int, alpha: float) -> float:
    """The one-sided Dunnett value: how far `others` cells as good as the best may seem behind it by chance.

    The statistics of cells compared with the same one correlate by one half. The double integral over that
    shared part and over the estimated spread is taken by quadrature.
    """
    import numpy as np
    from scipy import special

    z, weight_z, u, weight_u = _nodes()
    spread = np.sqrt(2 * special.gammaincinv(df / 2, u) / df)

    def excess(d: float) -> float:
        none_exceeds = special.ndtr(math.sqrt(2) * d * spread[:, None] + z) ** others
        return float(weight_u @ (none_exceeds @ weight_z)) - (1 - alpha)

    return _root(excess)


@lru_cache(maxsize=1)
def _nodes() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Points and weights for a mean over a standard normal, and over the unit interval."""
    import numpy as np

    z, weight_z = np.polynomial.hermite_e.hermegauss(48)
    x, weight_x = np.polynomial.legendre.leggauss(120)
    return z, weight_z / math.sqrt(2 * math.pi), (x + 1) / 2, weight_x / 2


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function is zero: false position, halving the weight of an end that stays (Illinois)."""
    low, high = -1.0, 1.0
    while (at_high := rising(high)) < 0:
        low, high = high, high * 2
    while (at_low := rising(low)) > 0:
        low *= 2
    while high - low > 1e-9 * (1 + abs(high)):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at_middle = rising(middle)
        if abs(at_middle) < 1e-12:
            return middle
        if at_middle < 0:
            low, at_low, at_high = middle, at_middle, at_high / 2
        else:
            high, at_high, at_low = middle, at_middle, at_low / 2
    return high


def detectable_difference(sd: float, *, n: int, alpha: float) -> float:
    """The true difference that a paired test on `n` scenarios finds four times in five."""
    df = n - 1
    return (t_quantile(1 - alpha / 2, df) + t_quantile(POWER, df)) * sd / math.sqrt(n)


def scenarios_to_separate(behind: Summary, *, alpha: float) -> int | None:
    """How many scenarios would show a difference as large as this one looks, four times in five.

    None where there is no difference to show, or no more than one scenario to judge it by.
    """
    if behind.sd is None or behind.mean <= 0:
        return None
    if behind.flat:
        return max(behind.n + 1, math.floor(2 - math.log2(alpha)))
    needed = ((normal_quantile(1 - alpha / 2) + normal_quantile(POWER)) * behind.sd / behind.mean) ** 2
    return max(behind.n + 1, math.ceil(needed)) if math.isfinite(needed) else None


def grouped(groups: NDArray[Any], values: NDArray[Any], *, count: int, scale: float) -> list[Summary]:
    """A summary of the values of each group `0 … count-1`; one without values has n = 0."""
    import numpy as np

    n = np.bincount(groups, minlength=count)
    mean = np.bincount(groups, values, count) / np.maximum(n, 1)
    squares = np.bincount(groups, (values - mean[groups]) ** 2, count)
    return [
        summary(n=int(size), mean=float(middle), squares=float(square), scale=scale)
        for size, middle, square in zip(n, mean, squares, strict=True)
    ]
