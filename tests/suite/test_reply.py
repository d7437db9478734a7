from __future__ import annotations

import pytest

from tipbench.suite import Reply, load_suite


@pytest.mark.parametrize(("kind", "slots"), [("list", 5), ("text", 1)])
def test_slots(kind: str, slots: int) -> None:
    """A list has as many places as were asked for, a text has one."""
    suite = load_suite("tip" if kind == "list" else "support-summary")
    assert suite.reply.slots(5) == slots


def test_a_list_schema_is_bounded_in_every_way() -> None:
    """Exactly n strings, none empty, none without end."""
    assert Reply(kind="list", noun="tip", max_chars=50).schema(3) == {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 50},
        "minItems": 3,
        "maxItems": 3,
    }


def test_a_text_schema_is_one_object() -> None:
    """A text is one bounded string in an object that has nothing else."""
    schema = Reply(kind="text", noun="summary", max_chars=50).schema(3)
    assert schema["properties"] == {"text": {"type": "string", "minLength": 1, "maxLength": 50}}
    assert schema["required"] == ["text"]
    assert schema["additionalProperties"] is False


def test_only_a_schema_prompt_sends_one() -> None:
    """`output: schema` sends the schema along; the other prompts send none."""
    suite = load_suite("tip")
    sent = {prompt.id: prompt.schema(suite.reply, n_tips=4) for prompt in suite.prompts}
    assert sent.pop("v4-structured") == suite.reply.schema(4)
    assert set(sent.values()) == {None}
    assert {prompt.asked for prompt in suite.prompts} == {"json"}
