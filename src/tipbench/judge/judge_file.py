"""The file that a judge fills in: blinded items, the rubric they are scored against, and room for scores.

A file holds one batch or several. All but `judged_by` and the items' `judge` objects is frozen: a hash covers
it, and `judge apply` compares the file with the batches that it was made from. The file names no experiment,
no model, no prompt and no role.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from tipbench.judge.answers import answer_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import Batch, Item, Judge
    from tipbench.suite.rubric import Scale

SCHEMA = "tipbench-judge-1"  # one batch
SCHEMA_SEVERAL = "tipbench-judge-2"  # several batches; each item names its own
KEYS = (
    "schema",
    "instructions",
    "batch",
    "rubric_id",
    "rubric_hash",
    "frozen",
    "judged_by",
    "rubric",
    "items",
)
ITEM_KEYS = ("id", "number", "scenario", "context", "tip", "judge")
FILE_KEYS = {SCHEMA: KEYS, SCHEMA_SEVERAL: tuple("batches" if key == "batch" else key for key in KEYS)}
FILE_ITEM_KEYS = {SCHEMA: ITEM_KEYS, SCHEMA_SEVERAL: (*ITEM_KEYS[:2], "batch", *ITEM_KEYS[2:])}
JUDGED_BY_KEYS = ("id", "kind", "model")

# Line breaks and marks that change the direction of writing, which an editor would act on instead of showing.
_ACTING = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

Document = dict[str, Any]


def file_text(*batches: Batch, rubric_text: str, scales: Sequence[Scale], judge: Judge | None = None) -> str:
    """The file to fill in. A text of several lines is a list of them, and each answer stands on one line."""
    frozen = frozen_part(*batches, rubric_text=rubric_text, scales=scales)
    by = {"id": judge.id, "kind": judge.kind, "model": judge.model or None} if judge else {}
    blank = dict.fromkeys(answer_keys(scales))
    shown = {key: _json(value) for key, value in frozen.items() if isinstance(value, str)}
    lists = frozen.keys() & {"instructions", "batches", "rubric"}
    shown |= {key: _list(map(_json, frozen[key]), indent="  ") for key in lists}
    shown["frozen"] = _json(frozen_hash(frozen))
    shown["judged_by"] = _json({key: by.get(key) for key in JUDGED_BY_KEYS})
    shown["items"] = _list([_item_text(item, blank) for item in frozen["items"]], indent="  ")
    return "{\n" + ",\n".join(f'  "{key}": {shown[key]}' for key in FILE_KEYS[frozen["schema"]]) + "\n}\n"


def frozen_part(*batches: Batch, rubric_text: str, scales: Sequence[Scale]) -> Document:
    """The part of a judge file that must come back as it was. Item numbers count through all batches."""
    first, several = batches[0], len(batches) > 1
    items = [(batch, item) for batch in batches for item in batch.items]
    return {
        "schema": SCHEMA_SEVERAL if several else SCHEMA,
        "instructions": _instructions(scales),
        **({"batches": [batch.batch_id for batch in batches]} if several else {"batch": first.batch_id}),
        "rubric_id": first.rubric_id,
        "rubric_hash": first.rubric_hash,
        "rubric": rubric_text.split("\n"),
        "items": [
            _frozen_item(item, number, batch, {"batch": batch.batch_id} if several else {})
            for number, (batch, item) in enumerate(items, start=1)
        ],
    }


def frozen_hash(document: Mapping[str, Any]) -> str:
    """The hash over what is frozen in a document, whichever order its keys have."""
    kept = {key: value for key, value in document.items() if key not in {"frozen", "judged_by"}}
    items = kept.get("items")
    if isinstance(items, list):
        kept["items"] = [_without_answer(item) for item in items]
    return hashlib.sha256(canonical(kept).encode()).hexdigest()


def canonical(value: object) -> str:
    """A value as JSON in one way only, so that 1, 1.0 and true differ as they do in the file."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _without_answer(item: object) -> object:
    return {key: value for key, value in item.items() if key != "judge"} if isinstance(item, dict) else item


def _frozen_item(item: Item, number: int, batch: Batch, named: Mapping[str, str]) -> Document:
    return {
        "id": item.id,
        "number": number,
        **named,
        "scenario": item.scenario_id,
        "context": batch.contexts[item.scenario_id].split("\n"),
        "tip": item.text,
    }


def _instructions(scales: Sequence[Scale]) -> list[str]:
    ranges = ", ".join(f"{scale.name} {scale.low} to {scale.high}" for scale in scales)
    return [
        "Each item has a scenario ('context') and one text written for it ('tip').",
        "Score every item by itself against the 'rubric', never against the other items.",
        f"Fill in its 'judge': a whole number on every scale ({ranges}). All of them null skips the item.",
        "'overlong': null agrees with what the code counts; true or false says what you think instead.",
        "'note': a remark in double quotes, or null.",
        "Fill in 'judged_by': 'id' is your name, the same every time; 'kind' is \"human\" or \"agent\".",
        "An agent gives its 'model' too.",
        "Change nothing else, not even the order. Then run: tipbench judge apply FILE",
        "A file may be applied half filled in, and again when there is more in it.",
    ]


def _item_text(item: Document, blank: Mapping[str, None]) -> str:
    shown = {key: _json(value) for key, value in item.items()}
    shown["context"] = _list(map(_json, item["context"]), indent=" " * 6)
    shown["judge"] = _json(blank)
    keys = FILE_ITEM_KEYS[SCHEMA_SEVERAL if "batch" in item else SCHEMA]
    members = ",\n".join(f'      "{key}": {shown[key]}' for key in keys)
    return f"{{\n{members}\n    }}"


def _list(values: Iterable[str], *, indent: str) -> str:
    inner = ",\n".join(f"{indent}  {value}" for value in values)
    return f"[\n{inner}\n{indent}]" if inner else "[]"


def _json(value: object) -> str:
    return _ACTING.sub(_escape, json.dumps(value, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
