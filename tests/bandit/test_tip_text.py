"""What is read from a tip's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.bandit import tip_text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Mute your notifications and write the draft", "focus"),
        ("List three priorities for tomorrow", "planning"),
        ("Have a cup of tea by the window", "break"),
        ("Stretch your shoulders, then take the STAIRS", "movement"),
        ("Pay the electricity bill and file the receipt", "admin"),
        ("Call your grandmother", "people"),
        ("Dim the lights and go to bed", "rest"),
        ("Ω≈ç√", "other"),
        ("", "other"),
        ("   \n\t", "other"),
        ("休憩してください", "other"),
    ],
)
def test_the_kind_is_told_by_key_words(text: str, kind: str) -> None:
    """A text is of the kind whose words it has most of, and of `other` when it has none."""
    assert tip_text.kind_of(text) == kind


def test_on_a_tie_the_earlier_kind_wins() -> None:
    """The order of `KINDS` decides, not the order of the words."""
    assert tip_text.kind_of("walk, then call") == tip_text.kind_of("call, then walk") == "movement"


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ("Breathe for 30 seconds", "Breathe for 2 minutes"),
        ("Breathe for one minute", "Take a 5-minute walk"),
        ("Take a 5-minute walk", "Write for half an hour"),
        ("Write for 30 min", "Write for an hour"),
        ("Write for 1.5 hours", "Write for 3h"),
        ("Sit down", "Sit down " + "and think about it " * 10),
    ],
)
def test_longer_tips_ask_for_more(shorter: str, longer: str) -> None:
    """Effort grows with the duration named, and with the length where none is."""
    assert tip_text.effort(shorter) < tip_text.effort(longer)


def test_a_quarter_of_an_hour_is_the_middle() -> None:
    """15 minutes are an effort of 0, and the longest duration counts."""
    assert tip_text.effort("Do it for 15 minutes, then rest for 5 minutes") == 0.0
    assert tip_text.effort("Do it for 9999 hours") == 1.0
    assert tip_text.effort("Wait 0 minutes") == tip_text.effort("Wait 3 times")


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("Ah, tea", "Oh, tea"),
        ("anhour", "anything"),
        ("ninetyseconds of it", "some of it"),
        ("Ten min", "10 minutes"),
        ("A-h", "60 minutes"),
        ("Half an hour", "30 minutes"),
    ],
)
def test_a_unit_stands_apart_from_a_word(text: str, alike: str) -> None:
    """Only digits may have their unit right behind them: what merely looks like a duration is none."""
    assert tip_text.effort(text) == pytest.approx(tip_text.effort(alike))


def test_words_are_folded() -> None:
    """Case, typography and common words make no difference."""
    assert tip_text.words("The REPORT – for the ﬁrst_Straße!") == {"report", "first", "strasse"}


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("İş listesi", "iş LİSTESİ"),
        ("שָׁלוֹם", "שלום"),
        ("نُسَخ", "نسخ"),
        ("cafe\u0301", "café"),
        ("1️⃣ tea ☕️", "1 tea"),
    ],
)
def test_marks_make_no_difference(text: str, alike: str) -> None:
    """A dot that folding leaves, vowels that may be left out, how an accent or an emoji is encoded."""
    assert tip_text.read(text) == tip_text.read(alike)


def test_marks_cut_no_word() -> None:
    """Vowel signs are marks in many scripts: tips that share letters, and no word, have no word in common."""
    assert len(tip_text.words("रिपोर्ट लिखें")) == 2
    assert tip_text.words("रिपोर्ट लिखें").isdisjoint(tip_text.words("रोटी पकाएं"))


PIECES = st.lists(
    st.sampled_from([*"aAh-.,½٣ ", "an", "half", "ten", "ninety", "2", "1,5", "hour", "hrs", "min", "secs"]),
    max_size=8,
)


@given(st.text() | PIECES.map("".join))
def test_any_text_can_be_read(text: str) -> None:
    """Whatever the text, its kind is known, its effort in [-1, 1] and its words are folded ones."""
    reading = tip_text.read(text)
    assert reading.kind in tip_text.KINDS
    assert -1.0 <= reading.effort <= 1.0
    assert tip_text.read(text) == reading


def test_a_huge_text_costs_no_more_than_a_long_one() -> None:
    """Only the first few thousand characters are read."""
    assert tip_text.words("word " * 10 + "x" * 10_000_000) == tip_text.words("word " * 10 + "x" * 3950)
    assert len(tip_text.words(" ".join(map(str, range(5000))))) <= 300
