"""What a planned leaderboard will be able to tell, before anything is generated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.compare import statistics
from tipbench.compare.additive import fit
from tipbench.compare.figures import count
from tipbench.compare.pairwise import noise_of, winner_level
from tipbench.compare.scores import gather
from tipbench.errors import LedgerUnreachable, TipbenchError
from tipbench.workflows.facts import rubric_range
from tipbench.workflows.judged import read_judged
from tipbench.workflows.recording import the_ledger

if TYPE_CHECKING:
    from tipbench.settings import Settings
    from tipbench.suite import Rubric

ALPHA = 0.05
MORE_SCENARIOS = 30
_EARLIER = 3
# Of tips on the scale from 2 to 17: the variances of a variant's liking for a scenario, and of a candidate.
_USUAL_RANGE, _VARIANT_VARIANCE, _CANDIDATE_VARIANCE = 15.0, 0.81, 3.61


@dataclass(frozen=True, kw_only=True)
class PlannedPower:
    """The smallest true difference that the planned board would show four times in five, in points.

    `detectable` is None for fewer than four scenarios and where it would be larger than the scale.
    `with_more` is the same for `more_scenarios`. `basis` says where the spread comes from.
    """

    n_scenarios: int
    n_variants: int
    detectable: float | None
    more_scenarios: int
    with_more: float
    basis: str

    def __str__(self) -> str:
        board = f"{count(self.n_scenarios, 'scenario')} × {count(self.n_variants, 'variant')}"
        more = f"{self.more_scenarios} scenarios: {self.with_more:.1f}"
        if self.detectable is None:
            seen = "exploratory, as so few scenarios name no winner"
            return f"{board}: {seen}; {more} points ({self.basis})"
        seen = f"differences of about {self.detectable:.1f} points will be visible"
        return f"{board}: {seen}; {more} ({self.basis})"


def planned_power(
    settings: Settings, rubric: Rubric, *, suite_id: str, n_scenarios: int, n_variants: int, candidates: int
) -> PlannedPower:
    """From the spread of the suite's judged experiments, else from the usual spread of tips."""
    low, high = rubric_range(rubric)
    noise = None if settings.offline else _measured_noise(settings, suite_id, rubric.hash)
    basis = "spread of the judged experiments of this suite"
    if noise is None:
        share = (high - low) / _USUAL_RANGE
        noise = share**2 * (_VARIANT_VARIANCE + _CANDIDATE_VARIANCE / max(candidates, 1))
        basis = "usual spreads: no experiment of this suite is judged yet"
    found = _detectable(noise, n_scenarios)
    more = MORE_SCENARIOS if n_scenarios < MORE_SCENARIOS else 2 * n_scenarios
    return PlannedPower(
        n_scenarios=n_scenarios,
        n_variants=n_variants,
        detectable=None if found is None or found > high - low else found,
        more_scenarios=more,
        with_more=_detectable(noise, more) or 0.0,
        basis=basis,
    )


def _detectable(noise: float, n: int) -> float | None:
    if n < statistics.FEWEST_SCENARIOS:
        return None
    level = winner_level(ALPHA, n, fails=False)
    return statistics.detectable_difference(math.sqrt(2 * noise), n=n, alpha=level)


def _measured_noise(settings: Settings, suite_id: str, rubric_hash: str) -> float | None:
    """The mean noise of the newest judged experiments of the suite; None where there is none."""
    try:
        names = [
            one.name for one in the_ledger(settings).experiments() if one.suite_id == suite_id and one.judged
        ]
        found = [_noise(settings, name, rubric_hash) for name in names[:_EARLIER]]
    except LedgerUnreachable:
        return None
    known = [noise for noise in found if noise]
    return math.fsum(known) / len(known) if known else None


def _noise(settings: Settings, experiment: str, rubric_hash: str) -> float | None:
    try:
        state = read_judged(the_ledger(settings), experiment)
    except LedgerUnreachable:
        raise
    except TipbenchError:
        return None
    ground = state.ground()
    if ground is None or state.rubric.hash != rubric_hash:
        return None
    scores = gather(state.rows(ground))
    return noise_of(scores, fit(scores)) if scores.cells else None
