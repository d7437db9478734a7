from __future__ import annotations

import pytest

from compared_worlds import AHEAD
from judged_world import plant
from tipbench.ledger import open_ledger
from tipbench.settings import Settings, home
from tipbench.suite import load_suite
from tipbench.workflows.judged import read_judged
from tipbench.workflows.planned_power import PlannedPower, planned_power
from verdict_planting import ANNA, by_scenario, judge

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end")


def power(n_scenarios: int, *, candidates: int = 5) -> PlannedPower:
    """What a board of twelve variants of the built-in suite will be able to tell."""
    rubric = load_suite("tip").rubric
    return planned_power(
        Settings(), rubric, suite_id="tip", n_scenarios=n_scenarios, n_variants=12, candidates=candidates
    )


def test_usual_spreads_stand_in_until_something_is_judged() -> None:
    """Without a judged experiment the usual spreads of tips count, and the sentence says that."""
    assert str(power(8)) == (
        "8 scenarios × 12 variants: differences of about 2.4 points will be visible; 30 scenarios: 0.9 "
        "(usual spreads: no experiment of this suite is judged yet)"
    )
    assert (power(24).detectable or 0) < (power(8).detectable or 0) < (power(4).detectable or 0)
    assert (power(8, candidates=1).detectable or 0) > (power(8).detectable or 0)
    assert power(60).more_scenarios == 120


def test_three_scenarios_are_exploratory() -> None:
    """Fewer than four scenarios will name no winner, and no difference is promised."""
    assert power(3).detectable is None
    assert "3 scenarios × 12 variants: exploratory" in str(power(3))


def test_a_judged_experiment_of_the_suite_tells_its_own_spread() -> None:
    """Where the variants of a judged experiment differ by the same everywhere, small differences show."""
    ledger = open_ledger("", home=home())
    plant("may", quality=dict.fromkeys(AHEAD, 3.0), ledger=ledger)
    usual = power(8)
    judge(ledger, "may", ANNA, by_scenario(AHEAD))
    ledger.mark("may", read_judged(ledger, "may").marks())
    own = power(8)
    assert own.basis == "spread of the judged experiments of this suite"
    assert (own.detectable or 9) < (usual.detectable or 0)
