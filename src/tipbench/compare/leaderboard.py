"""Ranking (model, prompt) combinations by what was judged, claiming no more than the data hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tipbench.compare import statistics
from tipbench.compare.additive import Fit, fit
from tipbench.compare.scores import Combination, Row, Scores, gather
from tipbench.compare.shrinkage import Shrunken, shrink
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tipbench.compare.statistics import Summary

    _Key = tuple[tuple[bool, float], ...]

Because = Literal["winner", "cheapest", "smallest", "highest mean"]


@dataclass(frozen=True, kw_only=True)
class LeaderboardRow:
    """One combination. What the data do not tell is None, never zero.

    `mean` with `low` and `high` is the plain mean over its scenarios, for scenarios like these; `estimate` is
    what to expect of it once luck is allowed for. `behind` is how far it is behind the first row on the
    scenarios that both have. `p_value` is two-sided against the first row; the first row's own is the
    largest against any other. `tied_for_first` says that it cannot be told from the first row.
    """

    model: str
    prompt: str
    n_scenarios: int
    n_judged: int
    n_unjudged: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    estimate: float | None = None
    behind: float | None = None
    behind_low: float | None = None
    behind_high: float | None = None
    p_value: float | None = None
    tied_for_first: bool = False
    p_best: float | None = None

    @property
    def combination(self) -> Combination:
        return Combination(self.model, self.prompt)


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Rows from best to worst, and what may be concluded from them.

    `winner` is named only if it is told from every other row, judged or not. `detectable` is the smallest
    true difference that this many scenarios would show four times in five; `scenarios_needed` is how many
    would be needed to name a winner if all differences are as large as they look.
    """

    rows: tuple[LeaderboardRow, ...]
    winner: Combination | None
    recommended: Combination | None
    recommended_because: Because | None
    detectable: float | None
    scenarios_needed: int | None
    n_scenarios: int
    n_judged: int
    n_unjudged: int
    alpha: float

    def as_dict(self) -> dict[str, Any]:
        """The same names, in plain values for JSON."""
        named = {"winner": self.winner, "recommended": self.recommended}
        plain = {name: one and {"model": one.model, "prompt": one.prompt} for name, one in named.items()}
        return {**asdict(self), "rows": [asdict(row) for row in self.rows], **plain}


def rank(
    rows: Iterable[Row],
    *,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
    cost: Mapping[tuple[str, str], Sequence[float | None]] | None = None,
    host: Mapping[tuple[str, str], str] | None = None,
) -> Leaderboard:
    """The leaderboard of rows `(model, prompt, scenario, value)`; a value of None is unjudged.

    Several values for one scenario are averaged first. Rows may come in any order, and the same rows give
    the same answer unless another `rng` is handed in. With `cost`, a tie is resolved in favour of what is
    cheapest to run: see `recommend`.
    """
    if not 0 < alpha < 1:
        raise BadInput(f"alpha is {alpha}; give a number between 0 and 1, such as 0.05")
    scores = gather(rows)
    board = _board(scores, _judged_rows(scores, alpha=alpha, rng=rng), alpha=alpha)
    return recommend(board, cost or {}, host=host)


def recommend(
    board: Leaderboard,
    cost: Mapping[tuple[str, str], Sequence[float | None]],
    *,
    host: Mapping[tuple[str, str], str] | None = None,
) -> Leaderboard:
    """The board with the combination to ship: its winner, or the cheapest of those tied for first.

    `cost` gives for (model, prompt) numbers to compare in turn, such as parameters and then latency; less is
    better, and None is worse than any number. With `host`, all but the first are compared only within a
    host; where that leaves several, the one that ranks highest is the `smallest`, not the cheapest. A row
    that shares fewer than two scenarios with the first is tied for want of data and not recommended. Without
    costs the first row is.
    """
    if board.winner:
        return replace(board, recommended=board.winner, recommended_because="winner")
    ranked = [row for row in board.rows if row.mean is not None]
    if not ranked:
        return replace(board, recommended=None, recommended_because=None)
    tied = [row for row in ranked[1:] if row.tied_for_first and row.p_value is not None]
    candidates = [row.combination for row in [ranked[0], *tied]]
    if not any(one in cost for one in candidates):
        return replace(board, recommended=candidates[0], recommended_because="highest mean")
    cheapest = _cheapest(candidates, {one: _cost_key(cost.get(one, ())) for one in candidates}, host or {})
    several = len({(host or {}).get(one) for one in cheapest}) > 1
    because: Because = "smallest" if several else "cheapest"
    return replace(board, recommended=cheapest[0], recommended_because=because)


def _cheapest(
    candidates: Sequence[Combination], keys: Mapping[Combination, _Key], host: Mapping[tuple[str, str], str]
) -> list[Combination]:
    """Of the smallest those that nothing on the same host beats, in the order of their rank."""
    least = min(key[:1] for key in keys.values())
    small = [one for one in candidates if keys[one][:1] == least]

    def beaten(one: Combination) -> bool:
        return any(host.get(one) == host.get(other) and keys[other] < keys[one] for other in small)

    return [one for one in small if not beaten(one)]


def _cost_key(numbers: Sequence[float | None]) -> _Key:
    """Known before unknown, then less before more; a combination without any cost comes last."""
    known = tuple((number is None, number or 0.0) for number in numbers)
    return known or ((True, 0.0),)


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """A judged row with what it was made from: its differences from the first row."""

    row: LeaderboardRow
    behind: Summary


