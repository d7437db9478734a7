"""What a judge reads after a submission.

The replies have words only. A number, a scale or a direction would be a hint from which a judge can find the
hidden items or their reference scores. An admin reads the numbers in `judge status`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.errors import CheckFailed, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.judge.gate import Drift, State

_REJECTED = (
    "is rejected and nothing of it is recorded. Its scores differ from the reference scores more than chance "
    "explains."
)
_AGAIN = (
    "Read the rubric's examples again, read each scenario before its texts, and judge the whole batch afresh."
)
_CLOSED = "because its scores were rejected three times"
_NEXT = "Take a new batch; if there is none, ask an admin to release this one."
REJECTED_BEFORE = f"This batch {_REJECTED} {_AGAIN}"

_ACCEPTED: dict[State, str] = {
    "ok": "The scores agree with the reference scores, as far as one batch can tell.",
    "warn": (
        "The scores differ somewhat from the reference scores: read the rubric's examples again before the "
        "next batch."
    ),
    "off": "Judge drift is not checked, because the suite has no anchors here.",
    "unchecked": "Judge drift is not checked in this batch.",
}


class Rejected(CheckFailed):
    """A submission that the checks rejected. The message names the batch and has no other number.

    `reason` has the numbers. Only an admin may read it.
    """

    def __init__(self, batch_id: str, *, closes: bool, reason: str = "") -> None:
        rest = f"It is closed now, {_CLOSED}. {_NEXT}" if closes else _AGAIN
        self.words = f"This batch {_REJECTED} {rest}"
        self.reason = reason
        self.closes = closes
        super().__init__(f"batch {batch_id} {_REJECTED} {rest}")


class NothingLeft(NotFound):
    """No candidate to hand out. The message also has a command, which `words` for judges leave out."""

    def __init__(self, words: str, command: str = "") -> None:
        super().__init__(words + command)
        self.words = words


class BatchClosed(CheckFailed):
    """A batch that takes no submission, or a judge who gets no new batch because of it."""

    def __init__(self, message: str, *, words: str = "") -> None:
        super().__init__(message)
        self.words = words or message


def closed(batch_id: str) -> BatchClosed:
    """The refusal of a submission of a closed batch."""
    return BatchClosed(
        f"batch {batch_id} is closed, {_CLOSED}. {_NEXT}", words=f"This batch is closed, {_CLOSED}. {_NEXT}"
    )


def no_other_texts(batch_id: str, *, options: Sequence[str] = ()) -> BatchClosed:
    """The refusal of a new batch where the suite has no texts left to check the judge with."""
    why = f"{_CLOSED}, and the suite has no other texts to check the next one with"
    release = shlex.join(["tipbench", "judge", "release", batch_id, *options])
    return BatchClosed(
        f"batch {batch_id} is closed, {why}. An admin can release it: {release}",
        words=f"Your batch is closed, {why}. Ask an admin to release it.",
    )


@dataclass(frozen=True, kw_only=True)
class CheckWords:
    """The result of the checks of an accepted submission, as a judge may read it."""

    state: str
    reason: str
    accepted: bool


def check_words(drift: Drift, *, whole: bool) -> CheckWords:
    """The result in words. The result of a part stays unsaid: a part may be one item, and that one hidden."""
    if not whole:
        return CheckWords(
            state="unchecked", reason="A part of the batch is recorded.", accepted=drift.accepted
        )
    if drift.accepted:
        reason = "The scores differ from the reference scores, and are accepted all the same."
        return CheckWords(state="warn", reason=reason, accepted=True)
    return CheckWords(state=drift.state, reason=_ACCEPTED.get(drift.state, ""), accepted=False)
