"""A judge's drift, batch by batch, as a picture and in words."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from tipbench.compare import charts, figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.compare.charts import Axis
    from tipbench.judge.gate import Point

HEIGHT = 190
_TOP, _BOTTOM = 12, 160
_MOST, _NAMED = 40, 12


@dataclass(frozen=True, kw_only=True)
class DriftChart:
    svg: Markup
    legend: tuple[tuple[Markup, str], ...]
    sentence: str


def drift_chart(points: Sequence[Point]) -> DriftChart | None:
    """The last batches with their band; None where no batch was checked."""
    shown = list(points)[-_MOST:]
    if not shown:
        return None
    svg = _drawn(shown, skipped=len(points) - len(shown))
    legend = (
        (_swatch('<circle class="dot other" cx="50%" cy="50%" r="4"/>'), "a batch by itself"),
        (_swatch('<line class="smooth" x1="5%" x2="95%" y1="50%" y2="50%"/>'), "all so far"),
        (_swatch('<rect class="band" width="100%" height="100%"/>'), "fine"),
    )
    return DriftChart(svg=svg, legend=legend, sentence=_sentence(shown[-1]))


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where things lie: across in percent of the width, down in pixels."""

    axis: Axis
    many: int

    def x(self, at: int) -> float:
        return round(8 + 88 * (at + 0.5) / self.many, 2)

    def y(self, value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * self.axis.at(value) / 100, 1)


def _drawn(shown: Sequence[Point], *, skipped: int) -> Markup:
    ends = [end for one in shown for end in (one.z, one.ewma, one.limit, -one.limit)]
    place = _Place(axis=charts.axis_for(ends, steps=4), many=len(shown))
    parts = [
        *_grid(place),
        *(_band(place, at, one) for at, one in enumerate(shown)),
        *(_line(place, at, one, two) for at, (one, two) in enumerate(pairwise(shown))),
        *(_batch(place, at, one, at + skipped + 1) for at, one in enumerate(shown)),
    ]
    told = escape(f"Drift, batch by batch: {_sentence(shown[-1])}")
    body = "".join(parts)
    return Markup(  # noqa: S704 - numbers, and texts that were escaped
        f'<svg class="drift" role="img" height="{HEIGHT}"><title>{told}</title>{body}</svg>'
    )


def _grid(place: _Place) -> Iterator[str]:
    for tick in place.axis.ticks:
        y = place.y(tick)
        yield f'<line class="grid" x1="6%" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="0" y="{y + 4}">{figures.short(tick)}</text>'


def _band(place: _Place, at: int, one: Point) -> str:
    top, width = place.y(one.limit), 88 / place.many
    across = f'x="{place.x(at) - width / 2:.2f}%" width="{width + 0.05:.2f}%"'
    return f'<rect class="band" {across} y="{top}" height="{place.y(-one.limit) - top:.1f}"/>'


def _line(place: _Place, at: int, one: Point, two: Point) -> str:
    across = f'x1="{place.x(at)}%" x2="{place.x(at + 1)}%"'
    return f'<line class="smooth" {across} y1="{place.y(one.ewma)}" y2="{place.y(two.ewma)}"/>'


def _batch(place: _Place, at: int, one: Point, number: int) -> str:
    x = f"{place.x(at)}%"
    told = f"batch {number}: {one.z:+.1f}; all so far {one.ewma:+.1f}, fine within {one.limit:.1f}"
    mark = "pick" if one.beyond else "other"
    drawn = (
        f'<circle class="dot {mark}" cx="{x}" cy="{place.y(one.z)}" r="4.5"><title>{escape(told)}</title>'
        f'</circle><circle class="mean first" cx="{x}" cy="{place.y(one.ewma)}" r="3"/>'
    )
    named = place.many <= _NAMED or number % 5 == 0
    label = f'<text class="tick" text-anchor="middle" x="{x}" y="{_BOTTOM + 22}">{number}</text>'
    return drawn + (label if named else "")


def _swatch(drawn: str) -> Markup:
    return Markup(f'<svg class="swatch" aria-hidden="true">{drawn}</svg>')  # noqa: S704 - drawn above


def _sentence(last: Point) -> str:
    way = "higher" if last.ewma > 0 else "lower"
    if last.beyond:
        return f"Over your batches you score {way} than was agreed, by more than chance explains."
    if abs(last.ewma) > last.limit / 2:
        return f"You score a little {way} than was agreed; that is still within chance."
    return "You score as was agreed."
