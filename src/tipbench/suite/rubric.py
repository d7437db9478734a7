"""The scoring sheet: scales that a judge scores, flags that code sets, a formula that makes one number."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tipbench.errors import BadInput
from tipbench.suite.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.suite.formula import Formula

Unit = Literal["characters", "words"]

FLAGS = {
    "format_ok": "the reply had exactly the form that its prompt asked for",
    "overlong": "the text is longer than the limit",
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a judge gives a whole number from `low` to `high` for."""

    name: str
    low: int
    high: int

    @property
    def levels(self) -> range:
        return range(self.low, self.high + 1)


@dataclass(frozen=True, kw_only=True)
class Flag:
    """What code finds to be so or not, never the judge; it counts as 1 or 0."""

    name: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How long a candidate may be. Runs of white space count as one character and end a word."""

    most: int
    unit: Unit

    def exceeded_by(self, text: str) -> bool:
        words = unicodedata.normalize("NFC", text).split()
        return (len(words) if self.unit == "words" else len(" ".join(words))) > self.most


@dataclass(frozen=True, kw_only=True)
class Rubric:
    """A rubric; `text` is the whole file, and its hash is what a score is traced back to.

    `failure` is what a slot counts that holds nothing to judge.
    """

    id: str
    title: str
    scales: tuple[Scale, ...]
    flags: tuple[Flag, ...]
    overlong_limit: Limit | None
    composite: Formula
    failure: float
    text: str
    hash: str
    path: Path

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float:
        """The composite of one candidate. Every scale needs a score within it, every flag its value."""
        given = (*scores.items(), *flags.items())
        if given not in self._worked_out:
            self._worked_out[given] = self._score(scores, flags)
        return self._worked_out[given]

    @cached_property
    def _worked_out(self) -> dict[tuple[tuple[str, float], ...], float]:
        """Composites by what they were made of: thousands of candidates share some hundred of them."""
        return {}

    def _score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float:
        names = {scale.name: _within(scale, scores) for scale in self.scales}
        unknown = sorted(set(scores) - set(names))
        if unknown:
            raise BadInput(f"{self.id} has no scale '{unknown[0]}'{did_you_mean(unknown[0], names)}")
        for flag in self.flags:
            if flag.name not in flags:
                raise BadInput(f"{self.id} needs the flag '{flag.name}', which is not given")
            names[flag.name] = float(flags[flag.name])
        return self.composite.value(names)

    def is_overlong(self, text: str) -> bool:
        """Whether a candidate is over the limit; never where the rubric sets none."""
        return self.overlong_limit is not None and self.overlong_limit.exceeded_by(text)


def _within(scale: Scale, scores: Mapping[str, float]) -> float:
    if scale.name not in scores:
        raise BadInput(f"'{scale.name}' has no score")
    score = float(scores[scale.name])
    if not scale.low <= score <= scale.high:
        raise BadInput(f"'{scale.name}' is {score:g}, which is not between {scale.low} and {scale.high}")
    return score
