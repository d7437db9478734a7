"""What the text of a tip tells: its kind, how much it asks of a person, and its words.

Plain rules that can be read and predicted, for tips that come without a kind. Any text is accepted: one
that says nothing known is of the kind `other` and of an effort judged by its length.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

_MOST_CHARACTERS = 4000
_MOST_WORDS = 300
_REMEMBERED = 4096
_WORD = re.compile(r"[^\W_]+")

_SAID = {
    "focus": """
        focus concentrate concentration deep distraction distractions silence mute notifications write
        draft finish single block undisturbed pomodoro timer study revise
    """,
    "planning": """
        plan planning list prioritise prioritize priority priorities schedule tomorrow calendar agenda
        goal goals decide order next sort pick choose prepare prep review
    """,
    "break": "break pause breather tea coffee snack water drink eat lunch window outside air",
    "movement": """
        walk stretch stretching move stand exercise run yoga jog cycle bike workout gym shoulders neck
        back legs stairs dance
    """,
    "admin": """
        email emails mail inbox message messages reply bill bills invoice invoices receipt receipts form
        forms book booking appointment order pay tax file errand errands groceries laundry tidy clean
    """,
    "people": """
        call phone text friend friends family mother father mum mom dad grandmother colleague colleagues
        team talk chat ask thank visit partner kids children customer
    """,
    "rest": """
        sleep rest nap bed relax breathe breathing meditate meditation bath lights dim screen screens wind
        unwind calm early night
    """,
}
KINDS = (*_SAID, "other")
_KIND_OF_WORD = {
    word: place for place, said in reversed(list(enumerate(_SAID.values()))) for word in said.split()
}

_COMMON_TEXT = """
    a about after all an and any are as at be before but by can do for from give go had has have her his
    how if in into is it its just let make more my no not now of off on once one or our out over she so
    some than that the their them then there they this to too up use was we what when which who will with
    you your
"""
_COMMON = frozenset(_COMMON_TEXT.split())

_FIRST_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER_WORDS = {
    **{word: n for n, word in enumerate(_FIRST_NUMBERS, start=1)},
    "half an": 0.5,
    "a": 1,
    "an": 1,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "ninety": 90,
}
_UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}
# A unit may stand right behind digits, not behind a word: "ah" is no hour.
_DURATION = re.compile(
    rf"\b(?:(\d{{1,4}}(?:[.,]\d{{1,2}})?)[\s-]?|({'|'.join(_NUMBER_WORDS)})[\s-])"
    r"(seconds?|secs?|minutes?|mins?|hours?|hrs?|h)\b",
)
_NEUTRAL_MINUTES = 15.0
_LARGEST_RATIO = 16.0
_NEUTRAL_WORDS = 20.0


class Reading(NamedTuple):
    """All that is read from one text."""

    kind: str
    effort: float
    words: frozenset[str]


def read(text: str) -> Reading:
    """Kind, effort and words together. The last few thousand texts are remembered, whoever asks."""
    return _read(text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS])


def kind_of(text: str) -> str:
    """The kind whose key words the text has most of (the earlier of `KINDS` on a tie), or `other`."""
    return read(text).kind


def effort(text: str) -> float:
    """How much the tip asks for, in [-1, 1]: by the longest duration it names, else by its length.

    15 minutes are 0, one minute is near -1, four hours are 1; without a duration 20 words are 0.
    """
    return read(text).effort


def words(text: str) -> frozenset[str]:
    """The words that carry meaning, folded so that case and typography make no difference."""
    return read(text).words


@lru_cache(maxsize=_REMEMBERED)
def _read(text: str) -> Reading:
    folded = _folded(text)
    said = _WORD.findall(folded)[:_MOST_WORDS]
    telling = frozenset(word for word in said if word not in _COMMON)
    return Reading(kind=_kind(said), effort=_effort(folded, len(said)), words=telling)


def _folded(text: str) -> str:
    """Without case and typography, and without marks on letters: at those, words would be cut in two."""
    folded = unicodedata.normalize("NFKC", text).casefold()[:_MOST_CHARACTERS]
    if folded.isascii():
        return folded
    return "".join([letter for letter in folded if not unicodedata.category(letter).startswith("M")])


def _kind(said: list[str]) -> str:
    votes = [0] * len(KINDS)
    for word in said:
        votes[_KIND_OF_WORD.get(word, -1)] += 1
    votes[-1] = 0
    most = max(votes)
    return KINDS[votes.index(most)] if most else "other"


def _effort(folded: str, length: int) -> float:
    minutes = max((_minutes(*parts) for parts in _DURATION.findall(folded)), default=0.0)
    if minutes > 0.0:
        return _bounded(math.log(minutes / _NEUTRAL_MINUTES) / math.log(_LARGEST_RATIO))
    return _bounded((length - _NEUTRAL_WORDS) / _NEUTRAL_WORDS)


def _minutes(digits: str, word: str, unit: str) -> float:
    count = float(digits.replace(",", ".")) if digits else _NUMBER_WORDS[word]
    return count * _UNITS[unit[0]]


def _bounded(value: float) -> float:
    return max(-1.0, min(1.0, value))
