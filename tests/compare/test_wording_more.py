"""What is said where combinations were not judged on the same scenarios."""

from __future__ import annotations

from tipbench.compare.leaderboard import rank
from tipbench.compare.wording import sentences


def test_combinations_without_shared_scenarios_are_not_called_alike() -> None:
    """Nothing pairs them, so the way on is to judge them on the same scenarios."""
    rows = [("m", "v1", "s1", 3.0), ("m", "v1", "s2", 4.0), ("n", "v1", "s3", 9.0), ("n", "v1", "s4", 7.0)]
    _, outlook = sentences(rank(rows))
    assert outlook.startswith("To say more, judge all of them on the same scenarios: n with v1 shares fewer")
