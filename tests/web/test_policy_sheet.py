"""The words for a shadow, and the bars of weights, on the page on policies."""

from __future__ import annotations

from typing import Any

import pytest

from tipbench.web.policy_sheet import learned, shadow_rows


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"apprentice": False}, "hears of no reward"),
        ({"apprentice": True}, "an apprentice: it learns from rewards"),
        (
            {"apprentice": True, "learned_since_start": 1},
            "an apprentice: it has learned from 1 reward since the start",
        ),
    ],
)
def test_what_a_shadow_hears_of_rewards(about: dict[str, Any], told: str) -> None:
    """An apprentice that runs tells how often it has learned; one that is off has nothing to tell."""
    known = {"policy": "linucb", "enabled": True, "decisions": 7, "agreed": 0, "agreement": None}
    counted = {"dropped": 3, "dropped_since_start": {"slow": 1, "unkept": 2}, "trouble": ""}
    (row,) = shadow_rows({"mine": known | counted | about})
    assert row.told == told
    assert row.dropped == "3 (1 slow, 2 unkept since the start)"


def test_the_weights_of_a_policy_have_one_scale() -> None:
    """What all users share and what is each user's own can be compared by their bars."""
    known = {"policy": "hybrid", "weights_of": 5}
    weights = {"weights": {"bias": 0.1}, "pooled_weights": {"bias": -0.4, "effort": 0.2}}
    nothing = {"policy": "linucb", "weights_of": 0, "weights": None, "pooled_weights": None}
    shared, own = learned({"policies": {"hybrid": known | weights, "linucb": nothing}})
    assert [one.width for one in (*shared.weights, *own.weights)] == [50.0, 25.0, 12.5]
    assert (shared.of, own.of) == ("shared by all users", "mean of 5 users")
