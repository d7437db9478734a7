"""What a leaderboard says, in two sentences that need no statistics to be understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow

_HOPELESS = 1000


def sentences(board: Leaderboard, *, advise: bool = True) -> tuple[str, str]:
    """What can be said and what to do; and what it would take to say more.

    Without `advise` nothing is said about what to ship: for scores that are no ground for it.
    """
    judged = [row for row in board.rows if row.mean is not None]
    if not judged:
        return "Nothing is judged yet, so nothing can be said.", _judge_first(board)
    if len(board.rows) == 1:
        only = judged[0]
        return (
            f"{only.combination} is the only combination, so there is nothing to compare it with.",
            "Collect another model or prompt version on the same scenarios to learn which is better.",
        )
    return _finding(board, judged, advise=advise), _outlook(board, judged)


def _judge_first(board: Leaderboard) -> str:
    if board.n_unjudged:
        return f"To say more, judge the {_count(board.n_unjudged, 'candidate')} waiting."
    return "Collect some cells and judge them first."


def _finding(board: Leaderboard, judged: list[LeaderboardRow], *, advise: bool) -> str:
    if board.winner:
        return _winner_sentence(board, judged[0], advise=advise)
    if board.n_scenarios < 2:
        return (
            f"{judged[0].combination} has the highest score, but one scenario cannot tell skill from luck, "
            "so there is no winner."
        )
    tied = sum(row.tied_for_first for row in judged)
    if tied == 1:
        return _first_but_not_winner(board, judged, advise=advise)
    return (
        f"There is no single winner: {tied} of {len(board.rows)} combinations share the first place, as "
        f"{board.n_scenarios} scenarios cannot tell them apart{_advice(board) if advise else ''}."
    )


def _winner_sentence(board: Leaderboard, top: LeaderboardRow, *, advise: bool) -> str:
    mean, estimate = f"{top.mean:.1f}", f"{top.mean if top.estimate is None else top.estimate:.1f}"
    luck = f" (expect about {estimate} of it rather than {mean}, as whatever comes first also had some luck)"
    expect = "" if mean == estimate else luck
    ship = ", so ship it" if advise else ""
    return (
        f"{board.winner} is the best of {len(board.rows)}: on {_count(board.n_scenarios, 'scenario')} "
        f"it beats every other combination by more than luck explains{ship}{expect}."
    )


def _first_but_not_winner(board: Leaderboard, judged: list[LeaderboardRow], *, advise: bool) -> str:
    first = judged[0].combination
    waiting = len(board.rows) - len(judged)
    if waiting:
        unjudged = _count(waiting, "combination")
        return f"{first} is ahead of all that is judged, but {unjudged} cannot be placed without any score."
    return f"{first} is probably the best, though not beyond doubt{_advice(board) if advise else ''}."


def _advice(board: Leaderboard) -> str:
    if board.recommended_because == "cheapest":
        why = "is no worse as far as the data can tell and the cheapest to run"
        return f"; {board.recommended} {why}, so ship that one"
    if board.recommended_because == "smallest":
        why = "is no worse as far as the data can tell and none of them is smaller"
        return (
            f"; {board.recommended} {why}, so ship that one (latencies of different hosts are not compared)"
        )
    return f"; if you must choose now, take {board.recommended}, which has the highest mean"


def _outlook(board: Leaderboard, judged: list[LeaderboardRow]) -> str:
    unjudged = len(board.rows) - len(judged)
    if unjudged:
        return f"To say more, judge the {_count(unjudged, 'combination')} without any score."
    if board.n_scenarios < 2:
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
        return "The scores are too much alike to say how large a difference would show"
    return (
        f"With {_count(board.n_scenarios, 'scenario')} a true difference of about {board.detectable:.1f} "
        "points would show four times in five"
    )


def _needed(board: Leaderboard) -> str:
    if board.winner:
        return "; no more judging is needed to name the winner"
    if board.scenarios_needed is None:
        return "; some combinations score the same, so no number of scenarios is known to part them"
    if board.scenarios_needed > _HOPELESS:
        return f"; to name a winner would take more than {_HOPELESS} scenarios, so treat them as equals"
    return (
        f"; if the differences are as large as they look, about {board.scenarios_needed} scenarios "
        "would name a winner"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
