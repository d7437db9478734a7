from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.table import Table as RichTable

from report_samples import sample_report
from tipbench.compare.leaderboard import rank
from tipbench.compare.report import Facts
from tipbench.compare.scores import Combination
from tipbench.compare.table import Table, report_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.compare.leaderboard import Leaderboard
    from tipbench.compare.scores import Row

VALUES: dict[str, list[float]] = {"one": [11, 9, 12, 8], "two": [8, 12, 9, 10], "bad": [1, 2, 1, 1.5]}
TIED: list[Row] = [
    (model, "v1", f"s{s}", value) for model, values in VALUES.items() for s, value in enumerate(values)
]


def table_of(board: Leaderboard, facts: Mapping[Combination, Facts] | None = None) -> Table:
    """The table of a report of which nothing is known but this."""
    return report_table(replace(sample_report(), board=board, facts=facts or {}, scales=()))


def test_every_row_has_a_text_for_every_column() -> None:
    """The table is square, with what was measured last and a dash for what is not known."""
    table = table_of(
        rank([*TIED, ("new", "v1", "s0", None)]),
        {
            Combination("one", "v1"): Facts(tokens_per_s=67.0, memory_bytes=200_000_000),
            Combination("bad", "v1"): Facts(tokens_per_s=9.0),
        },
    )
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [column.title for column in table.columns][-2:] == ["tok/s", "memory"]
    assert [row[-2:] for row in table.rows] == [("67", "0.2 GB"), ("–", "–"), ("9.0", "–"), ("–", "–")]
    assert table.rows[-1][:4] == ("–", "new", "v1", "–")


def test_tied_rows_share_the_first_rank() -> None:
    """Those that may be the best are all first; the next one keeps its place."""
    table = table_of(rank(TIED))
    assert [row[0] for row in table.rows] == ["1=", "1=", "3"]
    assert table.marked == {0, 1}


def test_a_winner_is_first_alone() -> None:
    """With a winner only that row is marked."""
    table = table_of(rank([row for row in TIED if row[0] != "two"]))
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert table.marked == {0}


def test_numbers_are_short_and_never_certain() -> None:
    """Means have one digit, the range names its probability, and P(best) never reads 0 or 100 percent."""
    table = table_of(rank(TIED, alpha=0.1))
    titles = [column.title for column in table.columns]
    assert "90 %" in titles
    assert table.rows[0][titles.index("composite (2–17)")] == "10.0"
    assert table.rows[2][titles.index("P(best)")] == "<1 %"
    assert "–" in table.rows[0][titles.index("90 %")]


def test_an_empty_board_is_an_empty_table() -> None:
    """Nothing judged still has its headings."""
    table = table_of(rank([]))
    assert table.rows == ()
    assert table.columns


def printed(table: Table, width: int) -> list[str]:
    """The table's lines as the terminal shows them, folded where they do not fit."""
    grid = RichTable(box=None, padding=(0, 1, 0, 0))
    for column in table.columns:
        grid.add_column(column.title, justify=column.align, overflow="fold")
    for row in table.rows:
        grid.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=width).print(grid, markup=False)
    return file.getvalue().splitlines()


def test_a_report_has_scales_speed_and_memory() -> None:
    """Without a width every column is there under its full name."""
    table = report_table(sample_report())
    titles = [column.title for column in table.columns]
    assert titles[-7:] == ["relevance", "actionability", "tone", "tok/s", "latency", "memory", "diversity"]
    assert table.caption == ""
    assert {len(row) for row in table.rows} == {len(titles)}


def test_usual_names_fit_eighty_columns() -> None:
    """The least important columns go, the scales are abbreviated, and the caption says so."""
    table = report_table(sample_report(), width=80)
    lines = printed(table, 80)
    assert len(lines) == 1 + 12
    titles = [column.title for column in table.columns]
    assert titles == [
        "",
        "model",
        "prompt",
        "score",
        "95 %",
        "expect",
        "P(best)",
        "rel",
        "act",
        "ton",
        "tok/s",
    ]
    assert table.caption == (
        "score = composite (2–17), rel = relevance, act = actionability, ton = tone; "
        "no room for n, behind, diversity, memory, latency"
    )


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_what_decides_is_never_left_out(width: int) -> None:
    """Rank, name, mean with its range and P(best) are there at any width; wider shows no less."""
    columns = report_table(sample_report(), width=width).columns
    titles = [column.full or column.title for column in columns]
    assert {"", "model", "prompt", "composite (2–17)", "95 %", "P(best)"} <= set(titles)
    wider = [column.title for column in report_table(sample_report(), width=width + 30).columns]
    assert len(wider) >= len(titles)


def test_a_very_long_name_costs_no_columns() -> None:
    """It is folded instead."""
    table = report_table(sample_report(models=["long-name-" * 30]), width=120)
    assert "expect" in [column.title for column in table.columns]
    assert max(map(len, printed(table, 120))) <= 120


def test_what_nobody_knows_has_no_column() -> None:
    """Without facts there are no columns of dashes."""
    table = report_table(replace(sample_report(), facts={}))
    assert [column.title for column in table.columns][-1] == "n"
