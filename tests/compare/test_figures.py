from __future__ import annotations

import pytest

from tipbench.compare import figures
from tipbench.compare.leaderboard import rank


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, 9, 14], 1), ([0.2, 0.5, 0.9], 2), ([0.51, 0.52, 0.55], 3), ([1000, 5000, 9000], 0), ([7, 7, 7], 1)],
)
def test_decimals_follow_the_spread(values: list[float], expected: int) -> None:
    """Scores between 0 and 1 need more decimals than points do."""
    board = rank([("m", f"p{at}", "s", value) for at, value in enumerate(values)])
    assert figures.decimals(board) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (figures.number(-0.04), "0.0"),
        (figures.number(None), "–"),
        (figures.number(1e100), "1e+100"),
        (figures.short(4.0), "4"),
        (figures.short(3.6666), "3.67"),
        (figures.span(-1.0, 2.0), "-1.0 to 2.0"),
        (figures.span(1.0, 2.0), "1.0–2.0"),
        (figures.share(0.001), "<1 %"),
        (figures.share(0.999), ">99 %"),
        (figures.percent(1.0), "100 %"),
        (figures.duration(999.7), "1.0 s"),
        (figures.duration(120_000), "120 s"),
        (figures.duration(None), "–"),
        (figures.gigabytes(2.5e8), "0.2 GB"),
        (figures.gigabytes(1e6), "<0.1 GB"),
        (figures.parameters(135_000_000), "135M"),
        (figures.parameters(3_200_000_000), "3.2B"),
        (figures.rate(6.54), "6.5"),
        (figures.moment(1_760_000_000_000), "2025-10-09 08:53 UTC"),
        (figures.moment(10**20), "–"),
        (figures.count(1, "row"), "1 row"),
    ],
)
def test_numbers_read_as_people_write_them(text: str, expected: str) -> None:
    """Short, with a unit, and a dash for what is not known."""
    assert text == expected


def test_what_no_file_can_hold_is_made_visible() -> None:
    """Control characters, half characters and reversed writing are shown; line breaks and tabs stay."""
    assert figures.readable("a\x00b\r\nc\td\ud800\u202e") == "a␀b\nc\td��"
    assert figures.readable("שלום 👩🏽\u200d💻") == "שלום 👩🏽\u200d💻"
