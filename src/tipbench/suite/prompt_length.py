"""How long a prompt is before any model has read it: an estimate, to find those that hardly fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.suite.suite import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tipbench.records import Message
    from tipbench.suite.prompt import Prompt
    from tipbench.suite.scenario import Scenario
    from tipbench.suite.suite import Suite

# Most tokenizers need about one token for four bytes of UTF-8, in any script: a Latin letter has one byte,
# a Cyrillic letter two, a Chinese character three.
BYTES_PER_TOKEN = 4
# The estimate is often a fifth too low, and a chat template adds some tokens.
_NEAR = 0.8


@dataclass(frozen=True, kw_only=True)
class LongPrompt:
    """A prompt that with its reply comes near the context length. `tokens` is an estimate for the prompt.

    `model` is the one whose own context length is `num_ctx`; it is empty if the suite or an option sets it.
    """

    prompt: str
    scenario: str
    tokens: int
    num_predict: int
    num_ctx: int
    model: str = ""

    def __str__(self) -> str:
        fits = self.tokens + self.num_predict <= self.num_ctx
        return (
            f"is about {self.tokens} tokens in scenario '{self.scenario}' (an estimate from its characters), "
            f"which with num_predict {self.num_predict} {'comes near' if fits else 'does not fit'} "
            + (f"the {self.num_ctx} tokens of {self.model}" if self.model else f"num_ctx {self.num_ctx}")
        )

    @property
    def remedy(self) -> str:
        return "leave the model out" if self.model else "raise num_ctx in the suite"


def estimated_tokens(messages: Iterable[Message]) -> int:
    """About how many tokens the messages have; only the model's tokenizer knows the number."""
    size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
    return -(-size // BYTES_PER_TOKEN)


def long_prompt(
    suite: Suite,
    prompt: Prompt,
    scenarios: Sequence[Scenario],
    *,
    n_tips: int,
    num_ctx: int,
    num_predict: int,
) -> LongPrompt | None:
    """The longest of a prompt's texts, if it comes near the limit."""
    sizes = {
        scenario.id: estimated_tokens(render(prompt, scenario, n_tips=n_tips, reply=suite.reply))
        for scenario in scenarios
    }
    longest = max(sizes, key=lambda name: sizes[name])
    if sizes[longest] + num_predict <= _NEAR * num_ctx:
        return None
    return LongPrompt(
        prompt=prompt.id,
        scenario=longest,
        tokens=sizes[longest],
        num_predict=num_predict,
        num_ctx=num_ctx,
    )
