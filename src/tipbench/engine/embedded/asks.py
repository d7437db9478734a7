"""The bodies of `/api/chat` and `/api/generate`, read as Ollama reads them, checked before anything runs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Route = Literal["chat", "generate"]

LONGEST_KEEP_ALIVE = float(2**63 // 10**9)  # "for ever", as Ollama's clock has it: about 292 years
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_MOST_ITEMS = 10_000
_INT32 = 2**31 - 1
_THINK_LEVELS = ("high", "medium", "low", "max")


class ApiError(Exception):
    """What a client is told: a status and one sentence, sent as Ollama sends its errors."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def model_not_found(name: str) -> ApiError:
    return ApiError(404, f"model '{name}' not found")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Ollama's options with Ollama's defaults; those that llama.cpp is not asked with are left out."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0xFFFF_FFFF  # llama.cpp's word for "a new one each time"; Ollama's -1 in 32 bits
    num_ctx: int = 4096
    num_predict: int = -1
    num_keep: int = 4
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. `keep_alive` is None where it is left to the engine, `schema` where any text will do.

    A generate request is a chat of its system text and prompt, unless it is `raw`.
    """

    route: Route
    model: str
    messages: tuple[Mapping[str, str], ...]
    raw_prompt: str | None
    context: tuple[int, ...]
    options: Options
    schema: Mapping[str, Any] | None
    keep_alive: float | None
    stream: bool
    truncate: bool

    @property
    def is_empty(self) -> bool:
        """Nothing to reply to: the request only loads the model, or unloads it."""
        return not self.messages and not self.raw_prompt


def read_json(body: bytes) -> dict[str, Any]:
    """The body's object; ApiError 400 for anything else."""
    if not body.strip():
        raise ApiError(400, "missing request body")
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"invalid JSON in the request body: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the request body must be a JSON object")
    return value


def model_of(body: Mapping[str, Any]) -> str:
    """The name asked for, under its present key or its old one."""
    name: str = _typed(body, "model", str, "") or _typed(body, "name", str, "")
    if not name.strip():
        raise ApiError(400, "model is required")
    return name


def chat_ask(body: Mapping[str, Any]) -> Ask:
    if _typed(body, "tools", list, []):
        raise ApiError(400, f"{model_of(body)} does not support tools")
    messages = tuple(_message(each) for each in _typed(body, "messages", list, []))
    return _ask(body, "chat", messages=messages)


def generate_ask(body: Mapping[str, Any]) -> Ask:
    prompt, system = _typed(body, "prompt", str, ""), _typed(body, "system", str, "")
    raw, context = _typed(body, "raw", bool, False), _context(body)
    if raw and (_typed(body, "template", str, "") or system or context):
        raise ApiError(400, "raw mode does not support template, system, or context")
    for key, kind in (("template", str), ("suffix", str), ("images", list)):
        if _typed(body, key, kind, kind()):
            raise ApiError(400, f"{model_of(body)} does not support {key}")
    if raw:
        return _ask(body, "generate", raw_prompt=prompt)
    said = (("system", system), ("user", prompt)) if prompt else ()
    messages = tuple({"role": role, "content": text} for role, text in said if text)
    return _ask(body, "generate", messages=messages, context=context)


