"""A host that speaks Ollama's API, through the official client: what it has, what is loaded, one chat.

Everything the wire can do wrong ends here as an `EngineFailure` that says whether asking again may help.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.engine.address import is_here, login_of
from tipbench.engine.lock import is_loopback
from tipbench.engine.machine import Machine, this_machine
from tipbench.errors import EngineFailure, EngineUnreachable
from tipbench.records import ChatRequest, Completion, Cut, EngineKind, Host, Model, Resident
from tipbench.text import hide_logins, without_login

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

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
        self._client = ollama.AsyncClient(
            host.url,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            auth=login,
            # A proxy set for the outside world must not be asked for the machine's own ports.
            trust_env=not is_loopback(host.url),
            # The address that was asked for was allowed; where it leads to was not.
            follow_redirects=False,
            event_hooks={"response": [_tap]},
        )

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

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

    async def load(self, name: str, *, num_ctx: int, keep_alive: str) -> float:
        """Load the weights with the context length the cells will ask for; the seconds it took."""
        started = time.perf_counter()
        with _wire():
            reply = await self._client.generate(name, "", options={"num_ctx": num_ctx}, keep_alive=keep_alive)
        return (reply.load_duration or 0) / 1e9 or time.perf_counter() - started

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
        """One call. Streamed, so that a host that falls silent is noticed and a torn reply is seen as one."""
        started = time.perf_counter()
        tail = bytearray()
        _TAIL.set(tail if self.host.kind == "embedded" else None)
        with _wire():
            stream = await self._client.chat(
                request.model,
                [{"role": m.role, "content": m.content} for m in request.messages],
                stream=True,
                think=request.sampling.think,
                format=dict(request.format) if request.format is not None else None,
                options=_options(request),
                keep_alive=_keep_alive(keep_alive),
            )
            parts = [part async for part in stream]
        if not parts or not parts[-1].done:
            raise EngineFailure("the reply broke off before its end", retryable=True)
        wall_ms = (time.perf_counter() - started) * 1000
        return _completion(parts, request=request, wall_ms=wall_ms, more=_last_line(tail))


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
    return "install Ollama from https://ollama.com/download, or use --engine embedded"


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
        raise _refusal(error) from None
    except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError):
        raise EngineFailure("the host cannot be reached", retryable=True, unreachable=True) from None
    except httpx.TimeoutException:
        raise EngineFailure("the host gave no sign for too long", retryable=True) from None
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        raise EngineFailure(f"the connection broke ({type(error).__name__})", retryable=True) from None
    except (ValueError, AttributeError, TypeError) as error:
        # The client reads a reply's fields before it has checked that the reply is an object.
        first = str(error).partition("\n")[0]
        raise EngineFailure(f"the reply is not what Ollama sends ({first})", retryable=True) from None


def _refusal(error: ollama.ResponseError) -> EngineFailure:
    status = error.status_code
    asked_wrong = 400 <= status < 500 and status not in {408, 429}
    text = str(error.error).strip()
    said = "a web page" if text.startswith("<") else text.partition("\n")[0][:300] or "nothing more"
    words = f"the host says: {said}" if status < 0 else f"the host answers {status}: {said}"
    return EngineFailure(words, retryable=not asked_wrong)


def _options(request: ChatRequest) -> Mapping[str, Any]:
    return {
        "temperature": request.sampling.temperature,
        "seed": request.seed,
        "num_ctx": request.sampling.num_ctx,
        "num_predict": request.sampling.num_predict,
    }


def _keep_alive(text: str) -> str | int:
    """Ollama takes `5m`; a bare zero it takes as a number."""
    return 0 if text == "0" else text


def _completion(
    parts: list[ollama.ChatResponse], *, request: ChatRequest, wall_ms: float, more: Mapping[str, Any]
) -> Completion:
    last = parts[-1]
    load_ms = _sane_ms(last.load_duration)
    total_ms = _sane_ms(last.total_duration) or wall_ms
    return Completion(
        text=storable("".join(part.message.content or "" for part in parts)),
        thinking=storable("".join(part.message.thinking or "" for part in parts)),
        cut="prompt" if more.get("prompt_truncated") is True else _cut(last, request),
        prompt_tokens=_count(last.prompt_eval_count),
        cached_tokens=_count(more.get("prompt_cached_count")),
        output_tokens=_count(last.eval_count),
        latency_ms=max(0.0, total_ms - load_ms),
        load_ms=load_ms,
        tokens_per_s=_rate(last),
    )


def _sane_ms(nanoseconds: int | None) -> float:
    """A host's duration in milliseconds; one that cannot be (below zero, above a day) is none."""
    return nanoseconds / _NS_PER_MS if nanoseconds and 0 < nanoseconds < _DAY_NS else 0.0


def _rate(last: ollama.ChatResponse) -> float | None:
    milliseconds, tokens = _sane_ms(last.eval_duration), _count(last.eval_count)
    rate = tokens * 1000 / milliseconds if tokens and milliseconds else None
    return rate if rate is not None and rate < _FASTEST else None


def _cut(last: ollama.ChatResponse, request: ChatRequest) -> Cut | None:
    """Ollama drops what does not fit the context without a word: a prompt that fills it was cut."""
    room = min(request.sampling.num_ctx, request.context_length or request.sampling.num_ctx)
    if (last.prompt_eval_count or 0) >= room:
        return "prompt"
    unsaid = last.done_reason is None and (last.eval_count or 0) >= request.sampling.num_predict
    return "reply" if last.done_reason == "length" or unsaid else None


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


# The client's types leave out the fields in which the embedded engine tells how much of a prompt came
# from its cache and whether it was cut, so the end of each reply is kept aside and read once more.
_TAIL: ContextVar[bytearray | None] = ContextVar("_TAIL", default=None)
_TAIL_BYTES = 4096


async def _tap(response: httpx.Response) -> None:
    import httpx

    packed = response.headers.get("content-encoding", "identity") != "identity"
    if not packed and isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _tapped(response.stream, _TAIL.get())


def _tapped(stream: httpx.AsyncByteStream, tail: bytearray | None) -> httpx.AsyncByteStream:
    """The stream, its end kept in `tail`, and with the line breaks escaped that JSON allows inside a text.

    The client cuts lines where Unicode does, and would cut a reply that holds one of these in two.
    """
    import httpx

    class Tapped(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            held = b""
            async for chunk in stream:
                whole = _escaped(held + chunk)
                held = next((start for start in _STARTS if whole.endswith(start)), b"")
                whole = whole[: len(whole) - len(held)]
                if tail is not None:
                    tail.extend(whole)
                    del tail[:-_TAIL_BYTES]
                yield whole
            if held:
                yield held

        async def aclose(self) -> None:
            await stream.aclose()

    return Tapped()


_BREAKS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}
_STARTS = (b"\xe2\x80", b"\xe2", b"\xc2")


def _escaped(chunk: bytes) -> bytes:
    for character, escape in _BREAKS.items():
        chunk = chunk.replace(character, escape)
    return chunk


def _last_line(tail: bytearray) -> Mapping[str, Any]:
    """The last object of a reply; nothing where it was not kept or is none."""
    lines = bytes(tail).strip().splitlines()
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return last if isinstance(last, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
