from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tipbench.compare.shrinkage import Shrunken, shrink


def shrunken(
    means: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], *, noise: float, df: int, seed: int = 0
) -> Shrunken:
    """The answer for these means with a margin of half a point."""
    rng = np.random.default_rng(seed)
    return shrink(
        means, sizes, first=int(means.argmax()), margin=0.5, alpha=0.05, noise=noise, df=df, rng=rng
    )


def test_agrees_with_plain_sampling_of_the_model() -> None:
    """Estimates and P(best) are those of a slow sampler that draws noise and spread one by one."""
    means, scenarios, noise, df = np.array([9.0, 9.6, 10.1, 11.2]), 8, 3.0, 21
    found = shrunken(means, np.full(4, scenarios), noise=noise, df=df, seed=1)

    rng = np.random.default_rng(2)
    draws = 60_000
    variance = noise / scenarios * df / rng.chisquare(df, draws)
    widest = 5 * max(means.std(ddof=1), (noise / scenarios) ** 0.5)
    spread = rng.uniform(0, widest, draws) ** 2
    total = variance + spread
    squares = ((means - means.mean()) ** 2).sum()
    weight = total**-1.5 * np.exp(-squares / (2 * total))
    chosen = rng.choice(draws, draws, p=weight / weight.sum())
    kept = (spread / total)[chosen, None]
    centre = means.mean() + rng.standard_normal(draws) * np.sqrt(total[chosen] / 4)
    noise_part = np.sqrt(kept * variance[chosen, None]) * rng.standard_normal((draws, 4))
    true = kept * means + (1 - kept) * centre[:, None] + noise_part
    assert found.estimate == pytest.approx(true.mean(axis=0), abs=0.02)
    assert found.p_best == pytest.approx(np.bincount(true.argmax(axis=1), minlength=4) / draws, abs=0.02)
    behind = true.max(axis=1, keepdims=True) - true
    assert found.p_loss == pytest.approx((behind > 0.5).mean(axis=0), abs=0.02)
    gaps = np.quantile(true[:, [3]] - true, [0.025, 0.975], axis=0)
    assert found.gap_low == pytest.approx(gaps[0], abs=0.1)
    assert found.gap_high == pytest.approx(gaps[1], abs=0.1)


def test_estimates_lie_between_mean_and_common_mean() -> None:
    """Luck is taken off both ends and the order stays."""
    means = np.array([8.0, 10.0, 12.0])
    found = shrunken(means, np.full(3, 8), noise=4.0, df=14).estimate
    assert means[0] < found[0] < found[1] < found[2] < means[2]
    assert found[1] == pytest.approx(10)


def test_fewer_scenarios_shrink_more() -> None:
    """The same mean from fewer scenarios is trusted less."""
    means = np.array([8.0, 9.0, 12.0, 12.0])
    found = shrunken(means, np.array([8, 8, 8, 2]), noise=4.0, df=20)
    assert found.estimate[3] < found.estimate[2]


def test_no_noise_to_speak_of_leaves_no_doubt() -> None:
    """With tiny noise the estimates are the means and the best is the best."""
    means = np.array([1.0, 2.0, 3.0])
    found = shrunken(means, np.full(3, 8), noise=1e-6, df=14)
    assert found.estimate == pytest.approx(means, abs=1e-3)
    assert found.p_best.tolist() == [0, 0, 1]


def test_equal_cells_are_equally_likely() -> None:
    """Where all means are the same no cell is preferred, and any may be behind the best."""
    found = shrunken(np.full(4, 7.0), np.full(4, 8), noise=2.0, df=21)
    assert found.p_best == pytest.approx([0.25] * 4, abs=0.02)
    assert found.estimate == pytest.approx([7.0] * 4)
    assert (found.p_loss > 0.05).all()


def test_thousands_of_cells_are_no_problem() -> None:
    """The shares still add up to one."""
    rng = np.random.default_rng(0)
    found = shrunken(rng.normal(size=5000), rng.integers(2, 30, 5000), noise=3.0, df=9000)
    assert found.p_best.sum() == pytest.approx(1)
