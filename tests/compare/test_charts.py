from __future__ import annotations

import re
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.compare.charts import (
    Axis,
    Dot,
    Point,
    Swatch,
    axis_for,
    axis_strip,
    dots_strip,
    front_chart,
    front_of,
    interval_strip,
    swatch,
    time_axis,
)

AXIS = axis_for([0.0, 10.0])
NASTY = '<b>"it\'s" & ]]>\x00'


def parsed(svg: str) -> ET.Element:
    """The SVG as XML, which bad quoting would not survive."""
    return ET.fromstring(svg)  # noqa: S314 - our own text


def places(svg: str, style: str) -> list[float]:
    return [float(x) for x in re.findall(rf'class="{style}"[^>]* cx="([\d.]+)%"', svg)]


@given(st.lists(st.floats(min_value=-1e100, max_value=1e100), min_size=1, max_size=20))
def test_an_axis_holds_every_value(values: list[float]) -> None:
    """Whatever the values, they lie between the edges and there are a few ticks."""
    axis = axis_for(values)
    assert all(-0.01 <= axis.at(value) <= 100.01 for value in values)
    assert 2 <= len(axis.ticks) <= 13


@given(st.lists(st.floats(min_value=0.01, max_value=1e7), min_size=1, max_size=20))
def test_a_time_axis_holds_every_time(times: list[float]) -> None:
    """From milliseconds to hours."""
    axis = time_axis(times)
    assert all(-0.01 <= axis.at(time) <= 100.01 for time in times)
    assert 1 <= len(axis.ticks) <= 13


def test_an_axis_has_round_ticks() -> None:
    """Ends and ticks are numbers that people count in."""
    assert axis_for([7.4, 12.1]) == Axis(low=7.0, high=13.0, ticks=(7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0))
    assert time_axis([100.0, 9000.0]).log
    assert not time_axis([100.0, 900.0]).log
    assert time_axis([100.0, 900.0]).low == 0
    assert time_axis([2000.0, 2300.0]).low > 0


def test_a_row_of_the_forest_shows_what_is_known() -> None:
    """Mean, range and estimate where they are known; with none of them only the grid."""
    full = interval_strip(AXIS, told="x", mean=5, low=2.5, high=7.5, estimate=4)
    assert 'x1="25%" x2="75%"' in full
    assert places(full, "mean other") == [50]
    assert 'class="estimate"' in full
    bare = interval_strip(AXIS, told="x", mean=None)
    assert "circle" not in bare
    assert "range" not in bare


def test_a_range_beyond_the_axis_ends_in_arrows() -> None:
    """What does not fit is not drawn as if it ended there."""
    assert interval_strip(AXIS, told="x", mean=5, low=-3, high=99).count("beyond") == 2
    assert "beyond" not in interval_strip(AXIS, told="x", mean=5, low=0, high=10)


def test_equal_dots_do_not_hide_each_other() -> None:
    """Dots at one place are set above and below it; the picked one is drawn last."""
    dots = [Dot(value=5, told="a", mark="pick"), Dot(value=5, told="b"), Dot(value=5, told="c", mark="first")]
    svg = dots_strip(AXIS, dots, told="x", middle=5)
    assert sorted(re.findall(r"translate\(0 (-?\d+)\)", svg)) == ["-9", "9"]
    assert svg.index("dot other") < svg.index("dot first") < svg.index("dot pick")


def point(name: str, x: float, y: float, size: float | None = 1.0) -> Point:
    return Point(name=name, told=name, x=x, y=y, size=size)


def test_the_front_is_what_nothing_beats_at_both() -> None:
    """From the fastest to the best; a point that is slower and no better is not on it."""
    points = [
        point("slow", 9, 5),
        point("fast", 1, 2),
        point("good", 4, 5),
        point("bad", 5, 1),
        point("tie", 1, 1),
    ]
    assert [one.name for one in front_of(points)] == ["fast", "good"]
    assert front_of([]) == []


def test_the_front_is_joined_labelled_and_sized() -> None:
    """Lines between the points of the front, their letters and names, and areas by size."""
    svg = front_chart(
        [point("a", 1, 1, 1.0), point("b", 2, 2, 4.0), point("c", 2, 1, None)], title="t", described="d"
    )
    assert svg.count('class="joint"') == 1
    assert ">A  a<" in svg
    assert ">B<" in svg
    assert 'r="6.5"' in svg
    assert 'r="13.0"' in svg
    assert svg.count("unsized") == 1


@pytest.mark.parametrize(
    "svg",
    [
        interval_strip(AXIS, told=NASTY, mean=1, low=0, high=2, estimate=1),
        dots_strip(AXIS, [Dot(value=1, told=NASTY, mark="pick"), Dot(value=1, told=NASTY)], told=NASTY),
        front_chart([point(NASTY, 1, 1), point("long " * 99, 2, 2)], title=NASTY, described=NASTY),
        axis_strip(AXIS, text=lambda _: NASTY),
        *(swatch(kind) for kind in get_args(Swatch)),
    ],
)
def test_every_chart_is_sound_whatever_it_is_called(svg: str) -> None:
    """Names with markup and control characters leave the SVG well-formed, and long ones are cut."""
    root = parsed(svg)
    assert root.tag == "svg"
    assert not any(one.tag == "b" for one in root.iter())
    assert all(len(one.text or "") < 60 for one in root.iter("text"))
