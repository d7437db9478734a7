"""Which row of a leaderboard to ship: the cheapest whose loss against the best is acceptable."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow
    from tipbench.compare.scores import Combination

    _Key = tuple[tuple[bool, float], ...]

Because = Literal["winner", "cheapest", "smallest", "within margin", "best guess", "only one"]

CostName = Literal["parameters", "seconds", "memory"]


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """How many points worse than the best is acceptable (None: 5 % of the scale), and what is cheap."""

    accept_loss: float | None = None
    cost: CostName = "parameters"


# Measured by benchmarks/truth: less with more rows, as the cheapest of many may qualify by luck.
_P_LOSS_OF_ONE = 0.45


def most_p_loss(n_rows: int) -> float:
    """The largest probability of a loss beyond the margin with which a row is recommended: .26 for 3 rows."""
    return _P_LOSS_OF_ONE / math.sqrt(max(n_rows, 1))


def recommend(
    board: Leaderboard,
    cost: Mapping[tuple[str, str], Sequence[float | None]],
    *,
    host: Mapping[tuple[str, str], str] | None = None,
) -> Leaderboard:
    """The board with the row to ship, and why that one.

    It is the cheapest row whose `p_loss` is at most the board's `accepted_p_loss`. If there is none, it is
    the row with the lowest `p_loss`, as a best guess; so it is on an exploratory board. Of rows with equal
    scores the best guess is the cheapest. A row that shares fewer than two scenarios with the first never
    qualifies.

    `cost` gives for (model, prompt) numbers to compare in turn, such as parameters and then seconds. Less is
    better, and None costs more than any number. With `host`, all numbers but the first are compared only
    within a host; where that leaves several rows, the one that ranks highest is the `smallest`, not the
    cheapest.
    """
    ranked = [row for row in board.rows if row.mean is not None]
    if not ranked:
        return replace(board, recommended=None, recommended_because=None)
    row, because = _choice(board, ranked, cost, host or {})
    return replace(board, recommended=row.combination, recommended_because=because)


def _choice(
    board: Leaderboard,
    ranked: Sequence[LeaderboardRow],
    cost: Mapping[tuple[str, str], Sequence[float | None]],
    host: Mapping[tuple[str, str], str],
) -> tuple[LeaderboardRow, Because]:
    if len(board.rows) == 1:
        return ranked[0], "only one"
    comparable = [ranked[0], *(row for row in ranked[1:] if row.p_value is not None)]
    rows = {row.combination: row for row in comparable if _qualifies(board, row)}
    if not rows:
        guess = min(comparable, key=lambda row: 1.0 if row.p_loss is None else row.p_loss)
        equals = {row.combination: row for row in comparable if _scores(row) == _scores(guess)}
        return equals[_cheapest(list(equals), cost, host)[0]], "best guess"
    best = _cheapest(list(rows), cost, host)
    chosen = rows[best[0]]
    if chosen.combination == board.winner:
        return chosen, "winner"
    if not any(one in cost for one in rows):
        return chosen, "within margin"
    return chosen, "smallest" if len({host.get(one) for one in best}) > 1 else "cheapest"


def _qualifies(board: Leaderboard, row: LeaderboardRow) -> bool:
    return not board.exploratory and row.p_loss is not None and row.p_loss <= board.accepted_p_loss


def _scores(row: LeaderboardRow) -> tuple[float | None, float | None]:
    return row.p_loss, row.behind


def _cheapest(
    candidates: Sequence[Combination],
    cost: Mapping[tuple[str, str], Sequence[float | None]],
    host: Mapping[tuple[str, str], str],
) -> list[Combination]:
    """Of the smallest those that nothing on the same host beats, in the order of their rank."""
    keys = {one: _cost_key(cost.get(one, ())) for one in candidates}
    least = min(key[:1] for key in keys.values())
    small = [one for one in candidates if keys[one][:1] == least]

    def beaten(one: Combination) -> bool:
        return any(host.get(one) == host.get(other) and keys[other] < keys[one] for other in small)

    return [one for one in small if not beaten(one)]


def _cost_key(numbers: Sequence[float | None]) -> _Key:
    """Known before unknown, then less before more; a combination without any cost comes last."""
    known = tuple((number is None, number or 0.0) for number in numbers)
    return known or ((True, 0.0),)
