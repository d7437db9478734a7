from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.judge.candidates import candidate_key, normalised


@pytest.mark.parametrize(
    "other",
    ["take a walk", "  Take\u00a0a \n WALK ", "Ｔａｋｅ a walk"],
)
def test_writing_does_not_make_another_text(other: str) -> None:
    """Case, white space and compatible letters do not count."""
    assert candidate_key("s", other) == candidate_key("s", "Take a walk")


def test_words_and_scenarios_make_another_candidate() -> None:
    """Another text, or the same text in another scenario, is judged by itself."""
    assert len({candidate_key(*pair) for pair in [("s", "a b"), ("s", "ab"), ("t", "a b")]}) == 3


@given(st.text(st.characters()))
def test_every_text_has_a_key(text: str) -> None:
    """Half a surrogate pair or a NUL has the key of what a ledger keeps in its place."""
    key = candidate_key("s", text)
    assert re.fullmatch("[0-9a-f]{16}", key)
    assert key == candidate_key("s", re.sub("[\x00\ud800-\udfff]", "\ufffd", text))
    assert normalised(text) == " ".join(normalised(text).split())
