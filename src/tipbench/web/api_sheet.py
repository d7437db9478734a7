"""The API's description laid out for reading: what the OpenAPI document says, by subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.web.guard import as_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_METHODS = ("get", "post", "put", "patch", "delete")
_SUBJECTS = {
    "bench": "Collections and leaderboards",
    "jobs": "Jobs",
    "judging": "Judging",
    "webhooks": "Webhooks",
    "access": "Tokens and audit",
    "tips": "Tips",
    "health": "Health",
}


@dataclass(frozen=True, kw_only=True)
class ApiField:
    """Something that a request holds, or an answer."""

    name: str
    where: str
    kind: str
    required: bool
    told: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    method: str
    path: str
    told: str
    takes: tuple[ApiField, ...]
    gives: tuple[ApiField, ...]
    statuses: tuple[str, ...]


def operations_of(document: Mapping[str, Any]) -> list[tuple[str, list[Operation]]]:
    """Every operation below its subject; a subject that has no name here comes last, by its own."""
    found: dict[str, list[Operation]] = {tag: [] for tag in _SUBJECTS}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["others"])[0]
                found.setdefault(tag, []).append(_operation(document, method, path, methods[method]))
    return [(_SUBJECTS.get(tag, tag.capitalize()), some) for tag, some in found.items() if some]


def _operation(document: Mapping[str, Any], method: str, path: str, said: Mapping[str, Any]) -> Operation:
    answers: Mapping[str, Any] = said.get("responses", {})
    good: Mapping[str, Any] = next((answers[code] for code in answers if code.startswith("2")), {})
    return Operation(
        method=method.upper(),
        path=path,
        told=as_sentence(" ".join(said.get("description", said.get("summary", "")).split())),
        takes=(*_parameters(document, said), *_body(document, said.get("requestBody", {}), where="body")),
        gives=tuple(_body(document, good, where="answer")),
        statuses=tuple(sorted(answers)),
    )


def _parameters(document: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[ApiField]:
    for one in said.get("parameters", ()):
        schema = one.get("schema", {})
        told = one.get("description") or schema.get("description", "")
        yield _field(document, one["name"], one["in"], schema, needed=one.get("required", False), told=told)


def _body(document: Mapping[str, Any], said: Mapping[str, Any], *, where: str) -> Iterator[ApiField]:
    schema = said.get("content", {}).get("application/json", {}).get("schema", {})
    whole = _resolved(document, _entries_of(schema))
    required = whole.get("required", ())
    for name, one in whole.get("properties", {}).items():
        needed = where == "body" and name in required
        yield _field(document, name, where, one, needed=needed, told=one.get("description", ""))


def _entries_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a list, what it is a list of; of what may be nothing, the other choice."""
    if "items" in schema:
        return _entries_of(schema["items"])
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return _entries_of(choices[0]) if choices else schema


def _field(
    document: Mapping[str, Any], name: str, where: str, schema: Mapping[str, Any], *, needed: bool, told: str
) -> ApiField:
    usual = schema.get("default")
    default = "" if usual in (None, "") else f"; default {_plain(usual)}"
    return ApiField(
        name=name, where=where, kind=_kind(document, schema) + default, required=needed, told=told
    )


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def _kind(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A type in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(document, one) for one in schema["anyOf"]))
    whole = _resolved(document, schema)
    if "enum" in whole or "const" in whole:
        return " or ".join(map(str, whole.get("enum", [whole.get("const")])))
    if whole.get("type") == "array":
        return f"list of {_kind(document, whole.get('items', {}))}"
    return _with_limits(whole)


def _with_limits(schema: Mapping[str, Any]) -> str:
    word = str(schema.get("type", "anything"))
    low, high = schema.get("minimum"), schema.get("maximum")
    return word if low is None or high is None else f"{word}, {low} to {high}"


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = document
    for name in _steps(schema["$ref"]):
        found = found[name]
    resolved: Mapping[str, Any] = found
    return resolved


def _steps(reference: str) -> Sequence[str]:
    return reference.removeprefix("#/").split("/")
