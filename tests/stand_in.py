"""A stand-in for an Ollama host: a real HTTP server on loopback, with faults on demand.

It generates nothing and remembers what it saw. It is for what a well-behaved engine never does (stalls, torn
streams, models that will not unload) and for measuring what tipbench itself costs. Without a fault it answers
as Ollama does: `tests/ollama_server/test_ollama_conformance.py` runs the same cases on it and on a real one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import cycle, pairwise
from typing import Any

from ollama_generations import (
    DEFAULT_NUM_CTX,
    VERSIONS,
    Generation,
    Refused,
    check_think,
    cut_reply,
    fitting_prompt,
    obey,
    read_body,
)
from tipbench.engine.embedded.catalog import human_count

# Of the loop, from a connection that was let in to one that is served.
_TURNS = 5
_TEXTS = [
    f"Write down the first step of the report, then work on it for {n} minutes." for n in (5, 10, 15, 20, 25)
]
TIPS = json.dumps(_TEXTS)
_NO_LIMIT = 10**9
_NS_PER_TOKEN = 1_000_000 // 6
_KINDS = {"/api/show": "ShowRequest", "/api/generate": "GenerateRequest", "/api/chat": "ChatRequest"}


@dataclass
class FakeModel:
    name: str
    parameters: int | None = 500_000_000
    size: int = 1_000_000
    context_length: int = 8192
    weights: str = ""
    thinks: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.name}{self.weights}".encode()).hexdigest()

    @property
    def details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": "test",
            "families": ["test"],
            "parameter_size": "" if self.parameters is None else human_count(self.parameters),
            "quantization_level": "Q4_0",
        }


Fault = Callable[[int, dict[str, Any]], "str | None"]


@dataclass
class StandIn:
    """What the host has, how it behaves, and what it saw.

    `fault(number, body)` is asked before each chat reply and may return `drop`, `500`, `404`, `torn`,
    `stall`, `garbage`, `error-line`, `length`, `absurd` or `full-context`. `busy` says how many of the next
    requests to a path are answered 503. A `reply` is sent as it is: only the default reply obeys a schema.
    `amend(body, last)` returns the last object of each chat reply; one with an `error` is answered 400.
    Without `limits` no prompt is too long for the host, unless `amend` refuses it.
    Requests to the path `silent_on` that do not unload are never answered; once there was a request to the
    path `silent_from`, no request is.
    """

    models: list[FakeModel]
    latency_s: float = 0.0
    generation: Generation = "0.17"
    limits: bool = True
    reply: str = TIPS
    fault: Fault = lambda _number, _body: None
    unloads: bool = True
    load_error: dict[str, str] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    gives_digests: bool = True
    resident: list[str] = field(default_factory=list)
    runners: dict[str, tuple[object, ...]] = field(default_factory=dict)
    chats: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    in_flight: list[str] = field(default_factory=list)
    most_models_in_flight: int = 0
    most_resident: int = 0
    url: str = ""
    keep: bool = True
    vram_share: float = 0.0
    logins: list[str] = field(default_factory=list)
    amend: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda _body, last: last
    silent_on: str = ""
    silent_from: str = ""
    silent: bool = False

    @property
    def switches(self) -> int:
        names = [chat["model"] for chat in self.chats]
        return sum(a != b for a, b in pairwise(names))

    def model(self, name: str) -> FakeModel | None:
        wanted = name if ":" in name else f"{name}:latest"
        return next((m for m in self.models if m.name in {name, wanted}), None)

    def load(self, name: str, body: dict[str, Any]) -> int:
        """Load the model for this request if it is not loaded in this way, and return its context length.

        Another `num_ctx` loads it again. In the later generation, so does another value of `shift`.
        """
        model = self.model(name)
        num_ctx = int((body.get("options") or {}).get("num_ctx", DEFAULT_NUM_CTX))
        num_ctx = min(num_ctx, model.context_length if model else num_ctx)
        shift = body.get("shift", True) if self.generation == "August 2026" else None
        wanted = (num_ctx, shift)
        if name not in self.resident or self.runners.get(name, wanted) != wanted:
            self.loads.append(name)
        if name not in self.resident:
            self.resident.append(name)
        self.runners[name] = wanted
        self.most_resident = max(self.most_resident, len(self.resident))
        return num_ctx


class _Gone(Exception):  # the client's connection is to be dropped
    pass


class _Connection:
    def __init__(self, host: StandIn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = host
        self.reader = reader
        self.writer = writer

    async def serve(self) -> None:
        with suppress(_Gone, ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                asked_by = re.search(r"^authorization: (.*)\r$", head, re.IGNORECASE | re.MULTILINE)
                if self.host.keep:
                    self.host.logins.append(asked_by[1] if asked_by else "")
                length = next(
                    (
                        int(line[15:])
                        for line in head.lower().split("\r\n")
                        if line.startswith("content-length:")
                    ),
                    0,
                )
                await self.route(path, await self.reader.readexactly(length))

    async def route(self, path: str, content: bytes) -> None:
        try:
            body = read_body(content, kind=_KINDS[path]) if path in _KINDS else json.loads(content or b"{}")
        except Refused as refused:
            await self.send(refused.status, {"error": refused.error})
            return
        if self.host.keep:
            self.host.requests.append((path, body))
        handler = {
            "/": self.hello,
            "/api/version": self.version,
            "/api/tags": self.tags,
            "/api/show": self.show,
            "/api/ps": self.ps,
            "/api/generate": self.generate,
            "/api/chat": self.chat,
            "/api/pull": self.pull,
        }.get(path)
        self.host.silent = self.host.silent or path == self.host.silent_from
        if self.host.silent or (path == self.host.silent_on and body.get("keep_alive") != 0):
            await asyncio.sleep(3600)
        if self.host.busy.get(path, 0) > 0:
            self.host.busy[path] -= 1
            await self.send(503, {"error": "server busy, please try again"})
        elif handler is None:
            await self.send_text(404, "404 page not found")
        elif path in _KINDS and self.host.model(body["model"]) is None:
            await self.send(404, {"error": f"model '{body['model']}' not found"})
        else:
            await handler(body)

    async def send(self, status: int, payload: object) -> None:
        await self.send_text(status, json.dumps(payload), kind="application/json; charset=utf-8")

    async def send_text(self, status: int, text: str, *, kind: str = "text/plain; charset=utf-8") -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def lines(self, parts: list[dict[str, Any]], *, torn: bool = False, raw: bytes = b"") -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        data = raw or b"".join(json.dumps(part, ensure_ascii=False).encode() + b"\n" for part in parts)
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        if torn:
            await self.writer.drain()
            raise _Gone
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def hello(self, _body: dict[str, Any]) -> None:
        await self.send_text(200, "Ollama is running")

    async def version(self, _body: dict[str, Any]) -> None:
        await self.send(200, {"version": VERSIONS[self.host.generation]})

    async def tags(self, _body: dict[str, Any]) -> None:
        models = [
            {
                "name": m.name,
                "model": m.name,
                "modified_at": _now(),
                "size": m.size,
                "digest": m.digest,
                "details": m.details,
            }
            for m in self.host.models
        ]
        await self.send(200, {"models": models})

    async def show(self, body: dict[str, Any]) -> None:
        model = self.model(body)
        info: dict[str, Any] = {"general.architecture": "test", "test.context_length": model.context_length}
        if model.parameters is not None:
            info["general.parameter_count"] = model.parameters
        shown = {
            "modelfile": f"FROM {model.name}",
            "template": "{{ .Prompt }}",
            "details": model.details,
            "model_info": info,
            "capabilities": ["completion", "thinking"] if model.thinks else ["completion"],
            "modified_at": _now(),
        }
        await self.send(200, shown)

    def model(self, body: dict[str, Any]) -> FakeModel:
        """The model of a request that `route` has let through."""
        model = self.host.model(body["model"])
        assert model is not None
        return model

    async def ps(self, _body: dict[str, Any]) -> None:
        found = [m for m in map(self.host.model, self.host.resident) if m is not None]
        models = [
            {
                "name": m.name,
                "model": m.name,
                "size": m.size,
                **({"digest": m.digest} if self.host.gives_digests else {}),
                "details": m.details,
                "expires_at": _now(minutes=5),
                "size_vram": round(m.size * self.host.vram_share),
                "context_length": self.host.runners.get(m.name, (DEFAULT_NUM_CTX,))[0],
            }
            for m in found
        ]
        await self.send(200, {"models": models})

    async def pull(self, body: dict[str, Any]) -> None:
        self.host.models.append(FakeModel(body["model"]))
        await self.lines(
            [{"status": "pulling", "total": 100, "completed": n} for n in (10, 100)] + [{"status": "success"}]
        )

    async def generate(self, body: dict[str, Any]) -> None:
        """Load or unload a model. The fake generates text only for `/api/chat`."""
        await self.load_or_unload(body, {"response": ""})

    async def load_or_unload(self, body: dict[str, Any], empty: dict[str, Any]) -> None:
        name = self.model(body).name
        if body.get("keep_alive") == 0:
            self.unload(name)
        elif name in self.host.load_error:
            await self.send(500, {"error": self.host.load_error[name]})
            return
        else:
            self.host.load(name, body)
        reason = "unload" if body.get("keep_alive") == 0 else "load"
        head = {"model": body["model"], "created_at": _now()}
        await self.send(200, {**head, **empty, "done": True, "done_reason": reason})

    def unload(self, name: str) -> None:
        if self.host.unloads and name in self.host.resident:
            self.host.resident.remove(name)

    async def chat(self, body: dict[str, Any]) -> None:
        host, name = self.host, self.model(body).name
        if not body.get("messages"):
            await self.load_or_unload(body, {"message": {"role": "assistant", "content": ""}})
            return
        host.chats.append(body if host.keep else {"model": name})
        fault = host.fault(len(host.chats), body)
        try:
            check_think(body, thinks=self.model(body).thinks)
        except Refused as refused:
            await self.send(refused.status, {"error": refused.error})
            return
        num_ctx = host.load(name, body)
        host.in_flight.append(name)
        host.most_models_in_flight = max(host.most_models_in_flight, len(set(host.in_flight)))
        try:
            await asyncio.sleep(host.latency_s)
            await self.answer(body, fault, num_ctx)
        except Refused as refused:
            await self.send(refused.status, {"error": refused.error})
        finally:
            host.in_flight.remove(name)
            if body.get("keep_alive") == 0:
                self.unload(name)

    def text(self, body: dict[str, Any]) -> str:
        schema = body.get("format")
        if self.host.reply != TIPS or not isinstance(schema, dict):
            return self.host.reply
        return json.dumps(obey(schema, cycle(_TEXTS)))

    async def answer(self, body: dict[str, Any], fault: str | None, num_ctx: int) -> None:
        if fault == "drop":
            raise _Gone
        if fault == "stall":
            await asyncio.sleep(3600)
        if fault in {"500", "404"}:
            await self.send(int(fault), {"error": "out of luck"})
            return
        if fault == "garbage":
            await self.lines([], raw=b'["not", "an", "object"]\n')
            return
        options = body.get("options") or {}
        limit = num_ctx if self.host.limits else _NO_LIMIT
        n_prompt = fitting_prompt(body, num_ctx=limit, generation=self.host.generation)
        room = None if body.get("shift", True) else limit - n_prompt + 1
        reply = cut_reply(self.text(body), options=options, room=room)
        n_tokens = max(1, len(reply.tokens))
        head = {"model": body["model"], "created_at": _now()}
        message = {**head, "message": {"role": "assistant", "content": reply.text}, "done": False}
        last = {
            **head,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "length" if fault == "length" else reply.reason,
            "total_duration": 1_010_000_000 + n_tokens * _NS_PER_TOKEN,
            "load_duration": 1_000_000_000,
            "prompt_eval_count": num_ctx if fault == "full-context" else n_prompt,
            "prompt_eval_duration": 5_000_000,
            "eval_count": n_tokens,
            "eval_duration": n_tokens * _NS_PER_TOKEN,
        }
        if not reply.tokens and self.host.generation == "0.17":
            del last["eval_duration"]
        if fault == "absurd":
            last |= {
                "total_duration": -5,
                "load_duration": -(10**9),
                "eval_duration": 1,
                "eval_count": 10**15,
            }
        last = self.host.amend(body, last)
        if "error" in last:
            await self.send(400, last)
            return
        if body.get("stream") is False:
            await self.send(200, {**(last if reply.reason else {}), **message, "done": bool(reply.reason)})
            return
        if reply.reason is None:
            await self.lines([message])
            return
        await self.stream(message, last, fault)

    async def stream(self, message: dict[str, Any], last: dict[str, Any], fault: str | None) -> None:
        if fault == "torn":
            await self.lines([message], torn=True)
        elif fault == "error-line":
            await self.lines([message, {"error": "the runner died"}])
        else:
            await self.lines([message, last] if message["message"]["content"] else [last])


def _now(*, minutes: int = 0) -> str:
    return (datetime.now(timezone.utc) + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


@contextmanager
def running(host: StandIn, stop: list[Callable[[], None]] | None = None) -> Iterator[StandIn]:
    """Serve it from a thread until the block ends, or until the function put into `stop` is called."""
    loop = asyncio.new_event_loop()
    started, ended = threading.Event(), asyncio.Event()
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(_Connection(host, reader, writer).serve())
        connections[task] = writer
        task.add_done_callback(lambda done: connections.pop(done).close())

    def end() -> None:
        ended.set()
        for task, writer in connections.items():
            task.cancel()
            writer.transport.abort()

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ended.wait()
        loop.remove_reader(server.sockets[0])
        for _ in range(_TURNS):  # whoever was let in just now becomes a connection that can be ended
            await asyncio.sleep(0)
        server.close()
        end()
        await asyncio.gather(*connections, return_exceptions=True)

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    if stop is not None:
        stop.append(end)
    try:
        yield host
    finally:
        with suppress(RuntimeError):  # it was ended before
            loop.call_soon_threadsafe(end)
        thread.join()
