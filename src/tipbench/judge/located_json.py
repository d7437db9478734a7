"""JSON with the line of every value, and a plain sentence for what people get wrong when they write it.

It reads what the standard library reads, but for what hides a mistake or an attack: a key that is there
twice, NaN and Infinity, brackets in brackets without end and numbers of hundreds of digits are refused.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Union

DEEPEST = 30
LONGEST_NUMBER = 400

Value = Union[str, int, float, bool, None, "list[Node]", "dict[str, Node]"]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBER_LIKE = re.compile(r"[-+.]*[0-9][0-9A-Za-z_.+-]*")
_WORD = re.compile(r"[-+]?\w+")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_SLIPS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "NaN": "null"}
_OTHER_QUOTES = "'`´‘’‚“”„«»"
_COMMENTS = ("//", "/*", "#")
_CLOSER = {"{": "}", "[": "]"}


class JsonMistake(ValueError):
    """What is wrong in one sentence, on which line, and where: the keys and places that lead there."""

    def __init__(self, message: str, *, line: int, path: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.path = path


@dataclass(frozen=True)
class Node:
    """A value and the line on which it begins."""

    value: Value
    line: int

    def plain(self) -> Any:  # noqa: ANN401 - JSON of any shape
        """The value without its lines."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def parse_json(text: str) -> Node:
    """The one value of a text; JsonMistake for the first thing that is not JSON."""
    return _Reader(text).document()


