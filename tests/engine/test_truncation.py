"""Counts of prompt tokens: a cut is seen, and ordinary differences between prompts raise no alarm."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipbench.engine.truncation import PromptSize, cut_prompts
from tipbench.records import Message


def size(text: str, tokens: float | None) -> PromptSize | None:
    return PromptSize.of([Message(role="system", content=""), Message(role="user", content=text)], tokens)


def sizes(**cells: tuple[str, int]) -> dict[str, PromptSize]:
    found = {key: size(text, tokens) for key, (text, tokens) in cells.items()}
    return {key: one for key, one in found.items() if one is not None}


WORDS = "some words of a scenario that a model reads " * 20


def test_a_count_of_less_than_60_percent_is_a_cut() -> None:
    """The others need a token for four characters; 57 % of that is too little, 63 % is not."""
    others = {f"o{n}": (WORDS, len(WORDS) // 4) for n in range(4)}
    need = len(WORDS)  # of a text four times as long
    assert cut_prompts(sizes(**others, x=(WORDS * 4, round(need * 0.57)))) == {"x"}
    assert cut_prompts(sizes(**others, x=(WORDS * 4, round(need * 0.63)))) == set()


@pytest.mark.parametrize("characters", [80, 200, 600, 2000])
@pytest.mark.parametrize("rate", [0.2, 0.25, 0.3])
@pytest.mark.parametrize("template", [5, 13, 40])
def test_a_cut_to_half_of_num_ctx_is_seen(characters: int, rate: float, template: int) -> None:
    """A text that needs a little more than 512 tokens and was cut to 258, among cells of many lengths."""
    others = {f"o{n}": ("x" * characters, round(characters * rate) + template) for n in range(7)}
    text = "x" * round(520 / rate)
    assert cut_prompts(sizes(**others, cut=(text, 258))) == {"cut"}
    assert cut_prompts(sizes(**others, whole=(text, 520 + template))) == set()


def test_two_other_cells_are_too_few() -> None:
    """A median needs three others."""
    assert cut_prompts(sizes(a=(WORDS, 200), b=(WORDS, 200), x=(WORDS, 20))) == set()
    assert cut_prompts(sizes(a=(WORDS, 200), b=(WORDS, 200), c=(WORDS, 200), x=(WORDS, 20))) == {"x"}


def test_no_count_gives_no_size() -> None:
    """None and 0 prove nothing, and an empty text needs nothing."""
    assert size(WORDS, None) is size(WORDS, 0) is size("", 30) is None


def test_a_long_prompt_among_short_ones_is_no_cut() -> None:
    """The chat template weighs on short prompts only."""
    others = {f"o{n}": ("Summarise this: a short text of twenty words or so.", 13 + 30) for n in range(6)}
    assert cut_prompts(sizes(**others, x=(WORDS * 2, len(WORDS) // 2 + 30))) == set()


def test_a_mixture_of_scripts_is_no_cut() -> None:
    """Chinese has a token for each character, English one for four: neither raises an alarm."""
    chinese = "请给我一些关于如何开始写报告的建议" * 20
    english = {f"e{n}": (WORDS, len(WORDS) // 4 + 20) for n in range(2)}
    mixed = {f"c{n}": (chinese, round(len(chinese) * 0.7) + 20) for n in range(5)}
    assert cut_prompts(sizes(**english, **mixed)) == set()
    assert cut_prompts(sizes(**dict.fromkeys("abcde", english["e0"]), **mixed)) == set()


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(20, 20_000), min_size=4, max_size=40),
    template=st.integers(0, 64),
    rate=st.floats(0.2, 0.35),
)
def test_truthful_counts_never_raise_an_alarm(lengths: list[int], template: int, rate: float) -> None:
    """Any lengths, any chat template, any usual tokenizer."""
    cells = {str(n): ("x" * long, round(long * rate) + template) for n, long in enumerate(lengths)}
    assert cut_prompts(sizes(**cells)) == set()
