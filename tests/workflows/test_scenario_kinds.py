"""Which scenario a moment is most like."""

from __future__ import annotations

from typing import Any

import pytest

from tipbench.errors import NotFound
from tipbench.suite import load_suite
from tipbench.workflows.scenario_kinds import Kind, kind_of_scenario, moment_of, nearest

TIP = [kind_of_scenario(scenario) for scenario in load_suite("tip").scenarios]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Monday, 08:30", (0, 8.5)),
        ("Wednesday, 19:00, two hours before a night shift", (2, 19.0)),
        ("on SUNDAYS at 9.15", (6, 9.25)),
        ("Thu 7:05", (3, pytest.approx(7.083, abs=0.001))),
        ("Tues. 11 pm", (1, 23.0)),
        ("12:30 a.m., Friday", (4, 0.5)),
        ("12 pm", (None, 12.0)),
        ("Saturday evening", (5, 19.0)),
        ("he sat in the sun until 25:70", (None, None)),
        ("", (None, None)),
    ],
)
def test_a_moment_is_read_from_its_words(text: str, moment: tuple[int | None, float | None]) -> None:
    """Weekday and hour, each where it is named."""
    assert moment_of(text) == moment


def test_scenarios_that_ship_all_have_their_moment() -> None:
    """Person, weekday and hour of every scenario are known, in both suites for tips."""
    for name in ("tip", "tip-wide"):
        for scenario in load_suite(name).scenarios:
            kind = kind_of_scenario(scenario)
            assert (bool(kind.who), kind.weekday is None, kind.hour is None) == (True, False, False), kind


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        ({"hour": 8, "weekday": 0}, "maya-monday-morning"),
        ({"hour": 22.5, "weekday": 1}, "priya-exam-eve"),
        ({"hour": 23, "weekday": "Tuesday"}, "priya-exam-eve"),
        ({"hour": 13, "weekday": 5}, "carl-closing-time"),
        ({"hour": 0, "weekday": 1}, "priya-exam-eve"),
        ({"persona": "maya", "hour": 21}, "maya-thursday-evening"),
        ({"persona": " MAYA ", "hour": 7}, "maya-monday-morning"),
        ({"persona": {"name": "Jonas"}, "hour": 8}, "jonas-after-shift"),
        ({"persona": "nobody", "hour": 8, "weekday": 0}, "maya-monday-morning"),
        ({"scenario": "carl-after-the-rush", "persona": "maya", "hour": 1}, "carl-after-the-rush"),
        ({}, "maya-monday-morning"),
    ],
)
def test_the_nearest_comes_first(context: dict[str, Any], wanted: str) -> None:
    """By the name of a scenario, else by person, then by hour and weekday around the clock and the week."""
    assert nearest(TIP, context)[0].id == wanted


@pytest.mark.parametrize(
    "value", [None, "x", float("nan"), float("inf"), -1, 10**400, True, [1], {"a": 1}, 99, ""]
)
def test_what_makes_no_sense_is_left_out(value: object) -> None:
    """No context can break a request."""
    context = {"hour": value, "weekday": value, "persona": value}
    assert sorted(kind.id for kind in nearest(TIP, context)) == sorted(kind.id for kind in TIP)


def test_an_unknown_scenario_is_named() -> None:
    """With the nearest of those that there are."""
    with pytest.raises(NotFound, match=r"no scenario 'maya-monday' .* did you mean 'maya-monday-morning'"):
        nearest(TIP, {"scenario": "maya-monday"})


def test_kinds_without_a_moment_are_in_the_middle() -> None:
    """What is near comes before what is unknown, what is far after it."""
    kinds = [Kind(id="far", hour=20.0), Kind(id="unknown"), Kind(id="near", hour=9.0)]
    assert [kind.id for kind in nearest(kinds, {"hour": 8})] == ["near", "unknown", "far"]
