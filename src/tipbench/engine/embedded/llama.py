"""One model in memory: llama.cpp inside this process, spoken to through the server it brings along.

xllamacpp's own methods offer no tokenizer and no chat template, but the HTTP server that every model comes
with has both, streams, and stops when its caller hangs up. It listens on loopback, behind a key of our own.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import secrets
import sys
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tipbench.engine.embedded.asks import ApiError, Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    import httpx

    from tipbench.engine.embedded.catalog import Entry

REPLY_MARGIN = 256
_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How models are run. The defaults give the same text for the same seed."""

    threads: int
    parallel: int = 1
    prompt_cache: bool = False
    verbose: bool = False


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a reply as it comes."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The end of a reply: why it ended, whether the model itself ended it, and what it took."""

    reason: str
    by_model: bool
    prompt_count: int
    cached_count: int
    prompt_ns: int
    eval_count: int
    eval_ns: int


class Llama:
    """A loaded model. Made by `load`; its memory is given back by `close`, and only then."""

    def __init__(self, *, server: Any, key: str, entry: Entry, num_ctx: int, size: int, cache: bool) -> None:  # noqa: ANN401
        import httpx

        self.entry = entry
        self.num_ctx = num_ctx
        self.size = size
        self._server = server
        self._cache = cache
        self._taken_schemas: set[str] = set()
        self._client = httpx.AsyncClient(
            base_url=server.listening_address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(None, connect=10),
            # A connection that llama.cpp has just closed looks open for a moment: what is sent then is lost.
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """What must be the same for a request to be served without loading anew."""
        return self.entry.name, self.entry.stamp, self.num_ctx

    async def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt that the model's own chat template makes of the messages."""
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": False}}
        return str((await self._post("/apply-template", body))["prompt"])

    async def tokenize(self, text: str) -> list[int]:
        answer = await self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        return list(answer["tokens"])

    async def complete(
        self, tokens: Sequence[int], *, options: Options, most: int, schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[Chunk | Finish, None]:
        """The reply to a prompt of tokens, at most `most` tokens of it. Closed early, it stops generating."""
        if schema is not None:
            await self._check_schema(schema)
        body = {
            **_sampling(options),
            **_constraint(schema),
            "prompt": list(tokens),
            "n_predict": most,
            "cache_prompt": self._cache,
            "stream": True,
        }
        async with self._stream("/completion", body) as response:
            async for event in _events(response):
                if event.get("error"):
                    raise _api_error(500, event)
                if event["content"] or event["tokens"]:
                    yield Chunk(text=event["content"], tokens=tuple(event["tokens"]))
                if event["stop"]:
                    yield _finish(event)

    async def _check_schema(self, schema: Mapping[str, Any]) -> None:
        """Refuse a schema that llama.cpp cannot follow; by itself it would go on without it and not say so.

        Seen by asking for one token with everything on `Z`, with which no JSON begins.
        """
        text = json.dumps(schema, sort_keys=True)
        if text in self._taken_schemas:
            return
        body = {**_constraint(schema), "prompt": "-", "n_predict": 1, "temperature": 0, "cache_prompt": False}
        answer = await self._post("/completion", {**body, "logit_bias": [["Z", 1000.0]]})
        if answer["content"].strip().startswith("Z"):
            raise ApiError(
                400, "invalid format: the JSON schema cannot be followed; check its types and references"
            )
        self._taken_schemas.add(text)

    async def close(self) -> None:
        """Free the weights and the cache; they are gone from memory when this returns."""
        await self._client.aclose()
        await asyncio.to_thread(self._drop)

    def _drop(self) -> None:
        self._server = None
        gc.collect()
        _trim()

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        async with self._stream(path, body) as response:
            return dict(json.loads(await response.aread()))

    @asynccontextmanager
    async def _stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        import httpx

        # half a surrogate pair is legal in JSON and impossible in UTF-8: llama.cpp would refuse the body
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with self._client.stream("POST", path, content=content) as response:
                if response.status_code != httpx.codes.OK:
                    raise _api_error(response.status_code, _loaded_json(await response.aread()))
                yield response
        except httpx.TransportError as error:
            raise ApiError(500, f"llama.cpp broke off: {error or type(error).__name__}") from None


def load(entry: Entry, *, num_ctx: int, tuning: Tuning) -> Llama:
    """Load a model, which blocks the interpreter meanwhile; ApiError 500 where llama.cpp will not."""
    import xllamacpp

    before, key = _resident_bytes(), secrets.token_urlsafe(32)
    params = _params(entry, num_ctx=num_ctx, tuning=tuning, key=key)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        message = f"llama.cpp cannot load {entry.name} from {entry.path} ({error}); --verbose shows its log"
        raise ApiError(500, message) from None
    least = entry.header.weight_bytes + entry.header.cache_bytes_per_token * params.n_ctx
    size = max(least, _resident_bytes() - before)
    return Llama(server=server, key=key, entry=entry, num_ctx=num_ctx, size=size, cache=tuning.prompt_cache)


def _params(entry: Entry, *, num_ctx: int, tuning: Tuning, key: str) -> Any:  # noqa: ANN401
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(entry.path)
    # a prompt that was cut to fill the whole context still gets a reply, in this margin
    params.n_ctx = (num_ctx + REPLY_MARGIN) * tuning.parallel
    params.n_parallel = tuning.parallel
    params.n_batch = params.n_ubatch = _BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = tuning.threads
    params.n_gpu_layers = 0
    params.no_op_offload = params.no_kv_offload = True
    # flash attention splits its sums by thread, so that another thread count would give another text
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.fit_params = params.warmup = params.ui = params.ctx_shift = False
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = params.n_ctx_checkpoints if tuning.prompt_cache else 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.endpoint_slots = params.endpoint_props = False
    params.n_threads_http = tuning.parallel + 2
    params.verbosity = 3 if tuning.verbose else -1
    return params


def _constraint(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema, without free whitespace, in which small models get lost; rare keywords are passed over."""
    if schema is None:
        return {}
    style = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", ", "lenient": True}
    return {"json_schema": {"x-guidance": style, **schema}}


def _sampling(options: Options) -> dict[str, Any]:
    """The options that llama.cpp knows under Ollama's names; its look back ends with the context."""
    ours = {"num_ctx", "num_predict", "num_keep"}
    same = {name: value for name, value in asdict(options).items() if name not in ours}
    back = options.repeat_last_n if options.repeat_last_n >= 0 else options.num_ctx
    return {**same, "repeat_last_n": max(0, back)}


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events; split at newlines alone, since a reply may hold any other line separator."""
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])
    if rest.startswith(b"data: {"):
        yield json.loads(rest[6:])


def _finish(event: Mapping[str, Any]) -> Finish:
    timings = event["timings"]
    return Finish(
        reason="length" if event["stop_type"] == "limit" else "stop",
        by_model=event["stop_type"] == "eos",
        prompt_count=timings["prompt_n"] + timings["cache_n"],
        cached_count=timings["cache_n"],
        prompt_ns=int(timings["prompt_ms"] * 1e6),
        eval_count=timings["predicted_n"],
        eval_ns=int(timings["predicted_ms"] * 1e6),
    )


def _api_error(status: int, answer: Mapping[str, Any]) -> ApiError:
    error = answer.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return ApiError(status, str(message or f"llama.cpp answered with status {status}"))


def _loaded_json(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {"error": body.decode("utf-8", "replace")}
    return answer if isinstance(answer, dict) else {"error": str(answer)}


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _trim() -> None:
    """Hand freed memory back to the system where the C library keeps it unless told so (glibc)."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
