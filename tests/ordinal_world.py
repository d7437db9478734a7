"""A world of ordinal judgements with known truth, to measure how often the ranking's claims are true.

Three 1-5 scales come from latent normals that share a scenario, a cell-and-scenario part and a candidate
part; a reply may fail its format (worth 2 points) and a tip may be too long (minus 1). Cells differ in how
much they vary, so that no test's assumption holds exactly. The sd of a candidate within its reply is about
1.9, and that of differences of scenario means 1.6 to 1.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Row = tuple[str, str, str, float]

SCENARIO, CANDIDATE, SCALE, OVERLONG = 0.4, 0.45, 0.75, 0.1
BASES = (-0.2, 0.0, 0.2)


@dataclass(frozen=True, kw_only=True)
class World:
    """Cells with their true means over all scenarios that there could be."""

    truth: NDArray[Any]
    shift: NDArray[Any]
    interaction: NDArray[Any]
    format_ok: NDArray[Any]

    @classmethod
    def of(cls, truth: Sequence[float], *, rng: np.random.Generator) -> World:
        """A world whose cells have these true means, each with a variability of its own."""
        wanted = np.asarray(truth, dtype=float)
        interaction = rng.uniform(0.2, 0.38, len(wanted))
        format_ok = rng.uniform(0.8, 1.0, len(wanted))
        scales = wanted - 2 * format_ok + OVERLONG
        shift = np.array([_shift(s, i) for s, i in zip(scales, interaction, strict=True)])
        return cls(truth=wanted, shift=shift, interaction=interaction, format_ok=format_ok)

    def sample(self, scenarios: int, *, tips: int, rng: np.random.Generator) -> NDArray[Any]:
        """Composites by cell, scenario and tip."""
        cells = len(self.truth)
        cell_part = self.shift[:, None] + rng.normal(0, SCENARIO, scenarios)
        cell_part = cell_part + rng.normal(0, self.interaction[:, None], (cells, scenarios))
        tip_part = cell_part[:, :, None] + rng.normal(0, CANDIDATE, (cells, scenarios, tips))
        latent = tip_part[..., None] + BASES + rng.normal(0, SCALE, (cells, scenarios, tips, 3))
        scales = np.clip(np.rint(latent), 1, 5).sum(axis=-1)
        good = rng.random((cells, scenarios, 1)) < self.format_ok[:, None, None]
        return np.asarray(scales + 2 * good - (rng.random(scales.shape) < OVERLONG))

    def rows(self, scenarios: int, *, tips: int, rng: np.random.Generator) -> list[Row]:
        """A sample as `rank` takes it."""
        values = self.sample(scenarios, tips=tips, rng=rng)
        return [
            (f"m{c:02}", "p", f"s{s:02}", float(value))
            for c, by_scenario in enumerate(values)
            for s, by_tip in enumerate(by_scenario)
            for value in by_tip
        ]


def _expected(shift: NDArray[Any], interaction: float) -> NDArray[Any]:
    """The mean sum of the scales, exactly: each rounded normal is a sum of step functions."""
    sd = np.sqrt(SCENARIO**2 + interaction**2 + CANDIDATE**2 + SCALE**2)
    steps = np.array([1.5, 2.5, 3.5, 4.5])
    latent = np.asarray(shift)[..., None, None] + np.array(BASES)[:, None]
    return np.asarray(3 + special.ndtr((latent - steps) / sd).sum(axis=(-1, -2)))


def _shift(wanted: float, interaction: float) -> float:
    grid = np.linspace(-2, 9, 2001)
    return float(np.interp(wanted, _expected(grid, interaction), grid))
