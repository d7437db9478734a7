from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_samples import RUBRIC_TEXT, SCALES, small_batch
from tipbench.errors import BadInput, JudgeFileError
from tipbench.judge.answers import Answer
from tipbench.judge.filled_file import LARGEST_BYTES, FilledFile, check_file, read_file
from tipbench.judge.judge_file import file_text, frozen_hash
from tipbench.records import Judge, content_hash

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = small_batch()
NULLS = '"judge": {"relevance": null, "actionability": null, "tone": null, "overlong": null, "note": null}'
EMPTY = file_text(BATCH, rubric_text=RUBRIC_TEXT, scales=SCALES)
NAMED = file_text(BATCH, rubric_text=RUBRIC_TEXT, scales=SCALES, judge=Judge(id="ann", kind="human"))
# The second item scored, the rest skipped.
FILLED = (
    NAMED.replace(NULLS, "MARK", 2)
    .replace("MARK", NULLS, 1)
    .replace(
        "MARK", '"judge": {"relevance": 4, "actionability": 2, "tone": 5, "overlong": true, "note": "hm ☕"}'
    )
)
LINES = [n for n, line in enumerate(NAMED.split("\n"), start=1) if '"judge":' in line]


def checked(text: str | bytes) -> FilledFile:
    data = text if isinstance(text, bytes) else text.encode()
    return check_file(read_file(data, path="b.json"), BATCH, rubric_text=RUBRIC_TEXT, scales=SCALES)


def mistakes(text: str | bytes) -> list[tuple[int, str]]:
    with pytest.raises(JudgeFileError) as caught:
        checked(text)
    return list(caught.value.mistakes)


def edited(change: Callable[[dict[str, Any]], object], text: str = FILLED) -> str:
    document = json.loads(text)
    change(document)
    return json.dumps(document, indent=1)


def test_what_was_filled_in_comes_back() -> None:
    """Who judged, every item in order, scores where there are any, and the line of each answer."""
    found = checked(FILLED)
    assert (found.batch_ids, found.rubric_hash) == ((BATCH.batch_id,), BATCH.rubric_hash)
    assert found.judge == Judge(id="ann", kind="human")
    assert [(entry.item_id, entry.number) for entry in found.entries] == [
        (item.id, n) for n, item in enumerate(BATCH.items, start=1)
    ]
    given = Answer(scores={"relevance": 4, "actionability": 2, "tone": 5}, overlong=True, note="hm ☕")
    assert [entry.answer for entry in found.entries] == [
        given if n == 1 else Answer(scores=None) for n in range(12)
    ]
    assert [entry.line for entry in found.entries] == LINES


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + FILLED.encode(),
        FILLED.replace("\n", "\r\n").encode(),
        json.dumps(json.loads(FILLED)).encode(),
        json.dumps(json.loads(FILLED), sort_keys=True, indent=4).encode(),
        FILLED.replace(NULLS, '"judge": null').encode(),
        FILLED.replace(NULLS, '"judge": {}').encode(),
    ],
    ids=["byte order mark", "windows", "one line", "sorted", "null", "empty"],
)
def test_a_file_may_be_saved_in_another_way(data: bytes) -> None:
    """What editors and scripts do to a file's form does not matter."""
    expected = [entry.answer for entry in checked(FILLED).entries]
    assert [entry.answer for entry in checked(data).entries] == expected


def test_an_agent_names_its_model() -> None:
    """Names are stripped; a model is optional."""
    by = {"id": " claude ", "kind": "agent", "model": "m-1"}
    assert checked(edited(lambda file: file.update(judged_by=by))).judge == Judge(
        id="claude", kind="agent", model="m-1"
    )
    del by["model"]
    assert checked(edited(lambda file: file.update(judged_by=by))).judge == Judge(id="claude", kind="agent")


