"""Reading what a small model wrote: a ladder of ways, each more forgiving than the one before.

strict    the whole reply is JSON (or, where it is to be one text, that text)
fenced    it is, once thinking, a code fence, or quotation marks around a text are taken off
wrapped   JSON values stand somewhere in the reply
repaired  they do after mending: an unfinished tip is cut off first, so that half a tip never passes for one
lines     there is no JSON, but there are numbered or bulleted lines
none      nothing can be read

The raw reply is kept elsewhere, so what is dropped here is not lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tipbench.engine.loose_json import Members, Value, begins_value, decoded, values
from tipbench.records import How, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Form = Literal["json", "text"]

_MAX_DEPTH = 32
_THINKING = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_LANGUAGE = re.compile(r"[ \t]*[\w+-]*[ \t]*\r?\n|[ \t]*json\b")
_TEXT_OBJECT = re.compile(r"""\{\s*["'“]?text["'”]?\s*:\s*["'“]""")
_ESCAPED_JSON = re.compile(r'[\[{]\s*\\"')

_ITEM = re.compile(
    r"""(?P<indent>[ \t]*)(?:>[ \t]*)?(?:\#{1,6}[ \t]*)?
    (?:(?P<open>\*\*|__|\*|_)?
       (?P<number>\(?\d{1,3}(?:[.)]+(?![\d.])|:(?=\s|\*|$)|[ ]?[-–—][ ](?!\d))
                 |[^\W\d_]{2,14}[ ]?\#?\d{1,2}[ ]?(?::(?=\s|\*|$)|[-–—][ ])
                 |(?i:tip|step|idea)[ ]?\#?\d{1,2}[.)](?=\s|\*|$))
       (?P<close>\*\*|__|\*|_)?:?
      |(?P<bullet>[-*+–—](?=\s|$)|[•◦‣▪●○∙·✓✔✅➤►▶→👉]\ufe0f?)(?:[ \t]*\[[ xX]?\])?)
    [ \t]*(?P<text>.*)""",
    re.VERBOSE,
)
_TITLE_ONLY = re.compile(r"(?:\*\*|__).*(?:\*\*|__):?|.*:|")
_RULE = re.compile(r"\s*(?:[-*_=]{3,}|`{3,}.*|~{3,}.*|\#{1,6}\s.*)\s*")

_BODY_KEYS = ("tip", "text", "advice", "suggestion", "content", "body", "description", "details", "message")
_TITLE_KEYS = ("title", "name", "heading", "headline")
_UNPRINTABLE = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127, 0xFEFF])
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class _Found:
    how: How
    tips: Sequence[str]
    form: Form | None = None


def read_reply(
    text: str,
    *,
    kind: Literal["list", "text"],
    n: int,
    fenced_ok: bool,
    cut: bool,
    asked: Form | None = None,
) -> Reading:
    """The candidates in a reply, stripped and in order, and how they were found.

    `format_ok` means: read as `strict` (or `fenced` where the prompt allows it), nothing but non-empty
    strings in a bare list (or one text), and not `cut`. The number of tips is no part of it: a missing
    tip is already an empty slot, and tips beyond `n` are kept but not scored. `asked` tells apart what
    else would both do: a text as it is from one inside `{"text": …}`, and JSON from a list in lines;
    without it a list is asked for as JSON, and a text may come either way.

    Where a reply holds several JSON values, the first that has `n` tips by itself is the answer, else all
    of them in a row.
    """
    rungs = _list_rungs(text, n=n, cut=cut) if kind == "list" else _text_rungs(text)
    forms: set[Form | None] = {asked} if asked else {"json"} if kind == "list" else {"json", "text"}
    for found in rungs:
        tips = tuple(tip for tip in map(_clean, found.tips) if tip)
        if tips:
            rung_ok = found.how in {"strict", "lines"} or (found.how == "fenced" and fenced_ok)
            all_ok = rung_ok and found.form in forms and len(tips) == len(found.tips)
            return Reading(candidates=tips, how=found.how, format_ok=all_ok and not cut)
    return Reading(candidates=(), how="none", format_ok=False)


def _list_rungs(text: str, *, n: int, cut: bool) -> Iterator[_Found]:
    text = text.strip("\ufeff \t\r\n")
    yield _whole(text, how="strict")
    bare = _without_thinking(text)
    yield _whole(_without_fence(bare), how="fenced")
    yield _embedded(bare, n=n)
    if _ESCAPED_JSON.search(bare):
        yield replace(_embedded(bare.replace('\\"', '"'), n=n), how="repaired")
    if not begins_value(_without_fence(bare)):
        tips = _listed(bare)
        yield _Found(how="lines", tips=tips[:-1] if cut else tips, form="text")


def _text_rungs(text: str) -> Iterator[_Found]:
    """A reply that is one text: all of it, or the `text` of an object; an unfinished object has none."""
    text = text.strip("\ufeff \t\r\n")
    inner = _without_fence(_without_thinking(text))
    plain = _unquoted(inner)
    yield _Found(how=_taken_off(text, inner), tips=_texts_in(decoded(inner)), form="json")
    if start := _TEXT_OBJECT.search(inner):
        for found in values(inner[start.start() :], is_prose=_is_item):
            how: How = "wrapped" if found.state == "whole" else "repaired"
            yield _Found(how=how, tips=[] if found.state == "cut" else _texts_in(found.value))
    if not _TEXT_OBJECT.match(inner) and not _texts_in(decoded(inner)):
        yield _Found(how=_taken_off(text, plain), tips=[plain], form="text")


def _taken_off(text: str, inner: str) -> How:
    return "strict" if inner == text else "fenced"


def _texts_in(value: object) -> list[str]:
    members = value if isinstance(value, Members) else ()
    return [text for key, text in members if key == "text" and isinstance(text, str)][:1]


def _whole(text: str, *, how: How) -> _Found:
    value = decoded(text)
    tips = _tips_in(value)
    return _Found(how=how, tips=tips, form="json" if value == tips else None)


def _embedded(text: str, *, n: int) -> _Found:
    """The tips of the JSON values that stand in a text."""
    found = [(value, _tips_of(value)) for value in values(text, is_prose=_is_item)]
    enough = [one for one in found if len(one[1]) >= n]
    used = [one for one in enough[:1] or found if one[1]]
    how: How = "wrapped" if all(value.state == "whole" for value, _ in used) else "repaired"
    return _Found(how=how, tips=[tip for _, tips in used for tip in tips])


def _without_thinking(text: str) -> str:
    """The reply after its thinking; thinking that never ends leaves nothing, as drafts are not answers."""
    text = _THINKING.sub("", text)
    ends = [match.end() for match in _THOUGHT_END.finditer(text)]
    return text[ends[-1] :].strip() if ends else text.strip()


def _without_fence(text: str) -> str:
    """The inside of the code fence that holds all of the text."""
    mark = text[:3]
    inner = text.strip(mark[:1])
    if mark not in {"```", "~~~"} or not text.endswith(mark) or mark in inner:
        return text
    language = _LANGUAGE.match(inner)
    return inner[language.end() :].strip() if language else inner.strip()


def _unquoted(text: str) -> str:
    """The text inside quotation marks that hold all of it; marks inside it mean that they do not."""
    if len(text) < 2 or text[0] not in '"“«' or text[-1] not in '"”»':
        return text
    value = decoded(text)
    if isinstance(value, str):
        return value.strip()
    inner = text[1:-1]
    return text if any(mark in inner for mark in '"“”«»') else inner.strip()


def _clean(tip: str) -> str:
    """Without the characters that no store takes and nobody sees."""
    return _LONE_SURROGATE.sub("\ufffd", tip.translate(_UNPRINTABLE)).strip()


# --- tips in a decoded value


def _tips_of(found: Value) -> list[str]:
    """A value's tips. Of an object that describes one tip and was cut, the rest of the tip may be missing."""
    if found.state == "cut" and isinstance(found.value, Members) and _described(_texts(found.value)):
        return []
    return _tips_in(found.value)


def _tips_in(value: object, depth: int = 0) -> list[str]:
    """Every tip, however it is nested."""
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, str):
        return _tips_in_string(value, depth)
    if isinstance(value, Members):
        return _tips_in_members(value, depth)
    if isinstance(value, list):
        return [tip for item in value for tip in _tips_in(item, depth + 1)]
    return []


def _tips_in_string(text: str, depth: int) -> list[str]:
    """The string itself, or the tips of the JSON that it holds."""
    inner = decoded(text) if text.lstrip()[:1] in {"[", "{"} else None
    return [tip for tip in _tips_in(inner, depth + 1) if tip.strip()] or [text]


def _tips_in_members(members: Members, depth: int) -> list[str]:
    """What lists inside the object hold; else the tip that it describes; else every text in it."""
    nested = [value for _, value in members if isinstance(value, (list, Members))]
    tips = [tip for value in nested for tip in _tips_in(value, depth + 1)]
    if tips:
        return tips
    texts = _texts(members)
    return _described(texts) or [tip for _, value in texts for tip in _tips_in_string(value, depth)]


def _texts(members: Members) -> list[tuple[str, str]]:
    return [(key.strip().casefold(), value) for key, value in members if isinstance(value, str)]


def _described(texts: Sequence[tuple[str, str]]) -> list[str]:
    """The tips of an object with known keys: a title goes before its description."""
    first = next((key for key in _BODY_KEYS for name, _ in texts if name == key), None)
    bodies = [value for name, value in texts if name == first]
    titles = [value for name, value in texts if name in _TITLE_KEYS]
    if len(titles) == len(bodies) == 1 and first != "tip":
        return [f"{titles[0].strip().rstrip(':')}: {bodies[0].strip()}"]
    return bodies or titles


# --- tips in lines


def _is_item(line: str) -> bool:
    """Whether a line's beginning is that of a list item with words of its own."""
    item = _ITEM.match(line)
    return bool(item and re.search(r"\w", item["text"]))


def _listed(text: str) -> list[str]:
    """Numbered lines, or else bulleted ones, each with the lines that continue it."""
    lines = [(line, _ITEM.match(line)) for line in text.splitlines()]
    marks = [mark for _, mark in lines if mark]
    numbered = sum(1 for mark in marks if mark["number"])
    kind = "number" if numbered > 1 or numbered == len(marks) else "bullet"
    margin = min((_indent(mark) for mark in marks if mark[kind]), default=0) + 1
    items: list[list[str]] = []
    after_gap = True
    for line, mark in lines:
        if mark and mark[kind] and _indent(mark) <= margin:
            items.append([_item_text(mark)])
        elif items and _continues(line, items[-1], after_gap=after_gap):
            items[-1].append(mark["text"] if mark else line.strip())
        after_gap = not line.strip()
    return [_unquoted(" ".join(part for part in item if part).rstrip(",")) for item in items]


def _indent(mark: re.Match[str]) -> int:
    return len(mark["indent"].expandtabs(4))


def _continues(line: str, item: Sequence[str], *, after_gap: bool) -> bool:
    """Whether a line belongs to the item above: after a gap only if indented, or if that is but a title."""
    if not line.strip() or _RULE.fullmatch(line):
        return False
    return not after_gap or line[0] in " \t" or (len(item) == 1 and bool(_TITLE_ONLY.fullmatch(item[0])))


def _item_text(mark: re.Match[str]) -> str:
    """What follows the marker; emphasis that began before the number begins after it."""
    opened = mark["open"] if mark["open"] and not mark["close"] else ""
    return f"{opened}{mark['text']}".strip()
