from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from batch_samples import FITTING, KEY, RUBRIC_TEXT, SCALES, bank, small_batch
from tipbench.judge.judge_file import ITEM_KEYS, KEYS, SCHEMA, file_text, frozen_hash
from tipbench.records import Batch, Judge


def written(batch: Batch, judge: Judge | None = None) -> str:
    return file_text(batch, rubric_text=RUBRIC_TEXT, scales=SCALES, judge=judge)


def test_the_file_is_json_in_a_fixed_order() -> None:
    """Schema first, then what a judge needs to know, then the items in the batch's order."""
    batch = small_batch()
    found = json.loads(written(batch))
    assert list(found) == list(KEYS)
    assert (found["schema"], found["batch"]) == (SCHEMA, batch.batch_id)
    assert (found["rubric_id"], found["rubric_hash"]) == (batch.rubric_id, batch.rubric_hash)
    assert found["judged_by"] == {"id": None, "kind": None, "model": None}
    assert "\n".join(found["rubric"]) == RUBRIC_TEXT
    blank = {"relevance": None, "actionability": None, "tone": None, "overlong": None, "note": None}
    for number, (shown, item) in enumerate(zip(found["items"], batch.items, strict=True), start=1):
        assert list(shown) == list(ITEM_KEYS)
        assert (shown["id"], shown["number"], shown["tip"]) == (item.id, number, item.text)
        assert (shown["scenario"], "\n".join(shown["context"])) == (
            item.scenario_id,
            batch.contexts[item.scenario_id],
        )
        assert shown["judge"] == blank


def test_an_answer_stands_on_one_line() -> None:
    """Who fills it in with an editor finds one short line for each item."""
    lines = written(small_batch()).splitlines()
    answer = (
        '"judge": {"relevance": null, "actionability": null, "tone": null, "overlong": null, "note": null}'
    )
    assert [line.strip() for line in lines].count(answer) == 12
    assert '  "judged_by": {"id": null, "kind": null, "model": null},' in lines
    assert max(map(len, lines)) < 160


def test_the_judge_may_be_written_in() -> None:
    """A file made for somebody carries the name already."""
    found = json.loads(written(small_batch(), Judge(id="zoë", kind="agent", model="m-1")))
    assert found["judged_by"] == {"id": "zoë", "kind": "agent", "model": "m-1"}


def test_the_instructions_say_all_that_is_needed() -> None:
    """How to score, what null means, who to name, and what to run then."""
    text = " ".join(json.loads(written(small_batch()))["instructions"])
    for part in (
        "by itself",
        "relevance 1 to 5",
        "null",
        "'overlong'",
        "'note'",
        "human",
        "agent",
        "'model'",
    ):
        assert part in text
    assert "tipbench judge apply FILE" in text


def test_the_file_gives_nothing_away() -> None:
    """No experiment, role, candidate, anchor or key is in it, and all items have the same fields."""
    batch = small_batch()
    text = written(batch)
    secrets = [batch.experiment, "anchor", "foil", "reference", "real", KEY.decode()]
    secrets += [item.candidate for item in batch.items if item.candidate] + [one.id for one in bank()]
    assert [secret for secret in secrets if secret in text] == []
    shapes = {
        json.dumps({key: type(value).__name__ for key, value in item.items()})
        for item in json.loads(text)["items"]
    }
    assert len(shapes) == 1
    roles = [item.role for item in batch.items]
    other = replace(batch, items=tuple(replace(item, role="real", anchor_id="") for item in batch.items))
    assert {"anchor", "foil"} <= set(roles)
    assert written(other) == text


@pytest.mark.parametrize(
    "text", ["a\u2028b", "a\u202eb", "a\x85b\x7f", "\ud83d", "\ufeffa", "a\r\nb\tc", "é ☕ 👩‍🍳"]
)
def test_odd_texts_are_shown_as_they_are(text: str) -> None:
    """What would break a line or turn the writing around is escaped; letters and pictures are not."""
    batch = small_batch()
    file = written(replace(batch, items=(replace(batch.items[0], text=text), *batch.items[1:])))
    assert json.loads(file.encode().decode())["items"][0]["tip"] == text
    assert len(file.splitlines()) == len(file.split("\n")) - 1
    assert ("☕" in text) == (text in file)


def change(document: dict[str, Any], *path: str | int) -> dict[str, Any]:
    """The document with another value at a path."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    inner: Any = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = "changed"
    return copy


def test_the_hash_covers_all_but_the_answers() -> None:
    """Filling in changes nothing, nor does the order of keys; any other change does, also one of type."""
    found = json.loads(written(small_batch()))
    assert found["frozen"] == frozen_hash(found)
    for path in (("judged_by", "id"), ("items", 0, "judge", "tone"), ("frozen",)):
        assert frozen_hash(change(found, *path)) == found["frozen"]
    frozen = [(key,) for key in KEYS if key not in {"judged_by", "frozen"}]
    for place in (*frozen, *(("items", 3, key) for key in ITEM_KEYS if key != "judge")):
        assert frozen_hash(change(found, *place)) != found["frozen"]
    assert frozen_hash(dict(reversed(found.items()))) == found["frozen"]
    found["items"][0]["number"] = 1.0
    assert frozen_hash(found) != found["frozen"]


def test_an_anchors_text_looks_like_any_other() -> None:
    """The texts of hidden items are there among the rest, each once."""
    tips = [item["tip"] for item in json.loads(written(small_batch()))["items"]]
    assert sum(any(tip.startswith(text) for text in FITTING.values()) for tip in tips) == 4
    assert len(set(tips)) == 12