def replaced(old: str, new: str) -> str:
    assert old in FILLED
    return FILLED.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (replaced('"note": "hm ☕"}', '"note": "hm ☕",}'), "item 2: there is a comma before '}'; remove it"),
        (replaced('"tone": 5,', '"tone": 5, // good'), "item 2: JSON has no comments; remove '// good"),
        (replaced('"tone": 5', "'tone': 5"), "item 2: a key stands in double quotes (\"), not in '"),
        (replaced('"tone": 5,', '"tone": 5'), "item 2: a comma is missing after this"),
        (replaced('"tone": 5', '"tone: 5'), "item 2: after the key"),
        (replaced('"tone": 5', '"tone": NaN'), "item 2: 'NaN' is not JSON"),
        (replaced('"tone": 5', '"tone": 5, "tone": 4'), "item 2: 'tone' is there twice"),
        (replaced('"tone": 5', '"tone": "5"'), "item 2: tone is the text '5'; write 5 without quotation"),
        (replaced('"tone": 5', '"tone": 4.5'), "item 2: tone is 4.5; write a whole number from 1 to 5"),
        (replaced('"tone": 5', '"tone": 4.0'), "item 2: tone is 4.0; write 4"),
        (replaced('"tone": 5', '"tone": true'), "item 2: tone is true; write a whole number"),
        (replaced('"tone": 5', '"tone": 0'), "item 2: tone is 0, which is not between 1 and 5"),
        (replaced('"tone": 5', '"tone": null'), "item 2: tone has no score, but the others have"),
        (replaced('"tone": 5', '"tonne": 5'), "item 2: there is no 'tonne' to judge; did you mean 'tone'?"),
    ],
)  # fmt: skip
def test_a_slip_in_an_answer_names_item_and_line(text: str, says: str) -> None:
    """Each usual slip is one sentence with `file:line:` in front and the item's number in it."""
    with pytest.raises(BadInput) as caught:
        checked(text)
    message = str(caught.value)
    assert message.startswith(f"b.json:{LINES[1]}: {says}")
    assert "\n" not in message


def test_a_bracket_that_is_missing_leads_to_its_item() -> None:
    """The item's own bracket closes the answer, so it is found out where the next item begins."""
    [(line, message)] = mistakes(replaced('"hm ☕"}', '"hm ☕"'))
    assert line == LINES[1] + 2
    assert message.startswith("item 2: here is '{' where a key should be; a '}' may be missing")
    assert message.endswith(f"the '{{' of line {LINES[0] + 2} is still open")


def test_all_wrong_scores_are_told_at_once() -> None:
    """One line for each mistake, up to a hundred, and then how many more there are."""
    text = NAMED.replace('"relevance": null', '"relevance": 9')
    with pytest.raises(JudgeFileError) as caught:
        checked(text)
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.mistakes) == 24
    assert lines[0] == f"b.json:{LINES[0]}: item 1: relevance is 9, which is not between 1 and 5"
    many = str(JudgeFileError("b.json", [(line, "wrong") for line in range(1, 151)])).split("\n")
    assert (many[99], many[100:]) == ("b.json:100: wrong", ["and 50 more"])


def first(items: list[dict[str, Any]], **values: object) -> None:
    items[0].update(values)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: file.pop("schema"), "this is not a judge's file"),
        (lambda file: file.update(schema="tipbench-judge-9"), 'the schema is "tipbench-judge-9"; this'),
        (lambda file: file.pop("rubric"), "the file has no 'rubric' any more; put it back"),
        (lambda file: file.update(judged_bye=1), "unknown key 'judged_bye'; did you mean 'judged_by'?"),
        (lambda file: file.update(batch=7), "'batch' must be a text"),
        (lambda file: file.update(batch="other"), "the file is of batch 'other', not of 'batch-1'"),
        (lambda file: file.update(rubric_hash="x"), "'rubric_hash' is not the one that was exported"),
        (lambda file: file.update(rubric_id="x"), "'rubric_id' was changed; put it back"),
        (lambda file: file["rubric"].append("And be kind."), "'rubric' was changed; put it back"),
        (lambda file: file["instructions"].pop(), "'instructions' or 'frozen' was changed"),
        (lambda file: file.update(frozen="0" * 64), "'instructions' or 'frozen' was changed"),
        (lambda file: file.update(items={}), "'items' must be the list that was exported"),
        (lambda file: file["items"].pop(3), "item 4 is missing; put it back"),
        (lambda file: file["items"].append(file["items"][2]), "item 3 is there twice, first on line"),
        (lambda file: file["items"].append(7), "item 13: there is no such id in the batch"),
        (lambda file: file["items"].insert(0, file["items"].pop()), "item 12 stands before item 1; put them"),
        (lambda file: first(file["items"], id="0" * 12), "item 1: there is no such id in the batch"),
        (lambda file: first(file["items"], tip="better"), "item 1: 'tip' was changed; put it back"),
        (lambda file: first(file["items"], context=["x"]), "item 1: 'context' was changed"),
        (lambda file: first(file["items"], scenario="x"), "item 1: 'scenario' was changed"),
        (lambda file: first(file["items"], number=True), "item 1: 'number' was changed"),
        (lambda file: first(file["items"], tone=4), "item 1 has the unknown key 'tone'; answers stand in"),
        (lambda file: file["items"][0].pop("judge"), "item 1 has no 'judge' any more; put it back"),
        (lambda file: first(file["items"], judge=4), "item 1: 'judge' must be an object with the scales"),
        (lambda file: file.update(judged_by="ann"), "'judged_by' must be an object"),
        (lambda file: file["judged_by"].update(id=None), "the 'id' in 'judged_by' is missing; write a name"),
        (lambda file: file["judged_by"].update(id="  "), "the 'id' in 'judged_by' is missing"),
        (lambda file: file["judged_by"].update(id=5), "the 'id' in 'judged_by' is missing"),
        (lambda file: file["judged_by"].pop("id"), "the 'id' in 'judged_by' is missing"),
        (lambda file: file["judged_by"].update(id="a\nb"), "the 'id' in 'judged_by' must be one line"),
        (lambda file: file["judged_by"].update(id="a" * 101), "one line of at most 100 characters"),
        (lambda file: file["judged_by"].update(id="\ud800"), "which cannot be kept"),
        (lambda file: file["judged_by"].update(kind=None), 'is null; write "human" or "agent"'),
        (lambda file: file["judged_by"].update(kind="humann"), "did you mean 'human'?"),
        (lambda file: file["judged_by"].update(kind="ai"), 'the \'kind\' in \'judged_by\' is "ai"; write'),
        (lambda file: file["judged_by"].update(kind=["human"]), "the 'kind' in 'judged_by' is [\"human\"]"),
        (lambda file: file["judged_by"].update(model=4), "the 'model' in 'judged_by' is missing"),
        (lambda file: file["judged_by"].update(name="x"), "unknown key 'name'; there are id, kind, model"),
    ],
)  # fmt: skip
def test_what_must_not_be_changed_is_named(change: Callable[[dict[str, Any]], object], says: str) -> None:
    """Everything frozen, and who judged, is checked; the one mistake has one sentence that names it."""
    found = mistakes(edited(change))
    assert len(found) == 1
    assert says in found[0][1]


