"""The proxy judge: a few open rules about words, in place of a judge until there is one.

It knows nothing of meaning, and English words only. Its scores show that everything works from end to end;
they are no ground for shipping anything, and whatever shows them calls them `proxy`.

Three qualities from 0 to 1, each spread evenly over the levels of its scale:

relevance      a third for each different longer word that the scenario has too, up to three
actionability  0.4 for beginning with something to do (0.2 for holding it), 0.3 for a number or a time,
               0.3 for 5 to 40 words
tone           1, less 0.25 for each exclamation mark, word in capitals or bossy word, plus 0.25 for each
               gentle word, within 0 and 1

Any other scale gets the mean of the three.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "proxy"

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_AMOUNT = re.compile(r"\d|\b(?:one|two|three|five|ten|minutes?|hours?|today|tonight|tomorrow|noon|first)\b")
_SAME_BEGINNING = 5


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMMON = _words("""
    about after also before could from have into just like make more much only other over should some than
    that their them then there these they this time today very want what when where which while will with
    would your
""")
_ACTIONS = _words("""
    add answer arrange ask block book break call check choose clean clear close cook cut decide do draft drink
    eat email finish fix focus get give go join keep leave list listen make meet move mute note open organise
    organize pack pause pick plan practice practise prepare put read remind remove reply rest review save
    schedule send set share skip sleep sort split start stop stretch take talk tell tidy track try turn use
    visit walk wash write
""")
_BOSSY = _words("must never always stupid lazy wrong fail failure bad obviously shame")
_GENTLE = _words("please perhaps maybe could might consider gently enjoy together thanks")


def proxy_scores(tip: str, scenario_text: str, scales: Sequence[tuple[str, int, int]]) -> Mapping[str, int]:
    """A whole number for every scale `(name, low, high)`, always the same for the same texts."""
    quality = {
        "relevance": _relevance(tip, scenario_text),
        "actionability": _actionability(tip),
        "tone": _tone(tip),
    }
    general = sum(quality.values()) / len(quality)
    return {
        name: low + int(quality.get(name.casefold(), general) * (high - low) + 0.5)
        for name, low, high in scales
    }


def _relevance(tip: str, scenario: str) -> float:
    return min(1.0, len(_topics(tip) & _topics(scenario)) / 3)


def _topics(text: str) -> set[str]:
    """The beginnings of the longer words, so that `meetings` and `meeting` are one."""
    words = _WORD.findall(text.casefold())
    return {word[:_SAME_BEGINNING] for word in words if len(word) > 3 and word not in _COMMON}


def _actionability(tip: str) -> float:
    words: list[str] = _WORD.findall(tip.casefold())
    begins, holds = bool(words) and words[0] in _ACTIONS, not _ACTIONS.isdisjoint(words)
    action = 0.4 if begins else 0.2 if holds else 0.0
    return action + 0.3 * bool(_AMOUNT.search(tip.casefold())) + 0.3 * (5 <= len(words) <= 40)


def _tone(tip: str) -> float:
    words: list[str] = _WORD.findall(tip)
    loud = tip.count("!") + sum(word.isupper() and len(word) > 3 for word in words)
    lower = [word.casefold() for word in words]
    bossy, gentle = (sum(word in kind for word in lower) for kind in (_BOSSY, _GENTLE))
    return min(1.0, max(0.0, 1 + 0.25 * (gentle - bossy - loud)))
