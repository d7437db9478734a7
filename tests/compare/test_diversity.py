from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.compare.diversity import lexical_diversity

if TYPE_CHECKING:
    from random import Random


def test_known_answer() -> None:
    """Two tips with 1 of 3 four-letter runs in common differ by two thirds."""
    assert lexical_diversity(["abcde", "bcdef"], context="") == pytest.approx(1 - 1 / 3)


def test_the_same_tip_has_no_diversity() -> None:
    """Case and spacing make no difference."""
    assert lexical_diversity(["Take a  walk", "take a walk\n"], context="") == 0


def test_nothing_in_common_is_one() -> None:
    """Tips that share no run of four characters are as different as can be."""
    assert lexical_diversity(["abcdef", "uvwxyz", "123456"], context="") == 1


def test_what_the_scenario_says_is_left_out() -> None:
    """Repeating the scenario's words makes tips no more alike."""
    tips = ["team meeting at nine: uvwxyz", "team meeting at nine: 123456"]
    bare, told = (
        lexical_diversity(tips, context=""),
        lexical_diversity(tips, context="Team meeting at nine: "),
    )
    assert bare is not None
    assert told is not None
    assert bare < 0.6
    assert told > 0.8


def test_tips_that_only_repeat_the_scenario_do_not_differ() -> None:
    """With nothing of their own, two tips are as good as one."""
    assert lexical_diversity(["team meeting", "meeting at nine"], context="team meeting at nine") == 0


@pytest.mark.parametrize("tips", [[], ["only one"]])
def test_needs_two_tips(tips: list[str]) -> None:
    """Diversity of fewer than two tips is not known, rather than zero."""
    assert lexical_diversity(tips, context="x") is None


@pytest.mark.parametrize(("tips", "expected"), [(["a", "a"], 0), (["a", "b"], 1), (["", ""], 0)])
def test_short_tips_are_compared_whole(tips: list[str], expected: float) -> None:
    """A tip of fewer than four characters is a run of its own."""
    assert lexical_diversity(tips, context="") == expected


def test_a_runaway_reply_takes_no_time() -> None:
    """Fifty thousand tips are done with within seconds."""
    began = time.process_time()
    lexical_diversity([f"tip number {n}" for n in range(50_000)], context="")
    assert time.process_time() - began < 5


@given(st.lists(st.text(max_size=20), min_size=2, max_size=6), st.text(max_size=20), st.randoms())
def test_bounded_and_blind_to_order(tips: list[str], context: str, random: Random) -> None:
    """The measure is between 0 and 1, and the order of tips does not matter."""
    found = lexical_diversity(tips, context=context)
    shuffled = random.sample(tips, len(tips))
    assert found is not None
    assert 0 <= found <= 1
    assert lexical_diversity(shuffled, context=context) == pytest.approx(found)
