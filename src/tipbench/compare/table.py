"""The leaderboard as a table of short texts; whoever prints it chooses how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow

UNKNOWN = "–"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading, and on which side its texts are set."""

    title: str
    align: Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Every row has one text per column; `marked` has the numbers of the rows that may be the best."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int]


def leaderboard_table(
    board: Leaderboard, extras: Mapping[tuple[str, str], Mapping[str, str]] | None = None
) -> Table:
    """The board's rows, best first, then the columns of `extras` (by model and prompt) as they come up.

    Rows that may be the best share the rank 1; what is not known is a dash.
    """
    extras = extras or {}
    names = tuple(dict.fromkeys(name for columns in extras.values() for name in columns))
    firsts = frozenset(at for at, row in enumerate(board.rows) if _may_be_best(board, row))
    rows = tuple(
        _texts(at, row, shared=len(firsts) > 1, first=at in firsts)
        + tuple(extras.get(row.combination, {}).get(name, UNKNOWN) for name in names)
        for at, row in enumerate(board.rows)
    )
    columns = _columns(board) + tuple(Column(title=name, align="right") for name in names)
    return Table(columns=columns, rows=rows, marked=firsts)


def _may_be_best(board: Leaderboard, row: LeaderboardRow) -> bool:
    return row.combination == board.winner if board.winner else row.tied_for_first


def _columns(board: Leaderboard) -> tuple[Column, ...]:
    sure = f"{100 * (1 - board.alpha):g} %"
    left = [Column(title=title, align="left") for title in ("", "model", "prompt")]
    titles = ("mean", sure, "expect", "behind", "P(best)", "n")
    return (*left, *(Column(title=title, align="right") for title in titles))


def _texts(at: int, row: LeaderboardRow, *, shared: bool, first: bool) -> tuple[str, ...]:
    rank = ("1=" if shared else "1") if first else str(at + 1)
    return (
        rank if row.mean is not None else UNKNOWN,
        row.model,
        row.prompt,
        _number(row.mean),
        _range(row.low, row.high),
        _number(row.estimate),
        _number(row.behind),
        _share(row.p_best),
        str(row.n_scenarios),
    )


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _range(low: float | None, high: float | None) -> str:
    return UNKNOWN if low is None or high is None else f"{low:.1f}–{high:.1f}"


def _share(value: float | None) -> str:
    """A probability in percent; drawn at random, it is never shown as none or all."""
    if value is None:
        return UNKNOWN
    return "<1 %" if value < 0.01 else ">99 %" if value > 0.99 else f"{100 * value:.0f} %"
