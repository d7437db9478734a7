"""A judge's file as it comes back: read with its lines, and compared with the batch it was made from.

The checks go in order, and the first that fails ends them: JSON, schema, batch, rubric, what is frozen, who
judged, the scores. Each one tells all that it finds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tipbench.errors import JudgeFileError
from tipbench.judge.answers import Answer, read_answer, unwritable
from tipbench.judge.judge_file import (
    ITEM_KEYS,
    JUDGED_BY_KEYS,
    KEYS,
    SCHEMA,
    canonical,
    frozen_hash,
    frozen_part,
)
from tipbench.judge.located_json import JsonMistake, Node, parse_json
from tipbench.records import Judge, content_hash
from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tipbench.judge.judge_file import Document
    from tipbench.records import Batch
    from tipbench.suite.rubric import Scale

Found = tuple[int, str]

LARGEST_BYTES = 20_000_000
LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class JudgeFile:
    """A file that is JSON of the right schema; `batch_id` says which batch to compare it with."""

    path: Path | str
    batch_id: str
    root: Node
    members: Mapping[str, Node]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One item's answer, and the line on which it stands."""

    item_id: str
    number: int
    line: int
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class FilledFile:
    """What a judge gave: an entry for every item of the batch, in its order, those skipped among them."""

    path: Path | str
    batch_id: str
    rubric_hash: str
    judge: Judge
    entries: tuple[Entry, ...]


def read_file(data: bytes, *, path: Path | str) -> JudgeFile:
    """The file before it is compared with its batch; a JudgeFileError where it is no judge's file."""
    root = _parsed(_decoded(data, path), path)
    if not isinstance(root.value, dict):
        raise JudgeFileError(path, [(root.line, "this is not a judge's file: it must begin with '{'")])
    members = root.value
    _raise(path, _wrong_schema(root, members))
    return JudgeFile(path=path, batch_id=str(members["batch"].value), root=root, members=members)


def check_file(file: JudgeFile, batch: Batch, *, rubric_text: str, scales: Sequence[Scale]) -> FilledFile:
    """Who judged and what they gave, once the file is known to be the batch's own with only answers added.

    `rubric_text` is the rubric that the experiment has now. Nothing is returned where anything is wrong.
    """
    expected = json.loads(json.dumps(frozen_part(batch, rubric_text=rubric_text, scales=scales)))
    _raise(file.path, _wrong_batch(file, batch))
    _raise(file.path, _wrong_rubric(file, batch, rubric_text))
    _raise(file.path, _thawed(file, expected))
    _raise(file.path, _wrong_judge(file.members["judged_by"]))
    return FilledFile(
        path=file.path,
        batch_id=batch.batch_id,
        rubric_hash=batch.rubric_hash,
        judge=_judge(file.members["judged_by"]),
        entries=tuple(_entries(file, expected, scales)),
    )


def _raise(path: Path | str, found: Iterable[Found]) -> None:
    mistakes = sorted(found, key=lambda mistake: mistake[0])
    if mistakes:
        raise JudgeFileError(path, mistakes)


