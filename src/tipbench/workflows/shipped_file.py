"""What is shipped, on this disk: enough to serve by while the ledger is away. Written whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from tipbench.errors import StoreUnusable
from tipbench.private import make_folder
from tipbench.records import Sampling, Shipped
from tipbench.workflows.scenario_kinds import Kind
from tipbench.workflows.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

FILE = "shipped.json"
_FORMAT = 1
_OPTIONAL = {"mean", "low", "high", "replaces", "weekday", "hour"}
_SHAPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


@dataclass(frozen=True, kw_only=True)
class Before:
    """A version of another suite, which this machine served until a version of the next one was shipped."""

    suite_id: str
    suite: str
    version: int
    until: int


@dataclass(frozen=True, kw_only=True)
class Filed:
    """What the file holds: the shipping, the suite it is generated with, and tips by kind of scenario.

    `suite` is a name or a folder, empty where it is not at hand. `ledger` is where the shipping is recorded.
    `before` are the suites that were served before this one, the last one last.
    """

    shipped: Shipped
    suite: str
    ledger: str
    kinds: tuple[Kind, ...]
    before: tuple[Before, ...] = ()


def read_filed(folder: Path) -> Filed | None:
    """What is shipped, None where nothing is; a file that cannot be read is an error that names it."""
    path = folder / FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnusable(
            f"{path} cannot be read ({error.strerror}); see that you may read it, then try again"
        ) from None
    try:
        return decode_filed(raw.decode())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreUnusable(
            f"{path} is damaged, or was written by a newer tipbench: restore it, or delete it and run "
            "`tipbench ship --status --suite SUITE` with the suite that was shipped: MLflow has it still"
        ) from None


def write_filed(folder: Path, filed: Filed) -> None:
    """Durable when this returns."""
    path = folder / FILE
    text = encode_filed(filed)
    try:
        make_folder(folder)
        write_whole(path, text + "\n")
        _flush_folder(folder)
    except OSError as error:
        raise StoreUnusable(
            f"{path} cannot be written ({error.strerror}), though MLflow has it: make room or rights there, "
            "then run `tipbench ship --status`"
        ) from None


def encode_filed(filed: Filed) -> str:
    return json.dumps({"format": _FORMAT, **asdict(filed)}, ensure_ascii=True, indent=1)


def decode_filed(text: str) -> Filed:
    """What was encoded; ValueError, TypeError, KeyError or AttributeError for anything else."""
    return _filed(json.loads(text))


def _flush_folder(folder: Path) -> None:
    """The new name of a file is durable only once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _filed(data: Any) -> Filed:  # noqa: ANN401 - whatever the file holds
    if data["format"] != _FORMAT:
        raise ValueError(data["format"])
    shipped = {"label": "", **data["shipped"]}  # files of earlier versions have no label
    shipped["sampling"] = Sampling(**_checked(Sampling, shipped["sampling"]))
    shipped["cautions"] = _texts(shipped["cautions"])
    kinds = [kind | {"tips": _texts(kind["tips"])} for kind in data["kinds"]]
    if not isinstance(data["suite"], str) or not isinstance(data["ledger"], str):
        raise TypeError("suite and ledger are texts")
    return Filed(
        shipped=Shipped(**_checked(Shipped, shipped)),
        suite=data["suite"],
        ledger=data["ledger"],
        kinds=tuple(Kind(**_checked(Kind, kind)) for kind in kinds),
        before=tuple(Before(**_checked(Before, one)) for one in data.get("before", ())),
    )


def _checked(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The values of a record, each of its type; TypeError or KeyError for any other."""
    for field in fields(kind):
        value = data[field.name]
        shapes = _SHAPES.get(str(field.type).partition(" ")[0])
        if shapes is None or (value is None and field.name in _OPTIONAL):
            continue
        if not isinstance(value, shapes) or (isinstance(value, bool) and bool not in shapes):
            raise TypeError(field.name)
    return data


def _texts(values: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever the file holds
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("not a list of texts")
    return tuple(values)
