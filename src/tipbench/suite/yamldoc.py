"""YAML as people mean it, with the line of everything.

Plain words stay words: `no`, `on` and `18:30` are text here, a number is a number only where it is written
the way it prints (`30`, `1.5`; `007` and `1.10` are text), and a key that is there twice is an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from tipbench.errors import SuiteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tipbench.suite.problems import Problems

DEEPEST = 20
MOST_NODES = 500_000
UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

Value = Union[str, int, float, bool, None, "list[Node]", "dict[str, Node]"]

# PyYAML is built with libyaml on most machines, and ten times faster there.
FASTEST: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,99})", re.ASCII)
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z][\w ,.'()/&+%€$-]*(?<! )")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value and the line to point at: the key's for a mapping's value, its own for a list's item.

    `end` is its last line, `column` that of its first character, `flow` whether it is written in brackets.
    """

    value: Value
    line: int
    end: int = 0
    column: int = 0
    flow: bool = False
    height: int = 0

    def plain(self) -> Any:  # noqa: ANN401 - JSON-like data of any shape
        """The value without its lines."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def parse_yaml(
    text: str, *, path: Path, problems: Problems, first_line: int = 1, loader: type[Any] = FASTEST
) -> Node:
    """The one document of a text; an empty one is a node of None. Raises SuiteError where it cannot go on."""
    events = _events(text, path=path, first_line=first_line, loader=loader)
    return _Composer(events, path=path, problems=problems, first_line=first_line).document()


def scalar(text: str) -> str | int | float | bool | None:
    """What a plain, unquoted word stands for."""
    if text in _WORDS:
        return _WORDS[text]
    return number(text)


def number(text: str) -> str | int | float:
    """The number that a text spells exactly as it would be printed, else the text itself."""
    if _WHOLE.fullmatch(text) and text != "-0":
        return int(text)
    if _REAL.fullmatch(text) and repr(float(text)) == text:
        return float(text)
    return text


def written(value: object) -> str:
    """A value on one line that reads back as it is; words that need no quotes have none."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and scalar(value) == value:
        return value
    return quoted(value)


def quoted(value: object) -> str:
    """A value on one line, its texts always in double quotes."""
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _events(text: str, *, path: Path, first_line: int, loader: type[Any]) -> Iterator[Event]:
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + mark.line if mark else None
        if mark and _indented_by_tab(text, mark.line):
            message = "a tab stands where YAML needs spaces; replace it with spaces"
            raise SuiteError(path, message, line=line) from None
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise SuiteError(path, f"is not valid YAML: {reason}", line=line) from None
    except yaml.YAMLError as error:
        raise SuiteError(path, f"is not valid YAML: {str(error).splitlines()[0]}") from None


