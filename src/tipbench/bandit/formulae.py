"""The arithmetic of the features, on floats for one candidate and on arrays for many.

Both give the same numbers to the last bit: only + − × ÷ and √ are used, which are rounded the same way
everywhere. Sines, cosines and logarithms are not; they are taken one float at a time, also for arrays.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tipbench.bandit.profiles import MOST_DWELL_S

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

Number: TypeAlias = "float | Array"

_TURN = 2.0 * math.pi / 24.0
_PRIOR_WEIGHT = 10.0
_FULL_VOLUME = 100
_LOG_FULL = math.log(1.0 + _FULL_VOLUME)
_VOLUME = [math.log(1.0 + n) / _LOG_FULL for n in range(_FULL_VOLUME + 1)]
_VOLUMES = np.array(_VOLUME)
_NO_DIRECTION = 1e-18

# The hour at which a kind of tip suits most people. A kind that is not here suits every hour alike: fit 0.
SUITS = {
    "planning": 8.0,
    "focus": 10.0,
    "admin": 11.5,
    "break": 14.0,
    "people": 17.0,
    "movement": 18.0,
    "rest": 22.0,
}


class Dial(NamedTuple):
    """An hour as a point on the circle of the day; an unknown one is its middle, and turns features to 0."""

    cos: Number
    sin: Number


UNKNOWN_HOUR = Dial(0.0, 0.0)


def dial(hour: float | None) -> Dial:
    """Where an hour stands on the dial."""
    return UNKNOWN_HOUR if hour is None else Dial(math.cos(_TURN * hour), math.sin(_TURN * hour))


def dials(hours: Array) -> Dial:
    """As `dial`, for an array; NaN stands for an unknown hour."""
    distinct, places = np.unique(hours, return_inverse=True)
    points = np.array([dial(None if math.isnan(hour) else hour) for hour in distinct.tolist()])
    taken = points.reshape(-1, 2)[places.reshape(np.shape(hours))]
    return Dial(taken[..., 0], taken[..., 1])


_DIALS = {kind: dial(hour) for kind, hour in SUITS.items()}
_EVENING = dial(21.0)


class Now(NamedTuple):
    """All that depends on the hour alone."""

    dial: Dial
    evening: Number
    fits: dict[str, Number]  # how well the hour suits each kind that has an hour of its own


@lru_cache(maxsize=2048)
def now(hour: float | None) -> Now:
    """What an hour means; the last ones asked for are remembered."""
    at = dial(hour)
    return Now(at, evening(at), {kind: between(at, suited) for kind, suited in _DIALS.items()})


def suits(kind: str) -> Dial:
    """The hour that suits a kind."""
    return _DIALS.get(kind, UNKNOWN_HOUR)


def between(one: Dial, other: Dial) -> Number:
    """The cosine of 2π(h − h′)/24: 1 for the same hour, −1 for the opposite one, 0 when either is unknown."""
    return _bounded(one.cos * other.cos + one.sin * other.sin)


def evening(at: Dial) -> Number:
    """How much of an evening it is: 1 at 21:00, falling to 0 at 15:00 and at 3:00."""
    return _not_negative(between(at, _EVENING))


def novelty(alike: Number, recent: Number) -> Number:
    """The share of the recent tips that were not of this kind; 1 when there were none."""
    return 1.0 - alike / (recent or 1) if isinstance(recent, int) else 1.0 - alike / np.maximum(recent, 1)


def load(open_tasks: Number) -> Number:
    """How much waits to be done: 1 from ten open tasks on."""
    return _at_most(open_tasks, 10.0) / 10.0


def toward(at: Dial, cos_sum: Number, sin_sum: Number) -> Number:
    """The cosine of 2π(h − h̄)/24, h̄ being the mean direction of the hours summed up; 0 if they have none."""
    square = cos_sum * cos_sum + sin_sum * sin_sum
    along = at.cos * cos_sum + at.sin * sin_sum
    if isinstance(square, float):
        return _bounded(along / math.sqrt(square)) if square > _NO_DIRECTION else 0.0
    clear = square > _NO_DIRECTION
    return np.where(clear, _bounded(along / np.sqrt(np.where(clear, square, 1.0))), 0.0)


def shrunk(total: Number, n: Number, prior: Number) -> Number:
    """(n·rate + 10·prior) / (n + 10), with n·rate = total."""
    return (total + _PRIOR_WEIGHT * prior) / (n + _PRIOR_WEIGHT)


def dwell(seconds: Number) -> Number:
    """min(s, 600) / 600."""
    return _at_most(seconds, MOST_DWELL_S) / MOST_DWELL_S


def volume(n: Number) -> Number:
    """min(1, ln(1 + n) / ln 101)."""
    if isinstance(n, int):
        return _VOLUME[min(n, _FULL_VOLUME)]
    if isinstance(n, float):
        return math.log(1.0 + min(n, _FULL_VOLUME)) / _LOG_FULL
    counts = np.minimum(n, _FULL_VOLUME)
    whole = counts.astype(np.intp)
    if (whole == counts).all():
        return _VOLUMES[whole]
    return np.array([volume(count) for count in counts.ravel().tolist()]).reshape(counts.shape)


class Rates(NamedTuple):
    """What a user's features of a kind shrink to."""

    completion: Number
    dismissal: Number
    dwell: Number
    alignment: Number


def overall(total: Any, at: Dial) -> Rates:  # noqa: ANN401 - a Tally, or an object with its fields as arrays
    """A user's rates over all kinds; 0 where nothing was counted."""
    ended, dwelt = _at_least_one(total.ended), _at_least_one(total.dwell_n)
    return Rates(
        total.completed / ended,
        total.dismissed / ended,
        total.dwell_sum / MOST_DWELL_S / dwelt,
        toward(at, total.hour_cos, total.hour_sin),
    )


def of_kind(tally: Any, prior: Rates, at: Dial) -> tuple[Number, Number, Number, Number]:  # noqa: ANN401 - as in `overall`
    """A user's rates for one kind, in the order of `Rates`."""
    completion, dismissal, dwelling, alignment = prior
    hours = tally.hour_n * toward(at, tally.hour_cos, tally.hour_sin)
    return (
        shrunk(tally.completed, tally.ended, completion),
        shrunk(tally.dismissed, tally.ended, dismissal),
        shrunk(tally.dwell_sum / MOST_DWELL_S, tally.dwell_n, dwelling),
        shrunk(hours, tally.hour_n, alignment),
    )


def _bounded(value: Number) -> Number:
    if isinstance(value, float):
        return -1.0 if value < -1.0 else min(value, 1.0)
    return np.minimum(np.maximum(value, -1.0), 1.0)


def _not_negative(value: Number) -> Number:
    return max(value, 0.0) if isinstance(value, float) else np.maximum(value, 0.0)


def _at_most(value: Number, most: float) -> Number:
    return np.minimum(value, most) if isinstance(value, np.ndarray) else min(value, most)


def _at_least_one(value: Number) -> Number:
    return value or 1 if isinstance(value, int) else np.maximum(value, 1)
