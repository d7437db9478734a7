"""Charts as SVG texts. They are as wide as the page allows: across, everything is in percent of the width.

So their letters keep their size on a phone, and colours come from the page, which has a light and a dark set.
"""

from __future__ import annotations

import math
import string
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tipbench.compare.figures import nice_step, readable, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Mark = Literal["pick", "first", "other"]
Swatch = Literal["mean", "estimate", "pick", "first", "other", "middle", "range"]

_ROUNDING = 1e-9
_LOG_FROM = 12.0
_STACKED = (0, -9, 9, -18, 18)
_BUCKET = 2.2
_HEIGHT = 350
_TOP, _BOTTOM, _FLOOR = 26, 296, 316
_LABEL_GAP = 15
_LABEL_LEFT_FROM = 55
_LABEL_LETTERS = 30


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Where values lie between the left edge (0) and the right edge (100)."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, value: float) -> float:
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)


def axis_for(values: Iterable[float], *, steps: int = 5) -> Axis:
    """An axis with round ends that holds every value; where all are the same it has some room around them."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if high - low <= _ROUNDING * max(abs(low), abs(high)):
        room = abs(high) / 10 or 1.0
        low, high = low - room, high + room
    step = nice_step(high - low, steps)
    first, last = math.floor(low / step + _ROUNDING), math.ceil(high / step - _ROUNDING)
    return Axis(low=first * step, high=last * step, ticks=tuple(at * step for at in range(first, last + 1)))


def time_axis(values: Iterable[float]) -> Axis:
    """Logarithmic where the slowest takes many times as long as the fastest; else from zero, unless all lie
    close together far from it.
    """
    known = list(values)
    if min(known) <= 0 or max(known) / min(known) < _LOG_FROM:
        return axis_for(known if min(known) > max(known) / 2 else [0.0, *known])
    decades = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
    round_ones = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
    low = max(one for one in round_ones if one <= min(known))
    high = min(one for one in [*round_ones, 10.0 * round_ones[-1]] if one >= max(known))
    ticks = [one for one in round_ones if low <= one <= high]
    return Axis(low=low, high=high, ticks=tuple(ticks[:: math.ceil(len(ticks) / 7)]), log=True)


def axis_strip(axis: Axis, *, text: Callable[[float], str] = short) -> str:
    """The scale below rows of strips; screen readers have the numbers from the rows."""
    labels = (_text(text(tick), x=axis.at(tick), y=14, anchor="middle") for tick in axis.ticks)
    return f'<svg class="strip axis" aria-hidden="true">{"".join(labels)}</svg>'


def interval_strip(
    axis: Axis,
    *,
    told: str,
    mean: float | None,
    low: float | None = None,
    high: float | None = None,
    estimate: float | None = None,
    mark: Mark = "other",
) -> str:
    """One row of a forest plot: the range as a bar, the mean as a dot, the estimate as an open diamond.

    A range that goes beyond the axis ends in an arrow there. `told` says the same in words.
    """
    parts = [_grid(axis)]
    if low is not None and high is not None:
        parts += _bar(axis, low, high, mark)
    if mean is not None:
        parts.append(f'<circle class="mean {mark}" cx="{_percent(axis.at(mean))}" cy="50%" r="5.5"/>')
    if estimate is not None:
        parts.append(_diamond("estimate", axis.at(estimate), 5.5))
    return _strip(told, parts)


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A value in a strip, with the words that tell what it is."""

    value: float
    told: str
    mark: Mark = "other"


def dots_strip(axis: Axis, dots: Sequence[Dot], *, told: str, middle: float | None = None) -> str:
    """One row of dots; those that would cover each other are set above and below.

    The picked one is a diamond and drawn last; `middle` is a tick, such as the mean of them all.
    """
    parts = [_grid(axis)]
    if middle is not None:
        x = _percent(axis.at(middle))
        parts.append(f'<line class="middle" x1="{x}" x2="{x}" y1="18%" y2="82%"/>')
    order = ("pick", "first", "other")
    ranked = sorted(dots, key=lambda dot: order.index(dot.mark))
    taken: dict[int, int] = {}
    drawn = []
    for dot in ranked:
        bucket = round(axis.at(dot.value) / _BUCKET)
        taken[bucket] = taken.get(bucket, -1) + 1
        drawn.append(_dot(axis, dot, _STACKED[taken[bucket] % len(_STACKED)]))
    return _strip(told, [*parts, *reversed(drawn)])


