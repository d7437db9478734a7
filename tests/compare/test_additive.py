from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import ols

from tipbench.compare.additive import fit
from tipbench.compare.scores import Row, gather


def grid(cells: int, scenarios: int, *, keep: float, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    level, ease = rng.normal(10, 2, cells), rng.normal(0, 3, scenarios)
    return [
        (f"m{c:02}", "p", f"s{s:02}", float(level[c] + ease[s] + rng.normal()))
        for c in range(cells)
        for s in range(scenarios)
        if rng.random() < keep
    ]


@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_agrees_with_statsmodels(keep: float) -> None:
    """Cell means adjusted for scenarios, and the noise, are those of ordinary least squares."""
    rows = grid(6, 9, keep=keep, seed=3)
    found = fit(gather(rows))
    data = pd.DataFrame(rows, columns=["model", "prompt", "scenario", "value"])
    model = ols("value ~ C(model) + C(scenario)", data).fit()
    everywhere = pd.MultiIndex.from_product(
        [sorted(set(data.model)), sorted(set(data.scenario))], names=["model", "scenario"]
    ).to_frame(index=False)
    expected = model.predict(everywhere).groupby(everywhere.model).mean()
    assert found.means == pytest.approx(expected.to_numpy(), abs=1e-8)
    assert found.noise == pytest.approx(model.mse_resid)
    assert found.df == model.df_resid


def test_a_complete_grid_has_plain_means() -> None:
    """Nothing needs adjusting where every cell has every scenario."""
    rows = grid(3, 4, keep=1.0, seed=1)
    plain = [np.mean([value for model, _, _, value in rows if model == f"m{c:02}"]) for c in range(3)]
    assert fit(gather(rows)).means == pytest.approx(plain)


def test_easy_scenarios_do_not_make_a_cell_good() -> None:
    """A cell judged only on the easy scenario is compared there, not by its higher mean."""
    rows: list[Row] = [
        ("a", "p", "easy", 12), ("a", "p", "hard", 4), ("a", "p", "mid", 8),
        ("b", "p", "easy", 13), ("b", "p", "hard", 5), ("b", "p", "mid", 9),
        ("c", "p", "easy", 11),
    ]  # fmt: skip
    assert fit(gather(rows)).means == pytest.approx([8, 9, 7])


def test_parts_without_a_common_scenario_keep_their_own_level() -> None:
    """Where nothing links two groups of cells, each is placed by its own mean."""
    rows: list[Row] = [
        ("a", "p", "s1", 9), ("a", "p", "s2", 9), ("b", "p", "s1", 8), ("b", "p", "s2", 8),
        ("c", "p", "t1", 3), ("c", "p", "t2", 3), ("d", "p", "t1", 2), ("d", "p", "t2", 2),
    ]  # fmt: skip
    found = fit(gather(rows))
    assert found.means == pytest.approx([9, 8, 3, 2])
    assert found.df == 8 - 4 - 4 + 2


def test_one_scenario_leaves_nothing_for_noise() -> None:
    """Noise that cannot be estimated is None, not zero."""
    found = fit(gather([("a", "p", "s", 1), ("b", "p", "s", 2)]))
    assert found.noise is None
    assert found.df == 0
