"""Worlds whose truth is known: boards of scores, drawn many at a time.

`own_world` has scores of 2 to 17, as the rubric tip-v1 gives them. `eval_world` has the six kinds of scores
that evalstats simulates, written anew from their description: binary, Likert, continuous, grades, near the
top of the scale, and with heavy tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Truths = Literal["equal", "sd .5", "sd 1", "two best", "one best"]
Trouble = Literal["none", "ceiling", "one fails", "all fail"]

LOW, HIGH, FAILED = 2.0, 17.0, 3.0
LEVEL, SCENARIO_SD, VARIANT_SD, CANDIDATE_SD = 10.0, 1.0, 0.9, 1.9
TOTAL_SD = float(np.sqrt(SCENARIO_SD**2 + VARIANT_SD**2 + CANDIDATE_SD**2))
AT_CEILING, ONE_FAILS, ALL_FAIL = 0.1, 0.2, 0.15


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Scenarios in groups of `size`; `share` of the variant × scenario variance belongs to the group."""

    count: int
    size: int
    share: float


@dataclass(frozen=True, kw_only=True)
class Boards:
    """Scores by board, variant, scenario and candidate, with the true mean of each variant."""

    values: Array
    truth: Array
    bounds: tuple[float, float]


def own_world(
    truths: Truths,
    *,
    boards: int,
    scenarios: int,
    variants: int,
    candidates: int,
    rng: np.random.Generator,
    trouble: Trouble = "none",
    clusters: Clusters | None = None,
) -> Boards:
    """Whole points from 2 to 17. A failed reply counts 3 for each of its candidates."""
    level = LEVEL + _truths(truths, boards, variants, rng)
    fails = np.zeros((boards, variants))
    if trouble == "ceiling":
        level += _shift_to_ceiling(level)
    elif trouble == "all fail":
        fails[:] = ALL_FAIL
    elif trouble == "one fails":
        fails[:, 0] = ONE_FAILS
        rival = expected_score(level[:, 1])
        level[:, 0] = _level_of((rival - ONE_FAILS * FAILED) / (1 - ONE_FAILS))
    truth = (1 - fails) * expected_score(level) + fails * FAILED
    if trouble == "one fails":
        truth[:, 0] = truth[:, 1]
    of_scenario = rng.normal(0, SCENARIO_SD, (boards, 1, scenarios))
    cells = level[..., None] + of_scenario + _variant_part(boards, variants, scenarios, clusters, rng)
    noise = rng.normal(0, CANDIDATE_SD, (boards, variants, scenarios, candidates))
    values = np.clip(np.rint(cells[..., None] + noise), LOW, HIGH)
    failed = rng.random((boards, variants, scenarios, 1)) < fails[..., None, None]
    return Boards(values=np.where(failed, FAILED, values), truth=truth, bounds=(LOW, HIGH))


def expected_score(level: Array) -> Array:
    """The mean of a rounded and clipped normal: a sum of step functions."""
    steps = np.arange(LOW, HIGH) + 0.5
    return np.asarray(LOW + special.ndtr((np.asarray(level)[..., None] - steps) / TOTAL_SD).sum(axis=-1))


def _level_of(score: Array) -> Array:
    grid = np.linspace(-20, 60, 8001)
    return np.interp(score, expected_score(grid), grid)


def _truths(truths: Truths, boards: int, variants: int, rng: np.random.Generator) -> Array:
    found = np.zeros((boards, variants))
    if truths == "sd .5":
        return rng.normal(0, 0.5, found.shape)
    if truths == "sd 1":
        return rng.normal(0, 1, found.shape)
    if truths == "two best":
        found[:, 2:] = -3
    if truths == "one best":
        found[:, 0] = 2
    return found


def _shift_to_ceiling(level: Array) -> Array:
    """How far up each board must go until a tenth of its candidates has the highest score."""
    low, high = np.zeros((len(level), 1)), np.full((len(level), 1), 30.0)
    for _ in range(50):
        middle = (low + high) / 2
        share = special.ndtr((level + middle - HIGH + 0.5) / TOTAL_SD).mean(axis=1, keepdims=True)
        low, high = np.where(share < AT_CEILING, middle, low), np.where(share < AT_CEILING, high, middle)
    return low