def test_a_change_is_found_on_its_line() -> None:
    """The sentence about an edited text leads to the line where it stands."""
    tip = next(n for n, line in enumerate(FILLED.split("\n"), start=1) if '"tip":' in line)
    lines = FILLED.split("\n")
    lines[tip - 1] = '      "tip": "better",'
    assert mistakes("\n".join(lines)) == [(tip, "item 1: 'tip' was changed; put it back as it was exported")]


def test_a_forged_hash_does_not_help() -> None:
    """Whoever edits a text and hashes it anew is found out by the batch itself."""

    def forge(file: dict[str, Any]) -> None:
        file["items"][0]["tip"] = "better"
        file["frozen"] = frozen_hash(file)

    assert "'tip' was changed" in mistakes(edited(forge))[0][1]


def test_other_instructions_of_another_version_do_no_harm() -> None:
    """A file exported by a version with other instructions is accepted: it is whole by its own hash."""

    def older(file: dict[str, Any]) -> None:
        file["instructions"] = ["Score."]
        file["frozen"] = frozen_hash(file)

    assert checked(edited(older)).entries[1].answer.scores


def test_an_old_rubric_is_refused() -> None:
    """A batch made before the rubric changed cannot be applied to the new one."""
    file = read_file(FILLED.encode(), path="b.json")
    with pytest.raises(BadInput, match="another text of the rubric 'tip-v1'; export a new batch"):
        check_file(file, BATCH, rubric_text=RUBRIC_TEXT + "\nNew.", scales=SCALES)
    newer = replace(BATCH, rubric_hash=content_hash("new"))
    with pytest.raises(BadInput, match="'rubric_hash' is not the one"):
        check_file(file, newer, rubric_text="new", scales=SCALES)


def test_the_checks_go_in_order() -> None:
    """A wrong schema is reported alone, then a wrong rubric; all other mistakes are reported together."""
    text = edited(lambda file: file["judged_by"].update(id=None), FILLED.replace('"tone": 5', '"tone": 9'))
    text = edited(lambda file: first(file["items"], tip="x"), text)
    together = " ".join(message for _, message in mistakes(text))
    assert "'tip' was changed" in together
    assert "'id' in 'judged_by'" in together
    assert "tone is 9" in together
    steps: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda file: file.update(rubric_hash="x"), "'rubric_hash'"),
        (lambda file: file.update(schema="x"), "the schema"),
    ]
    for change, says in steps:
        text = edited(change, text)
        assert [says in message for _, message in mistakes(text)] == [True]


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"", 1, "the file is empty"),
        (b"[]", 1, "this is not a judge's file: it must begin with '{'"),
        (b"{}", 1, "this is not a judge's file"),
        (b"not json", 1, "this is not a judge's file: it must begin with '{'; `tipbench judge export"),
        (b'{\n"a": "\xff"}', 2, "byte 0xff is not UTF-8; save the file as UTF-8"),
        ("é".encode("utf-16"), 1, "is not UTF-8"),
        (b" " * (LARGEST_BYTES + 1), 1, "at most 20 MB"),
        (b"[" * 200_000, 1, "more than 30 brackets"),
    ],
    ids=["empty", "list", "object", "words", "latin", "utf-16", "large", "deep"],
)
def test_other_files_are_refused_kindly(data: bytes, line: int, says: str) -> None:
    """Whatever file is given by mistake, the answer is a sentence with a line."""
    found = mistakes(data)
    assert len(found) == 1
    assert found[0][0] == line
    assert says in found[0][1]


