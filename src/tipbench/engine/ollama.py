"""A host that speaks Ollama's API: its models, the loaded ones, one chat.

Every failure of a request becomes an `EngineFailure`, which says whether a retry may help.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.engine.address import is_here, login_of
from tipbench.engine.lock import is_loopback
from tipbench.engine.machine import Machine, this_machine
from tipbench.errors import EngineFailure, EngineUnreachable, PromptTooLong
from tipbench.records import ChatRequest, Completion, Cut, EngineKind, Host, Model, Resident
from tipbench.text import hide_logins, without_login

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    import httpx
    import ollama

CONNECT_S = 5.0
# For the whole of the first answer: each piece of one that comes in drops is in time.
_GREETING_S = 10.0
_NS_PER_MS = 1e6
_DAY_NS = 86_400e9
_FASTEST = 1e6

T = TypeVar("T")


_DEFAULT_REGISTRY = re.compile(r"^registry\.ollama\.ai/(library/)?")


def full_name(name: str) -> str:
    """A model's name as Ollama lists it: `llama3.2` is `llama3.2:latest`."""
    short = _DEFAULT_REGISTRY.sub("", name)
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"


async def patiently(act: Callable[[], Awaitable[T]], *, tries: int = 4) -> T:
    """Ask a host that may be busy for a moment: again after short pauses, as long as that may help."""
    for attempt in range(1, tries):
        try:
            return await act()
        except EngineFailure as failure:
            if not failure.retryable:
                raise
            await asyncio.sleep(0.1 * 3**attempt)
    return await act()