def _board(scores: Scores, standings: Sequence[_Standing], *, alpha: float) -> Leaderboard:
    rows = [standing.row for standing in standings]
    unjudged = sorted(set(scores.unjudged) - set(scores.cells))
    rows += [_unjudged_row(cell, scores.unjudged[cell]) for cell in unjudged]
    beaten = [_is_beaten(standing, alpha=alpha) for standing in standings[1:]]
    wins = bool(beaten) and all(beaten) and not unjudged
    return Leaderboard(
        rows=tuple(rows),
        winner=rows[0].combination if wins else None,
        recommended=None,
        recommended_because=None,
        detectable=_detectable(standings, alpha=alpha),
        scenarios_needed=None if wins else _scenarios_needed(standings, alpha=alpha),
        n_scenarios=len(scores.scenarios),
        n_judged=sum(scores.judged),
        n_unjudged=sum(scores.unjudged.values()),
        alpha=alpha,
    )


def _unjudged_row(cell: Combination, count: int) -> LeaderboardRow:
    return LeaderboardRow(model=cell.model, prompt=cell.prompt, n_scenarios=0, n_judged=0, n_unjudged=count)


def _is_beaten(standing: _Standing, *, alpha: float) -> bool:
    p = standing.row.p_value
    return p is not None and p < alpha and standing.behind.mean > 0


def _judged_rows(scores: Scores, *, alpha: float, rng: np.random.Generator | None) -> list[_Standing]:
    if not scores.cells:
        return []
    fitted = fit(scores)
    order = _order(scores, fitted.means)
    own = statistics.grouped(scores.cell, scores.value, count=len(scores.cells), scale=scores.scale)
    behind = _behind(scores, order[0])
    shrunken = _shrunken(scores, fitted, rng=rng)
    standings = [
        _Standing(row=_row(scores, at, own[at], behind[at], shrunken, alpha=alpha), behind=behind[at])
        for at in order
    ]
    return [_first(standings), *standings[1:]]


def _order(scores: Scores, means: NDArray[Any]) -> list[int]:
    """Best first; cells that differ by rounding alone go by name."""
    unit = scores.scale or 1.0
    return sorted(range(len(means)), key=lambda at: (-round(float(means[at]) / unit, 9), scores.cells[at]))


def _behind(scores: Scores, top: int) -> list[Summary]:
    """By cell: how far the top is ahead of it, on the scenarios that both have."""
    import numpy as np

    best = np.full(len(scores.scenarios), np.nan)
    of_top = scores.cell == top
    best[scores.scenario[of_top]] = scores.value[of_top]
    difference = best[scores.scenario] - scores.value
    shared = ~np.isnan(difference)
    return statistics.grouped(
        scores.cell[shared], difference[shared], count=len(scores.cells), scale=scores.scale
    )


def _row(
    scores: Scores, at: int, own: Summary, behind: Summary, shrunken: Shrunken | None, *, alpha: float
) -> LeaderboardRow:
    cell = scores.cells[at]
    low, high = statistics.interval(own, alpha=alpha) or (None, None)
    behind_low, behind_high = statistics.interval(behind, alpha=alpha) or (None, None)
    tied = statistics.not_ruled_out(behind, others=max(len(scores.cells) - 1, 1), alpha=alpha)
    return LeaderboardRow(
        model=cell.model,
        prompt=cell.prompt,
        n_scenarios=own.n,
        n_judged=scores.judged[at],
        n_unjudged=scores.unjudged[cell],
        mean=own.mean,
        low=low,
        high=high,
        estimate=float(shrunken.estimate[at]) if shrunken else None,
        behind=behind.mean if behind.n else None,
        behind_low=behind_low,
        behind_high=behind_high,
        p_value=statistics.two_sided_p(behind),
        tied_for_first=tied is not False,
        p_best=float(shrunken.p_best[at]) if shrunken else None,
    )


def _first(standings: Sequence[_Standing]) -> _Standing:
    """The first row: behind nobody, and as sure of its place as the comparison that says least."""
    others = [standing.row.p_value for standing in standings[1:]]
    known = [p for p in others if p is not None]
    largest = max(known) if known and len(known) == len(others) else None
    return replace(standings[0], row=replace(standings[0].row, p_value=largest))


def _shrunken(scores: Scores, fitted: Fit, *, rng: np.random.Generator | None) -> Shrunken | None:
    """None where the data hold no measure of their own noise, unless all cells are equal anyway."""
    import numpy as np

    flat = np.ptp(fitted.means) <= 1e-9 * scores.scale
    if len(scores.cells) < 2 or fitted.noise is None:
        return None
    if fitted.noise <= (1e-9 * scores.scale) ** 2 and not flat:
        return None
    sizes = np.bincount(scores.cell, minlength=len(scores.cells))
    means = np.full_like(fitted.means, fitted.means.mean()) if flat else fitted.means
    rng = rng or np.random.default_rng(0)
    return shrink(means, sizes, noise=fitted.noise, df=fitted.df, rng=rng)


def _detectable(standings: Sequence[_Standing], *, alpha: float) -> float | None:
    """From the typical spread of differences from the first row, on as many scenarios as are shared."""
    pairs = [one.behind for one in standings[1:] if one.behind.sd is not None]
    if not pairs:
        return None
    sd = (sum((pair.sd or 0.0) ** 2 for pair in pairs) / len(pairs)) ** 0.5
    shared = sorted(pair.n for pair in pairs)[len(pairs) // 2]
    return statistics.detectable_difference(sd, n=shared, alpha=alpha) if sd > 0 else None


def _scenarios_needed(standings: Sequence[_Standing], *, alpha: float) -> int | None:
    open_ones = [one.behind for one in standings[1:] if not _is_beaten(one, alpha=alpha)]
    needed = [statistics.scenarios_to_separate(behind, alpha=alpha) for behind in open_ones]
    known = [number for number in needed if number is not None]
    return max(known) if known and len(known) == len(needed) else None