SCORES = st.fixed_dictionaries({scale.name: st.integers(scale.low, scale.high) for scale in SCALES})
ANSWERS = st.lists(
    st.none()
    | st.tuples(SCORES, st.sampled_from([None, True, False]), st.none() | st.text('ab"\\é☕\n', max_size=9)),
    min_size=12,
    max_size=12,
)


@given(ANSWERS)
def test_any_answers_come_back_as_they_were_given(answers: list[Any]) -> None:
    """Writing, filling in and reading gives exactly the scores, objections and notes that were written."""
    document = json.loads(NAMED)
    for item, answer in zip(document["items"], answers, strict=True):
        if answer:
            item["judge"].update(answer[0], overlong=answer[1], note=answer[2])
    found = checked(json.dumps(document, ensure_ascii=False, indent=2))
    assert [
        entry.answer.scores and (dict(entry.answer.scores), entry.answer.overlong, entry.answer.note)
        for entry in found.entries
    ] == [answer and (answer[0], answer[1], answer[2] or "") for answer in answers]


BYTES = st.tuples(st.just("byte"), st.integers(0, len(FILLED.encode()) - 1), st.integers(0, 255))
CUTS = st.tuples(st.just("cut"), st.integers(0, FILLED.count("\n")), st.just(0))
COPIES = st.tuples(st.just("copy"), st.integers(0, FILLED.count("\n")), st.just(0))
SPOTS = [n for n, char in enumerate(FILLED) if char == ":"]
WORDS = ("1", "5", "6", "null", "true", '"3"', "2.0", "[]", "{}", "-1", "1e0", "x", '""', "3,", "/**/4")
VALUES = st.tuples(st.just("value"), st.integers(0, len(SPOTS) - 1), st.integers(0, len(WORDS) - 1))
ANSWER_SPOTS = st.tuples(
    st.just("answer"), st.integers(0, FILLED.count(": null") - 1), st.integers(0, len(WORDS) - 1)
)
EDITS = st.lists(st.one_of(BYTES, CUTS, COPIES, VALUES, ANSWER_SPOTS), min_size=1, max_size=4)


def apply_edit(data: bytes, edit: tuple[str, int, int]) -> bytes:
    kind, place, what = edit
    if kind == "byte":
        return data[:place] + bytes([what]) + data[place + 1 :]
    lines = data.split(b"\n")
    if kind in {"cut", "copy"}:
        at = place % len(lines)
        return b"\n".join(lines[:at] + ([lines[at]] * 2 if kind == "copy" else []) + lines[at + 1 :])
    word = WORDS[what].encode()
    if kind == "value":
        spot = len(FILLED[: SPOTS[place]].encode())
        end = min((n for n in (data.find(mark, spot) for mark in (b",", b"}", b"\n")) if n > 0), default=spot)
        return data[: spot + 1] + b" " + word + data[end:]
    parts = data.split(b": null")
    at = place % max(1, len(parts) - 1) + 1
    return b": null".join(parts[:at]) + b": " + word + b": null".join(parts[at:])


@settings(max_examples=400)
@given(EDITS)
def test_no_edit_makes_scores_that_nobody_gave(edits: list[tuple[str, int, int]]) -> None:
    """Whatever is done to a file: either it is refused with a sentence, or its scores are what it says."""
    data = FILLED.encode()
    for edit in edits:
        data = apply_edit(data, edit)
    try:
        found = checked(data)
    except JudgeFileError:
        return
    document = json.loads(data)
    assert [item["id"] for item in document["items"]] == [item.id for item in BATCH.items]
    assert [item["tip"] for item in document["items"]] == [item.text for item in BATCH.items]
    for entry, item in zip(found.entries, document["items"], strict=True):
        standing = item["judge"] or {}
        given = {scale.name: standing.get(scale.name) for scale in SCALES}
        assert entry.answer.scores == (None if set(given.values()) == {None} else given)
        assert all(type(score) is int for score in (entry.answer.scores or {}).values())
    assert found.judge.id == document["judged_by"]["id"].strip()


def test_an_untouched_file_needs_a_judge() -> None:
    """A file as it was exported, without a name, says what is missing."""
    assert [message.split(" is ")[0] for _, message in mistakes(EMPTY)] == [
        "the 'id' in 'judged_by'",
        "the 'kind' in 'judged_by'",
    ]
