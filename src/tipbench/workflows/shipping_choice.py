"""What to ship of a leaderboard: the variant that it recommends, or the one that a person names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, CheckFailed, NotFound
from tipbench.records import VARIANT_SEPARATOR
from tipbench.suite.problems import did_you_mean, listed
from tipbench.workflows.hints import experiment_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.report import Report
    from tipbench.records import Because


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The row to ship, why, and what speaks against it."""

    row: LeaderboardRow
    because: Because
    cautions: tuple[str, ...] = ()


def choose(
    report: Report, *, recommended: bool, cell: str | None, insist: bool, options: Sequence[str] = ()
) -> Choice:
    """What to ship; CheckFailed where the report does not say so and nobody else did.

    `options` name the ledger in commands that messages print.
    """
    export = experiment_command("judge", "export", experiment=report.title, options=options)
    judge_it = f"judge it with `{export}`"
    if cell is not None:
        if recommended:
            raise BadInput("--recommended and --cell both say what to ship; give one of them")
        return _named(report, cell, insist=insist, judge_it=judge_it)
    if report.ground is None:
        raise CheckFailed(
            f"nothing of experiment {report.title!r} is judged yet, so there is nothing to choose by: "
            f"{judge_it}, then run the same command again"
        )
    if not report.advise:
        raise CheckFailed(
            f"{report.first[0]} That is no ground for choosing what to ship: let a person or an agent judge "
            f"({judge_it}), or name one with --cell: {listed(map(cell_name, report.board.rows))}"
        )
    board = report.board
    if board.recommended is None or (board.recommended_because == "best guess" and not recommended):
        raise CheckFailed(_only_a_guess(report))
    row = _row(report, board.recommended)
    if board.recommended == board.winner:
        return Choice(row=row, because="winner")
    return Choice(row=row, because="recommended", cautions=(report.sentences[0],))


def cell_name(row: LeaderboardRow) -> str:
    """A combination as it is typed."""
    return f"{row.model}/{row.prompt}"


def _named(report: Report, cell: str, *, insist: bool, judge_it: str) -> Choice:
    typed = cell.strip()
    rows = {cell_name(row): row for row in report.board.rows}
    if not rows:
        raise NotFound(
            f"--cell: no combination of experiment {report.title!r} has a tip that can be read; collect again"
        )
    row = rows.get(typed) or next((one for one in report.board.rows if typed in _spellings(one)), None)
    if row is None:
        several = [name for name in rows if name.partition(VARIANT_SEPARATOR)[0] == typed]
        if several:
            raise NotFound(f"--cell: {typed!r} has several sampling options; give one of {listed(several)}")
        raise NotFound(
            f"--cell: there is no combination {typed!r} in experiment {report.title!r}"
            f"{did_you_mean(typed, rows)} (there are {listed(rows)}; write MODEL/PROMPT)"
        )
    if row.mean is None and not insist:
        raise CheckFailed(
            f"nobody has judged {row.combination}: {judge_it}, or pass --insist to ship it all the same"
        )
    return Choice(row=row, because="named", cautions=_against(report, row))


def _spellings(row: LeaderboardRow) -> tuple[str, ...]:
    """The other ways in which a row is printed."""
    return str(row.combination), VARIANT_SEPARATOR.join(row.combination), " × ".join(row.combination)


def _against(report: Report, row: LeaderboardRow) -> tuple[str, ...]:
    """What a person who names a combination should have read."""
    if row.mean is None:
        return (f"Nobody has judged {row.combination}.",)
    if row.combination == report.board.winner:
        return ()
    if row.tied_for_first:
        return (report.sentences[0],)
    return (f"{row.combination} was named although it is behind {report.board.rows[0].combination}.",)


def _only_a_guess(report: Report) -> str:
    """Why nothing is shipped, the variants that may be the best with their numbers, and what to type."""
    tied = [row for row in report.board.rows if row.tied_for_first and row.mean is not None]
    width = max(len(cell_name(row)) for row in tied)
    lines = [f"  {cell_name(row):<{width}}  {_numbers(row)}" for row in tied]
    advised = report.board.recommended
    advice = f"--recommended to ship the best guess {advised}, or " if advised is not None else ""
    return "\n".join([report.sentences[0], *lines, f"Pass {advice}--cell with one of these names."])


def _numbers(row: LeaderboardRow) -> str:
    interval = "" if row.low is None or row.high is None else f" ({row.low:.2f} to {row.high:.2f})"
    return f"{row.mean:.2f}{interval} on {row.n_scenarios} scenarios"


def _row(report: Report, combination: Sequence[str]) -> LeaderboardRow:
    return next(row for row in report.board.rows if row.combination == combination)
