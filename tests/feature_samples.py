"""Requests and users whose features are worth looking at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tipbench.bandit.asked import Candidate, Context, ScoreRequest
from tipbench.bandit.features import FEATURES
from tipbench.bandit.profiles import Profile

if TYPE_CHECKING:
    from tipbench.bandit.features import Vectors

TIPS = (
    "Walk the dog for 10 minutes",
    "Answer the customer's complaint before lunch",
    "Take half an hour to write the discussion part of the lab report",
    "Call your grandmother",
    "Go to bed early",
)
TASKS = ["write the discussion part of the lab report", "walk the dog", "call her grandmother", ""]


def request(**changed: Any) -> ScoreRequest:  # noqa: ANN401 - any field of a request
    said: dict[str, Any] = {
        "user_id": "u",
        "context": Context(hour=19.5, open_tasks=TASKS),
        "candidates": [Candidate(id=str(place), text=text) for place, text in enumerate(TIPS)],
    }
    return ScoreRequest(**{**said, **changed})


def of(*kinds: str, **changed: Any) -> ScoreRequest:  # noqa: ANN401 - any field of a request
    tips = [Candidate(id=str(place), kind=kind, text="Do it") for place, kind in enumerate(kinds)]
    return request(candidates=tips, **changed)


def lived() -> Profile:
    """A user to whom two kinds of tips happened differently."""
    profile = Profile()
    for turn in range(12):
        kind = "movement" if turn % 3 else "people"
        profile = profile.shown(kind, "egreedy", False)
        done = turn < 7
        profile = profile.ended(
            kind, "egreedy", float(done), "completed" if done else "dismissed", 1.7 * turn
        )
        profile = profile.dwelt(kind, 55.0 * turn)
    return profile


def column(made: Vectors, name: str, version: str = "v2") -> list[float]:
    rows: list[float] = made.x[:, FEATURES[version].names.index(name)].tolist()
    return rows
