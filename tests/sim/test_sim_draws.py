"""What chance decides: drawn beforehand, by seed, and as the world says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sim_samples import STREAM, drawn, world_file
from tipbench.bandit.draws import uniform
from tipbench.errors import BadInput
from tipbench.sim.draws import draw, request_id
from tipbench.sim.scenery import scenery
from tipbench.sim.world_file import load_world

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = ("context", "tips", "expected", "rewarded", "dismissed", "dwell", "due")


@pytest.mark.parametrize("name", ARRAYS)
def test_a_seed_does_not_depend_on_the_others(name: str) -> None:
    """The third seed is the same whether it is drawn alone or among others."""
    among, alone = drawn(seeds=3), drawn(seeds=1, first=2)
    assert np.array_equal(getattr(among, name)[:, 2:], getattr(alone, name))


@pytest.mark.parametrize("name", ["tips", "rewarded", "dwell"])
def test_seeds_differ(name: str) -> None:
    """Two seeds are two worlds."""
    values = getattr(drawn(), name)
    assert not np.array_equal(values[:, 0], values[:, 1])


def test_candidates_of_a_decision_differ() -> None:
    """No tip is offered twice in one decision, and all tips are offered at some time."""
    tips = drawn(rounds=100).tips
    assert (np.diff(tips, axis=-1) > 0).all()
    assert set(tips.ravel()) == set(range(len(load_world("tip").tips)))


def test_coins_fall_as_often_as_expected() -> None:
    """Of 36,000 coins as many fall as their probabilities say, within four standard errors."""
    draws = drawn(users=40, rounds=60)
    error = np.sqrt((draws.expected * (1 - draws.expected)).sum())
    assert abs(draws.rewarded.sum() - draws.expected.sum()) < 4 * error


def test_expected_rewards_by_hand(tmp_path: Path) -> None:
    """Intercept, likings of persona and slot, effort and overlap add up on the logit scale."""
    text = "taste: 0\neffort: -0.5\nextends: own.yaml\n"
    world_file(tmp_path)
    view = scenery(load_world(world_file(tmp_path, text, name="plain.yaml")))
    draws = draw(view, seeds=[5], users=2, rounds=20)
    likes = {"ann": (1.0, 0.0), "ben": (0.0, 1.5)}
    for place in np.ndindex(draws.tips.shape):
        persona = view.world.personas[draws.persona[place[2]]].id
        tip, context = draws.tips[place], draws.context[place[:3]]
        logit = -0.5 + likes[persona][view.kind[tip]] - 0.5 * view.effort[tip] + view.overlap[context, tip]
        assert draws.expected[place] == pytest.approx(1 / (1 + np.exp(-logit)))
    assert view.overlap.max() > 0.5


def test_missing_and_delayed_outcomes_have_their_shares() -> None:
    """A tenth of the outcomes is never heard of; of the others 80 %, 15 % and 5 % are 0, 1, 2 rounds late."""
    due = drawn(users=40, rounds=60).due
    late = due - np.arange(60)[:, None, None]
    heard = late[due >= 0]
    assert (due < 0).mean() == pytest.approx(0.1, abs=0.02)
    assert [float((heard == rounds).mean()) for rounds in range(3)] == pytest.approx(
        [0.8, 0.15, 0.05], abs=0.03
    )


def test_drift_changes_places_half_way() -> None:
    """Until half of the rounds `drift` is `tip`; afterwards the reward of most candidates is another."""
    before, after = drawn("tip").expected, drawn("drift").expected
    assert np.array_equal(before[:15], after[:15])
    assert (before[15:] != after[15:]).mean() > 0.8


def test_in_the_null_world_nothing_is_better() -> None:
    """Every candidate has the same probability; in `tip` they differ."""
    assert drawn("null").is_null
    assert set(drawn("null").expected.ravel()) == {0.4}
    assert not drawn("tip").is_null


def test_personas_by_their_shares(tmp_path: Path) -> None:
    """Ben is twice as frequent as Ann, everybody is there, and too few users are refused."""
    view = scenery(load_world(world_file(tmp_path)))
    assert np.bincount(draw(view, seeds=[0], users=9, rounds=1).persona).tolist() == [3, 6]
    assert np.bincount(draw(view, seeds=[0], users=2, rounds=1).persona).tolist() == [1, 1]
    with pytest.raises(BadInput, match="2 personas"):
        draw(view, seeds=[0], users=1, rounds=1)


def test_what_is_known_beforehand_tells_of_the_likings() -> None:
    """Completion rates known beforehand go with what people will follow; not everybody has them."""
    draws = drawn(users=40, rounds=60)
    kinds = draws.scenery.kind[draws.tips]
    means = [[draws.expected[:, s, u][kinds[:, s, u] == 0].mean() for u in range(40)] for s in range(3)]
    known = draws.before.completion_rate[:, :, 0]
    assert np.corrcoef(np.ravel(means), known.ravel())[0, 1] > 0.6
    assert 0.6 < draws.before.known.mean() < 0.9
    assert (draws.before.completion_rate + draws.before.dismiss_rate <= 1).all()
    assert (draws.before.preferred_hour < 24).all()


def test_exploration_is_what_a_service_would_draw() -> None:
    """The random number of each decision is the service's own formula on its request id."""
    draws = drawn()
    assert draws.exploration(STREAM)[4, 2, 6] == uniform(STREAM, request_id(2, 6, 4))
    assert not np.array_equal(draws.exploration(STREAM), draws.exploration(b"another"))
