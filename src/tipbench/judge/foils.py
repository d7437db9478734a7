"""Foils: a text of one scenario shown under another, where nobody who reads can find it relevant.

A foil that happens to fit would blame an honest judge. So it shares no word with the scenario it is shown
under, it is known to belong to its own, and the two scenarios have little in common. Where no text is
that certain, there is no foil.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tipbench.judge.candidates import normalised

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tipbench.judge.hidden import Anchor, Usage
    from tipbench.suite.rubric import Scale

_MOST_LOOKED_AT = 300
_MOST_ALIKE = 0.4
_RELEVANT = 0.875
_STEM = 4
NONE: frozenset[str] = frozenset()
_WORD = re.compile(r"[^\W\d_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMMON = _words("""
    about after again all also and another any are around ask away back because been before being both but
    can could day did does done down during each even every few find first for from get give has have help
    her here him his how into its just keep know last let like little long look make many may maybe might
    more most much must need new next not now off one only other our out over own put quick same see set she
    short should small some soon start still such sure take than that the their them then there these they
    this those through time today too try two under until use very via was way well were what when where
    which while who why will with would yet you your yours yourself
""")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text that belongs to a scenario; `anchor_id` is empty for a candidate of the experiment."""

    scenario_id: str
    text: str
    anchor_id: str = ""

    @cached_property
    def normalised(self) -> str:
        return normalised(self.text)

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems(self.text)


@dataclass(frozen=True, kw_only=True)
class Foil:
    """A text and the scenario that it is shown under."""

    scenario_id: str
    source: Source


def stems(text: str) -> frozenset[str]:
    """The beginnings of the words that mean something, so that `walk` and `walking` are one."""
    words = _WORD.findall(text.casefold())
    return frozenset(word[:_STEM] for word in words if len(word) > 2 and word not in _COMMON)


def scenario_stems(contexts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """What each scenario is about: its stems without those that every scenario has, such as `tasks:`."""
    found = {scenario_id: stems(context) for scenario_id, context in contexts.items()}
    everywhere = frozenset[str].intersection(*found.values()) if len(found) > 2 else NONE
    return {scenario_id: words - everywhere for scenario_id, words in found.items()}


def relevant_anchors(anchors: Iterable[Anchor], *, relevance: Scale) -> list[Source]:
    """The anchors that are beyond doubt about their own scenario."""
    least = relevance.low + _RELEVANT * (relevance.high - relevance.low)
    return [
        Source(scenario_id=anchor.scenario_id, text=anchor.text, anchor_id=anchor.id)
        for anchor in anchors
        if anchor.reference.get(relevance.name, relevance.low) >= least
    ]


def relevant_candidates(
    candidates: Sequence[tuple[str, str]], *, about: Mapping[str, frozenset[str]], rng: random.Random
) -> list[Source]:
    """Some candidates that share at least two longer words with their own scenario."""
    some = rng.sample(candidates, min(len(candidates), _MOST_LOOKED_AT))
    sources = [Source(scenario_id=scenario_id, text=text) for scenario_id, text in some]
    return [source for source in sources if _longer(source.stems & about.get(source.scenario_id, NONE)) >= 2]


def _longer(found: frozenset[str]) -> int:
    return sum(len(stem) == _STEM for stem in found)


def draw_foils(
    sources: Sequence[Source],
    *,
    n: int,
    room: Mapping[str, int],
    about: Mapping[str, frozenset[str]],
    shown: Collection[str],
    known: Collection[tuple[str, str]],
    usage: Usage,
    rng: random.Random,
) -> list[Foil]:
    """Up to `n` foils in scenarios with room, in different ones where possible.

    No text of `shown` (normalised) is a foil, nor is one twice: a text that is seen twice in a batch would
    give itself away. `known` has the (scenario id, normalised text) of what was written for a scenario, and
    so cannot be a foil there.
    """
    targets = rng.sample(sorted(room), len(room))
    taken, given, foils = set(shown), Counter[str](), list[Foil]()
    for target in targets * n:
        if len(foils) == n:
            break
        fitting = [
            source
            for source in sources
            if source.normalised not in taken
            and (target, source.normalised) not in known
            and _is_foreign(source, target, about)
        ]
        if fitting and given[target] < room[target]:
            best = _farthest(fitting, target, about=about, usage=usage, rng=rng)
            foils.append(Foil(scenario_id=target, source=best))
            taken.add(best.normalised)
            given[target] += 1
    return foils


def _is_foreign(source: Source, target: str, about: Mapping[str, frozenset[str]]) -> bool:
    home, there = about.get(source.scenario_id, NONE), about[target]
    if source.scenario_id == target or not home or not there or source.stems & there:
        return False
    return len(home & there) <= _MOST_ALIKE * min(len(home), len(there))


def _farthest(
    sources: Sequence[Source],
    target: str,
    *,
    about: Mapping[str, frozenset[str]],
    usage: Usage,
    rng: random.Random,
) -> Source:
    """The one whose scenario shares the fewest words with the target's, of those shown least lately."""
    rank = [
        (usage.age(source.anchor_id), len(about[source.scenario_id] & about[target]), rng.random(), n)
        for n, source in enumerate(sources)
    ]
    return sources[min(rank)[-1]]
