"""Regret curves: told apart without colours, told in words, and whatever the numbers are."""

from __future__ import annotations

import re

import pytest

from tipbench.web.regret_chart import HEIGHT, Point, Series, regret_chart


def curve(name: str, *points: Point) -> Series:
    return Series(name=name, points=points)


def test_curves_have_a_title_a_description_and_a_style_each() -> None:
    """What the picture shows is said in it; every line has a class of its own, on which its dash hangs."""
    points: tuple[Point, ...] = ((1, 0.2, 0.1, 0.3), (50, 0.1, 0.08, 0.12))
    chart = regret_chart([curve("new <b>", *points), curve("old", *points)], title="Regret of <new>")
    assert chart is not None
    assert "<title" in chart.svg
    assert "Regret of &lt;new&gt;" in chart.svg
    assert "new &lt;b&gt; 0.1000 (0.0800–0.1200)" in chart.svg
    assert [f'class="curve s{at}"' in chart.svg for at in (0, 1, 2)] == [True, True, False]
    assert [name for _, name, _ in chart.legend] == ["new <b>", "old"]
    assert chart.rows[-1] == (50, ("0.1000 (0.0800–0.1200)",) * 2)
    assert " style=" not in chart.svg


def test_without_points_there_is_no_chart() -> None:
    """Neither for no series nor for empty ones."""
    assert regret_chart([], title="") is None
    assert regret_chart([curve("a")], title="") is None


@pytest.mark.parametrize(
    "points",
    [
        ((1, 0.0, None, None),),
        ((1, 0.0, 0.0, 0.0), (2, 0.0, 0.0, 0.0)),
        ((1, 0.5, -9.0, 9.0), (10, 0.2, 0.1, 0.3), (300, 0.1, None, None)),
        tuple((end, 1 / end, 0.0, 2 / end) for end in range(1, 100_000, 2000)),
    ],
)
def test_every_curve_lies_within_the_picture(points: tuple[Point, ...]) -> None:
    """One round or many, no band, or one far too wide in the beginning: lines stay inside."""
    chart = regret_chart([curve("a", *points)], title="t")
    assert chart is not None
    [line] = re.findall(r'<polyline class="curve s0" points="([^"]+)"', chart.svg)
    places = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert all(0 <= x <= 1000 and 0 <= y <= HEIGHT for x, y in places)


def test_only_so_many_are_drawn_as_can_be_told_apart() -> None:
    """Six styles, six curves."""
    chart = regret_chart([curve(str(at), (1, 0.1, None, None)) for at in range(9)], title="t")
    assert chart is not None
    assert len(chart.legend) == 6
