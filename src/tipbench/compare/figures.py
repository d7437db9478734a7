"""Numbers and texts as people read them; the same in the terminal, on the page and in a file."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipbench.compare.leaderboard import Leaderboard

UNKNOWN = "–"

_LONG = 1e6
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202d\u202e\ud800-\udfff\ufffe\uffff]")


def decimals(board: Leaderboard) -> int:
    """How many decimals tell the board's means apart: one for some points, more where all are within one."""
    ends = [end for row in board.rows for end in (row.mean, row.low, row.high) if end is not None]
    spread = (max(ends) - min(ends) or abs(ends[0])) if ends else 0.0
    steps = [1000.0, 1.5, 0.15, 0.015]
    return sum(spread < step for step in steps) if spread else 1


def number(value: float | None, digits: int = 1) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.3g}" if abs(value) >= _LONG else f"{round(value, digits) + 0.0:.{digits}f}"


def short(value: float) -> str:
    """A score without decimals that say nothing: `4`, `3.5`, `3.67`."""
    return f"{value:.3g}" if abs(value) >= _LONG else f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def span(low: float | None, high: float | None, digits: int = 1) -> str:
    """A range; a dash between numbers of which one is negative would read as another minus."""
    if low is None or high is None:
        return UNKNOWN
    between = " to " if min(low, high) < 0 else "–"
    return f"{number(low, digits)}{between}{number(high, digits)}"


def share(value: float | None) -> str:
    """A probability in percent; drawn at random, it is never shown as none or all."""
    if value is None:
        return UNKNOWN
    return "<1 %" if value < 0.01 else ">99 %" if value > 0.99 else f"{100 * value:.0f} %"


def percent(value: float | None) -> str:
    """A counted part of a whole, which can be none or all of it."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 99_950 else f"{milliseconds / 1000:.0f} s"


def gigabytes(size: float | None) -> str:
    if size is None:
        return UNKNOWN
    return f"{size / 1e9:.1f} GB" if size >= 5e7 or size == 0 else "<0.1 GB"


def rate(per_s: float | None) -> str:
    if per_s is None:
        return UNKNOWN
    return f"{per_s:.0f}" if per_s >= 9.95 else f"{per_s:.1f}"


def parameters(count_of: int | None) -> str:
    if count_of is None:
        return UNKNOWN
    return f"{count_of / 1e9:.1f}B" if count_of >= 999_500_000 else f"{count_of / 1e6:.0f}M"


def moment(ms: int) -> str:
    """A time in UTC, so that a page reads alike wherever it is opened."""
    try:
        return datetime.fromtimestamp(ms / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def count(how_many: int, noun: str) -> str:
    return f"{how_many} {noun}{'' if how_many == 1 else 's'}"


def readable(text: str) -> str:
    """The text with what no file or page can hold made visible, and what would turn letters around.

    That is: control characters, half characters, and overrides of the direction of writing.
    """
    return _CONTROL.sub(lambda found: _picture(ord(found[0])), text.replace("\r\n", "\n"))


def _picture(code: int) -> str:
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def nice_step(spread: float, steps: int) -> float:
    """A round step (1, 2 or 5 times a power of ten) that takes about so many steps over the spread."""
    rough = spread / steps
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
