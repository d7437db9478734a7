"""Rubrics as pages show them: the little Markdown that they are written in, and nothing of HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from tipbench.compare.figures import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_BEGINS = re.compile(r"#{1,6}\s|>|[-*]\s|\d+[.)]\s")
_NUMBERED = re.compile(r"\d+[.)]\s+")
_MARKS = re.compile(r"\*\*(.+?)\*\*|\*(.+?)\*|`(.+?)`")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A heading (`level` above 0), or a paragraph, an item of a list, or a quotation."""

    kind: str
    text: str
    level: int = 0


def blocks(text: str) -> list[Block]:
    """The text in blocks; a line that begins nothing new goes on with what is above it."""
    found: list[list[str]] = []
    open_block = False
    for line in text.split("\n"):
        if not line.strip():
            open_block = False
        elif open_block and not _goes_apart(line, found[-1][0]):
            found[-1].append(line.strip().removeprefix("> "))
        else:
            found.append([line.strip()])
            open_block = not _HEADING.match(line)
    return [_block(" ".join(lines)) for lines in found]


def _goes_apart(line: str, first: str) -> bool:
    if first.startswith(">") and line.startswith(">"):
        return False
    return bool(_BEGINS.match(line))


def _block(text: str) -> Block:
    heading = _HEADING.match(text)
    if heading:
        return Block(kind="heading", text=heading[2], level=len(heading[1]))
    if text.startswith(">"):
        return Block(kind="quote", text=text.lstrip("> "))
    if text[:2] in {"- ", "* "}:
        return Block(kind="bullet", text=text[2:])
    if _NUMBERED.match(text):
        return Block(kind="number", text=_NUMBERED.sub("", text, count=1))
    return Block(kind="paragraph", text=text)


def body_of(text: str) -> str:
    """A rubric's text without the lines that are for code."""
    front = re.match(r"\A\ufeff?---[ \t]*\r?\n.*?\n---[ \t]*\r?\n", text, re.DOTALL)
    return text[front.end() :] if front else text


def html(found: list[Block], *, below: int = 2) -> Markup:
    """Blocks as HTML; headings are set `below` levels deeper than they are written."""
    return Markup("").join(_grouped(found, below))


def _grouped(found: list[Block], below: int) -> Iterator[Markup]:
    for kind, some in groupby(found, key=lambda block: block.kind):
        texts = [(block, _inline(block.text)) for block in some]
        if kind == "heading":
            for block, text in texts:
                tag = Markup(f"h{min(6, block.level + below)}")  # noqa: S704 - a number of ours
                yield Markup("<{0}>{1}</{0}>").format(tag, text)
        elif kind in {"bullet", "number"}:
            items = Markup("").join(Markup("<li>{}</li>").format(text) for _, text in texts)
            tag = Markup("ul") if kind == "bullet" else Markup("ol")
            yield Markup("<{0}>{1}</{0}>").format(tag, items)
        else:
            frame = "<blockquote><p>{}</p></blockquote>" if kind == "quote" else "<p>{}</p>"
            yield from (Markup(frame).format(text) for _, text in texts)  # noqa: S704 - one of two texts of ours


def _inline(text: str) -> Markup:
    parts: list[Markup] = []
    at = 0
    for mark in _MARKS.finditer(text):
        parts.append(_plain(text[at : mark.start()]))
        tag = Markup(("b", "em", "code")[(mark.lastindex or 1) - 1])  # noqa: S704 - one of three
        parts.append(Markup("<{0}>{1}</{0}>").format(tag, _plain(mark[mark.lastindex or 1])))
        at = mark.end()
    return Markup("").join([*parts, _plain(text[at:])])


def _plain(text: str) -> Markup:
    return escape(readable(text))


def code(text: str) -> Markup:
    """A sentence with what stands in backticks set as code."""
    parts = re.split(r"`(.+?)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(_plain(one)) if at % 2 else _plain(one)
        for at, one in enumerate(parts)
    )


def unmarked(text: str) -> str:
    """The text of a block without its marks."""
    return _MARKS.sub(lambda mark: mark[mark.lastindex or 1], text)
