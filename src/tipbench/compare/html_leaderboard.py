"""The leaderboard's table on the page, and the combination that is picked out above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.compare import figures
from tipbench.compare.figures import UNKNOWN
from tipbench.compare.report import Facts
from tipbench.compare.table import first_rows, interval_title, ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.report import Report

_BECAUSE = {
    "winner": "Winner",
    "cheapest": "Cheapest that is close enough to the best",
    "smallest": "Among the smallest that are close enough to the best",
    "within margin": "Close enough to the best",
    "best guess": "Best guess",
    "only one": "The only variant",
}
_MAJOR = ("mean", "expect", "behind", "P(best)")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number, below it a smaller text, and how full its bar is (0 to 100, None for no bar)."""

    text: str
    below: str = ""
    bar: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading with what it means, and the cell of each row; a `minor` one is set small on a phone."""

    title: str
    means: str
    cells: tuple[Cell, ...]
    minor: bool = True


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A row by its name; `anchor` leads to its candidates, and is empty where there are none.

    `host` is empty where all rows have the same.
    """

    rank: str
    model: str
    prompt: str
    first: bool
    tags: tuple[str, ...]
    anchor: str
    cells: tuple[Cell, ...]
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Picked:
    """What to ship, why, and the numbers that speak for it."""

    why: str
    model: str
    prompt: str
    numbers: tuple[tuple[str, str], ...]


def leaderboard(report: Report) -> list[Standing]:
    """Every row, best first."""
    board, shown = report.board, columns(report)
    firsts, places = first_rows(board), ranks(board)
    return [
        Standing(
            rank=places[at],
            model=row.model,
            prompt=row.prompt,
            first=at in firsts,
            tags=_tags(report, row),
            anchor=f"c{at + 1}" if _facts(report, row).candidates else "",
            cells=tuple(column.cells[at] for column in shown),
            host=host_of(report, row),
        )
        for at, row in enumerate(board.rows)
    ]


def columns(report: Report) -> list[Column]:
    """The columns in which anything is known."""
    every = [*_standing_columns(report), *_scale_columns(report), *_measured_columns(report)]
    return [column for column in every if any(cell.text != UNKNOWN for cell in column.cells)]


def picked(report: Report) -> Picked | None:
    """The recommended row, None where there is none or the scores are no ground for one."""
    board = report.board
    row = next((row for row in board.rows if row.combination == board.recommended), None)
    if row is None or not report.advise:
        return None
    facts, digits = _facts(report, row), figures.decimals(board)
    numbers = {
        "mean": figures.number(row.mean, digits),
        interval_title(board): figures.span(row.low, row.high, digits),
        "expect": figures.number(row.estimate, digits),
        "P(best)": figures.share(row.p_best),
        "latency": figures.duration(facts.latency_ms),
        "host": host_of(report, row) or UNKNOWN,
        "size": figures.parameters(facts.parameters),
    }
    known = tuple((name, text) for name, text in numbers.items() if text != UNKNOWN)
    why = _BECAUSE.get(board.recommended_because or "", "Recommended")
    return Picked(why=why, model=row.model, prompt=row.prompt, numbers=known)


def host_of(report: Report, row: LeaderboardRow) -> str:
    """The row's host; empty where there is but one, since that says nothing of a row."""
    return (_facts(report, row).host or "") if report.on_several_hosts else ""


def _tags(report: Report, row: LeaderboardRow) -> tuple[str, ...]:
    board = report.board
    tags = {
        "winner": row.combination == board.winner,
        "recommended": report.advise and row.combination == board.recommended != board.winner,
        "not judged": row.mean is None,
    }
    return tuple(tag for tag, holds in tags.items() if holds)


def _standing_columns(report: Report) -> Iterator[Column]:
    digits, sure = figures.decimals(report.board), interval_title(report.board)

    def ranged(value: float | None, low: float | None, high: float | None) -> Cell:
        below = "" if low is None else figures.span(low, high, digits)
        return Cell(text=figures.number(value, digits), below=below)

    yield _column(
        report,
        report.score_title,
        f"Mean over scenarios; below it where the true mean probably is ({sure})",
        lambda row, _: ranged(row.mean, row.low, row.high),
    )
    yield _column(
        report,
        "expect",
        "What to expect from now on: the mean less the luck that comes with being on top",
        lambda row, _: Cell(text=figures.number(row.estimate, digits)),
    )
    yield _column(
        report,
        "behind",
        f"How far behind the first row, on the same scenarios ({sure} below)",
        lambda row, _: ranged(row.behind, row.behind_low, row.behind_high),
    )
    yield _column(
        report, "P(best)", "The chance that this row is truly the best of these", lambda row, _: _chance(row)
    )
    yield _column(report, "scenarios", "Scenarios behind the row", lambda row, _: _judged(row))


def _chance(row: LeaderboardRow) -> Cell:
    return Cell(text=figures.share(row.p_best), bar=None if row.p_best is None else round(100 * row.p_best))


def _judged(row: LeaderboardRow) -> Cell:
    waiting = f"{row.n_unjudged} to judge" if row.n_unjudged else ""
    return Cell(text=str(row.n_scenarios), below=waiting)


def _scale_columns(report: Report) -> Iterator[Column]:
    for name in report.scales:

        def scored(_: LeaderboardRow, facts: Facts, name: str = name) -> Cell:
            return Cell(text=figures.number(facts.scales.get(name)))

        yield _column(report, name, f"Mean score for {name}, of the judged candidates alone", scored)


def _measured_columns(report: Report) -> Iterator[Column]:
    measured: dict[str, tuple[str, Callable[[Facts], str]]] = {
        "form ok": ("Replies in exactly the asked form", lambda facts: figures.percent(facts.format_ok)),
        "diversity": ("How unlike its tips are", lambda facts: figures.number(facts.diversity, 2)),
        "unusable": (
            "Cells without a usable reply: failed in the engine, unreadable or truncated",
            lambda facts: str(facts.n_failed) if facts.n_failed else UNKNOWN,
        ),
        "tok/s": ("Tokens per second", lambda facts: figures.rate(facts.tokens_per_s)),
        "latency": ("Time for a reply, the median", lambda facts: figures.duration(facts.latency_ms)),
        "memory": ("Memory that the model takes", lambda facts: figures.gigabytes(facts.memory_bytes)),
        "size": ("Parameters of the model", lambda facts: figures.parameters(facts.parameters)),
    }
    for title, (means, text) in measured.items():

        def shown(_: LeaderboardRow, facts: Facts, text: Callable[[Facts], str] = text) -> Cell:
            return Cell(text=text(facts))

        yield _column(report, title, means, shown)


def _column(report: Report, title: str, means: str, cell: Callable[[LeaderboardRow, Facts], Cell]) -> Column:
    cells = tuple(cell(row, _facts(report, row)) for row in report.board.rows)
    return Column(title=title, means=means, cells=cells, minor=title not in {*_MAJOR, report.score_title})


def _facts(report: Report, row: LeaderboardRow) -> Facts:
    return report.facts.get(row.combination, Facts())
