"""The check of replies against the schemas that suites send, with `jsonschema` as the witness."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipbench.engine.json_schema import can_begin, follows_schema
from tipbench.suite import Reply

LIST = Reply(kind="list", noun="tip", max_chars=6).schema(2)
TEXT = Reply(kind="text", noun="text", max_chars=6).schema(1)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "more"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(value=json_values, schema=st.sampled_from([LIST, TEXT]))
def test_the_check_agrees_with_a_full_validator(value: object, schema: dict[str, Any]) -> None:
    """Any JSON value is judged as `jsonschema` judges it."""
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert follows_schema(json.dumps(value), schema) == expected


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ('["a", "b"]', True),
        (' \n["a", "b"]\n', True),
        ('["a", "b"', False),
        ('["a", "b"] and more', False),
        ('```json\n["a", "b"]\n```', False),
        ("", False),
        ('["a", NaN]', False),
        ('["\\ud83d\\ude00\\ud83d\\ude00", "b"]', True),
        ("[" * 100_000, False),
    ],
)
def test_only_one_json_value_alone_is_a_valid_reply(text: str, follows: bool) -> None:  # noqa: FBT001
    """Text around it, a code block, and what is not JSON break the schema."""
    assert follows_schema(text, LIST) is follows


def test_a_key_twice_is_not_valid() -> None:
    """No grammar writes it."""
    assert not follows_schema('{"text": "a", "text": "b"}', TEXT)


@pytest.mark.parametrize(
    ("text", "schema", "can"),
    [('["a', LIST, True), ("", LIST, True), ("Sure", LIST, False), ('{"te', TEXT, True), ("[", TEXT, False)],
)
def test_a_cut_reply_is_judged_by_its_beginning(text: str, schema: dict[str, Any], can: bool) -> None:  # noqa: FBT001
    """The first character shows whether the host obeyed the schema."""
    assert can_begin(text, schema) is can
