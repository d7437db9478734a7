"""Texts in messages: addresses without user, password and query, and no words of other libraries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from tipbench.errors import BadSetting, SuiteError, TipbenchError
from tipbench.text import hide_logins, plain_problem, without_login


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://h:1/x", "http://h:1/x"),
        ("http://u@h", "http://h"),
        ("http://u:hush@h:1/x", "http://h:1/x"),
        ("http://u:hu@sh@h", "http://h"),
        ("http://:hush@h:1", "http://h:1"),
        ("http://u:hu%40sh@h", "http://h"),
        ("http://u:hu/sh@h:1/x", "http://h:1/x"),
        ("http://u:hu?sh@h", "http://h"),
        ("http://u:hu#sh@h", "http://h"),
        ("http://u:hu sh@h", "http://h"),
        ("http://u:hush@/hush@h", "http://h"),
        ("http://u:hush@[::1]:5/x", "http://[::1]:5/x"),
        ("http://u:hush@[::1", "http://[::1"),
        ("http://u:hush@h:port", "http://h:port"),
        ("http://u:hush@h:99999", "http://h:99999"),
        ("http://h/hook?token=hush#x", "http://h/hook"),
        ("http://h?token=hu@sh", "http://h"),
        ("http://h/@anna", "http://h/@anna"),
        ("http://u:hush@h:1/a@b", "http://h:1/a@b"),
        ("u:hush@h:1", "h:1"),
        ("http:/u:hush@h", "h"),
        ("h:1", "h:1"),
        ("postgresql+psycopg://u:hush@h,h2/db?password=hush", "postgresql+psycopg://h,h2/db"),
        ("sqlite:////folder/a@b.db", "sqlite:////folder/a@b.db"),
        ("/folder/a@b", "/folder/a@b"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    """A password may hold what ends an address elsewhere; an @ in a path is no login."""
    assert without_login(address) == shown
    assert without_login(shown) == shown


@given(st.text("abc:/@?#%[]. \\", max_size=20), st.text("abc:/@?#%[]. \\", max_size=20))
def test_a_wrong_address_shows_nothing_before_its_last_at(before: str, after: str) -> None:
    """Where an address cannot be read, all that may be a password is left out."""
    shown = without_login(f"http://{before}hush@{after}", is_wrong=True)
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no address at all: a@b", "no address at all: a@b"),
        ("see 'http://u:hush@h:1/x?y=hush', please", "see 'http://h:1/x', please"),
        ("(http://a/b?c=hush) is http://h:1.", "(http://a/b) is http://h:1."),
        ("is it http://u:hush@h?", "is it http://h?"),
        ('{"a":"http://u:hush@h","who":"x@y"}', '{"a":"http://h","who":"x@y"}'),
        ("http://u:hush@a and postgresql://v:hush@b/c", "http://a and postgresql://b/c"),
        ("1http://u:hush@h", "1http://h"),
        ("HTTP://u:hush@h:1/x", "HTTP://h:1/x"),
        ("no Ollama at http://u:hush hush@h:1/x, yet", "no Ollama at http://h:1/x, yet"),
        ("http://an na:hush@h", "http://h"),
        ("http://u:12 hush@h:1", "http://h:1"),
        ('http://u:hu"hush@h', "http://h"),
        ('http://u:12"hush@h', "http://h"),
        ("http://u:hu'hush@h", "http://h"),
        ("http://u:hu<hush>@h", "http://h"),
        ("http://h:port and http://u:hush@k", "http://h:port and http://k"),
        ("is 'u:hush@host:11434' right?", "is 'host:11434' right?"),
        ("--ollama-url=u:hush@host", "--ollama-url=host"),
        ("http://h:80 is away, write to anna@example.com", "http://h:80 is away, write to anna@example.com"),
        ('{"url":"http://h:12","who":"x@y"}', '{"url":"http://h:12","who":"x@y"}'),
        ("judged by gemma3:1b@0c4f2a917be1 prompt 3", "judged by gemma3:1b@0c4f2a917be1 prompt 3"),
        ("python:3.11@sha256:aa", "python:3.11@sha256:aa"),
    ],
)
def test_a_message_repeats_no_login(text: str, shown: str) -> None:
    """Each address in a text loses its login and its query; everything else stays."""
    assert hide_logins(text) == shown
    assert str(TipbenchError(text)) == shown
    assert BadSetting("url", text).message == shown
    assert "hush" not in str(SuiteError(__file__, text))  # type: ignore[arg-type]


def test_a_driver_repeats_no_part_of_a_login() -> None:
    """What an exception repeats outside of an address is hidden where the address is known."""
    url = "postgresql://anna:p%40ssword@h/db?options=hushhush"
    said = 'FATAL: password authentication failed for user "anna" with p@ssword, p%40ssword and hushhush'
    assert hide_logins(said, of=url) == "FATAL: password authentication failed for user … with …, … and …"
    assert hide_logins(said, of="postgresql://h/db") == said


def test_a_long_text_is_searched_in_one_pass() -> None:
    """A reply of megabytes in a message does not hold up the program."""
    for part in ("a", "http://", "http://)", "a://b@", "'", "http://u:p ", "a:b,", "a:", "http://u:1 x"):
        hide_logins(f"http://u:p@h {part * 300_000}")


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (Annotated[int, Field(ge=3)], 1, "must be at least 3"),
        (Annotated[float, Field(ge=0.05)], "nan", "must be at least 0.05"),
        (Annotated[int, Field(le=60)], 61, "must be at most 60"),
        (Annotated[int, Field(gt=0)], 0, "must be greater than 0"),
        (int, "abc", "must be a whole number"),
        (int, "", "must be a whole number"),
        (int, "1.5", "must be a whole number"),
        (int, "9" * 5000, "has too many digits"),
        (float, "abc", "must be a number"),
        (Annotated[float, Field(allow_inf_nan=False)], "inf", "must be a finite number"),
        (bool, "perhaps", "must be true or false"),
        (str, 5, "must be text"),
        (list[str], 5, "must be a valid list"),
        (Literal["a", "b"], "c", "must be 'a' or 'b'"),
        (Annotated[str, Field(max_length=2)], "abc", "must have at most 2 characters"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "must have at most 1 item"),
    ],
)
def test_the_words_of_pydantic_are_not_shown(kind: Any, value: object, sentence: str) -> None:  # noqa: ANN401 - any type
    """A value that pydantic refuses gets a sentence in the words of all other messages."""
    with pytest.raises(ValidationError) as refusal:
        TypeAdapter(kind).validate_python(value)
    assert plain_problem(refusal.value.errors()[0]["msg"]) == sentence


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("1 is not in the range x>=3.", "must be at least 3"),
        ("61 is not in the range x<=60.", "must be at most 60"),
        ("1 is not in the range 3<=x<=60.", "must be from 3 to 60"),
        ("'abc' is not a valid integer.", "must be a whole number"),
        ("'abc' is not a valid float.", "must be a number"),
        ("'abc' is not a valid boolean.", "must be true or false"),
        ("Value error, no valid integer should be here", "no valid integer should be here"),
        ("a sentence of ours", "a sentence of ours"),
    ],
)
def test_sentences_of_click_and_of_our_own_checks(message: str, sentence: str) -> None:
    """Earlier versions of Typer use the words of click. A sentence of tipbench stays as it is."""
    assert plain_problem(message) == sentence
