from __future__ import annotations

from typing import Any

import pytest

from tipbench.engine.embedded.asks import (
    LONGEST_KEEP_ALIVE,
    ApiError,
    Options,
    chat_ask,
    generate_ask,
    keep_alive_of,
    read_json,
)

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (30, 30.0),
        (0.5, 0.5),
        (-1, LONGEST_KEEP_ALIVE),
        ("0", 0.0),
        ("5m", 300.0),
        ("30s", 30.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("200ms", 0.2),
        ("-1", LONGEST_KEEP_ALIVE),
        ("-1s", LONGEST_KEEP_ALIVE),
        (1e300, LONGEST_KEEP_ALIVE),
    ],
)
def test_keep_alive_is_read_as_ollama_reads_it(value: object, seconds: float | None) -> None:
    """Numbers are seconds, texts are times with units, and anything below zero is for ever."""
    assert keep_alive_of(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "soon", "5", "5 m", "m", "1x", True, [], {}])
def test_a_time_that_is_none_is_refused(value: object) -> None:
    """A keep_alive that cannot be read is a bad request, not the default."""
    with pytest.raises(ApiError) as caught:
        keep_alive_of(value)
    assert caught.value.status == 400


def test_the_defaults_are_ollamas() -> None:
    """Without options a request streams, keeps what the engine keeps, and samples as Ollama does."""
    ask = chat_ask({"model": "m", "messages": HELLO})
    assert (ask.stream, ask.keep_alive, ask.schema) == (True, None, None)
    assert ask.options == Options()
    assert (ask.options.temperature, ask.options.top_p, ask.options.num_ctx) == (0.8, 0.9, 4096)


def test_options_are_read_by_name() -> None:
    """Known options arrive in their types, 64.0 is a whole number, unknown ones are passed over."""
    given = {"temperature": 1, "seed": 7.0, "num_ctx": 64.0, "stop": ["x"], "min_p": None, "no_such": "thing"}
    options = chat_ask({"model": "m", "messages": HELLO, "options": given}).options
    assert options == Options(temperature=1.0, seed=7, num_ctx=64, stop=("x",))
    assert type(options.seed) is int


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({}, "model is required"),
        ({"model": ""}, "model is required"),
        ({"model": 5}, "model must be of type string"),
        ({"model": "m", "messages": "hi"}, "messages must be of type array"),
        ({"model": "m", "messages": ["hi"]}, "array of objects"),
        ({"model": "m", "messages": [{"content": "hi"}]}, "needs a role"),
        ({"model": "m", "messages": [{"role": "user", "content": 5}]}, "content must be of type string"),
        ({"model": "m", "messages": [{"role": "user", "content": "", "images": ["aGk="]}]}, "images"),
        ({"model": "m", "stream": "no"}, "stream must be of type boolean"),
        ({"model": "m", "options": []}, "options must be of type object"),
        ({"model": "m", "options": {"temperature": "hot"}}, 'option "temperature" must be of type float32'),
        ({"model": "m", "options": {"seed": True}}, 'option "seed" must be of type integer'),
        ({"model": "m", "options": {"seed": 10**400}}, 'option "seed" must be of type integer'),
        ({"model": "m", "options": {"stop": "x"}}, 'option "stop" must be of type array'),
        ({"model": "m", "options": {"stop": [1]}}, "array of strings"),
        ({"model": "m", "format": "xml"}, 'invalid format: "xml"'),
        ({"model": "m", "format": 5}, "invalid format"),
        ({"model": "m", "think": True}, '"m" does not support thinking'),
        ({"model": "m", "think": "high"}, '"m" does not support thinking'),
        ({"model": "m", "think": "hard"}, 'invalid think value: "hard"'),
        ({"model": "m", "tools": [{"type": "function"}]}, "m does not support tools"),
        ({"model": "m", "logprobs": True}, "m does not support logprobs"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(body: dict[str, Any], complaint: str) -> None:
    """Every wrong field is answered with a 400 that names it."""
    with pytest.raises(ApiError) as caught:
        chat_ask(body)
    assert caught.value.status == 400
    assert complaint in caught.value.message


def test_think_off_is_fine() -> None:
    """A client may say that it wants no thinking."""
    assert chat_ask({"model": "m", "messages": HELLO, "think": False}).messages


def test_a_generate_request_is_a_chat_unless_raw() -> None:
    """Prompt and system text become messages; raw text stays as it is."""
    ask = generate_ask({"model": "m", "prompt": "Hi", "system": "Be brief"})
    assert [(m["role"], m["content"]) for m in ask.messages] == [("system", "Be brief"), ("user", "Hi")]
    raw = generate_ask({"model": "m", "prompt": "Hi", "raw": True})
    assert (raw.raw_prompt, raw.messages) == ("Hi", ())
    assert generate_ask({"model": "m", "system": "Be brief"}).is_empty


@pytest.mark.parametrize(
    "extra",
    [{"raw": True, "system": "x"}, {"template": "{{ .Prompt }}"}, {"suffix": "x"}, {"context": ["a"]}],
)
def test_what_generate_cannot_do_is_refused(extra: dict[str, Any]) -> None:
    """Fields that would be ignored are refused instead."""
    with pytest.raises(ApiError) as caught:
        generate_ask({"model": "m", "prompt": "Hi", **extra})
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body", [b"", b"  ", b"{", b"[]", b"5", b'{"a": NaN}', b"\xff\xfe\xfa", b"[" * 200_000]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """A body that cannot be read is a 400, whatever is wrong with it."""
    with pytest.raises(ApiError) as caught:
        read_json(body)
    assert caught.value.status == 400
