"""A check of a reply against the JSON schema that was sent with it, because a host can ignore the schema.

It knows the keywords that `tipbench.suite.reply` writes. A full validator would be a dependency of its own
(`jsonschema` takes 50 ms to import) for eight keywords.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]
_OPENING = {"array": "[", "object": "{"}


def follows_schema(text: str, schema: Schema) -> bool:
    """Whether a whole reply is one JSON value that the schema allows."""
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        return False
    return _is_valid(value, schema)


def can_begin(text: str, schema: Schema) -> bool:
    """Whether a reply that was cut can be the beginning of a value that the schema allows."""
    return text.lstrip()[:1] in {"", _OPENING.get(schema["type"], '"')}


def _is_valid(value: object, schema: Schema) -> bool:
    kind = schema["type"]
    if kind == "string":
        return isinstance(value, str) and _fits(len(value), schema, "minLength", "maxLength")
    if kind == "array":
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and _fits(len(value), schema, "minItems", "maxItems")
            and all(_is_valid(item, schema["items"]) for item in value)
        )
    if kind == "object":
        properties: Mapping[str, Schema] = schema["properties"]
        return (
            isinstance(value, Mapping)
            and value.keys() >= set(schema["required"])
            and value.keys() <= properties.keys()
            and all(_is_valid(item, properties[name]) for name, item in value.items())
        )
    raise ValueError(f"the schema has the unknown type {kind!r}")


def _fits(size: int, schema: Schema, least: str, most: str) -> bool:
    return bool(schema.get(least, 0) <= size <= schema.get(most, size))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A grammar never allows the same key twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
