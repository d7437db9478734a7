"""A Markdown file with YAML front matter between two `---` lines: the form of rubrics and prompts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.errors import SuiteError
from tipbench.suite.problems import did_you_mean
from tipbench.suite.yamldoc import Node, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tipbench.suite.problems import Problems

_HEADING = re.compile(r"#[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*")


@dataclass(frozen=True, kw_only=True)
class Document:
    """Front matter (a node of None where there is none) and body, with the line on which the body begins."""

    front: Node
    body: str
    body_line: int


@dataclass(frozen=True, kw_only=True)
class Section:
    text: str
    line: int


def parse_document(text: str, *, path: Path, problems: Problems) -> Document:
    lines = text.split("\n")
    start = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != "---":
        return Document(front=Node(value=None, line=1), body=text, body_line=1)
    stop = next((index for index in range(start + 1, len(lines)) if lines[index].rstrip() == "---"), None)
    if stop is None:
        raise SuiteError(path, "the front matter that begins with '---' has no closing '---'", line=start + 1)
    front = parse_yaml("\n".join(lines[start + 1 : stop]), path=path, problems=problems, first_line=start + 2)
    return Document(front=front, body="\n".join(lines[stop + 1 :]), body_line=stop + 2)


def split_sections(
    document: Document, titles: Sequence[str], *, path: Path, problems: Problems
) -> dict[str, Section]:
    """The texts under the headings `# <title>`, by lower-case title; any other heading belongs to the text.

    A heading given twice, text before the first one and an empty section are problems.
    """
    lines = document.body.split("\n")
    marks = [(index, title) for index, line in enumerate(lines) if (title := _title(line, titles))]
    _check_headings(document, lines, marks, titles=titles, path=path, problems=problems)
    sections: dict[str, Section] = {}
    stops = [*(index for index, _ in marks[1:]), len(lines)]
    for (index, title), stop in zip(marks, stops, strict=False):
        section = _trimmed(lines[index + 1 : stop], first_line=document.body_line + index + 1)
        if title in sections:
            problems.add(path, f"the section '# {title.title()}' is there twice", line=section.line - 1)
        elif not section.text:
            problems.add(path, f"the section '# {title.title()}' is empty", line=document.body_line + index)
        sections.setdefault(title, section)
    return sections


def _title(line: str, titles: Sequence[str]) -> str | None:
    match = _HEADING.fullmatch(line)
    title = match["title"].casefold() if match else ""
    return title if title in titles else None


def _check_headings(
    document: Document,
    lines: Sequence[str],
    marks: Sequence[tuple[int, str]],
    *,
    titles: Sequence[str],
    path: Path,
    problems: Problems,
) -> None:
    first = marks[0][0] if marks else len(lines)
    for index, line in enumerate(lines[:first]):
        if line.strip():
            wanted = " and ".join(f"'# {title.title()}'" for title in titles)
            heading = _HEADING.fullmatch(line)
            near = did_you_mean(heading["title"], [title.title() for title in titles]) if heading else ""
            problems.add(
                path,
                f"this text is in no section; the sections are {wanted}{near}",
                line=document.body_line + index,
            )
            return


def _trimmed(lines: Sequence[str], *, first_line: int) -> Section:
    """The text without the blank lines around it, and the line on which it begins."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    if not filled:
        return Section(text="", line=first_line)
    text = "\n".join(lines[filled[0] : filled[-1] + 1]).rstrip()
    return Section(text=text, line=first_line + filled[0])
