"""What a leaderboard says: who wins or leads, what to ship, and what it would take to say more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.compare import figures

if TYPE_CHECKING:
    from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow

_HOPELESS = 1000


def sentences(board: Leaderboard, *, advise: bool = True, groups: str = "clusters") -> tuple[str, str]:
    """What can be said and what to do; and what it would take to say more.

    Without `advise` nothing is said about what to ship: for scores that are no ground for it. `groups` is
    what a suite calls its clusters, such as people.
    """
    judged = [row for row in board.rows if row.mean is not None]
    if not judged:
        return "Nothing is judged yet, so nothing can be said.", _judge_first(board)
    if len(board.rows) == 1:
        only = judged[0]
        return (
            f"{only.combination} is the only variant, so there is nothing to compare it with.",
            "Collect another model or prompt version on the same scenarios to learn which is better.",
        )
    found = [_finding(board, judged, groups=groups), _advice(board) if advise else ""]
    return " ".join(part for part in found if part), _outlook(board, judged)


def _judge_first(board: Leaderboard) -> str:
    if board.n_unjudged:
        return f"To say more, judge the {_count(board.n_unjudged, 'candidate')} waiting."
    return "Collect some cells and judge them first."


def _finding(board: Leaderboard, judged: list[LeaderboardRow], *, groups: str) -> str:
    first = judged[0].combination
    if board.winner:
        return _winner(board, judged[0])
    if board.exploratory:
        return (
            f"Exploratory: {_count(board.n_scenarios, 'scenario')} cannot name a winner. "
            f"{first} has the highest score."
        )
    waiting = len(board.rows) - len(judged)
    if waiting:
        return (
            f"No winner: {first} leads, but {_count(waiting, 'variant')} cannot be placed without any score."
        )
    failed = _failed_test(judged, groups=groups)
    if failed:
        return f"No winner: {first} leads, but {failed}."
    tied = sum(row.tied_for_first for row in judged)
    if tied > 1:
        return (
            f"No winner: {tied} of {len(board.rows)} variants are tied for first, as "
            f"{_count(board.n_scenarios, 'scenario')} cannot tell them apart."
        )
    rival = _closest(judged)
    return f"No winner: {first} leads, but its lead over {rival.combination} may be luck ({_p(rival)})."


def _winner(board: Leaderboard, first: LeaderboardRow) -> str:
    mean, estimate = f"{first.mean:.1f}", f"{first.mean if first.estimate is None else first.estimate:.1f}"
    luck = f" Expect about {estimate} rather than {mean}: a first row is also lucky."
    return (
        f"{board.winner} is the best of {len(board.rows)}: on {_count(board.n_scenarios, 'scenario')} it "
        f"beats every other variant by more than luck explains ({_p(_closest([*board.rows]))})."
        f"{'' if mean == estimate else luck}"
    )


def _closest(judged: list[LeaderboardRow]) -> LeaderboardRow:
    """The row that the first is told from least."""
    return max(judged[1:], key=lambda row: 9.0 if row.p_value is None else row.p_value / (row.level or 1.0))


def _failed_test(judged: list[LeaderboardRow], *, groups: str) -> str:
    """Why there is no winner although the paired test alone would name one; empty if it would not."""
    rivals = judged[1:]
    if not all(row.p_values.get("paired", 1.0) < (row.level or 0.0) for row in rivals):
        return ""
    rival = _closest(judged)
    name, p = rival.combination, rival.p_values
    if p.get("clusters", 0.0) >= max(p.get("pooled", 0.0), rival.level or 0.0):
        ahead = f"it is ahead for {rival.clusters_ahead} of {rival.n_clusters} {groups}"
        return f"its lead over {name} rests on few {groups}: {ahead} ({_p(rival)})"
    return f"its lead over {name} is small for the usual spread of scores on this board ({_p(rival)})"


def _p(row: LeaderboardRow) -> str:
    """The p of a row with the level that it must pass."""
    if row.p_value is None:
        return "too few shared scenarios to test it"
    shown = "p < .001" if row.p_value < 0.001 else f"p {row.p_value:.3f}".replace("0.", ".")
    return f"{shown}; a winner needs p < {row.level:.2g}".replace("0.", ".")


def _plain(value: float) -> str:
    """Two digits that count, never with an exponent: `0.75`, `0.0025`, `5`, `250`."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _advice(board: Leaderboard) -> str:
    row = next((row for row in board.rows if row.combination == board.recommended), None)
    if row is None:
        return ""
    name, margin = row.combination, f"{_plain(board.margin)} points"
    if board.recommended_because == "best guess":
        if row.p_loss is None:
            return f"{name} is the best guess, as no variant has a higher mean."
        loss = figures.share(row.p_loss)
        return (
            f"{name} is the best guess: with {loss} probability it is more than {margin} worse than the best."
        )
    sure = figures.share(None if row.p_loss is None else 1 - row.p_loss)
    bound = f"at most {margin} worse than the best with {sure} probability"
    if board.recommended_because == "cheapest":
        return f"Ship {name}: it is the cheapest variant that is close enough to the best, {bound}."
    if board.recommended_because == "smallest":
        return (
            f"Ship {name}: it is one of the smallest variants that are close enough to the best, {bound} "
            "(speeds of different hosts are not compared)."
        )
    return f"Ship {name}: it is {bound}."


def _outlook(board: Leaderboard, judged: list[LeaderboardRow]) -> str:
    unjudged = len(board.rows) - len(judged)
    if unjudged:
        return f"To say more, judge the {_count(unjudged, 'variant')} without any score."
    if board.exploratory:
        return "To say more, judge more scenarios: 8 show large differences, 24 moderate ones."
    if all(row.p_value is None for row in judged):
        return (
            f"To say more, judge all of them on the same scenarios: {judged[0].combination} shares fewer "
            "than two with any other."
        )
    waiting = f" ({_count(board.n_unjudged, 'candidate')} still unjudged)" if board.n_unjudged else ""
    return f"{_resolution(board)}{_needed(board)}{waiting}."


def _resolution(board: Leaderboard) -> str:
    if board.detectable is None:
        return "The scores are too much alike, or too noisy, to say how large a difference would show"
    return (
        f"With {_count(board.n_scenarios, 'scenario')} a true difference of about {board.detectable:.1f} "
        "points would show four times in five"
    )


def _needed(board: Leaderboard) -> str:
    if board.winner:
        return "; no more judging is needed to name the winner"
    if board.scenarios_needed is None:
        return "; some variants score the same, so no number of scenarios is known to part them"
    if board.scenarios_needed > _HOPELESS:
        return f"; to name a winner would take more than {_HOPELESS} scenarios, so treat them as equals"
    return (
        f"; if the differences are as large as they look, about {board.scenarios_needed} scenarios "
        "would name a winner"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
