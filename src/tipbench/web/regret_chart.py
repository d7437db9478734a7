"""Regret curves with their bands. Each line has a colour and a dash of its own: neither is needed to tell.

The curves are drawn in a plane that is stretched to the width of the page; letters and ticks are outside
of it and keep their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from tipbench.compare import charts, figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.compare.charts import Axis

HEIGHT = 260
STYLES = 6
_TOP, _BOTTOM = 14, 214
_LEFT = 9.0
_WIDE = 1000
_TABLE_ROWS = 6

Point = tuple[int, float, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A policy's regret per round up to each round, with the bounds of its mean."""

    name: str
    points: Sequence[Point]

    @property
    def last(self) -> Point:
        return self.points[-1]


@dataclass(frozen=True, kw_only=True)
class RegretChart:
    """`rows` are the same curves as numbers: the round, then a text for each series."""

    svg: Markup
    legend: tuple[tuple[Markup, str, str], ...]
    names: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def regret_chart(series: Sequence[Series], *, title: str, name: str = "regret") -> RegretChart | None:
    """The curves; None where there is nothing to draw. `name` tells several charts of a page apart."""
    drawn = [one for one in series if one.points][:STYLES]
    if not drawn:
        return None
    place = _Place(
        across=_rounds([one.last[0] for one in drawn]),
        up=charts.axis_for([0.0, *_heights(drawn)], steps=4),
    )
    head = (
        f'<title id="{name}-title">{escape(figures.readable(title))}</title>'
        f'<desc id="{name}-desc">{escape(figures.readable(_told(drawn)))}</desc>'
    )
    plane = "".join(_curves(place, drawn))
    body = "".join(_frame(place))
    svg = (
        f'<svg class="regret" role="img" height="{HEIGHT}" aria-labelledby="{name}-title {name}-desc">{head}'
        f'{body}<svg x="{_LEFT}%" y="{_TOP}" width="{100 - _LEFT}%" height="{_BOTTOM - _TOP}" '
        f'viewBox="0 0 {_WIDE} {_BOTTOM - _TOP}" preserveAspectRatio="none">{plane}</svg></svg>'
    )
    return RegretChart(
        svg=Markup(svg),  # noqa: S704 - numbers, and texts that were escaped
        legend=tuple((_swatch(at), one.name, _ending(one)) for at, one in enumerate(drawn)),
        names=tuple(one.name for one in drawn),
        rows=tuple(_rows(drawn)),
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a point lies within the plane."""

    across: Axis
    up: Axis

    def x(self, value: float) -> float:
        return round(_WIDE * self.across.at(value) / 100, 1)

    def y(self, value: float) -> float:
        return round((_BOTTOM - _TOP) * (1 - self.up.at(value) / 100), 1)


def _rounds(lasts: Sequence[int]) -> Axis:
    """From the first round to the last, with round numbers between."""
    last = max(2, *lasts)
    step = max(1, math.ceil(figures.nice_step(last, 5)))
    ticks = (1, *(tick for tick in range(step, last + 1, step) if tick > 1))
    return charts.Axis(low=1, high=last, ticks=tuple(map(float, ticks)))


def _heights(series: Sequence[Series]) -> Iterator[float]:
    """Everything that is drawn, but for the first rounds' bands, which would make all else flat."""
    for one in series:
        yield from (mean for _, mean, _, _ in one.points)
        later = one.points[len(one.points) // 10 :]
        yield from (high for _, _, _, high in later if high is not None)


def _frame(place: _Place) -> Iterator[str]:
    for tick in place.up.ticks:
        y = _TOP + place.y(tick)
        yield f'<line class="grid" x1="{_LEFT}%" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="0" y="{y + 4}">{_short(tick)}</text>'
    for tick in place.across.ticks:
        x = _LEFT + (100 - _LEFT) * place.across.at(tick) / 100
        anchor = "end" if x > 97 else "middle"
        text = f'<text class="tick" text-anchor="{anchor}" x="{x:.2f}%" y="{_BOTTOM + 20}">{tick:g}</text>'
        yield text
    yield f'<text class="tick" text-anchor="end" x="100%" y="{_BOTTOM + 40}">round</text>'


def _curves(place: _Place, series: Sequence[Series]) -> Iterator[str]:
    """Bands first, so that no band covers a line; the first series last, on top of all."""
    numbered = list(enumerate(series))[::-1]
    for at, one in numbered:
        known = [(end, low, high) for end, _, low, high in one.points if low is not None and high is not None]
        upper = [f"{place.x(end)},{place.y(high)}" for end, _, high in known]
        lower = [f"{place.x(end)},{place.y(low)}" for end, low, _ in known[::-1]]
        if len(known) > 1:
            yield f'<polygon class="curve-band s{at}" points="{" ".join(upper + lower)}"/>'
    for at, one in numbered:
        points = " ".join(f"{place.x(end)},{place.y(mean)}" for end, mean, _, _ in one.points)
        yield f'<polyline class="curve s{at}" points="{points}" vector-effect="non-scaling-stroke"/>'


def _rows(series: Sequence[Series]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """At some rounds that all of them know."""
    by_round = [{point[0]: point for point in one.points} for one in series]
    shared = sorted(set(by_round[0]).intersection(*by_round[1:]))
    step = max(1, len(shared) // _TABLE_ROWS)
    for end in [*shared[:-1:step], *shared[-1:]]:
        yield end, tuple(_number(points[end]) for points in by_round)


def _number(point: Point) -> str:
    _, mean, low, high = point
    known = low is not None and high is not None
    return f"{mean:.4f}" + (f" ({figures.span(low, high, 4)})" if known else "")


def _told(series: Sequence[Series]) -> str:
    ends = "; ".join(f"{one.name} {_ending(one)}" for one in series)
    return f"Regret per round up to each round, lower is better. After the last round: {ends}."


def _ending(one: Series) -> str:
    return _number(one.last)


def _short(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def _swatch(at: int) -> Markup:
    band = f'<rect class="curve-band s{at}" width="100%" height="100%"/>'
    line = f'<line class="curve s{at}" x1="0" x2="100%" y1="50%" y2="50%"/>'
    return Markup(f'<svg class="swatch wide-swatch" aria-hidden="true">{band}{line}</svg>')  # noqa: S704 - drawn above