class _Composer:
    """Builds nodes from the parser's events: no constructors run, and depth and size are bounded."""

    def __init__(self, events: Iterator[Event], *, path: Path, problems: Problems, first_line: int) -> None:
        self.path = path
        self.problems = problems
        self.first_line = first_line
        self.events = events
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.nodes = 0

    def document(self) -> Node:
        next(self.events)
        event = next(self.events)
        if isinstance(event, StreamEndEvent):
            return Node(value=None, line=self.first_line)
        root = self._node(next(self.events), depth=0)
        next(self.events)
        extra = next(self.events)
        if not isinstance(extra, StreamEndEvent):
            raise self._error("a second document begins here ('---'); a file holds one", extra)
        return root

    def _node(self, event: Event, *, depth: int) -> Node:
        if isinstance(event, AliasEvent):
            return self._aliased(event, depth)
        self._check_depth(depth, event)
        before = self.nodes
        node = self._built(event, depth)
        self._count(1, event)
        if isinstance(event, (ScalarEvent, CollectionStartEvent)) and event.anchor:
            self.anchors[event.anchor] = (node, self.nodes - before)
        return node

    def _built(self, event: Event, depth: int) -> Node:
        if isinstance(event, SequenceStartEvent):
            self._check_tag(event, "tag:yaml.org,2002:seq")
            return self._sequence(event, depth)
        if isinstance(event, MappingStartEvent):
            self._check_tag(event, "tag:yaml.org,2002:map")
            return self._mapping(event, depth)
        if isinstance(event, ScalarEvent):
            return Node(value=self._scalar(event), line=self._line(event), end=self._end(event))
        raise self._error("is not valid YAML", event)

    def _sequence(self, start: SequenceStartEvent, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self._node(event, depth=depth + 1))
        return self._collected(start, event, items, items)

    def _mapping(self, start: MappingStartEvent, depth: int) -> Node:
        items: dict[str, Node] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key, line = self._key(event), self._line(event)
            value = replace(self._node(next(self.events), depth=depth + 1), line=line)
            if key in items:
                message = f"the key '{key}' is already given on line {items[key].line}"
                self.problems.add(self.path, message, line=line)
            items.setdefault(key, value)
        return self._collected(start, event, items, list(items.values()))

    def _collected(
        self, start: CollectionStartEvent, stop: Event, value: Value, children: list[Node]
    ) -> Node:
        line, flow = self._line(start), bool(start.flow_style)
        end = self._end(stop) if flow else max([line, *(child.end for child in children)])
        height = 1 + max((child.height for child in children), default=0)
        column = start.start_mark.column if start.start_mark else 0
        return Node(value=value, line=line, end=end, column=column, flow=flow, height=height)

    def _key(self, event: Event) -> str:
        if not isinstance(event, ScalarEvent) or not event.value:
            raise self._error("a key must be a word", event)
        if event.value == "<<" and not event.style:
            raise self._error("merging with '<<' is not supported; write the keys out", event)
        self._check_text(event)
        return str(event.value)

    def _scalar(self, event: ScalarEvent) -> str | int | float | bool | None:
        self._check_text(event)
        if event.style or event.tag is not None:
            self._check_tag(event, *_TEXT_TAGS)
            return str(event.value)
        return scalar(event.value)

    def _check_text(self, event: ScalarEvent) -> None:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            raise self._error("holds half a character (a lone surrogate); remove it", event)

    def _check_tag(self, event: ScalarEvent | CollectionStartEvent, *known: str | None) -> None:
        if event.tag is not None and event.tag not in known:
            raise self._error(f"the tag '{event.tag}' is not supported; write plain values", event)

    def _aliased(self, event: AliasEvent, depth: int) -> Node:
        if event.anchor is None or event.anchor not in self.anchors:
            raise self._error(f"there is no anchor '&{event.anchor}' before this line", event)
        node, size = self.anchors[event.anchor]
        self._check_depth(depth + node.height, event)
        self._count(size, event)
        return replace(node, line=self._line(event), end=self._end(event))

    def _check_depth(self, depth: int, event: Event) -> None:
        if depth > DEEPEST:
            raise self._error(f"is nested more than {DEEPEST} deep", event)

    def _count(self, nodes: int, event: Event) -> None:
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            raise self._error(f"unfolds to more than {MOST_NODES} values", event)

    def _line(self, event: Event) -> int:
        return self.first_line + (event.start_mark.line if event.start_mark else 0)

    def _end(self, event: Event) -> int:
        """The last line that belongs to an event; a block's end mark is the start of what follows."""
        mark = event.end_mark
        if mark is None:
            return self._line(event)
        last = mark.line if mark.column else mark.line - 1
        return max(self._line(event), self.first_line + last)

    def _error(self, message: str, event: Event) -> SuiteError:
        return SuiteError(self.path, message, line=self._line(event))


def _indented_by_tab(text: str, line: int) -> bool:
    """Whether a tab is among the white space and dashes that begin this line."""
    lines = text.splitlines()
    return line < len(lines) and re.match(r"[ \t?-]*\t", lines[line]) is not None
