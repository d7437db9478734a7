"""What a judge answers for one item: a whole number on every scale, or nothing at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.suite.rubric import Scale

OVERLONG, NOTE = "overlong", "note"
LONGEST_NOTE = 2000

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Scores on all scales, or None for an item that was skipped.

    `overlong` is the judge's own flag; None keeps the code's. `readings` is as in `Verdict`.
    """

    scores: Mapping[str, float] | None = field(hash=False)
    overlong: bool | None = None
    note: str = ""
    readings: tuple[Mapping[str, float], ...] = field(default=(), hash=False)


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """What is wrong with an answer, and under which of its keys; empty for the answer as a whole."""

    key: str
    message: str


def answer_keys(scales: Sequence[Scale]) -> list[str]:
    """The keys that an answer has, in the order in which they are shown."""
    return [*(scale.name for scale in scales), OVERLONG, NOTE]


def read_answer(given: Mapping[str, object], *, scales: Sequence[Scale]) -> Answer | list[Mistake]:
    """The answer, or everything that is wrong with it. What is left out is as good as None."""
    mistakes = list(_mistakes(given, scales))
    if mistakes:
        return mistakes
    scores = {scale.name: value for scale in scales if isinstance(value := given.get(scale.name), int)}
    overlong, note = given.get(OVERLONG), given.get(NOTE)
    return Answer(
        scores=scores or None,
        overlong=overlong if isinstance(overlong, bool) else None,
        note=note if isinstance(note, str) else "",
    )


def unwritable(text: str) -> str | None:
    """What in a text cannot be kept, for a sentence, or None."""
    found = _UNWRITABLE.search(text)
    return f"the character {found[0]!a}, which cannot be kept" if found else None


def _mistakes(given: Mapping[str, object], scales: Sequence[Scale]) -> Iterator[Mistake]:
    known = answer_keys(scales)
    unknown = [key for key in given if key not in known]
    for key in unknown:
        near = did_you_mean(key, known) or f"; there are {listed(known)}"
        yield Mistake(key=key, message=f"there is no '{key}' to judge{near}")
    for scale in scales:
        wrong = _wrong_score(given.get(scale.name), scale)
        if wrong:
            yield Mistake(key=scale.name, message=f"{scale.name} is {wrong}")
    if not unknown:
        yield from _incomplete(given, scales)
    yield from _wrong_extras(given)


def _wrong_score(value: object, scale: Scale) -> str | None:
    wanted = f"a whole number from {scale.low} to {scale.high}"
    if value is None:
        return None
    if isinstance(value, bool):
        return f"{str(value).lower()}; write {wanted}"
    if isinstance(value, int):
        within = scale.low <= value <= scale.high
        return None if within else f"{_short(str(value))}, which is not between {scale.low} and {scale.high}"
    if isinstance(value, float):
        whole = value.is_integer() and scale.low <= value <= scale.high
        return f"{value!r}; write {int(value) if whole else wanted}"
    if isinstance(value, str):
        number = value.strip()
        levels = {str(level) for level in scale.levels}
        instead = f"{number} without quotation marks" if number in levels else wanted
        return f"the text {_short(ascii(value))}; write {instead}"
    return f"no number; write {wanted}"


def _incomplete(given: Mapping[str, object], scales: Sequence[Scale]) -> Iterator[Mistake]:
    missing = [scale.name for scale in scales if given.get(scale.name) is None]
    if missing and len(missing) < len(scales):
        message = f"{listed(missing)} has no score, but the others have; fill in all scales or none"
        yield Mistake(key=missing[0], message=message)
    elif missing and given.get(OVERLONG) is not None:
        message = "overlong is filled in, but no score is; fill in the scores too, or set it to null"
        yield Mistake(key=OVERLONG, message=message)


def _wrong_extras(given: Mapping[str, object]) -> Iterator[Mistake]:
    overlong, note = given.get(OVERLONG), given.get(NOTE)
    if not (overlong is None or isinstance(overlong, bool)):
        yield Mistake(key=OVERLONG, message="overlong is neither true, false nor null; write one of them")
    if not (note is None or isinstance(note, str)):
        yield Mistake(key=NOTE, message="note is neither a text nor null; write it in double quotes")
    elif note and len(note) > LONGEST_NOTE:
        yield Mistake(key=NOTE, message=f"note is longer than {LONGEST_NOTE} characters; shorten it")
    elif note and (held := unwritable(note)):
        yield Mistake(key=NOTE, message=f"note holds {held}; remove it")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
