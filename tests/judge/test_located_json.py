from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tipbench.judge.located_json import DEEPEST, JsonMistake, Node, parse_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def mistake(text: str) -> JsonMistake:
    with pytest.raises(JsonMistake) as caught:
        parse_json(text)
    return caught.value


@given(PLAIN, st.booleans(), st.sampled_from([None, 0, 2]))
def test_json_is_read_as_the_standard_library_reads_it(value: Any, escaped: bool, indent: int | None) -> None:  # noqa: ANN401, FBT001
    """Any value written by the standard library comes back the same, however it is laid out."""
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    assert parse_json(f" {text}\r\n").plain() == json.loads(text)


JSONISH = st.text(st.sampled_from(list('{}[]",:\\ \n\t0123456789.-+eEtrufalsn/#"x“é\u2028')), max_size=30)


@given(JSONISH)
@example('{"a": 1,}')
@example("[1e999]")
@example("-0")
@example('"\\ud800"')
def test_it_accepts_what_the_standard_library_accepts(text: str) -> None:
    """On any text both agree whether it is JSON, and on what it says; only repeated keys are refused more."""
    try:
        expected = json.loads(text, parse_constant=_refused, object_pairs_hook=_once)
    except ValueError:
        assert mistake(text).line >= 1
        return
    found = parse_json(text).plain()
    assert json.dumps(found) == json.dumps(expected)


def _refused(name: str) -> None:
    raise ValueError(name)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def test_every_value_has_its_line() -> None:
    """A value's line is that of its first character, counted from one, with any line ends."""
    root = parse_json('{\r\n"a": [1,\r\n\r\n"x"], "b":\r\n{}}')
    assert isinstance(root.value, dict)
    items = root.value["a"].value
    assert isinstance(items, list)
    assert [root.line, root.value["a"].line, *(item.line for item in items), root.value["b"].line] == [
        1,
        2,
        2,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "the file is empty"),
        ("  \n ", 1, "the file is empty"),
        ('{"a": 1,\n}', 1, "a comma before '}'; remove it"),
        ('{"a": [1,\n2,\n]}', 2, "a comma before ']'; remove it"),
        ('{"a": 1,, "b": 2}', 1, "a comma too many"),
        ("[1,,2]", 1, "a value is missing before ','"),
        ('{\n"a": 1 // good\n}', 2, "JSON has no comments; remove '// good'"),
        ('{\n"a": 1, /* no */ "b": 2}', 2, "JSON has no comments"),
        ('{\n# hm\n"a": 1}', 2, "JSON has no comments; remove '# hm'"),
        ("{'a': 1}", 1, "a key stands in double quotes (\"), not in '"),
        ('{"a":\n\'x\'}', 2, "a text stands in double quotes (\"), not in '"),
        ('{"a": “x”}', 1, 'a text stands in double quotes ("), not in “'),
        ("{a: 1}", 1, 'a key stands in double quotes: write "a"'),
        ('{"a": fine}', 1, "a text stands in double quotes, but here is 'fine}' without them"),
        ('{"a": 1\n"b": 2}', 1, "a comma is missing after this"),
        ("[1\n2]", 1, "a comma is missing after this"),
        ('[{"a": 1}\n\n{"a": 2}]', 1, "a comma is missing after this"),
        ('{"a": "he said "hi" to me"}', 1, 'a quotation mark inside a text is written \\"'),
        ('{"a": "x\n, "b": 2}', 1, "a quotation mark is missing"),
        ('{"a": 1, "b', 1, "a quotation mark is missing"),
        ('{"a: 1, "b": 2}', 1, "is a quotation mark missing?"),
        ('{"a" 1}', 1, "there must be ':'"),
        ('{"a": 1\n\n', 1, "'}' is missing: the '{' of line 1 is not closed when the file ends"),
        ('{"a": [1\n}', 2, "']' is missing: the '[' of line 1 is not closed before this '}'"),
        ('[{"a": 1\n]', 2, "'}' is missing"),
        ('[{"a": 1,\n{"a": 2}]', 2, "a '}' may be missing, for the '{' of line 1 is still open"),
        ('{"a":', 1, "the file ends where a value should be"),
        ('{"a":\n}', 2, "a value is missing before '}'; write null"),
        ('{"a": NaN}', 1, "'NaN' is not JSON; write null"),
        ('{"a": -Infinity}', 1, "'-Infinity' is not JSON"),
        ('{"a": None}', 1, "'None' is not JSON; write null"),
        ('{"a": True}', 1, "'True' is not JSON; write true"),
        ('{"a": 04}', 1, "'04' is not a number as JSON writes it"),
        ('{"a": +4}', 1, "'+4' is not a number"),
        ('{"a": .5}', 1, "'.5' is not a number"),
        ('{"a": 4/5}', 1, "here is '/5}' where a comma"),
        ('{"a": 1,\n"a": 2}', 2, "'a' is there twice, first on line 1"),
        ('{"a": "\tx"}', 1, "inside a text '\\t' is written with a backslash"),
        ('{"a": "C:\\dir"}', 1, "a backslash in a text is written twice"),
        ('{"a": "\\u12"}', 1, "a backslash in a text is written twice"),
        ('{"a": 1} {"b": 2}', 1, "something after the end: '{\"b\": 2}'"),
        ("\x00", 1, "here is '\\x00' where a value should be"),
        ("[1] \ufeff", 1, "something after the end"),
        ("9" * 500, 1, "a number of 500 digits"),
    ],
)  # fmt: skip
def test_what_people_get_wrong_is_said_plainly(text: str, line: int, says: str) -> None:
    """Each usual mistake has its sentence and its line."""
    found = mistake(text)
    assert (found.line, says in found.message) == (line, True), found.message
    assert "\n" not in found.message


def test_a_mistake_knows_where_it_is() -> None:
    """The keys and places that lead to a mistake are told with it."""
    assert mistake('{"items": [{}, {"judge": {"tone": x}}]}').path == ("items", 1, "judge", "tone")
    assert mistake('{"items": [{}, {"judge": {"tone": 1}]}').path == ("items", 1)


def test_brackets_without_end_are_refused() -> None:
    """A hundred thousand brackets give a sentence, not a crash."""
    for opener in ("[", '{"a":'):
        assert f"more than {DEEPEST} brackets" in mistake(opener * 100_000).message
    assert isinstance(parse_json("[" * DEEPEST + "]" * DEEPEST), Node)


def test_large_numbers_are_numbers() -> None:
    """What is too large for a float is infinite, as in the standard library."""
    assert parse_json("1e999").plain() == math.inf
