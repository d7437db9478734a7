"""Anchors: texts of known quality, hidden among the others, so that a judge who drifts is noticed."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tipbench.records import JudgeKind

# A ledger keeps U+FFFD in their place, so a text is the same before and after it was recorded.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One judge's scores for an anchor."""

    judge: str
    kind: JudgeKind
    scores: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A text within a scenario, and what judges gave it. People's judgements go before those of agents."""

    id: str
    scenario_id: str
    text: str
    references: tuple[Reference, ...]

    @property
    def reference(self) -> dict[str, float]:
        """The mean on each scale: of the people's judgements if there are any, else of all."""
        used = self._used
        return {name: sum(one.scores[name] for one in used) / len(used) for name in used[0].scores}

    @property
    def n_references(self) -> int:
        """How many judgements went into the reference."""
        return len(self._used)

    @property
    def by_people(self) -> bool:
        return any(one.kind == "human" for one in self.references)

    @property
    def _used(self) -> tuple[Reference, ...]:
        people = tuple(one for one in self.references if one.kind == "human")
        return people or self.references


def normalised(text: str) -> str:
    """A text as it is compared with others: case, kinds of spaces and ways to write a letter do not count."""
    whole = _UNSTORABLE.sub("\ufffd", text)
    return " ".join(unicodedata.normalize("NFKC", whole).casefold().split())


def merge_banks(base: Iterable[Anchor], more: Iterable[Anchor]) -> tuple[Anchor, ...]:
    """Both banks in one, those of `base` first.

    An anchor that is in both, by its id or by its text under another id, has the judgements of both; where a
    judge gave two, the later bank's counts. An id that stands for two texts is refused with BadInput.
    """
    bank = BankInTheMaking()
    for anchor in (*base, *more):
        bank.add(anchor)
    return bank.anchors


class BankInTheMaking:
    """Anchors that are added one by one; what contradicts those that are there is refused with BadInput."""

    def __init__(self) -> None:
        self._by_id: dict[str, Anchor] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._kinds: dict[str, JudgeKind] = {}

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        return tuple(self._by_id.values())

    def add(self, anchor: Anchor) -> None:
        key, place = anchor.id.casefold(), (anchor.scenario_id, normalised(anchor.text))
        if key in self._by_id and self._ids.get(place) != key:
            raise BadInput(f"the anchor id '{anchor.id}' stands for another text already; choose another id")
        self._check_kinds(anchor)
        key = self._ids.setdefault(place, key)
        known = self._by_id.get(key)
        self._by_id[key] = _united(known, anchor) if known else anchor

    def _check_kinds(self, anchor: Anchor) -> None:
        for one in anchor.references:
            if self._kinds.get(one.judge, one.kind) != one.kind:
                message = (
                    f"the judge '{one.judge}' is '{self._kinds[one.judge]}' in one place and '{one.kind}'"
                )
                raise BadInput(f"{message} in another; use a name of its own for each")
        self._kinds |= {one.judge: one.kind for one in anchor.references}


def _united(known: Anchor, anchor: Anchor) -> Anchor:
    by_judge = {one.judge: one for one in (*known.references, *anchor.references)}
    return replace(known, references=tuple(by_judge.values()))