def _variant_part(
    boards: int, variants: int, scenarios: int, clusters: Clusters | None, rng: np.random.Generator
) -> Array:
    if clusters is None:
        return rng.normal(0, VARIANT_SD, (boards, variants, scenarios))
    group = rng.normal(0, VARIANT_SD * clusters.share**0.5, (boards, variants, clusters.count))
    own = rng.normal(0, VARIANT_SD * (1 - clusters.share) ** 0.5, (boards, variants, scenarios))
    return np.repeat(group, clusters.size, axis=2) + own


# The score of a scenario is shared by all variants; `step` is by how much one variant is better.
EVAL_STEPS = {
    "binary": 0.05,
    "binary, rare": 0.02,
    "continuous": 0.03,
    "continuous, heavy tails": 0.025,
    "Likert": 0.24,
    "Likert, near the top": 0.14,
    "grades": 3.0,
    "grades, heavy tails": 2.8,
}


def eval_world(
    kind: str, *, boards: int, scenarios: int, variants: int, better: bool, rng: np.random.Generator
) -> Boards:
    """One candidate a cell. The first variant is better by the kind's step, or all are equal."""
    step = EVAL_STEPS[kind] if better else 0.0
    truth = np.repeat(_eval_truth(kind, step)[None, :1], boards, axis=0)
    truth = np.repeat(truth, variants, axis=1)
    truth[:, 1:] = _eval_truth(kind, step)[1]
    values, bounds = _eval_scores(kind, step, (boards, variants, scenarios), rng)
    return Boards(values=values[..., None], truth=truth, bounds=bounds)


def _eval_truth(kind: str, step: float) -> Array:
    """The true mean of the first variant and of any other, from a very large sample."""
    key = (kind, step)
    if key not in _KNOWN_TRUTHS:
        values, _ = _eval_scores(kind, step, (400, 2, 4000), np.random.default_rng(0))
        means = values.mean(axis=(0, 2))
        _KNOWN_TRUTHS[key] = means if step else np.full(2, means.mean())
    return _KNOWN_TRUTHS[key]


_KNOWN_TRUTHS: dict[tuple[str, float], Array] = {}


def _eval_scores(
    kind: str, step: float, shape: tuple[int, int, int], rng: np.random.Generator
) -> tuple[Array, tuple[float, float]]:
    boards, variants, scenarios = shape
    shared = (boards, 1, scenarios)
    gain = np.zeros((1, variants, 1))
    gain[:, 0] = step
    if kind.startswith("binary"):
        rate = 0.5 if kind == "binary" else 0.01
        chance = np.clip(rng.beta(rate * 10, (1 - rate) * 10, shared) + gain, 0, 1)
        return (rng.random(shape) < chance).astype(float), (0.0, 1.0)
    if kind.startswith("continuous"):
        heavy = kind != "continuous"
        return np.clip((_heavy if heavy else _continuous)(shared, shape, rng) + gain, 0, 1), (0.0, 1.0)
    if kind.startswith("Likert"):
        middle, sd, of_run, own = (3, 0.95, 0.35, 0.25) if kind == "Likert" else (4.45, 0.55, 0.28, 0.2)
        base = rng.normal(middle, sd, shared) + rng.normal(0, of_run, shared)
        return np.rint(np.clip(base + gain + rng.normal(0, own, shape), 1, 5)), (1.0, 5.0)
    if kind == "grades":
        base = rng.normal(58, 18, shared) + rng.normal(0, 3.5, shared) + rng.normal(0, 2.6, shape)
    else:
        base = np.clip(56 + 20 * rng.standard_t(3, shared), 0, 100) + 4.2 * rng.standard_t(3, shared)
        base = base + 3 * rng.standard_t(3, shape)
    return np.clip(base + gain, 0, 100), (0.0, 100.0)


def _continuous(shared: tuple[int, ...], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return np.asarray(rng.beta(2, 5, shared) + rng.normal(0, 0.1, shared) + rng.normal(0, 0.06, shape))


def _heavy(shared: tuple[int, ...], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    base = np.clip(rng.normal(0.5, 0.15, shared), 0, 1) + 0.11 * rng.standard_t(2.5, shared)
    outliers = rng.normal(0, 0.3, shape) * (rng.random(shape) < 0.03)
    return np.asarray(base + 0.08 * rng.standard_t(2.5, shape) + outliers)