class _Reader:
    """One pass over the text. `path` is where it stands, and is left as it is where a mistake is found."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.path: list[str | int] = []
        self.line_ends = [match.start() for match in re.finditer("\n", text)]

    def document(self) -> Node:
        if not self._next():
            raise self._mistake("the file is empty")
        node = self._value()
        if self._next():
            raise self._mistake(f"there is something after the end: {self._here()}")
        return node

    def _line(self, at: int) -> int:
        return bisect_right(self.line_ends, at - 1) + 1

    def _mistake(self, message: str, *, at: int | None = None) -> JsonMistake:
        line = self._line(min(self.at if at is None else at, len(self.text.rstrip())))
        return JsonMistake(message, line=line, path=tuple(self.path))

    def _here(self) -> str:
        """What stands here, for a sentence."""
        rest = self.text[self.at : self.at + 20].split("\n")[0].strip()
        return ascii(rest) if not rest.isprintable() else f"'{rest}'"

    def _next(self) -> str:
        """The next character that is not white space, empty at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        if self.text.startswith(_COMMENTS, self.at):
            raise self._mistake(f"JSON has no comments; remove {self._here()}")
        return self.text[self.at : self.at + 1]

    def _value(self) -> Node:
        first, line = self._next(), self._line(self.at)
        if first in {"{", "["}:
            return Node(self._nested(first), line)
        if first == '"':
            return Node(self._string(), line)
        if _NUMBER_LIKE.match(self.text, self.at):
            return Node(self._number(), line)
        return Node(self._word(first), line)

    def _nested(self, opener: str) -> Value:
        if len(self.path) >= DEEPEST:
            raise self._mistake(f"more than {DEEPEST} brackets are open here")
        opened, self.at = self.at, self.at + 1
        return self._object(opened) if opener == "{" else self._list(opened)

    def _object(self, opened: int) -> dict[str, Node]:
        members: dict[str, Node] = {}
        more = self._next() != "}"
        self.at += not more
        while more:
            key = self._key(members, opened)
            self.path.append(key)
            members[key] = self._value()
            self.path.pop()
            more = self._goes_on(opened)
        return members

    def _list(self, opened: int) -> list[Node]:
        items: list[Node] = []
        more = self._next() != "]"
        self.at += not more
        while more:
            self.path.append(len(items))
            items.append(self._value())
            self.path.pop()
            more = self._goes_on(opened)
        return items

    def _key(self, members: dict[str, Node], opened: int) -> str:
        if self._next() != '"':
            raise self._no_key(opened)
        at, key = self.at, self._string()
        if key in members:
            raise self._mistake(f"'{key}' is there twice, first on line {members[key].line}", at=at)
        if self._next() != ":":
            shown = key if len(key) <= 40 else key[:40] + "…"
            raise self._mistake(
                f"after the key \"{shown}\" there must be ':'; is a quotation mark missing?", at=at
            )
        self.at += 1
        return key

    def _no_key(self, opened: int) -> JsonMistake:
        first = self.text[self.at : self.at + 1]
        if not first or first in "]}":
            return self._unclosed(opened)
        if first in _OTHER_QUOTES:
            return self._mistake(f'a key stands in double quotes ("), not in {first}')
        if first == ",":
            return self._mistake("there is a comma too many; remove it")
        if word := _WORD.match(self.text, self.at):
            return self._mistake(f'a key stands in double quotes: write "{word[0]}"')
        still_open = f"the '{{' of line {self._line(opened)} is still open"
        return self._mistake(
            f"here is {self._here()} where a key should be; a '}}' may be missing, for {still_open}"
        )

    def _goes_on(self, opened: int) -> bool:
        """Whether another value follows in what was opened there; else its bracket is passed."""
        ended, closer = self.at, _CLOSER[self.text[opened]]
        following = self._next()
        if following == closer:
            self.at += 1
            return False
        if following == ",":
            return self._after_comma(closer)
        if not following or following in "]}":
            raise self._unclosed(opened)
        raise self._no_comma(ended, following)

    def _after_comma(self, closer: str) -> bool:
        comma, self.at = self.at, self.at + 1
        following = self._next()
        if following == closer:
            raise self._mistake(f"there is a comma before '{closer}'; remove it", at=comma)
        return True

    def _no_comma(self, ended: int, following: str) -> JsonMistake:
        """What may follow tells a forgotten comma from a quotation mark inside a text."""
        if self.text[ended - 1] == '"' and (following.isalnum() or following in _OTHER_QUOTES):
            hint = 'a quotation mark inside a text is written \\"'
            return self._mistake(f"after the end of a text comes {self._here()}; {hint}", at=ended - 1)
        if following in '"{[' or following.isalnum() or following == "-":
            return self._mistake("a comma is missing after this", at=ended - 1)
        return self._mistake(f"here is {self._here()} where a comma or a closing bracket should be")

    def _unclosed(self, opened: int) -> JsonMistake:
        opener = self.text[opened]
        what = f"'{_CLOSER[opener]}' is missing: the '{opener}' of line {self._line(opened)} is not closed"
        found = self.text[self.at : self.at + 1]
        return self._mistake(f"{what} before this '{found}'" if found else f"{what} when the file ends")

    def _string(self) -> str:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise self._bad_string(error.pos) from None
        return str(value)

    def _bad_string(self, wrong: int) -> JsonMistake:
        found = self.text[wrong : wrong + 1]
        if wrong == self.at or found in {"", "\r", "\n"}:
            return self._mistake(
                "a quotation mark is missing: the text that begins here does not end on its line"
            )
        if found < " ":
            return self._mistake(f"inside a text {found!a} is written with a backslash", at=wrong)
        return self._mistake("a backslash in a text is written twice: \\\\", at=wrong)

    def _number(self) -> int | float:
        like = _NUMBER_LIKE.match(self.text, self.at)
        shown = like[0] if like else ""
        number = _NUMBER.fullmatch(shown)
        if number is None:
            raise self._mistake(f"'{shown[:40]}' is not a number as JSON writes it, such as 4")
        if len(shown) > LONGEST_NUMBER:
            raise self._mistake(f"here is a number of {len(shown)} digits")
        self.at += len(shown)
        return float(shown) if number[1] or number[2] else int(shown)

    def _word(self, first: str) -> bool | None:
        word = _WORD.match(self.text, self.at)
        if word and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        raise self._no_value(first, word[0] if word else "")

    def _no_value(self, first: str, word: str) -> JsonMistake:
        if not first:
            return self._mistake("the file ends where a value should be")
        if first in ",]}:":
            return self._mistake(f"a value is missing before '{first}'; write null to leave it open")
        if first in _OTHER_QUOTES:
            return self._mistake(f'a text stands in double quotes ("), not in {first}')
        if word.lstrip("+-") in {*_SLIPS, "Infinity"}:
            instead = _SLIPS.get(word, "null")
            return self._mistake(f"'{word}' is not JSON; write {instead}")
        if word:
            return self._mistake(f"a text stands in double quotes, but here is {self._here()} without them")
        return self._mistake(f"here is {self._here()} where a value should be")
