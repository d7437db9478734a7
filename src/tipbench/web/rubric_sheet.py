"""A rubric laid out for judging: for each scale its question, and what each score means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.web import prose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from tipbench.suite.rubric import Rubric, Scale
    from tipbench.web.prose import Block


@dataclass(frozen=True, kw_only=True)
class LevelSheet:
    """A score: its name in a word or two, what must hold for it, and examples. Any of these may be empty."""

    value: int
    title: str
    said: str
    examples: Markup


@dataclass(frozen=True, kw_only=True)
class ScaleSheet:
    name: str
    title: str
    question: str
    about: Markup
    low: int
    high: int
    levels: tuple[LevelSheet, ...]

    @property
    def has_examples(self) -> bool:
        return any(level.examples for level in self.levels)


@dataclass(frozen=True, kw_only=True)
class Sheet:
    scales: tuple[ScaleSheet, ...]
    whole: Markup


def sheet_of(rubric: Rubric) -> Sheet:
    """The rubric for the judge's page, highest score first. What it does not say of a score stays empty."""
    found = prose.blocks(prose.body_of(rubric.text))
    return Sheet(scales=tuple(_scale(scale, found) for scale in rubric.scales), whole=prose.html(found))


def _scale(scale: Scale, found: Sequence[Block]) -> ScaleSheet:
    heading, section = _section(found, scale.name, level=2)
    own = _until_heading(section)
    return ScaleSheet(
        name=scale.name,
        title=scale.name.replace("_", " "),
        question=_sentence(_after_colon(heading)),
        about=prose.html(own),
        low=scale.low,
        high=scale.high,
        levels=tuple(_level(value, section) for value in reversed(scale.levels)),
    )


def _level(value: int, section: Sequence[Block]) -> LevelSheet:
    heading, below = _section(section, str(value), level=3)
    own = _until_heading(below)
    return LevelSheet(
        value=value,
        title=prose.unmarked(_after_colon(heading)),
        said=" ".join(prose.unmarked(block.text) for block in own if block.kind != "quote"),
        examples=prose.html([block for block in own if block.kind == "quote"]),
    )


def _section(found: Sequence[Block], word: str, *, level: int) -> tuple[str, list[Block]]:
    """The heading of this level that begins with the word, and what stands below it."""
    for at, block in enumerate(found):
        if block.level == level and re.match(rf"{re.escape(word)}(?!\w)", block.text, re.IGNORECASE):
            below = found[at + 1 :]
            end = next((n for n, one in enumerate(below) if 0 < one.level <= level), len(below))
            return block.text, list(below[:end])
    return "", []


def _until_heading(found: Sequence[Block]) -> list[Block]:
    end = next((at for at, block in enumerate(found) if block.kind == "heading"), len(found))
    return list(found[:end])


def _after_colon(heading: str) -> str:
    return heading.partition(":")[2].strip()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
