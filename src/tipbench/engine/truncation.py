"""The signs that a host cut prompts without a word: it counted too few tokens for the text."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.records import Message

# A median of fewer other cells says little.
LEAST_OTHERS = 3
_CUT_BELOW = 0.6
# A chat template adds up to about this many tokens to every prompt, so a short prompt has more tokens for
# each character than a long one. Text alone has at least about one token for five characters.
_TEMPLATE_TOKENS = 64
_LEAST_RATE = 0.2
_CUT_BELOW_WITHOUT_TEMPLATE = 0.8


@dataclass(frozen=True, kw_only=True)
class PromptSize:
    """A prompt's text in characters and bytes, and the tokens that the host counted in it."""

    characters: int
    bytes: int
    tokens: int

    @classmethod
    def of(cls, messages: Sequence[Message], tokens: float | None) -> PromptSize | None:
        """None if the host gave no count, or 0: that proves nothing."""
        text = "".join(message.content for message in messages)
        if not tokens or not text:
            return None
        size = len(text.encode("utf-8", "replace"))
        return cls(characters=len(text), bytes=size, tokens=int(tokens))

    @property
    def rates(self) -> tuple[float, float, float]:
        """Tokens for each character, for each byte, and at least for each character without the template."""
        rate = self.tokens / self.characters
        of_text = max(_LEAST_RATE, (self.tokens - _TEMPLATE_TOKENS) / self.characters)
        return rate, self.tokens / self.bytes, min(rate, of_text)


def cut_prompts(sizes: Mapping[str, PromptSize]) -> set[str]:
    """The cells of one model for which the host counted less than 60 % of the tokens that the text needs.

    The need is the number of characters × the median tokens per character of the model's other cells. Three
    more conditions avoid false alarms. There are enough other cells. The same holds for bytes, because a
    suite may mix scripts. It nearly holds without the chat template, because some prompts are short.
    """
    if len(sizes) <= LEAST_OTHERS:
        return set()
    columns = [sorted(column) for column in zip(*(size.rates for size in sizes.values()), strict=True)]
    return {key for key, size in sizes.items() if _is_cut(size, columns)}


def _is_cut(size: PromptSize, columns: Sequence[Sequence[float]]) -> bool:
    by_character, by_byte, of_text = (
        _median_without(column, rate) for column, rate in zip(columns, size.rates, strict=True)
    )
    needs = min(by_character * size.characters, by_byte * size.bytes)
    return (
        size.tokens < _CUT_BELOW * needs
        and size.tokens < _CUT_BELOW_WITHOUT_TEMPLATE * of_text * size.characters
    )


def _median_without(ordered: Sequence[float], value: float) -> float:
    """The median of all other values. `ordered` is sorted and holds the value."""
    at, n = bisect_left(ordered, value), len(ordered) - 1

    def other(index: int) -> float:
        return ordered[index if index < at else index + 1]

    return (other((n - 1) // 2) + other(n // 2)) / 2