def _decoded(data: bytes, path: Path | str) -> str:
    if len(data) > LARGEST_BYTES:
        raise JudgeFileError(path, [(1, f"a judge's file has at most {LARGEST_BYTES // 1_000_000} MB")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise JudgeFileError(path, [(line, message)]) from None


def _parsed(text: str, path: Path | str) -> Node:
    try:
        return parse_json(text)
    except JsonMistake as mistake:
        message = f"{_item_of(mistake.path)}{mistake.message}"
        raise JudgeFileError(path, [(mistake.line, message)]) from None


def _item_of(place: Sequence[str | int]) -> str:
    inside = len(place) > 1 and place[0] == "items" and isinstance(place[1], int)
    return f"item {int(place[1]) + 1}: " if inside else ""


def _wrong_schema(root: Node, members: Mapping[str, Node]) -> Iterator[Found]:
    schema = members.get("schema")
    if schema is None:
        yield root.line, f"this is not a judge's file: the key 'schema' with \"{SCHEMA}\" is missing"
        return
    if schema.value != SCHEMA:
        yield schema.line, f'the schema is {_shown(schema)}; this version of tipbench reads "{SCHEMA}"'
        return
    yield from _wrong_keys(root, KEYS, "the file")
    batch = members.get("batch")
    if batch and not isinstance(batch.value, str):
        yield batch.line, "'batch' must be a text, as it was in the file that was exported"


def _wrong_keys(node: Node, wanted: Sequence[str], what: str) -> Iterator[Found]:
    """Keys that are missing or too many; what is no object at all has been told before."""
    keys = node.value if isinstance(node.value, dict) else {}
    for key in wanted:
        if key not in keys:
            yield node.line, f"{what} has no '{key}' any more; put it back"
    for key, member in keys.items():
        if key not in wanted:
            near = (
                did_you_mean(key, wanted) or "; answers stand in 'judge', all else stays as it was exported"
            )
            yield member.line, f"{what} has the unknown key '{_cut(key)}'{near}"


def _wrong_batch(file: JudgeFile, batch: Batch) -> Iterator[Found]:
    if file.batch_id != batch.batch_id:
        found = f"the file is of batch '{_cut(file.batch_id)}', not of '{batch.batch_id}'"
        yield file.members["batch"].line, found


def _wrong_rubric(file: JudgeFile, batch: Batch, rubric_text: str) -> Iterator[Found]:
    node = file.members["rubric_hash"]
    if node.value != batch.rubric_hash:
        yield node.line, "'rubric_hash' is not the one that was exported; put it back"
    elif batch.rubric_hash != content_hash(rubric_text):
        yield (
            node.line,
            f"the batch was made under another text of the rubric '{batch.rubric_id}'; export a new batch",
        )


def _thawed(file: JudgeFile, expected: Document) -> list[Found]:
    """What was changed though it is frozen."""
    found = [
        (file.members[key].line, f"'{key}' was changed; put it back as it was exported")
        for key in ("rubric_id", "rubric")
        if canonical(file.members[key].plain()) != canonical(expected[key])
    ]
    found += _changed_items(file.members["items"], expected["items"])
    if found or frozen_hash(file.root.plain()) == file.members["frozen"].value:
        return found
    line = file.members["frozen"].line
    return [(line, "'instructions' or 'frozen' was changed; put it back as it was exported")]


def _changed_items(node: Node, expected: Sequence[Document]) -> Iterator[Found]:
    if not isinstance(node.value, list):
        yield node.line, "'items' must be the list that was exported"
        return
    numbers = {item["id"]: item["number"] for item in expected}
    first: dict[str, int] = {}
    strange: set[int] = set()
    for place, item in enumerate(node.value, start=1):
        item_id = _text(item, "id")
        if item_id not in numbers:
            strange.add(place)
            yield item.line, f"item {place}: there is no such id in the batch; an id must not be changed"
        elif item_id in first:
            yield item.line, f"item {numbers[item_id]} is there twice, first on line {first[item_id]}"
        else:
            first[item_id] = item.line
            yield from _changed_item(item, expected[numbers[item_id] - 1])
    lost = [n for item_id, n in numbers.items() if item_id not in first and n not in strange]
    yield from ((node.line, f"item {n} is missing; put it back") for n in lost)
    yield from _out_of_order(first, numbers)


def _changed_item(node: Node, expected: Document) -> Iterator[Found]:
    what = f"item {expected['number']}"
    members = node.value if isinstance(node.value, dict) else {}
    yield from _wrong_keys(node, ITEM_KEYS, what)
    for key, value in expected.items():
        if key in members and canonical(members[key].plain()) != canonical(value):
            yield members[key].line, f"{what}: '{key}' was changed; put it back as it was exported"


def _out_of_order(first: Mapping[str, int], numbers: Mapping[str, int]) -> Iterator[Found]:
    """The first item that has an earlier one behind it."""
    order = [numbers[item_id] for item_id in first]
    for (item_id, line), following in zip(first.items(), order[1:], strict=False):
        if following < numbers[item_id]:
            yield line, f"item {numbers[item_id]} stands before item {following}; put them back in order"
            return


def _text(node: Node, key: str) -> str:
    """The text under a key, empty where there is none."""
    member = node.value.get(key) if isinstance(node.value, dict) else None
    return member.value if member and isinstance(member.value, str) else ""


def _wrong_judge(node: Node) -> Iterator[Found]:
    if not isinstance(node.value, dict):
        yield node.line, "'judged_by' must be an object with 'id', 'kind' and 'model'"
        return
    for key, member in node.value.items():
        if key not in JUDGED_BY_KEYS:
            known = did_you_mean(key, JUDGED_BY_KEYS) or f"; there are {listed(JUDGED_BY_KEYS)}"
            yield member.line, f"'judged_by' has the unknown key '{_cut(key)}'{known}"
    name, kind, model = (node.value.get(key, Node(None, node.line)) for key in JUDGED_BY_KEYS)
    wrong = _wrong_name(name.value)
    if wrong:
        yield name.line, f"the 'id' in 'judged_by' {wrong}"
    if kind.value not in ("human", "agent"):
        near = did_you_mean(kind.value, ("human", "agent")) if isinstance(kind.value, str) else ""
        yield kind.line, f"the 'kind' in 'judged_by' is {_shown(kind)}; write \"human\" or \"agent\"{near}"
    wrong = _wrong_name(model.value) if model.value not in (None, "") else None
    if wrong:
        yield model.line, f"the 'model' in 'judged_by' {wrong}"


def _wrong_name(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return "is missing; write a name in double quotes, the same every time"
    if len(value) > LONGEST_NAME or len(value.splitlines()) > 1:
        return f"must be one line of at most {LONGEST_NAME} characters"
    held = unwritable(value)
    return f"holds {held}; remove it" if held else None


def _judge(node: Node) -> Judge:
    kind: Literal["human", "agent"] = "human" if _text(node, "kind") == "human" else "agent"
    return Judge(id=_text(node, "id").strip(), kind=kind, model=_text(node, "model").strip())


def _entries(file: JudgeFile, expected: Document, scales: Sequence[Scale]) -> list[Entry]:
    items = file.members["items"].value
    entries, found = [], list[Found]()
    for node, item in zip(items if isinstance(items, list) else [], expected["items"], strict=True):
        members = node.value if isinstance(node.value, dict) else {}
        answer = _answer(members["judge"], scales)
        if isinstance(answer, Answer):
            line = members["judge"].line
            entries.append(Entry(item_id=item["id"], number=item["number"], line=line, answer=answer))
        else:
            found += [(line, f"item {item['number']}: {message}") for line, message in answer]
    _raise(file.path, found)
    return entries


def _answer(node: Node, scales: Sequence[Scale]) -> Answer | list[Found]:
    if node.value is None:
        return Answer(scores=None)
    if not isinstance(node.value, dict):
        return [(node.line, "'judge' must be an object with the scales, or null")]
    answer = read_answer(node.plain(), scales=scales)
    if isinstance(answer, Answer):
        return answer
    lines = {key: member.line for key, member in node.value.items()}
    return [(lines.get(mistake.key, node.line), mistake.message) for mistake in answer]


def _shown(node: Node) -> str:
    return _cut(canonical(node.plain()))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
