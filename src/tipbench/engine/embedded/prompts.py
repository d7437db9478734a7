"""A request's prompt as tokens that fit: what a context has no room for is left out, as Ollama does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.engine.embedded.asks import ApiError, Ask
from tipbench.engine.embedded.llama import REPLY_MARGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.engine.embedded.llama import Llama


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The tokens to evaluate, how many the reply may have, and whether anything was left out."""

    tokens: Sequence[int]
    reply_room: int
    truncated: bool = False


async def fitting_prompt(llama: Llama, ask: Ask) -> Prompt:
    """The prompt, whole if it fits the context.

    Else a chat loses its oldest messages, but never its system text or its last message; and if that is not
    enough, the tokens between the first `num_keep` and the newest go.
    """
    whole = await _tokens(llama, ask, ask.messages)
    context = llama.entry.header.context_length
    if len(whole) <= min(llama.num_ctx, context - 1):
        return _prompt(whole, ask, llama.num_ctx - len(whole))
    if not ask.truncate:
        raise _too_long(len(whole), llama.num_ctx)
    margin = min(REPLY_MARGIN, max(1, context // 4))
    limit = min(llama.num_ctx, max(1, context - margin))
    fewer = await _without_oldest(llama, ask, whole, limit)
    cut = _without_middle(fewer, keep=_kept(llama, ask), limit=limit)
    return _prompt(cut, ask, max(margin, llama.num_ctx - len(cut)), truncated=True)


def _too_long(tokens: int, num_ctx: int) -> ApiError:
    """The error of Ollama since 2026: the text is the JSON object that llama.cpp's server answers."""
    error = {
        "code": 400,
        "message": f"request ({tokens} tokens) exceeds the available context size ({num_ctx} tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": num_ctx,
    }
    return ApiError(400, json.dumps({"error": error}))


def _prompt(tokens: Sequence[int], ask: Ask, room: int, *, truncated: bool = False) -> Prompt:
    asked = ask.options.num_predict
    room = max(1, room)
    return Prompt(tokens=tokens, reply_room=min(asked, room) if asked > 0 else room, truncated=truncated)


async def _tokens(llama: Llama, ask: Ask, messages: Sequence[Mapping[str, str]]) -> list[int]:
    text = ask.raw_prompt if ask.raw_prompt is not None else await llama.render(messages)
    return [*ask.context, *await llama.tokenize(text)]


async def _without_oldest(llama: Llama, ask: Ask, tokens: list[int], limit: int) -> list[int]:
    messages = list(ask.messages)
    while len(tokens) > limit:
        oldest = next((m for m in messages[:-1] if m["role"] != "system"), None)
        if oldest is None:
            break
        messages.remove(oldest)
        tokens = await _tokens(llama, ask, messages)
    return tokens


def _without_middle(tokens: list[int], *, keep: int, limit: int) -> list[int]:
    if len(tokens) <= limit:
        return tokens
    keep = min(keep, limit)
    return tokens[:keep] + tokens[len(tokens) - (limit - keep) :]


def _kept(llama: Llama, ask: Ask) -> int:
    if ask.options.num_keep < 0:
        return llama.num_ctx
    begins = llama.entry.header.keys.get("tokenizer.ggml.add_bos_token") is True
    return ask.options.num_keep + int(begins)
