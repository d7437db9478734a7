"""Text from outside, made safe to print: control characters cannot steer a terminal."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, and the characters that change the direction of writing.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with control characters as backslash escapes."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    """Return JSON that holds the same values, with control characters as JSON escapes."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
