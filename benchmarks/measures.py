"""What a benchmark hands back: numbers with their units, and the bar where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number. `bar` is the most it should be; a number without one is there for scale."""

    what: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "within" if self.value <= self.bar else "OVER"


@dataclass(frozen=True, kw_only=True)
class Options:
    """`quick` asks for fewer rounds and smaller grids; `work` is a folder that is removed at the end."""

    quick: bool
    work: Path


Bench = Callable[[Options], list[Measure]]


def table(measures: list[Measure]) -> str:
    """The numbers as aligned plain text."""
    rows = [("", "measured", "bar", "")]
    rows += [
        (
            m.what,
            f"{shown(m.value)} {m.unit}",
            f"{shown(m.bar)} {m.unit}" if m.bar is not None else "",
            m.verdict,
        )
        for m in measures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {bar:>{widths[2]}}  {verdict}".rstrip()
        for what, value, bar, verdict in rows
    )


def shown(value: float) -> str:
    """Three digits that matter; whole numbers whole."""
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