def keep_alive_of(value: object) -> float | None:
    """Seconds from a number or a text such as 5m, 1.5h or -1; a negative time is for ever."""
    if value is None:
        return None
    if isinstance(value, str):
        seconds = _duration(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ApiError(400, f"keep_alive must be a number of seconds or a time such as 5m, not {value!r}")
    return LONGEST_KEEP_ALIVE if seconds < 0 else min(seconds, LONGEST_KEEP_ALIVE)


def _ask(
    body: Mapping[str, Any],
    route: Route,
    *,
    messages: tuple[Mapping[str, str], ...] = (),
    raw_prompt: str | None = None,
    context: tuple[int, ...] = (),
) -> Ask:
    model = model_of(body)
    _refuse_thinking(body, model)
    _typed(body, "shift", bool, True)  # this engine never shifts the context, so the value changes nothing
    if _typed(body, "logprobs", bool, False):
        raise ApiError(400, f"{model} does not support logprobs")
    return Ask(
        route=route,
        model=model,
        messages=messages,
        raw_prompt=raw_prompt,
        context=context,
        options=_options(_typed(body, "options", dict, {})),
        schema=_schema(body.get("format")),
        keep_alive=keep_alive_of(body.get("keep_alive")),
        stream=_typed(body, "stream", bool, True),
        truncate=_typed(body, "truncate", bool, True),
    )


def _message(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ApiError(400, "messages must be an array of objects with role and content")
    if _typed(value, "images", list, []):
        raise ApiError(400, "this engine's models do not support images")
    role = _typed(value, "role", str, "")
    if not role:
        raise ApiError(400, "every message needs a role such as system, user or assistant")
    return {"role": role, "content": _typed(value, "content", str, "")}


def _context(body: Mapping[str, Any]) -> tuple[int, ...]:
    tokens = _typed(body, "context", list, [])
    if not all(isinstance(token, int) and 0 <= token <= _INT32 for token in tokens):
        raise ApiError(400, "context must be an array of tokens")
    return tuple(tokens)


def _refuse_thinking(body: Mapping[str, Any], model: str) -> None:
    think = body.get("think")
    if think is None or think is False:
        return
    if think is True or think in _THINK_LEVELS:
        raise ApiError(400, f'"{model}" does not support thinking')
    raise ApiError(
        400,
        f'invalid think value: {json.dumps(think)} (must be "high", "medium", "low", "max", true, or false)',
    )


def _schema(value: object) -> Mapping[str, Any] | None:
    if value is None or value == "":
        return None
    if value == "json":
        return {"type": "object"}
    if isinstance(value, dict):
        _check_counts(value)
        return value
    raise ApiError(400, f'invalid format: {json.dumps(value)}; expected "json" or a valid JSON Schema object')


def _check_counts(schema: Mapping[str, Any]) -> None:
    """Refuse counts of items that would take llama.cpp all memory to follow."""
    parts: list[object] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            counts = [part.get(key) for key in ("minItems", "maxItems")]
            if any(isinstance(count, (int, float)) and count > _MOST_ITEMS for count in counts):
                raise ApiError(400, f"invalid format: minItems and maxItems may be {_MOST_ITEMS} at most")


def _options(given: Mapping[str, Any]) -> Options:
    """Options by name; unknown ones are passed over as Ollama does, a wrong type is refused."""
    known = {name: value for name, value in given.items() if name in _OPTION_READERS and value is not None}
    return Options(**{name: _OPTION_READERS[name](name, value) for name, value in known.items()})


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise ApiError(400, f'option "{name}" must be of type float32')
    return float(value)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise ApiError(400, f'option "{name}" must be of type integer')
    return int(value) & 0xFFFF_FFFF if name == "seed" else max(-_INT32, min(_INT32, int(value)))


def _words(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ApiError(400, f'option "{name}" must be of type array')
    if not all(isinstance(word, str) for word in value):
        raise ApiError(400, f'option "{name}" must be of an array of strings')
    return tuple(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value) and abs(value) < 2**63
    except OverflowError:
        return False


_OPTION_READERS: Mapping[str, Callable[[str, object], Any]] = {
    name: {float: _real, int: _whole, tuple: _words}[type(default)]
    for name, default in vars(Options()).items()
}


def _typed(body: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:  # noqa: ANN401
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ApiError(400, f"{key} must be of type {_JSON_NAMES[kind]}")
    return value


_JSON_NAMES: Mapping[type, str] = {str: "string", bool: "boolean", list: "array", dict: "object"}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _duration(text: str) -> float:
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest in {"0", "1"} and (rest == "0" or sign < 0):
        return sign * float(rest)
    if not re.fullmatch(f"({_SPAN})+", rest):
        raise ApiError(400, f'time: invalid duration "{text}"')
    return sign * sum(float(number) * _UNITS[unit] for number, unit in re.findall(_SPAN, rest))
