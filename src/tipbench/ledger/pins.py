"""What an experiment is held to, and how that is kept in the tags of an MLflow experiment."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, PinConflict
from tipbench.ledger.chunks import CHUNK, Damaged, sha256, storable
from tipbench.records import Pin, SuitePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

TAG = "tipbench.pin"
_MOST_PLACES = 20
_WAY_OUT = "give what changed a new version, or use a new experiment"


def merge_pins(experiment: str, held: Pin, new: Pin) -> Pin:
    """The held pin and what `new` adds to it; a PinConflict names every id whose text changed."""
    problem = _other(held, new)
    changed = _changed("prompt", held.prompts, new.prompts)
    changed += _changed("scenario", held.scenarios, new.scenarios)
    if not problem and changed:
        verb = "has" if len(changed) == 1 else "have"
        problem = f"{', '.join(changed)} {verb} changed since the experiment began"
    if problem:
        raise PinConflict(f"experiment {experiment!r}: {problem}; {_WAY_OUT}")
    return Pin(
        suite_id=held.suite_id,
        rubric_id=held.rubric_id,
        rubric_hash=held.rubric_hash,
        rubric_text=held.rubric_text,
        prompts={**held.prompts, **new.prompts},
        scenarios={**held.scenarios, **new.scenarios},
        templates={**held.templates, **new.templates},
        places=_merged_places(held.places, new.places),
        suites={**held.suites, **new.suites},
    )


def _merged_places(held: tuple[SuitePlace, ...], new: tuple[SuitePlace, ...]) -> tuple[SuitePlace, ...]:
    """The newest first, each place once with its latest hash; unchanged where nothing in `new` is new."""
    if set(new) <= set(held):
        return held
    by_place = {one.place: one for one in reversed((*new, *held))}
    first = dict.fromkeys(one.place for one in (*new, *held))
    return tuple(by_place[place] for place in first)[:_MOST_PLACES]


def with_rubric_of(held: Pin, new: Pin) -> Pin:
    """The held pin, but for the rubric."""
    return replace(held, rubric_id=new.rubric_id, rubric_hash=new.rubric_hash, rubric_text=new.rubric_text)


def _other(held: Pin, new: Pin) -> str:
    if held.suite_id != new.suite_id:
        return f"it is pinned to the suite {held.suite_id!r}, and this is {new.suite_id!r}"
    if held.rubric_id != new.rubric_id:
        return f"it is pinned to the rubric {held.rubric_id!r}, and this is {new.rubric_id!r}"
    if held.rubric_hash != new.rubric_hash:
        return f"the rubric {held.rubric_id!r} has changed since the experiment began"
    return ""


def _changed(noun: str, held: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [f"{noun} {name!r}" for name, value in new.items() if held.get(name, value) != value]


def pin_tags(pin: Pin) -> tuple[dict[str, str], dict[str, str]]:
    """The tags that hold a pin: first the parts, then the one that points to them and makes them count.

    Parts are named by their content, so writing them disturbs no pin that is being read, and a writer
    that dies before the last tag has changed nothing.
    """
    held: dict[str, object] = {"prompts": dict(pin.prompts), "scenarios": dict(pin.scenarios)}
    if pin.places:
        held["places"] = [[one.place, one.hash] for one in pin.places]
    ids = json.dumps(held, sort_keys=True)
    ids_parts, ids_at = _parts(ids)
    text_parts, text_at = _parts(storable(pin.rubric_text))
    head = {
        "suite_id": pin.suite_id,
        "rubric_id": pin.rubric_id,
        "rubric_hash": pin.rubric_hash,
        "ids": ids_at,
        "rubric_text": text_at,
    }
    return ids_parts | text_parts, {TAG: json.dumps(head)}


def _parts(text: str) -> tuple[dict[str, str], dict[str, Any]]:
    digest = sha256(text)
    cuts = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)] or [""]
    return (
        {f"{TAG}.{digest[:16]}.{n}": cut for n, cut in enumerate(cuts)},
        {"sha256": digest, "chunks": len(cuts)},
    )


def pin_head(tags: Mapping[str, str]) -> dict[str, Any] | None:
    """Suite and rubric of a pinned experiment; empty where unreadable, None where it is not pinned."""
    if TAG not in tags:
        return None
    try:
        head = json.loads(tags[TAG])
    except ValueError:
        return {}
    return head if isinstance(head, dict) else {}


def pin_from_tags(experiment: str, tags: Mapping[str, str]) -> Pin | None:
    """The pin of an experiment, whole and checked against its checksums; None where it is not pinned."""
    try:
        head = pin_head(tags)
        if head is None:
            return None
        ids = json.loads(_joined(tags, head["ids"]))
        return Pin(
            suite_id=head["suite_id"],
            rubric_id=head["rubric_id"],
            rubric_hash=head["rubric_hash"],
            rubric_text=_joined(tags, head["rubric_text"]),
            prompts=ids["prompts"],
            scenarios=ids["scenarios"],
            places=tuple(SuitePlace(place=place, hash=hashed) for place, hashed in ids.get("places", ())),
        )
    except (Damaged, KeyError, TypeError, ValueError):
        raise BadInput(
            f"the pin of experiment {experiment!r} (its tags {TAG}…) is damaged: "
            "restore those tags from a backup, or use a new experiment"
        ) from None


def _joined(tags: Mapping[str, str], at: Mapping[str, Any]) -> str:
    text = "".join(tags[f"{TAG}.{at['sha256'][:16]}.{n}"] for n in range(at["chunks"]))
    if sha256(text) != at["sha256"]:
        raise Damaged(TAG)
    return text


def stale_parts(tags: Mapping[str, str], pin: Pin) -> list[str]:
    """The names of parts that an earlier, smaller pin left behind."""
    parts, _ = pin_tags(pin)
    return [name for name in tags if name.startswith(f"{TAG}.") and name not in parts]