@dataclass(frozen=True, kw_only=True)
class Point:
    """A combination in the plane of quality and speed."""

    name: str
    told: str
    x: float
    y: float
    size: float | None = None
    mark: Mark = "other"


def front_of(points: Sequence[Point]) -> list[Point]:
    """The points than which no other is both higher and further left, from left to right."""
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (one.x, -one.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def front_chart(
    points: Sequence[Point],
    *,
    title: str,
    described: str,
    x_text: Callable[[float], str] = short,
    number: int = 1,
) -> str:
    """Quality upwards, time to the right; the front is joined and labelled, areas go by the points' sizes.

    Of several on a page each has a `number` of its own.
    """
    across, up = time_axis(point.x for point in points), axis_for(point.y for point in points)
    place = _Place(across=across, up=up)
    front = front_of(points)
    rest = [point for point in points if point not in front]
    parts = [
        *_frame(place, x_text),
        *(_joint(place, one, two) for one, two in pairwise(front)),
        *(_bubble(place, point, largest=_largest(points), front=False) for point in rest),
        *(_bubble(place, point, largest=_largest(points), front=True) for point in front),
        *_labels(place, front),
    ]
    ids = ["front-title", "front-desc"] if number == 1 else [f"front-title-{number}", f"front-desc-{number}"]
    heading = f'<title id="{ids[0]}">{_safe(title)}</title><desc id="{ids[1]}">{_safe(described)}</desc>'
    attributes = f'class="front" height="{_HEIGHT}" role="img" aria-labelledby="{" ".join(ids)}"'
    return f"<svg {attributes}>{heading}{''.join(parts)}</svg>"


def swatch(kind: Swatch) -> str:
    """A mark as it stands in a chart, for a legend."""
    drawn = {
        "mean": '<circle class="mean first" cx="50%" cy="50%" r="5.5"/>',
        "estimate": _diamond("estimate", 50, 5.5),
        "range": '<line class="range first" x1="15%" x2="85%" y1="50%" y2="50%"/>',
        "middle": '<line class="middle" x1="50%" x2="50%" y1="15%" y2="85%"/>',
        "pick": _diamond("dot pick", 50, 6),
        "first": '<circle class="dot first" cx="50%" cy="50%" r="4.2"/>',
        "other": '<circle class="dot other" cx="50%" cy="50%" r="3.5"/>',
    }
    return f'<svg class="swatch" aria-hidden="true">{drawn[kind]}</svg>'


def _strip(told: str, parts: Iterable[str]) -> str:
    return f'<svg class="strip" role="img"><title>{_safe(told)}</title>{"".join(parts)}</svg>'


def _grid(axis: Axis) -> str:
    xs = [_percent(axis.at(tick)) for tick in axis.ticks]
    return "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in xs)


def _bar(axis: Axis, low: float, high: float, mark: Mark) -> list[str]:
    left, right = axis.at(low), axis.at(high)
    x1, x2 = _percent(max(left, 0.0)), _percent(min(right, 100.0))
    bar = [f'<line class="range {mark}" x1="{x1}" x2="{x2}" y1="50%" y2="50%"/>']
    if left < -_ROUNDING:
        bar.append(_shape("beyond", 0, "M-6 0 1-5V5z"))
    if right > 100 + _ROUNDING:
        bar.append(_shape("beyond", 100, "M6 0-1-5V5z"))
    return bar


def _dot(axis: Axis, dot: Dot, shift: int) -> str:
    x, title = axis.at(dot.value), f"<title>{_safe(dot.told)}</title>"
    moved = f' transform="translate(0 {shift})"' if shift else ""
    if dot.mark == "pick":
        return f"<g{moved}>{title}{_diamond('dot pick', x, 6)}</g>"
    radius = "4.2" if dot.mark == "first" else "3.5"
    return f'<circle class="dot {dot.mark}" cx="{_percent(x)}" cy="50%" r="{radius}"{moved}>{title}</circle>'


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a point of the plane lies: across in percent of the width, down in pixels."""

    across: Axis
    up: Axis

    def x(self, value: float) -> float:
        return 9 + 0.84 * self.across.at(value)

    def y(self, value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * self.up.at(value) / 100, 1)


def _frame(place: _Place, x_text: Callable[[float], str]) -> Iterable[str]:
    for tick in place.up.ticks:
        y = place.y(tick)
        yield f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield _text(short(tick), x=0, y=y - 4)
    for tick in place.across.ticks:
        x = place.x(tick)
        yield f'<line class="grid" x1="{_percent(x)}" x2="{_percent(x)}" y1="{_FLOOR}" y2="{_FLOOR + 6}"/>'
        yield _text(x_text(tick), x=x, y=_FLOOR + 22, anchor="middle")


def _joint(place: _Place, one: Point, two: Point) -> str:
    x1, x2 = _percent(place.x(one.x)), _percent(place.x(two.x))
    return f'<line class="joint" x1="{x1}" x2="{x2}" y1="{place.y(one.y)}" y2="{place.y(two.y)}"/>'


def _largest(points: Iterable[Point]) -> float:
    return max((point.size or 0.0 for point in points), default=0.0)


def _radius(point: Point, largest: float) -> float:
    """Area by size, and still to be seen if small; a size that is not known has a middling one."""
    if point.size is None or largest <= 0:
        return 6.0
    return round(max(3.5, 13 * math.sqrt(max(point.size, 0.0) / largest)), 1)


def _bubble(place: _Place, point: Point, *, largest: float, front: bool) -> str:
    known = "" if point.size is not None else " unsized"
    classes = f"bubble {'on' if front else 'off'} {point.mark}{known}"
    where = f'cx="{_percent(place.x(point.x))}" cy="{place.y(point.y)}" r="{_radius(point, largest)}"'
    return f'<circle class="{classes}" {where}><title>{_safe(point.told)}</title></circle>'


def _labels(place: _Place, front: Sequence[Point]) -> Iterable[str]:
    """From the top down, each a line below the one before: to the right and below, where the front does not
    go; near the right edge to the left and above, where no point can be.
    """
    above = -math.inf
    for at, point in reversed(list(enumerate(front))):
        x, right = place.x(point.x), place.x(point.x) <= _LABEL_LEFT_FROM
        above = y = max(place.y(point.y) + (15 if right else -12), above + _LABEL_GAP)
        anchor, shift = ("start", 9) if right else ("end", -9)
        for style, text in (("narrow", letter(at)), ("wide", f"{letter(at)}  {_shortened(point.name)}")):
            yield _text(text, x=x, y=y, anchor=anchor, shift=shift, style=f"named {style}")


def letter(at: int) -> str:
    """What names a point of the front in the chart and in the list below it: A for the first."""
    return string.ascii_uppercase[at] if at < len(string.ascii_uppercase) else str(at + 1)


def _shortened(name: str) -> str:
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1]}…"


def _diamond(style: str, x: float, reach: float) -> str:
    return _shape(style, x, f"M0-{reach:g} {reach:g} 0 0 {reach:g}-{reach:g} 0z")


def _shape(style: str, x: float, path: str) -> str:
    """A path around a place given in percent, which a path by itself cannot have."""
    return f'<svg x="{_percent(x)}" y="50%" overflow="visible"><path class="{style}" d="{path}"/></svg>'


def _text(
    text: str, *, x: float, y: float, anchor: str = "start", shift: int = 0, style: str = "tick"
) -> str:
    moved = f' dx="{shift}"' if shift else ""
    where = f'x="{_percent(x)}" y="{y:g}"{moved} text-anchor="{anchor}"'
    return f'<text class="{style}" {where}>{_safe(text)}</text>'


def _percent(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}%"


def _safe(text: str) -> str:
    return escape(readable(text))
