from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tipbench.compare.leaderboard import rank
from tipbench.compare.wording import sentences

if TYPE_CHECKING:
    from tipbench.compare.scores import Row


def rows_of(values: dict[str, list[float | None]]) -> list[Row]:
    return [(m, "v1", f"s{s}", value) for m, row in values.items() for s, value in enumerate(row)]


WINS: dict[str, list[float | None]] = {"good": [11, 12.5, 11.5, 12, 13, 12], "poor": [6, 7, 6, 6.5, 7, 5]}
TIES: dict[str, list[float | None]] = {"one": [11, 9, 12, 8], "two": [8, 12, 9, 10], "bad": [1, 2, 1, 1]}


def test_a_winner_is_to_be_shipped() -> None:
    """A clear result says which, out of how many, on what grounds, and that no more is needed."""
    said, more = sentences(rank(rows_of(WINS)))
    assert said.startswith("good with v1 is the best of 2: on 6 scenarios it beats every other")
    assert "ship it" in said
    assert more.endswith("no more judging is needed to name the winner.")


def test_luck_is_mentioned_where_it_shows() -> None:
    """Where the honest estimate differs from the mean, both are given."""
    board = rank(rows_of(WINS))
    assert board.rows[0].mean is not None
    assert board.rows[0].estimate is not None
    shows = f"{board.rows[0].mean:.1f}" != f"{board.rows[0].estimate:.1f}"
    assert ("rather than" in sentences(board)[0]) == shows


def test_a_tie_gives_something_to_do() -> None:
    """A tie recommends the cheapest for what it is, or else the highest mean."""
    said, more = sentences(rank(rows_of(TIES), cost={("two", "v1"): (1,)}))
    assert said == (
        "There is no single winner: 2 of 3 combinations share the first place, as 4 scenarios cannot tell "
        "them apart; two with v1 is no worse as far as the data can tell and the cheapest to run, "
        "so ship that one."
    )
    assert more.startswith("With 4 scenarios a true difference of about ")
    assert "would name a winner" in more or "treat them as equals" in more
    assert "take one with v1, which has the highest mean" in sentences(rank(rows_of(TIES)))[0]


@pytest.mark.parametrize(
    ("rows", "first", "second"),
    [
        ([], "Nothing is judged yet", "Collect some cells"),
        ([("m", "p", "s", None)], "Nothing is judged yet", "judge the 1 candidate waiting"),
        (rows_of({"a": [3, 4]}), "a with v1 is the only combination", "Collect another"),
        (
            rows_of({"a": [3], "b": [4]}),
            "b with v1 has the highest score, but one scenario",
            "more scenarios",
        ),
        (rows_of({"a": [3] * 4, "b": [3] * 4}), "no single winner: 2 of 2", "no number of scenarios"),
        (rows_of({**WINS, "new": [None]}), "1 combination cannot be placed", "judge the 1 combination"),
        (
            rows_of({**WINS, "poor": [6, 7, 6, 6.5, 7, None]}),
            "is the best of 2",
            "1 candidate still unjudged",
        ),
        (
            rows_of({"a": [5, 6, 5.5], "b": [2, 1, 4]}),
            "a with v1 is probably the best",
            "would name a winner",
        ),
        (rows_of({"a": [1, 9, 5.001], "b": [9, 1, 5]}), "no single winner", "more than 1000 scenarios"),
    ],
)
def test_every_other_case_has_its_words(rows: list[Row], first: str, second: str) -> None:
    """With little to go on the sentences say what is missing and what to do about it."""
    said, more = sentences(rank(rows))
    assert first in said
    assert second in more
    assert said.endswith(".")
    assert more.endswith(".")
