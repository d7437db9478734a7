"""What is said of a name that is not there."""

from __future__ import annotations

import pytest

from tipbench.suite.problems import did_you_mean

CELLS = ("tiny:1b/v4-structured", "tiny:1b/v3-few-shot", "tiny:1b/v1")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tiny:1b/v4", "tiny:1b/v4-structured"),
        ("TINY:1b/v3", "tiny:1b/v3-few-shot"),
        ("tiny:1b/v2", "tiny:1b/v1"),
        ("tiny:1b/v", "tiny:1b/v1"),
        ("tiny:1b/v4-strctured", "tiny:1b/v4-structured"),
    ],
)
def test_a_name_that_was_cut_short_is_meant_before_one_that_looks_like_it(typed: str, meant: str) -> None:
    """Where only one begins so; else it is the one that is nearest."""
    assert did_you_mean(typed, CELLS) == f"; did you mean '{meant}'?"


@pytest.mark.parametrize("typed", ["", "something else"])
def test_nothing_near_is_nothing_said(typed: str) -> None:
    """A guess would be worse than none."""
    assert did_you_mean(typed, CELLS) == ""
