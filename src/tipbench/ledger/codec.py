"""Records as JSON and back, without loss: what the spool and the read cache hold."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from tipbench.records import (
    Candidate,
    Cell,
    CellResult,
    Completion,
    Host,
    Message,
    Model,
    Pin,
    Reading,
    Run,
    Sampling,
)


def to_json(record: object) -> str:
    """ASCII only: a lone surrogate or a NUL in a model's reply survives as an escape."""
    return json.dumps(record, default=_as_dict, separators=(",", ":"))


def _as_dict(record: object) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _names(cast("Any", type(record)))}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """A record's fields; `vars` would also hold what its cached properties have computed."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a record")
    return tuple(field.name for field in fields(kind))


def result_from_json(text: str) -> CellResult:
    data = json.loads(text)
    return CellResult(
        **data
        | {
            "cell": _cell(data["cell"]),
            "host": Host(**data["host"]),
            "messages": tuple(Message(**message) for message in data["messages"]),
            "completion": Completion(**data["completion"]) if data["completion"] else None,
            "reading": _reading(data["reading"]) if data["reading"] else None,
            "candidates": _candidates(data["candidates"]),
        }
    )


def _cell(data: dict[str, Any]) -> Cell:
    return Cell(**data | {"model": Model(**data["model"]), "sampling": Sampling(**data["sampling"])})


def _reading(data: dict[str, Any]) -> Reading:
    return Reading(**data | {"candidates": tuple(data["candidates"])})


def _candidates(data: list[dict[str, Any]]) -> tuple[Candidate, ...]:
    return tuple(Candidate(**candidate) for candidate in data)


def pin_from_json(text: str) -> Pin:
    return Pin(**json.loads(text))


def runs_from_json(text: str) -> list[Run]:
    return [Run(**data | {"candidates": _candidates(data["candidates"])}) for data in json.loads(text)]


def candidates_to_json(candidates: tuple[Candidate, ...]) -> str:
    """The text of candidates.json: a list, in the order of the reply, readable as it is."""
    return json.dumps([_as_dict(candidate) for candidate in candidates], ensure_ascii=False)


def candidates_from_json(text: str) -> tuple[Candidate, ...]:
    return _candidates(json.loads(text))
