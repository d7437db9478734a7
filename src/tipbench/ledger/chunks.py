"""Long texts in short tags: cut, counted and checksummed, since MLflow cuts a long tag without a word."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Run tags hold 8000 characters today and held 5000 in older servers; experiment tags hold 5000.
CHUNK = 4900

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Damaged(ValueError):
    """The tags of a text are incomplete, or hold something else than was written."""


def storable(text: str) -> str:
    """The text with what no database takes (NUL, lone surrogates) replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def to_tags(name: str, text: str) -> dict[str, str]:
    """`name` holds the beginning, `name.1`, `name.2` … the rest; `name.chunks` and `name.sha256` check it."""
    parts = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)] or [""]
    tags = {_part(name, n): part for n, part in enumerate(parts)}
    return tags | {f"{name}.chunks": str(len(parts)), f"{name}.sha256": sha256(text)}


def from_tags(name: str, tags: Mapping[str, str]) -> str | None:
    """The text that `to_tags` cut; None where there is none. Raises Damaged rather than half a text."""
    count = tags.get(f"{name}.chunks")
    if count is None:
        return None
    try:
        text = "".join(tags[_part(name, n)] for n in range(int(count)))
    except (KeyError, ValueError):
        raise Damaged(name) from None
    if sha256(text) != tags.get(f"{name}.sha256"):
        raise Damaged(name)
    return text


def portions(tags: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The tags in portions that one request may hold: 100 of them, and a million bytes when escaped."""
    portion: dict[str, str] = {}
    size = 0
    for name, value in tags.items():
        cost = len(json.dumps(value)) + len(name) + 50
        if portion and (len(portion) == 100 or size + cost > 800_000):
            yield portion
            portion, size = {}, 0
        portion[name] = value
        size += cost
    if portion:
        yield portion


def _part(name: str, n: int) -> str:
    return f"{name}.{n}" if n else name
