"""The objects a client gets, in Ollama's words: pieces of a reply, its end with the numbers, `/api/ps`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.engine.embedded.asks import Ask
    from tipbench.engine.embedded.llama import Finish, Llama
    from tipbench.engine.embedded.prompts import Prompt

Reply = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Told:
    """All that the last object tells of a reply."""

    finish: Finish
    prompt: Prompt
    written: Sequence[int]
    total_ns: int
    load_ns: int


def piece(ask: Ask, text: str) -> Reply:
    return {**_head(ask, text), "done": False}


def last(ask: Ask, told: Told) -> Reply:
    """Beside what Ollama sends: how many tokens the prompt cache gave, and whether the prompt was cut."""
    finish = told.finish
    reply = {
        **_done(ask, finish.reason, total_ns=told.total_ns, load_ns=told.load_ns),
        "prompt_eval_count": finish.prompt_count,
        "prompt_eval_duration": finish.prompt_ns,
        "eval_count": finish.eval_count,
        "eval_duration": finish.eval_ns,
        "prompt_cached_count": finish.cached_count,
        "prompt_truncated": told.prompt.truncated,
    }
    if ask.route == "generate" and ask.raw_prompt is None:
        reply["context"] = [*told.prompt.tokens, *told.written]
    return reply


def loaded(ask: Ask, *, total_ns: int, load_ns: int) -> Reply:
    """The answer to a request that only loads a model."""
    return _done(ask, "load", total_ns=total_ns, load_ns=load_ns)


def unloaded(ask: Ask) -> Reply:
    return {**_head(ask, ""), "done": True, "done_reason": "unload"}


def joined(ask: Ask, replies: Sequence[Reply]) -> Reply:
    """A whole reply as one object: the last one, with the text of them all."""
    if ask.route == "chat":
        text = "".join(reply["message"]["content"] for reply in replies)
        return {**replies[-1], "message": {"role": "assistant", "content": text}}
    return {**replies[-1], "response": "".join(reply["response"] for reply in replies)}


def process(llama: Llama, *, digest: str, expires_at: datetime) -> Reply:
    """A model in memory as `/api/ps` lists it; all of it is in main memory."""
    return {
        "name": llama.entry.name,
        "model": llama.entry.name,
        "size": llama.size,
        "digest": digest,
        "details": llama.entry.details,
        "expires_at": _time(expires_at),
        "size_vram": 0,
        "context_length": llama.num_ctx,
    }


def _done(ask: Ask, reason: str, *, total_ns: int, load_ns: int) -> Reply:
    ended = {"done": True, "done_reason": reason, "total_duration": total_ns, "load_duration": load_ns}
    return {**_head(ask, ""), **ended}


def _head(ask: Ask, text: str) -> Reply:
    said = {"message": {"role": "assistant", "content": text}} if ask.route == "chat" else {"response": text}
    return {"model": ask.model, "created_at": _time(datetime.now(tz=timezone.utc)), **said}


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
