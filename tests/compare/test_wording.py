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
    """A clear result says which, out of how many, with its p, and that no more is needed."""
    said, more = sentences(rank(rows_of(WINS)))
    assert said.startswith("good with v1 is the best of 2: on 6 scenarios it beats every other")
    assert "(p < .001; a winner needs p < .02)" in said
    assert "Ship good with v1: it is at most 0.4 points worse than the best with >99 % probability." in said
    assert more.endswith("no more judging is needed to name the winner.")


def test_luck_is_mentioned_where_it_shows() -> None:
    """Where the honest estimate differs from the mean, both are given."""
    board = rank(rows_of(WINS))
    assert board.rows[0].mean is not None
    assert board.rows[0].estimate is not None
    shows = f"{board.rows[0].mean:.1f}" != f"{board.rows[0].estimate:.1f}"
    assert ("rather than" in sentences(board)[0]) == shows


def test_a_tie_gives_something_to_do() -> None:
    """A tie ships the cheapest within the margin; with a small margin it names a best guess."""
    said, more = sentences(rank(rows_of(TIES), accept_loss=6, cost={("two", "v1"): (1,)}))
    assert said == (
        "No winner: 2 of 3 variants are tied for first, as 4 scenarios cannot tell them apart. Ship two with "
        "v1: it is the cheapest variant that is close enough to the best, at most 6 points worse than the "
        "best with >99 % probability."
    )
    assert more.startswith("With 4 scenarios a true difference of about ")
    assert "would name a winner" in more or "treat them as equals" in more
    assert "one with v1 is the best guess: with " in sentences(rank(rows_of(TIES), accept_loss=0.1))[0]


def test_a_failed_test_is_explained() -> None:
    """Where the paired test alone would name a winner, the sentence says what speaks against it."""
    lead = [3, 2.5, 3.5, 2.8, 0.1, -0.1, 0.2, 0.0, 0.1, -0.2, 0.0, 0.2]
    rows = rows_of(
        {"a": [10 + one + n % 2 for n, one in enumerate(lead)], "b": [10.0 + n % 2 for n in range(12)]}
    )
    people = {f"s{n}": f"person {n // 4}" for n in range(12)}
    said, _ = sentences(rank(rows, clusters=people), groups="people")
    assert "No winner: a with v1 leads, but its lead over b with v1 rests on few people: " in said
    assert "it is ahead for 3 of 3 people (p " in said
    assert "a winner needs p < .05)" in said


@pytest.mark.parametrize(
    ("rows", "first", "second"),
    [
        ([], "Nothing is judged yet", "Collect some cells"),
        ([("m", "p", "s", None)], "Nothing is judged yet", "judge the 1 candidate waiting"),
        (rows_of({"a": [3, 4]}), "a with v1 is the only variant", "Collect another"),
        (
            rows_of({"a": [3], "b": [4]}),
            "Exploratory: 1 scenario cannot name a winner. b with v1",
            "more scenarios",
        ),
        (rows_of({"a": [3] * 4, "b": [3] * 4}), "No winner: 2 of 2", "no number of scenarios"),
        (rows_of({**WINS, "new": [None]}), "1 variant cannot be placed", "judge the 1 variant"),
        (
            rows_of({**WINS, "poor": [6, 7, 6, 6.5, 7, None]}),
            "is the best of 2",
            "1 candidate still unjudged",
        ),
        (
            rows_of({"a": [5, 6, 5.5, 5.2], "b": [2, 1, 4, 3.9]}),
            "a with v1 leads, but its lead over b with v1 may be luck (p ",
            "would name a winner",
        ),
        (rows_of({"a": [1, 9, 5.001, 5], "b": [9, 1, 5, 5]}), "No winner", "more than 1000 scenarios"),
    ],
)
def test_every_other_case_has_its_words(rows: list[Row], first: str, second: str) -> None:
    """With little to go on the sentences say what is missing and what to do about it."""
    said, more = sentences(rank(rows))
    assert first in said
    assert second in more
    assert said.endswith(".")
    assert more.endswith(".")


def test_a_margin_is_written_without_an_exponent() -> None:
    """On a scale of thousands 5 % are 250 points, not 2.5e+02."""
    many = rows_of({name: [4000 + 10 * one for one in row if one] for name, row in WINS.items()})
    assert "at most 250 points worse than the best" in sentences(rank(many, bounds=(0, 5000)))[0]
