from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.compare.leaderboard import rank
from tipbench.compare.table import leaderboard_table

if TYPE_CHECKING:
    from tipbench.compare.scores import Row

VALUES: dict[str, list[float]] = {"one": [11, 9, 12, 8], "two": [8, 12, 9, 10], "bad": [1, 2, 1, 1.5]}
TIED: list[Row] = [
    (model, "v1", f"s{s}", value) for model, values in VALUES.items() for s, value in enumerate(values)
]


def test_every_row_has_a_text_for_every_column() -> None:
    """The table is square, with extra columns last and a dash for what is not known."""
    table = leaderboard_table(
        rank([*TIED, ("new", "v1", "s0", None)]),
        {("one", "v1"): {"tok/s": "67", "memory": "0.2 GB"}, ("bad", "v1"): {"tok/s": "9", "steps": "3"}},
    )
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [column.title for column in table.columns][-3:] == ["tok/s", "memory", "steps"]
    assert [row[-3:] for row in table.rows] == [
        ("67", "0.2 GB", "–"),
        ("–", "–", "–"),
        ("9", "–", "3"),
        ("–", "–", "–"),
    ]
    assert table.rows[-1][:4] == ("–", "new", "v1", "–")


def test_tied_rows_share_the_first_rank() -> None:
    """Those that may be the best are all first; the next one keeps its place."""
    table = leaderboard_table(rank(TIED))
    assert [row[0] for row in table.rows] == ["1=", "1=", "3"]
    assert table.marked == {0, 1}


def test_a_winner_is_first_alone() -> None:
    """With a winner only that row is marked."""
    table = leaderboard_table(rank([row for row in TIED if row[0] != "two"]))
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert table.marked == {0}


def test_numbers_are_short_and_never_certain() -> None:
    """Means have one digit, the range names its probability, and P(best) never reads 0 or 100 percent."""
    table = leaderboard_table(rank(TIED, alpha=0.1))
    titles = [column.title for column in table.columns]
    assert "90 %" in titles
    assert table.rows[0][titles.index("mean")] == "10.0"
    assert table.rows[2][titles.index("P(best)")] == "<1 %"
    assert "–" in table.rows[0][titles.index("90 %")]


def test_an_empty_board_is_an_empty_table() -> None:
    """Nothing judged still has its headings."""
    table = leaderboard_table(rank([]))
    assert table.rows == ()
    assert table.columns