class OllamaHost:
    """One host. Made by `connect`, which has seen it answer."""

    def __init__(self, host: Host, *, timeout_s: float, login: tuple[str, str] | None = None) -> None:
        import httpx
        import ollama

        self.host = host
        key = os.environ.get("OLLAMA_API_KEY")
        options: dict[str, Any] = {
            "timeout": httpx.Timeout(timeout_s, connect=CONNECT_S),
            "auth": login,
            # A proxy set for the outside world must not be asked for the machine's own ports.
            "trust_env": not is_loopback(host.url),
            # The caller was allowed to use this address, not the one that a redirect names.
            "follow_redirects": False,
        }
        self._client = ollama.AsyncClient(host.url, **options)
        # The official client has no `truncate` and no `shift`, so these requests go without it.
        self._http = httpx.AsyncClient(
            base_url=host.url, headers={"Authorization": f"Bearer {key}"} if key else None, **options
        )

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]
        await self._http.aclose()

    async def alive(self) -> bool:
        """Whether the host answers at all."""
        try:
            await self.resident()
        except EngineFailure as failure:
            return not failure.unreachable
        return True

    async def models(self) -> list[Model]:
        """What is installed, with the size each model is declared to have."""
        return [await self._described(entry) for entry in await patiently(self._listed)]

    async def model(self, name: str) -> Model | None:
        """The installed model of that name, or None."""
        for entry in await patiently(self._listed):
            if full_name(str(entry.model)) == full_name(name):
                return await self._described(entry)
        return None

    async def names(self) -> list[str]:
        """The names of the installed models."""
        return [str(entry.model) for entry in await patiently(self._listed)]

    async def _listed(self) -> list[ollama.ListResponse.Model]:
        with _wire():
            return [entry for entry in (await self._client.list()).models if entry.model]

    async def _shown(self, name: str) -> ollama.ShowResponse:
        with _wire():
            return await self._client.show(name)

    async def _described(self, entry: ollama.ListResponse.Model) -> Model:
        name = str(entry.model)
        try:
            shown = await patiently(lambda: self._shown(name))
            details, info = shown.details or entry.details, shown.modelinfo or {}
        except EngineFailure as failure:
            if failure.unreachable:
                raise
            # What cannot be shown is described by its listing; without a size it will be refused.
            details, info = entry.details, {}
        return Model(
            name=name,
            digest=(entry.digest or "").removeprefix("sha256:"),
            parameters=_parameters(info, details.parameter_size if details else None),
            size_bytes=int(entry.size or 0),
            family=(details.family if details else None) or "",
            quantization=(details.quantization_level if details else None) or "",
            context_length=_positive(info.get(f"{info.get('general.architecture')}.context_length")),
        )

    async def resident(self) -> list[Resident]:
        """The models whose weights are in memory now."""
        with _wire():
            loaded = (await self._client.ps()).models
        return [
            Resident(
                name=str(entry.name or entry.model or "?"),
                digest=(entry.digest or "").removeprefix("sha256:"),
                size_bytes=int(entry.size or 0),
                vram_bytes=None if entry.size_vram is None else int(entry.size_vram),
            )
            for entry in loaded
        ]

    async def digest(self, name: str) -> str | None:
        """The digest that the host lists for a model now, or None if it does not list the model."""
        for entry in await patiently(self._listed):
            if full_name(str(entry.model)) == full_name(name):
                return (entry.digest or "").removeprefix("sha256:")
        return None

    async def load(self, name: str, *, num_ctx: int, keep_alive: str) -> float:
        """Load the weights with the options of the later chats. Returns the seconds that it took.

        `shift` is one of these options: Ollama of 2026 loads the model again if a chat has another value.
        """
        started = time.perf_counter()
        body = {"model": name, "options": {"num_ctx": num_ctx}, "keep_alive": keep_alive, "shift": False}
        with _wire():
            async with self._http.stream("POST", "/api/generate", content=_encoded(body)) as response:
                reply = [part async for part in _objects(response)]
        return _sane_ms(reply[-1].get("load_duration") if reply else None) / 1000 or (
            time.perf_counter() - started
        )

    async def unload(self, name: str) -> None:
        """Ask the host to drop the weights. It is gone when `resident` no longer names it, not before."""
        with _wire():
            await self._client.generate(name, "", keep_alive=0)

    async def pull(self, name: str) -> AsyncIterator[tuple[str, int, int]]:
        """Download a model; yields (what is going on, bytes so far, bytes in all)."""
        with _wire():
            async for part in await self._client.pull(name, stream=True):
                yield part.status or "", int(part.completed or 0), int(part.total or 0)

    async def chat(self, request: ChatRequest, *, keep_alive: str) -> Completion:
        """One call. The reply is streamed: a silent host causes a timeout, and a torn reply is noticed."""
        started = time.perf_counter()
        with _wire():
            body = _encoded(_chat_body(request, keep_alive))
            async with self._http.stream("POST", "/api/chat", content=body) as response:
                parts = [part async for part in _objects(response, request)]
            if not parts or not parts[-1].get("done"):
                raise EngineFailure("the reply broke off before its end", retryable=True)
            wall_ms = (time.perf_counter() - started) * 1000
            return _completion(parts, request=request, wall_ms=wall_ms, embedded=self.host.kind == "embedded")


async def connect(
    url: str, *, kind: EngineKind, timeout_s: float, greeting_s: float = _GREETING_S
) -> OllamaHost:
    """The host at that address, once it has answered; EngineUnreachable where nothing does.

    A login in the address is used, and shown and kept nowhere.
    """
    import httpx

    shown = without_login(url)
    try:
        async with httpx.AsyncClient(timeout=CONNECT_S, trust_env=not is_loopback(url)) as client:
            version = await asyncio.wait_for(_version(client, url), greeting_s)
    except asyncio.TimeoutError:
        raise EngineUnreachable(
            f"what answers at {shown} does not come to an end within {greeting_s:g} s; check --ollama-url"
        ) from None
    except httpx.InvalidURL:  # its text may repeat a part of the login
        raise EngineUnreachable(f"{shown} is not an address that can be called; check --ollama-url") from None
    except (httpx.HTTPError, OSError) as error:
        reason = hide_logins(str(error), of=url) or type(error).__name__
        raise EngineUnreachable(f"no Ollama answers at {shown} ({reason}); {how_to_start(url)}") from None
    except (ValueError, KeyError, TypeError):
        raise EngineUnreachable(f"what answers at {shown} is not Ollama; check --ollama-url") from None
    local = kind == "embedded" or is_here(url)
    here = await asyncio.to_thread(this_machine) if local else Machine()
    host = Host(kind=kind, url=shown, version=version, machine=here.name, hardware=here.hardware)
    return OllamaHost(host, timeout_s=timeout_s, login=login_of(url))


