"""A judge's file as it comes back: read with its lines, and compared with the batches that it was made from.

The checks for JSON, schema, batches and rubric go in this order, and the first that fails ends them. Then all
mistakes in the frozen part, in `judged_by` and in the scores are reported together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tipbench.errors import JudgeFileError
from tipbench.judge.answers import Answer, read_answer, unwritable
from tipbench.judge.judge_file import (
    FILE_ITEM_KEYS,
    FILE_KEYS,
    JUDGED_BY_KEYS,
    SCHEMA,
    SCHEMA_SEVERAL,
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
_EXPORT = "`tipbench judge export --out FILE.json` writes one"


@dataclass(frozen=True, kw_only=True)
class JudgeFile:
    """A file that is JSON of the right schema. `batch_ids` names the batches that it was made from."""

    path: Path | str
    batch_ids: tuple[str, ...]
    root: Node
    members: Mapping[str, Node]

    @property
    def batches_line(self) -> int:
        """The line that names the batches."""
        return (self.members.get("batch") or self.members["batches"]).line


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One item's answer, and the line on which it stands."""

    item_id: str
    number: int
    line: int
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class FilledFile:
    """The judge, and an entry for every item of the file in its order, also for items without scores."""

    path: Path | str
    batch_ids: tuple[str, ...]
    rubric_hash: str
    judge: Judge
    entries: tuple[Entry, ...]


def read_file(data: bytes, *, path: Path | str) -> JudgeFile:
    """The file before it is compared with its batch; a JudgeFileError where it is no judge's file."""
    text = _decoded(data, path)
    looks_like_json = not text.strip() or text.lstrip()[0] in "{["
    root = _parsed(text, path) if looks_like_json else None
    if root is None or not isinstance(root.value, dict):
        raise JudgeFileError(path, [(1, f"this is not a judge's file: it must begin with '{{'; {_EXPORT}")])
    members = root.value
    _raise(path, _wrong_schema(root, members))
    named = members["batch"].plain() if "batch" in members else tuple(members["batches"].plain())
    batch_ids = named if isinstance(named, tuple) else (named,)
    return JudgeFile(path=path, batch_ids=batch_ids, root=root, members=members)


def check_file(file: JudgeFile, *batches: Batch, rubric_text: str, scales: Sequence[Scale]) -> FilledFile:
    """Return the judge and the answers of a file in which nothing but answers was added to these batches.

    `rubric_text` is the rubric that the experiment has now. Raises a JudgeFileError with all mistakes.
    """
    expected = json.loads(json.dumps(frozen_part(*batches, rubric_text=rubric_text, scales=scales)))
    _raise(file.path, _wrong_batches(file, batches))
    _raise(file.path, _wrong_rubric(file, batches, rubric_text))
    judged_by = file.members["judged_by"]
    entries, wrong_answers = _entries(file, expected, scales)
    _raise(file.path, [*_thawed(file, expected), *_wrong_judge(judged_by), *wrong_answers])
    return FilledFile(
        path=file.path,
        batch_ids=file.batch_ids,
        rubric_hash=batches[0].rubric_hash,
        judge=_judge(judged_by),
        entries=tuple(entries),
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
        yield root.line, f"this is not a judge's file: the key 'schema' is missing; {_EXPORT}"
        return
    if schema.value not in (SCHEMA, SCHEMA_SEVERAL):
        known = f'"{SCHEMA}" and "{SCHEMA_SEVERAL}"'
        yield schema.line, f"the schema is {_shown(schema)}; this version of tipbench reads {known}"
        return
    yield from _wrong_keys(root, FILE_KEYS[schema.value], "the file")
    batch, batches = members.get("batch"), members.get("batches")
    if batch and not isinstance(batch.value, str):
        yield batch.line, "'batch' must be a text, as it was in the file that was exported"
    if batches and not _are_ids(batches.plain()):
        yield batches.line, "'batches' must be a list of different texts, as it was in the exported file"


def _are_ids(value: object) -> bool:
    """Whether the value is a list of different texts with at least one."""
    texts = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    return isinstance(value, list) and 0 < len(value) == len(set(texts))


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


def _wrong_batches(file: JudgeFile, batches: Sequence[Batch]) -> Iterator[Found]:
    known = tuple(batch.batch_id for batch in batches)
    if file.batch_ids != known:
        named = _cut(", ".join(file.batch_ids))
        yield file.batches_line, f"the file is of batch '{named}', not of '{_cut(', '.join(known))}'"


def _wrong_rubric(file: JudgeFile, batches: Sequence[Batch], rubric_text: str) -> Iterator[Found]:
    node = file.members["rubric_hash"]
    now = content_hash(rubric_text)
    for batch in batches:
        if node.value != batch.rubric_hash:
            yield node.line, "'rubric_hash' is not the one that was exported; put it back"
            return
        if batch.rubric_hash != now:
            rubric = f"another text of the rubric '{batch.rubric_id}'"
            yield node.line, f"the batch was made under {rubric}; export a new batch"
            return


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
    keys = FILE_ITEM_KEYS[SCHEMA_SEVERAL if "batch" in expected else SCHEMA]
    yield from _wrong_keys(node, keys, what)
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


def _entries(file: JudgeFile, expected: Document, scales: Sequence[Scale]) -> tuple[list[Entry], list[Found]]:
    """The answers that can be read, and the mistakes in the others. Unknown ids are reported elsewhere."""
    numbers = {item["id"]: item["number"] for item in expected["items"]}
    items = file.members["items"].value
    entries, found = [], list[Found]()
    for node in items if isinstance(items, list) else []:
        item_id = _text(node, "id")
        judge = node.value.get("judge") if isinstance(node.value, dict) else None
        if item_id not in numbers or judge is None:
            continue
        answer = _answer(judge, scales)
        if isinstance(answer, Answer):
            entries.append(Entry(item_id=item_id, number=numbers[item_id], line=judge.line, answer=answer))
        else:
            found += [(line, f"item {numbers[item_id]}: {message}") for line, message in answer]
    return entries, found


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
