"""The rules by which two generations of Ollama treat a request, for the fake in `stand_in.py`.

`tests/ollama_server/test_ollama_conformance.py` runs the same cases on the fake and on a real Ollama 0.17.4.
The rules of the later generation come from Ollama's source of 21 August 2026 (v0.33.0-rc2).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Generation = Literal["0.17", "August 2026"]
VERSIONS: dict[Generation, str] = {"0.17": "0.17.4", "August 2026": "0.33.0"}

DEFAULT_NUM_CTX = 4096
_NUM_KEEP = 4
_TOKENS_AROUND_A_MESSAGE = 4
_MOST_EQUAL_TOKENS = 30
_THINK_LEVELS = ("high", "medium", "low")


class Refused(Exception):
    """A request that the host refuses: the status and the text of its `error`."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The text of a reply in tokens, and why it ended. None means that it broke off."""

    tokens: tuple[str, ...]
    reason: Literal["stop", "length"] | None

    @property
    def text(self) -> str:
        return "".join(self.tokens)


def read_body(body: bytes, *, kind: str) -> dict[str, Any]:
    """The request's JSON object, with the checks that Ollama makes before it looks for the model."""
    if not body:
        raise Refused(400, "missing request body")
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Refused(400, f"invalid character or unexpected EOF ({error})") from None
    if not isinstance(value, dict):
        raise Refused(400, f"json: cannot unmarshal {_go_name(value)} into Go value of type api.{kind}")
    for field, wanted in (("model", str), ("messages", list)):
        if not isinstance(value.get(field, wanted()), wanted):
            problem = f"cannot unmarshal {_go_name(value[field])} into Go struct field {kind}.{field}"
            raise Refused(400, f"json: {problem}")
    _check_keep_alive(value.get("keep_alive"))
    value["model"] = value.get("model") or value.get("name") or ""
    if not value["model"] and kind != "GenerateRequest":
        raise Refused(400, "model is required")
    return value


def check_think(body: dict[str, Any], *, thinks: bool) -> None:
    """Refuse `think` for a model that does not think, and a level that does not exist."""
    think = body.get("think")
    if isinstance(think, str) and think not in _THINK_LEVELS:
        raise Refused(
            400, f'invalid think value: "{think}" (must be "high", "medium", "low", true, or false)'
        )
    if think and not thinks:
        raise Refused(400, f'"{body["model"]}" does not support thinking')


def split_tokens(text: str) -> list[str]:
    """The fake's tokens: words, each with the white space before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def fitting_prompt(body: dict[str, Any], *, num_ctx: int, generation: Generation) -> int:
    """The number of prompt tokens that the model reads, after the cuts that this generation makes."""
    messages = body["messages"]
    if not body.get("truncate", True):
        n_tokens = _count(messages)
        if n_tokens > _longest(num_ctx, generation):
            raise Refused(400, _too_long(n_tokens, num_ctx=num_ctx, generation=generation))
        return n_tokens
    n_tokens = next(
        (count for count in map(_count, _without_old_messages(messages)) if count <= num_ctx),
        _count([*_system(messages[:-1]), messages[-1]]),
    )
    if n_tokens <= _longest(num_ctx, generation):
        return n_tokens
    # The later generation frees half of the context at once, as a first context shift would.
    return num_ctx if generation == "0.17" else num_ctx - max((num_ctx - _NUM_KEEP) // 2, 1)


def cut_reply(text: str, *, options: dict[str, Any], room: int | None) -> Reply:
    """The reply up to the first stop text, the limit of tokens, or the end of the context (`room`).

    Both generations stop without a last object after more than 30 equal tokens.
    """
    found = [text.find(stop) for stop in options.get("stop") or [] if stop in text]
    if found:
        text = text[: min(found)]
    tokens = tuple(split_tokens(text))
    limits = [limit for limit in (options.get("num_predict"), room) if limit is not None and limit > 0]
    most = min(limits, default=len(tokens))
    looping = _end_of_loop(tokens[:most])
    if looping is not None:
        return Reply(tokens=tokens[:looping], reason=None)
    return Reply(tokens=tokens[:most], reason="stop" if len(tokens) <= most else "length")


def _end_of_loop(tokens: Sequence[str]) -> int | None:
    """The place of the token that is one too many in a row of equal ones, if there is one."""
    in_a_row = 0
    for i, token in enumerate(tokens):
        in_a_row = in_a_row + 1 if i and token.strip() == tokens[i - 1].strip() else 0
        if in_a_row > _MOST_EQUAL_TOKENS:
            return i
    return None


def obey(schema: dict[str, Any], texts: Iterator[str]) -> object:
    """A value that satisfies the schema; its strings are taken from `texts`."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: obey(part, texts) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        n_items = schema.get("minItems", schema.get("maxItems", 5))
        return [obey(schema.get("items", {}), texts) for _ in range(n_items)]
    if kind == "string":
        return next(texts).ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
    return {"boolean": True, "integer": 1, "number": 1.5}.get(str(kind))


def _without_old_messages(messages: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """All messages, then fewer and fewer: the oldest go first, system messages and the last one stay."""
    for i in range(len(messages)):
        yield [*_system(messages[:i]), *messages[i:]]


def _system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message.get("role") == "system"]


def _count(messages: Sequence[dict[str, Any]]) -> int:
    texts = [str(message.get("content", "")) for message in messages]
    return sum(len(split_tokens(text)) + _TOKENS_AROUND_A_MESSAGE for text in texts)


def _longest(num_ctx: int, generation: Generation) -> int:
    """The longest prompt that is read whole: the later generation keeps one place for the reply."""
    return num_ctx if generation == "0.17" else num_ctx - 1


def _too_long(n_tokens: int, *, num_ctx: int, generation: Generation) -> str:
    """The later generation passes on the whole answer of llama.cpp's server, as text."""
    if generation == "0.17":
        return "the input length exceeds the context length"
    message = (
        f"request ({n_tokens} tokens) exceeds the available context size ({num_ctx} tokens), "
        "try increasing it"
    )
    error = {
        "code": 400,
        "message": message,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": n_tokens,
        "n_ctx": num_ctx,
    }
    return json.dumps({"error": error}, separators=(",", ":"))


def _check_keep_alive(value: object) -> None:
    if isinstance(value, str) and not re.fullmatch(r"[-+]?((\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+|0)", value):
        raise Refused(400, f'time: invalid duration "{value}"')


def _go_name(value: object) -> str:
    names = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}
    return names.get(type(value), "null")
