"""What was shipped, as a registered model of MLflow: one version per shipping, an alias on the one in force.

A version is written whole and read back before the alias moves to it. The alias is all that counts: a version
that it never reached was never shipped.
"""

from __future__ import annotations

import math
import re
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger.chunks import storable
from tipbench.records import Sampling, Shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.ledger.registry import Registry, VersionRow
    from tipbench.records import Because, JudgeKind

ALIAS = "shipped"
_HEAD = "tipbench."
_KIND, _ID = f"{_HEAD}kind", f"{_HEAD}shipment"
_TEXTS = ("suite_id", "suite_hash", "experiment", "model", "digest", "prompt_id", "prompt_hash")
_NUMBERS = ("mean", "low", "high")
_KINDS = ("human", "agent", "ai", "proxy")
_BECAUSE = ("winner", "recommended", "named")


def model_name(suite_id: str) -> str:
    """The registered model that stands for a suite."""
    return f"tipbench-{re.sub(r'[^0-9A-Za-z._-]', '_', suite_id)}"


def no_version(suite_id: str, version: int, *, uri: str) -> NotFound:
    return NotFound(
        f"version {version} of the registered model {model_name(suite_id)!r} is not at {uri} (any more); "
        "ship what you want with `tipbench ship --experiment NAME`"
    )


def to_tags(shipped: Shipped) -> dict[str, str]:
    """A shipping as tags that people can read; what is not known is left out."""
    tags: dict[str, object] = {name: getattr(shipped, name) for name in _TEXTS}
    tags |= {name: getattr(shipped, name) for name in _NUMBERS}
    tags |= {f"sampling.{name}": value for name, value in asdict(shipped.sampling).items()}
    tags |= {f"caution.{at}": line for at, line in enumerate(shipped.cautions)}
    plain = ("ground", "because", "n_tips", "shipped_ms", "replaces", "label")
    tags |= {name: getattr(shipped, name) for name in plain}
    known = {name: storable(str(value)) for name, value in tags.items() if value not in (None, "")}
    return {_KIND: "shipped"} | {f"{_HEAD}{name}": value for name, value in known.items()}


def from_tags(version: int, tags: Mapping[str, str], *, where: str) -> Shipped:
    """The shipping that tags tell of; a BadInput where they do not tell all of it."""
    held = {name.removeprefix(_HEAD): value for name, value in tags.items()}
    try:
        numbers: dict[str, Any] = {name: _number(held.get(name)) for name in _NUMBERS}
        texts: dict[str, Any] = {name: held[name] for name in _TEXTS}
        return Shipped(
            **texts,
            **numbers,
            ground=cast("JudgeKind | None", _one_of(_KINDS, held.get("ground"))),
            n_tips=int(held["n_tips"]),
            sampling=_sampling(held),
            because=cast("Because", _one_of(_BECAUSE, held["because"])),
            cautions=_cautions(held),
            shipped_ms=int(held["shipped_ms"]),
            version=version,
            replaces=int(held["replaces"]) if "replaces" in held else None,
            label=held.get("label", ""),
        )
    except (KeyError, ValueError):
        raise BadInput(
            f"version {version} at {where} lacks what tipbench wrote there, or was written by a newer "
            "tipbench; delete that version in MLflow, or move the alias to another one"
        ) from None


def _sampling(held: Mapping[str, str]) -> Sampling:
    return Sampling(
        temperature=_finite(held["sampling.temperature"]),
        num_ctx=int(held["sampling.num_ctx"]),
        num_predict=int(held["sampling.num_predict"]),
        think=held["sampling.think"] == "True",
    )


def _one_of(words: tuple[str, ...], text: str | None) -> str | None:
    if text is not None and text not in words:
        raise ValueError(text)
    return text


def _cautions(held: Mapping[str, str]) -> tuple[str, ...]:
    numbered = [name for name in held if re.fullmatch(r"caution\.\d+", name)]
    return tuple(held[name] for name in sorted(numbered, key=lambda name: int(name.partition(".")[2])))


def _number(text: str | None) -> float | None:
    return None if text is None else _finite(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


class Shipments:
    """The shippings that one store holds."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def add(self, shipped: Shipped) -> Shipped:
        name = model_name(shipped.suite_id)
        about = f"What tipbench shipped for the suite {shipped.suite_id}; the alias '{ALIAS}' is in force."
        self._registry.ensure_model(name, description=about)
        tags = to_tags(shipped) | {_ID: uuid.uuid4().hex}
        made = self._registry.add_version(name, tags, mark=_ID)
        there = self._registry.version(name, made.version)
        lost = [tag for tag, value in tags.items() if there.tags.get(tag) != value]
        if lost:
            raise LedgerUnreachable(
                f"{self._registry.uri} did not keep the tag {lost[0]!r} of version {made.version} of "
                f"{name!r} as it was written; see whether the server cuts long values, then try again"
            )
        return self._read(shipped.suite_id, there)

    def put_in_force(self, suite_id: str, version: int) -> None:
        try:
            self._registry.set_alias(model_name(suite_id), ALIAS, version)
        except NotFound:
            raise no_version(suite_id, version, uri=self._registry.uri) from None

    def in_force(self, suite_id: str) -> Shipped | None:
        name = model_name(suite_id)
        number = self._registry.alias(name, ALIAS)
        if number is None:
            return None
        row = self._registry.version(name, number)
        if not _is_ours(row):
            raise BadInput(
                f"the alias {ALIAS!r} of the registered model {name!r} at {self._registry.uri} is on version "
                f"{number}, which tipbench did not write; delete the alias in MLflow, or move it"
            )
        return self._read(suite_id, row)

    def all(self, suite_id: str) -> list[Shipped]:
        rows = self._registry.versions(model_name(suite_id))
        return [self._read(suite_id, row) for row in rows if _is_ours(row)]

    def _read(self, suite_id: str, row: VersionRow) -> Shipped:
        where = f"{self._registry.uri}, registered model {model_name(suite_id)!r},"
        return from_tags(row.version, row.tags, where=where)


def _is_ours(row: VersionRow) -> bool:
    return row.tags.get(_KIND) == "shipped"
