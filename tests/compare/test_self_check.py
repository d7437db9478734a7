from __future__ import annotations

import numpy as np
import pytest

from tipbench.compare.scores import Combination
from tipbench.compare.self_check import MOST_SPLITS, self_check


def board(
    *, variants: int, scenarios: int, candidates: int, seed: int
) -> dict[Combination, dict[str, list[float]]]:
    """Equally good variants with scenario, variant × scenario and candidate noise."""
    rng = np.random.default_rng(seed)
    cells = 10 + rng.normal(0, 1, scenarios) + rng.normal(0, 0.9, (variants, scenarios))
    values = cells[..., None] + rng.normal(0, 1.9, (variants, scenarios, candidates))
    return {
        Combination(f"m{c}", "p"): {f"s{s}": values[c, s].tolist() for s in range(scenarios)}
        for c in range(variants)
    }


def test_equals_seldom_have_a_winner() -> None:
    """Two halves of one variant are equal, so that the rate is near the level that a winner needs."""
    rates = [
        self_check(board(variants=2, scenarios=24, candidates=4, seed=seed), splits=40).rate
        for seed in range(10)
    ]
    assert 0.005 < float(np.mean([rate or 0.0 for rate in rates])) < 0.09


def test_the_sentence_names_rate_and_splits() -> None:
    """The same scores give the same answer, in one sentence with the number of splits."""
    values = board(variants=3, scenarios=8, candidates=2, seed=1)
    found = self_check(values)
    assert found == self_check(values)
    assert found.splits == MOST_SPLITS
    rate = f"{100 * (found.rate or 0):.1f} %"
    assert str(found) == (
        f"Self-check: a board like this named a winner among two equal variants in {rate} of 200 random "
        "splits of its own scores."
    )


@pytest.mark.parametrize(("variants", "candidates"), [(3, 1), (1, 4)])
def test_one_candidate_or_one_variant_cannot_tell(variants: int, candidates: int) -> None:
    """Without a second candidate there are no halves, and one variant has no rival: it says so."""
    found = self_check(board(variants=variants, scenarios=8, candidates=candidates, seed=2))
    assert found.rate is None
    assert str(found).startswith("Self-check: cannot tell.")
