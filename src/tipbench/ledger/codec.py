"""Records as JSON and back, without loss: what the spool and the read cache hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from tipbench.ledger.chunks import storable
from tipbench.records import (
    Application,
    Batch,
    Candidate,
    Cell,
    CellResult,
    Completion,
    Host,
    Item,
    Judge,
    Message,
    Model,
    Pin,
    Reading,
    Rejection,
    Release,
    Run,
    Sampling,
    SuitePlace,
    Verdict,
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
            "marks": tuple(data.get("marks", ())),
        }
    )


def _cell(data: dict[str, Any]) -> Cell:
    return Cell(**data | {"model": Model(**data["model"]), "sampling": Sampling(**data["sampling"])})


def _reading(data: dict[str, Any]) -> Reading:
    return Reading(**data | {"candidates": tuple(data["candidates"])})


def _candidates(data: list[dict[str, Any]]) -> tuple[Candidate, ...]:
    return tuple(Candidate(**candidate) for candidate in data)


def pin_from_json(text: str) -> Pin:
    data = json.loads(text)
    places = tuple(SuitePlace(**one) for one in data.get("places", ()))
    return Pin(**data | {"places": places})


def runs_from_json(text: str) -> list[Run]:
    return [_run(data) for data in json.loads(text)]


def _run(data: dict[str, Any]) -> Run:
    sampling = Sampling(**data["sampling"]) if data["sampling"] else None
    more = {"candidates": _candidates(data["candidates"]), "marks": tuple(data.get("marks", ()))}
    return Run(**data | more | {"sampling": sampling})


def candidates_to_json(candidates: tuple[Candidate, ...]) -> str:
    """The text of candidates.json: a list, in the order of the reply, readable as it is."""
    return json.dumps([_as_dict(candidate) for candidate in candidates], ensure_ascii=False)


def candidates_from_json(text: str) -> tuple[Candidate, ...]:
    return _candidates(json.loads(text))


def batch_to_json(batch: Batch) -> str:
    """What its run holds of a batch: all but whose experiment it is, and what is applied to it later."""
    data = _storable(batch)
    for name in ("experiment", "applications", "rejections", "releases"):
        del data[name]
    return _readable(data)


def batch_from_json(text: str, *, experiment: str) -> Batch:
    return _batch(json.loads(text) | {"experiment": experiment, "applications": []})


def batches_from_json(text: str) -> list[Batch]:
    """What `to_json` made of a list of batches: with their experiments and applications."""
    return [_batch(data) for data in json.loads(text)]


def _batch(data: dict[str, Any]) -> Batch:
    items = tuple(Item(**item) for item in data["items"])
    applications = tuple(_application(each) for each in data["applications"])
    later = {
        "rejections": tuple(_rejection(each) for each in data.get("rejections", ())),
        "releases": tuple(_release(each) for each in data.get("releases", ())),
    }
    return Batch(**data | {"items": items, "applications": applications} | later)


def rejection_to_json(rejection: Rejection) -> str:
    return _readable(_storable(rejection))


def rejection_from_json(text: str) -> Rejection:
    return _rejection(json.loads(text))


def _rejection(data: dict[str, Any]) -> Rejection:
    return Rejection(**data | {"judge": Judge(**data["judge"])})


def release_to_json(release: Release) -> str:
    return _readable(_storable(release))


def release_from_json(text: str) -> Release:
    return _release(json.loads(text))


def _release(data: dict[str, Any]) -> Release:
    return Release(**data | {"forgiven": tuple(data["forgiven"])})


def application_to_json(application: Application) -> str:
    return _readable(_storable(application))


def application_from_json(text: str) -> Application:
    return _application(json.loads(text))


def _application(data: dict[str, Any]) -> Application:
    verdicts = tuple(_verdict(each) for each in data["verdicts"])
    later = {"inconsistent": tuple(data.get("inconsistent", ()))}
    return Application(**data | {"judge": Judge(**data["judge"]), "verdicts": verdicts} | later)


def _verdict(data: dict[str, Any]) -> Verdict:
    return Verdict(**data | {"judge": Judge(**data["judge"]), "readings": tuple(data.get("readings", ()))})


def _readable(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _storable(value: object) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """A record as plain values whose texts every database takes."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(name): _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    return _storable(_as_dict(value)) if is_dataclass(value) else value
