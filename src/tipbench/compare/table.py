"""The leaderboard as a table of short texts; whoever prints it chooses how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tipbench.compare import figures
from tipbench.compare.figures import UNKNOWN
from tipbench.compare.report import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow
    from tipbench.compare.report import Report

# What goes first where there is no room for all.
_LEAST_IMPORTANT = ("n", "behind", "diversity", "memory", "latency", "scales", "speed", "expect")
_SCALES_NOTE = "scale means are of the judged candidates alone, the composite also counts unusable replies"
_LONGEST_NAME = 24
_SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading, and on which side its texts are set.

    Columns of one `group` are left out together; without one a column always stays. `short` is the
    title for a narrow table, `full` is the whole
    title of one that is abbreviated.
    """

    title: str
    align: Literal["left", "right"] = "right"
    group: str = ""
    full: str = ""
    short: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Every row has one text per column; `marked` has the numbers of the rows that may be the best.

    `hidden` names the columns that were left out for want of room.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int]
    hidden: tuple[str, ...] = ()
    note: str = ""

    @property
    def caption(self) -> str:
        """What a reader must know of the columns: what they count, and which are abbreviated or hidden."""
        short = [f"{column.title} = {column.full}" for column in self.columns if column.full]
        hidden = f"no room for {', '.join(self.hidden)}" if self.hidden else ""
        parts = [self.note, ", ".join(short), hidden]
        return "; ".join(part for part in parts if part)


def report_table(report: Report, *, width: int | None = None) -> Table:
    """The report's leaderboard, best first, with the scales, speed and memory that are known of any row.

    Rows that may be the best share the rank 1; what is not known is a dash. With a `width` the least
    important columns are left out until the rest fits; without one all are there.
    """
    facts = [report.facts.get(row.combination, Facts()) for row in report.board.rows]
    measured = [
        *(_measured(name, [_scale(one, name) for one in facts], group="scales") for name in report.scales),
        _host_column(report, facts),
        _measured("tok/s", [figures.rate(one.tokens_per_s) for one in facts], group="speed"),
        _measured("latency", [figures.duration(one.latency_ms) for one in facts], group="latency"),
        _measured("memory", [figures.gigabytes(one.memory_bytes) for one in facts], group="memory"),
        _measured("diversity", [figures.number(one.diversity) for one in facts], group="diversity"),
    ]
    known = [pair for pair in measured if any(text != UNKNOWN for text in pair[1])]
    unusable = bool(report.scales) and any(one.n_failed and one.scales for one in facts)
    table = replace(_joined(_standing(report), known), note=_SCALES_NOTE if unusable else "")
    return _fitted(table, width)


def first_rows(board: Leaderboard) -> frozenset[int]:
    """The numbers of the rows that may be the best: the winner alone, or all that are tied for first."""
    return frozenset(at for at, row in enumerate(board.rows) if _may_be_best(board, row))


def ranks(board: Leaderboard) -> tuple[str, ...]:
    """By row: `1=` for all that share the first place, `1` for one alone, then the row's own place."""
    firsts = first_rows(board)
    first = "1=" if len(firsts) > 1 else "1"
    return tuple(
        UNKNOWN if row.mean is None else first if at in firsts else str(at + 1)
        for at, row in enumerate(board.rows)
    )


def interval_title(board: Leaderboard) -> str:
    return f"{100 * (1 - board.alpha):g} %"


def _may_be_best(board: Leaderboard, row: LeaderboardRow) -> bool:
    return row.combination == board.winner if board.winner else row.tied_for_first


def _standing(report: Report) -> Table:
    board = report.board
    columns = (
        Column(title="", align="left"),
        Column(title="model", align="left"),
        Column(title="prompt", align="left"),
        Column(title=report.score_title, short="score"),
        Column(title=interval_title(board)),
        Column(title="expect", group="expect"),
        Column(title="behind", group="behind"),
        Column(title="P(best)"),
        Column(title="n", group="n"),
    )
    digits = figures.decimals(board)
    rows = tuple(_texts(rank, row, digits) for rank, row in zip(ranks(board), board.rows, strict=True))
    return Table(columns=columns, rows=rows, marked=first_rows(board))


def _texts(rank: str, row: LeaderboardRow, digits: int) -> tuple[str, ...]:
    return (
        rank,
        row.model,
        row.prompt,
        figures.number(row.mean, digits),
        figures.span(row.low, row.high, digits),
        figures.number(row.estimate, digits),
        figures.number(row.behind, digits),
        figures.share(row.p_best),
        str(row.n_scenarios),
    )


def _scale(facts: Facts, name: str) -> str:
    return figures.number(facts.scales.get(name))


def _host_column(report: Report, facts: Sequence[Facts]) -> tuple[Column, Sequence[str]]:
    """Who made each row, where there are several; it goes with the last column that means nothing without."""
    texts = [(one.host or UNKNOWN) if report.on_several_hosts else UNKNOWN for one in facts]
    return Column(title="host", align="left", group="speed"), texts


def _measured(title: str, texts: Sequence[str], *, group: str) -> tuple[Column, Sequence[str]]:
    return Column(title=title, group=group), texts


def _joined(table: Table, more: Iterable[tuple[Column, Sequence[str]]]) -> Table:
    for column, texts in more:
        rows = tuple((*row, text) for row, text in zip(table.rows, texts, strict=True))
        table = replace(table, columns=(*table.columns, column), rows=rows)
    return table


def _fitted(table: Table, width: int | None) -> Table:
    """The whole table where it fits; else with the scales abbreviated; else with fewer columns."""
    if width is None or _width(table) <= width:
        return table
    table = _abbreviated(table)
    for group in _LEAST_IMPORTANT:
        if _width(table) <= width:
            break
        table = _without(table, group)
    return table


def _abbreviated(table: Table) -> Table:
    """The score by its short title, and scales by their first letters, as many as tell them apart."""
    shorter = (replace(one, title=one.short, full=one.title) if one.short else one for one in table.columns)
    table = replace(table, columns=tuple(shorter))
    names = [column.title for column in table.columns if column.group == "scales"]
    longest = max(map(len, names), default=_SHORTEST)
    enough = [n for n in range(_SHORTEST, longest) if len({name[:n] for name in names}) == len(names)]
    if not enough:
        return table
    columns = (_cut(one, enough[0]) if one.group == "scales" else one for one in table.columns)
    return replace(table, columns=tuple(columns))


def _cut(column: Column, letters: int) -> Column:
    if len(column.title) <= letters:
        return column
    return replace(column, title=column.title[:letters], full=column.title)


def _without(table: Table, group: str) -> Table:
    left = [at for at, column in enumerate(table.columns) if column.group != group]
    gone = [column.full or column.title for column in table.columns if column.group == group]
    return replace(
        table,
        columns=tuple(table.columns[at] for at in left),
        rows=tuple(tuple(row[at] for at in left) for row in table.rows),
        hidden=(*table.hidden, *gone),
    )


def _width(table: Table) -> int:
    """In the terminal's cells, with one between columns; a very long name is folded by whoever prints it."""
    from rich.cells import cell_len

    columns = zip(*[[column.title for column in table.columns], *table.rows], strict=True)
    widest = [max(map(cell_len, texts)) for texts in columns]
    named = [at > 0 and column.align == "left" for at, column in enumerate(table.columns)]
    widths = [min(width, _LONGEST_NAME) if name else width for width, name in zip(widest, named, strict=True)]
    return sum(widths) + len(widths)
