"""JSON values inside a text, mended where broken; what was left unfinished is cut off, never completed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import json_repair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_DEPTH = 32
_MAX_VALUES = 200
_MAX_MENDED = 100_000

_QUOTES = {'"': '"', "'": "'", "“": "”“", "”": "”", "„": "“”", "«": "»", "‘": "’'"}
_OPENER = re.compile(r"""\[\s*(?=["'“”„«‘\[{])|\{\s*(?=["'“”„«‘\[{]|\w{1,40}\s*:)""")
_VALUE_AHEAD = r"""\s*(?:["'“”„«‘\[\]{},]|-?\d|(?:true|false|null|None|NaN|-?Infinity)\b|\.\.\.|//|\Z)"""
_ENDS_STRING = re.compile(rf"""\s*(?:[\]}}]|,{_VALUE_AHEAD}|\Z)|\s+["“„«]""")
_ENDS_KEY = re.compile(r"\s*:")
_ENDS_LISTED_KEY = re.compile(r"""\s*:\s*["'“„«]""")
_PLAIN = re.compile(r"""[^"'“”„«‘\[\]{}]+""")
_NOTHING = re.compile(r"-?\b(?:NaN|Infinity|None|undefined)\b")
_UNSAFE = re.compile(r"""\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\?[\x00-\x1f"'\\]""")


class Members(tuple[tuple[str, object], ...]):
    """A JSON object's members in order: small models repeat a key, and a dict would keep only the last."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value found in a text: `whole` JSON, `mended`, or what was complete before it was `cut`."""

    value: object
    state: Literal["whole", "mended", "cut"]


def decoded(text: str) -> object:
    """The value of a text that is JSON from end to end, else None. Numbers count for nothing."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def begins_value(text: str) -> bool:
    """Whether the text starts like a JSON list or object that holds something."""
    return bool(_OPENER.match(text))


def values(text: str, *, is_prose: Callable[[str], bool]) -> Iterator[Value]:
    """JSON values in order of appearance; `is_prose` says of a line's beginning that what follows is text.

    What was opened and never closed is the last one: brackets inside it belong to its strings.
    """
    at = 0
    for _ in range(_MAX_VALUES):
        start = _next_opener(text, at, is_prose)
        if start is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, start)
            yield Value(value=value, state="whole")
        except (ValueError, RecursionError):
            found, at = _mend(text, start)
            yield found


def _next_opener(text: str, at: int, is_prose: Callable[[str], bool]) -> int | None:
    while match := _OPENER.search(text, at):
        line = text.rfind("\n", 0, match.start()) + 1
        if not is_prose(text[line : match.start()][:200]):
            return match.start()
        at = text.find("\n", match.start())
        if at < 0:
            return None
    return None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _no_number(_digits: str) -> None:
    """A number is never wanted here, and reading one of a million digits takes hours."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=Members, parse_constant=_no_constant, parse_int=_no_number, parse_float=_no_number
)


def _mend(text: str, start: int) -> tuple[Value, int]:
    """The broken value that begins at `start`, and where to read on."""
    scan = _Scan(text[: start + _MAX_MENDED], start)
    scan.run()
    if scan.too_deep:
        return Value(value=None, state="cut"), len(text)
    if scan.open:
        return Value(value=_repaired(scan.cut_off()), state="cut"), len(text)
    return Value(value=_repaired("".join(scan.out)), state="mended"), scan.at


def _repaired(source: str) -> object:
    value = decoded(source)
    return value if value is not None else _with_members(json_repair.loads(source, skip_json_loads=True))


def _with_members(value: object) -> object:
    if isinstance(value, dict):
        return Members((str(key), _with_members(item)) for key, item in value.items())
    return [_with_members(item) for item in value] if isinstance(value, list) else value


class _Scan:
    """One pass over a broken JSON value, up to where it closes or the text ends.

    A quotation mark closes a string only where something follows that can follow a string; any other is
    part of the text (`"Say "hi" to Bo", "…"`). Strings come out in JSON's own quotation marks.
    """

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = start
        self.out: list[str] = []
        self.open: list[tuple[str, int]] = []
        self.too_deep = False

    def run(self) -> None:
        while self.at < len(self.text):
            self._step()
            if not self.open or self.too_deep:
                return

    def cut_off(self) -> str:
        """What was read before the end came, without the object that the end cut in two."""
        if len(self.open) > 1 and self.open[-1][0] == "{":
            _, place = self.open.pop()
            del self.out[place:]
        closers = ["]" if kind == "[" else "}" for kind, _ in reversed(self.open)]
        return "".join(self.out).rstrip(" \t\r\n,") + "".join(closers)

    def _step(self) -> None:
        plain = _PLAIN.match(self.text, self.at)
        if plain:
            self.out.append(_NOTHING.sub("null", plain[0]))
            self.at = plain.end()
        elif self.text[self.at] in _QUOTES:
            self._string(self.text[self.at])
        else:
            self._bracket(self.text[self.at])

    def _bracket(self, char: str) -> None:
        self.at += 1
        if char in "[{":
            self.open.append((char, len(self.out)))
            self.too_deep = len(self.open) > _MAX_DEPTH
            self.out.append(char)
        else:
            kind, _ = self.open.pop()
            self.out.append("]" if kind == "[" else "}")

    def _string(self, mark: str) -> None:
        begin = self.at + 1
        end = self._end_of_string(begin, _QUOTES[mark])
        self.at = len(self.text) if end is None else end + 1
        if end is not None:
            self.out.append(_quoted(self.text[begin:end]))

    def _end_of_string(self, begin: int, marks: str) -> int | None:
        """Where the string ends. At the end of the text it must be beyond doubt."""
        doubtful = False
        for match in re.compile(rf"\\.|[{marks}]", re.DOTALL).finditer(self.text, begin):
            if match[0][0] == "\\":
                continue
            if self._may_end(match.end()):
                unsure = doubtful and not self.text[match.end() :].strip()
                return None if unsure else match.start()
            doubtful = True
        return None

    def _may_end(self, at: int) -> bool:
        key = _ENDS_KEY if self.open[-1][0] == "{" else _ENDS_LISTED_KEY
        return bool(key.match(self.text, at) or _ENDS_STRING.match(self.text, at))


def _quoted(raw: str) -> str:
    """A string's inside as JSON: escapes that JSON knows stay, everything else stands for itself."""
    return '"' + _UNSAFE.sub(_escaped, raw) + '"'


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1 and found[1] in "'\n":
        return json.dumps(found[1])[1:-1]
    return found if len(found) > 1 else json.dumps(found)[1:-1]