def how_to_start(url: str) -> str:
    """What to do if no Ollama answers: start or install it here, or check the address of another machine."""
    if not is_here(url):
        return "check --ollama-url, and that Ollama runs there"
    if shutil.which("ollama"):
        return "start it with `ollama serve`"
    return "install Ollama from https://ollama.com/download"


async def _version(client: httpx.AsyncClient, url: str) -> str:
    reply = await client.get(f"{url}/api/version")
    return str(reply.json()["version"]) if reply.is_success else await _unversioned(client, url)


async def _unversioned(client: httpx.AsyncClient, url: str) -> str:
    """A host that does not tell its version is still one if it lists its models."""
    reply = await client.get(f"{url}/api/tags")
    if not isinstance(reply.json()["models"], list):
        raise TypeError
    return "unknown"


@contextmanager
def _wire() -> Iterator[None]:
    """Turn whatever the client, the connection or a malformed reply raises into an EngineFailure."""
    import httpx
    import ollama

    try:
        yield
    except ollama.ResponseError as error:
        raise _refusal(error.status_code, str(error.error)) from None
    except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError):
        raise EngineFailure("the host cannot be reached", retryable=True, unreachable=True) from None
    except httpx.TimeoutException:
        raise EngineFailure("the host gave no sign for too long", retryable=True) from None
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        raise EngineFailure(f"the connection broke ({type(error).__name__})", retryable=True) from None
    except (ValueError, AttributeError, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise EngineFailure(f"the reply is not what Ollama sends ({first})", retryable=True) from None


async def _objects(
    response: httpx.Response, request: ChatRequest | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a streamed response, one a line. Raises EngineFailure for an error.

    Only a newline ends a line: JSON allows all other line separators of Unicode inside a text.
    """
    if not response.is_success:
        raise _failure(response.status_code, (await response.aread()).decode("utf-8", "replace"), request)
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield _object(line, request)
    if rest.strip():
        yield _object(rest, request)


def _object(line: bytes, request: ChatRequest | None) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"a {type(value).__name__} instead of an object")
    if value.get("error"):
        raise _failure(None, line.decode("utf-8", "replace"), request)
    return value


def _failure(status: int | None, text: str, request: ChatRequest | None) -> EngineFailure:
    """The failure that an error of the host becomes. `status` is None for an error inside a stream."""
    if request is not None and _TOO_LONG.search(text):
        return _too_long(text, request)
    try:
        value = json.loads(text)
        text = str(value["error"])
    except (ValueError, KeyError, TypeError):
        pass  # the host did not write the error as Ollama does: its text is shown as it is
    return _refusal(-1 if status is None else status, text)


def _refusal(status: int, text: str) -> EngineFailure:
    asked_wrong = 400 <= status < 500 and status not in {408, 429}
    text = text.strip()
    said = "a web page" if text.startswith("<") else text.partition("\n")[0][:300] or "nothing more"
    words = f"the host says: {said}" if status < 0 else f"the host answers {status}: {said}"
    return EngineFailure(words, retryable=not asked_wrong)


# How Ollama and llama.cpp write that a prompt does not fit, with the number of tokens where they give it.
_TOO_LONG = re.compile(
    r"exceed_context_size_error"
    r"|(?:input|prompt) (?:length |is longer than |exceeds ).{0,60}context (?:length|size|window)"
    r"|exceeds the available context size",
    re.IGNORECASE,
)
_PROMPT_TOKENS = re.compile(r"n_prompt_tokens\W{1,6}(\d+)|(?:request|input length) \((\d+) tokens\)")


def _too_long(text: str, request: ChatRequest) -> PromptTooLong:
    found = _PROMPT_TOKENS.search(text)
    tokens = next((int(number) for number in found.groups() if number), None) if found else None
    num_ctx, most = request.sampling.num_ctx, request.context_length or request.sampling.num_ctx
    name = "num_ctx" if num_ctx <= most else "the model's context length"
    limit = min(num_ctx, most)
    if tokens:
        return PromptTooLong(f"the prompt has {tokens} tokens, {name} is {limit}", by_model=most < num_ctx)
    return PromptTooLong(f"the prompt is longer than {name} {limit}", by_model=most < num_ctx)


def _encoded(body: Mapping[str, Any]) -> bytes:
    """ASCII only: half a surrogate pair in a text survives as an escape."""
    return json.dumps(body, separators=(",", ":")).encode()


def _chat_body(request: ChatRequest, keep_alive: str) -> dict[str, Any]:
    """The request. `truncate` and `shift` off make a host refuse a prompt that it would cut otherwise."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "stream": True,
        "think": sampling.think,
        "truncate": False,
        "shift": False,
        "options": {
            "temperature": sampling.temperature,
            "seed": request.seed,
            "num_ctx": sampling.num_ctx,
            "num_predict": sampling.num_predict,
        },
        "keep_alive": _keep_alive(keep_alive),
    }
    return body if request.format is None else {**body, "format": dict(request.format)}


def _keep_alive(text: str) -> str | int:
    """Ollama takes `5m`; a bare zero it takes as a number."""
    return 0 if text == "0" else text


def _completion(
    parts: Sequence[Mapping[str, Any]], *, request: ChatRequest, wall_ms: float, embedded: bool
) -> Completion:
    last = parts[-1]
    load_ms = _sane_ms(last.get("load_duration"))
    total_ms = _sane_ms(last.get("total_duration")) or wall_ms
    return Completion(
        text=storable("".join(_text(part, "content") for part in parts)),
        thinking=storable("".join(_text(part, "thinking") for part in parts)),
        cut=_cut(last, request, embedded=embedded),
        prompt_tokens=_count(last.get("prompt_eval_count")),
        cached_tokens=_count(last.get("prompt_cached_count")) if embedded else None,
        output_tokens=_count(last.get("eval_count")),
        latency_ms=max(0.0, total_ms - load_ms),
        load_ms=load_ms,
        tokens_per_s=_rate(last),
    )


def _text(part: Mapping[str, Any], key: str) -> str:
    """A text of a part's message; some parts have no message, or a message without this text."""
    text = (part.get("message") or {}).get(key) or ""
    if not isinstance(text, str):
        raise TypeError(f"{key} is not text")
    return text


def _sane_ms(nanoseconds: object) -> float:
    """A host's duration in milliseconds; 0 if it is missing or impossible (below zero, above a day)."""
    number = nanoseconds if isinstance(nanoseconds, (int, float)) else 0
    return number / _NS_PER_MS if 0 < number < _DAY_NS else 0.0


def _rate(last: Mapping[str, Any]) -> float | None:
    milliseconds, tokens = _sane_ms(last.get("eval_duration")), _count(last.get("eval_count"))
    rate = tokens * 1000 / milliseconds if tokens and milliseconds else None
    return rate if rate is not None and rate < _FASTEST else None


def _cut(last: Mapping[str, Any], request: ChatRequest, *, embedded: bool) -> Cut | None:
    """A prompt that fills the context was cut; only the embedded engine states whether it cut a prompt."""
    stated = last.get("prompt_truncated") if embedded else None
    full = (_count(last.get("prompt_eval_count")) or 0) >= request.room
    if full if stated is None else stated is True:
        return "prompt"
    reason, written = last.get("done_reason"), _count(last.get("eval_count")) or 0
    unsaid = reason is None and written >= request.sampling.num_predict
    return "reply" if reason == "length" or unsaid else None


def storable(text: str) -> str:
    """The text with what no database takes (NUL, half a surrogate pair) replaced by U+FFFD."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


def _parameters(info: Mapping[str, Any], declared: str | None) -> int | None:
    """The exact count, unless the rounded size beside it is clearly larger: then the host is in doubt."""
    count, rounded = _positive(info.get("general.parameter_count")), _from_size(declared)
    if count and rounded and rounded < 1.05 * count:
        return count
    return max(filter(None, (count, rounded)), default=None)


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


def _from_size(text: str | None) -> int | None:
    """`494.03M` or `1.5B` as a number."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([KMBT])\s*", text or "", re.IGNORECASE)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return None
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[2].upper()]
    return round(float(match[1]) * scale) or None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
