"""What came of a policy in a world, round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tipbench.sim.gate import Compared
from tipbench.sim.intervals import Interval, bounds, interval

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array
    from tipbench.sim.draws import Draws


Curve: TypeAlias = "list[tuple[int, float, float | None, float | None]]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """(R, S, U) each. Regret is what the best candidate could be expected to earn, less the chosen one."""

    policy: str
    version: str
    draws: Draws
    chosen: Array
    propensity: Array
    notes: tuple[str, ...] = ()

    @property
    def regret(self) -> Array:
        expected = self.draws.expected
        chosen = np.take_along_axis(expected, self.chosen[..., None], axis=-1)[..., 0]
        regret: Array = expected.max(axis=-1) - chosen
        return regret

    @property
    def reward(self) -> Array:
        """Whether the person followed the tip, also where the policy never heard of it."""
        rewarded: Array = np.take_along_axis(self.draws.rewarded, self.chosen[..., None], axis=-1)[..., 0]
        return rewarded

    def by_seed(self) -> Array:
        """(S): regret per round."""
        means: Array = self.regret.mean(axis=(0, 2))
        return means

    def by_persona(self) -> dict[str, Array]:
        """(S) for each persona."""
        regret, personas = self.regret, self.draws.scenery.world.personas
        return {
            persona.id: regret[:, :, self.draws.persona == number].mean(axis=(0, 2))
            for number, persona in enumerate(personas)
        }

    def summary(self, *, level: float = 0.05) -> Interval | None:
        """Regret per round over seeds; None on one seed, which has no interval."""
        return interval(self.by_seed(), level=level) if len(self.draws.seeds) > 1 else None

    def curve(self, *, points: int = 50, level: float = 0.05) -> Curve:
        """(round, mean, low, high) of the regret per round up to there, at evenly spread rounds; on one seed
        there is no interval, and low and high are None.
        """
        rounds, seeds = self.chosen.shape[:2]
        up_to = self.regret.mean(axis=2).cumsum(axis=0) / np.arange(1, rounds + 1)[:, None]
        ends = np.unique(np.linspace(0, rounds - 1, min(points, rounds)).round().astype(int))
        rows = up_to[ends]
        if seeds == 1:
            return [(int(end) + 1, float(mean), None, None) for end, [mean] in zip(ends, rows, strict=True)]
        return [
            (int(end) + 1, float(mean), float(low), float(high))
            for end, mean, low, high in zip(ends, *bounds(rows, level=level), strict=True)
        ]


def compared(name: str, challenger: Trace, champion: Trace) -> Compared:
    """By how much the one's regret is below the other's, seed by seed, in the same world."""
    theirs = champion.by_persona()
    return Compared(
        name=name,
        overall=champion.by_seed() - challenger.by_seed(),
        personas={persona: theirs[persona] - mine for persona, mine in challenger.by_persona().items()},
    )
