from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.judge.proxy import NAME, proxy_scores

SCALES = [("relevance", 1, 5), ("actionability", 1, 5), ("tone", 1, 5)]
SCENARIO = "Maya, a nurse on night shifts. Morning. Tasks: call the pharmacy, plan meals, sleep before eight."


def scores(tip: str) -> dict[str, int]:
    return dict(proxy_scores(tip, SCENARIO, SCALES))


def test_a_good_tip_scores_high_on_everything() -> None:
    """A tip on the scenario's words, with something to do and a time, politely, gets the top marks."""
    assert scores("Call the pharmacy at 9 and plan two meals before you sleep.") == {
        "relevance": 5,
        "actionability": 5,
        "tone": 5,
    }


def test_a_bad_tip_scores_low_on_everything() -> None:
    """Shouting about nothing in particular gets the lowest marks."""
    assert scores("NEVER be lazy!!! Success!") == {"relevance": 1, "actionability": 1, "tone": 1}


@pytest.mark.parametrize(
    ("scale", "worse", "better"),
    [
        ("relevance", "Drink a glass of water at noon.", "Plan your meals and call the pharmacy at noon."),
        ("actionability", "Success comes to those who believe.", "Write down three things to do first."),
        ("actionability", "Water is good for you and everyone.", "Drink water at ten in the kitchen."),
        ("tone", "You must call now!", "You could call now."),
    ],
)
def test_each_rule_tells_better_from_worse(scale: str, worse: str, better: str) -> None:
    """What a rule is about moves its scale in the right direction."""
    assert scores(worse)[scale] < scores(better)[scale]


def test_other_scales_get_the_mean() -> None:
    """A suite with scales of its own is scored too, each within its own levels."""
    found = proxy_scores(
        "Call the pharmacy at 9.", SCENARIO, [("clarity", 0, 10), ("Tone", 1, 3), ("x", 2, 2)]
    )
    assert found["clarity"] in range(11)
    assert found["Tone"] == 3
    assert found["x"] == 2


def test_the_judges_name_says_what_it_is() -> None:
    """Whatever shows these scores can call them by the name of their judge."""
    assert NAME == "proxy"


@given(tip=st.text(), scenario=st.text(), low=st.integers(-5, 5), levels=st.integers(0, 10))
def test_always_a_whole_number_on_the_scale(tip: str, scenario: str, low: int, levels: int) -> None:
    """Any text gets a score within any scale, and always the same one."""
    scales = [(name, low, low + levels) for name in ("relevance", "actionability", "tone", "other")]
    found = proxy_scores(tip, scenario, scales)
    assert all(type(score) is int and low <= score <= low + levels for score in found.values())
    assert list(found) == [name for name, _, _ in scales]
    assert found == proxy_scores(tip, scenario, scales)
