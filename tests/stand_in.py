"""A stand-in for an Ollama host: a real HTTP server on loopback, with faults on demand.

It generates nothing and remembers what it saw. It is for what a well-behaved engine never does (stalls, torn
streams, models that will not unload) and for measuring what tipbench itself costs.
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
from itertools import pairwise
from typing import Any

# Of the loop, from a connection that was let in to one that is served.
_TURNS = 5
TIPS = json.dumps(
    [
        f"Write down the first step of the report, then work on it for {n} minutes."
        for n in (5, 10, 15, 20, 25)
    ]
)


@dataclass
class FakeModel:
    name: str
    parameters: int | None = 500_000_000
    size: int = 1_000_000
    context_length: int = 8192
    weights: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.name}{self.weights}".encode()).hexdigest()


Fault = Callable[[int, dict[str, Any]], "str | None"]


@dataclass
class StandIn:
    """What the host has, how it behaves, and what it saw.

    `fault(number, body)` is asked before each chat reply and may return `drop`, `500`, `404`, `torn`,
    `stall`, `garbage`, `error-line`, `length`, `absurd` or `full-context`. `busy` says how many of the next
    requests to a path are answered 503. Requests to the path `silent_on` that do not unload are never
    answered; once there was a request to the path `silent_from`, no request is.
    """

    models: list[FakeModel]
    latency_s: float = 0.0
    reply: str = TIPS
    fault: Fault = lambda _number, _body: None
    unloads: bool = True
    load_error: dict[str, str] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    gives_digests: bool = True
    resident: list[str] = field(default_factory=list)
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

    def load(self, name: str) -> None:
        if name not in self.resident:
            self.resident.append(name)
            self.loads.append(name)
        self.most_resident = max(self.most_resident, len(self.resident))


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
                method, path, _ = head.split(" ", 2)
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
                body = json.loads(await self.reader.readexactly(length)) if length else {}
                await self.route(method, path, body)

    async def route(self, method: str, path: str, body: dict[str, Any]) -> None:
        if self.host.keep:
            self.host.requests.append((path, body))
        handler = {
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
            await self.send(404, {"error": f"no route {method} {path}"})
        else:
            await handler(body)

    async def send(self, status: int, payload: object) -> None:
        data = json.dumps(payload).encode()
        self.writer.write(
            b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (status, len(data))
        )
        self.writer.write(data)
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

    async def version(self, _body: dict[str, Any]) -> None:
        await self.send(200, {"version": "0.0.0-stand-in"})

    async def tags(self, _body: dict[str, Any]) -> None:
        models = [
            {
                "name": m.name,
                "model": m.name,
                "digest": m.digest,
                "size": m.size,
                "details": {"family": "test"},
            }
            for m in self.host.models
        ]
        await self.send(200, {"models": models})

    async def show(self, body: dict[str, Any]) -> None:
        model = self.host.model(body["model"])
        if model is None:
            await self.send(404, {"error": f"model '{body['model']}' not found"})
            return
        info: dict[str, Any] = {"general.architecture": "test", "test.context_length": model.context_length}
        if model.parameters is not None:
            info["general.parameter_count"] = model.parameters
        await self.send(
            200, {"details": {"family": "test", "quantization_level": "Q4_0"}, "model_info": info}
        )

    async def ps(self, _body: dict[str, Any]) -> None:
        found = [m for m in map(self.host.model, self.host.resident) if m is not None]
        models = [
            {
                "name": m.name,
                "model": m.name,
                "size": m.size,
                "size_vram": round(m.size * self.host.vram_share),
                **({"digest": m.digest} if self.host.gives_digests else {}),
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
        name = body["model"]
        if body.get("keep_alive") == 0:
            if self.host.unloads and name in self.host.resident:
                self.host.resident.remove(name)
            await self.send(200, {"model": name, "response": "", "done": True, "done_reason": "unload"})
        elif name in self.host.load_error:
            await self.send(500, {"error": self.host.load_error[name]})
        else:
            self.host.load(name)
            done = {
                "model": name,
                "response": "",
                "done": True,
                "done_reason": "load",
                "load_duration": 50_000_000,
            }
            await self.send(200, done)

    async def chat(self, body: dict[str, Any]) -> None:
        host, name = self.host, body["model"]
        host.chats.append(body if host.keep else {"model": name})
        fault = host.fault(len(host.chats), body)
        host.load(name)
        host.in_flight.append(name)
        host.most_models_in_flight = max(host.most_models_in_flight, len(set(host.in_flight)))
        try:
            await asyncio.sleep(host.latency_s)
            await self.answer(name, body, fault)
        finally:
            host.in_flight.remove(name)
            if body.get("keep_alive") == 0 and host.unloads and name in host.resident:
                host.resident.remove(name)

    async def answer(self, name: str, body: dict[str, Any], fault: str | None) -> None:
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
        message = {"model": name, "message": {"role": "assistant", "content": self.host.reply}, "done": False}
        last = {
            "model": name,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "length" if fault == "length" else "stop",
            "total_duration": 1_020_000_000,
            "load_duration": 1_000_000_000,
            "prompt_eval_count": body["options"]["num_ctx"] if fault == "full-context" else 100,
            "prompt_eval_duration": 5_000_000,
            "eval_count": 60,
            "eval_duration": 10_000_000,
        }
        if fault == "absurd":
            last |= {
                "total_duration": -5,
                "load_duration": -(10**9),
                "eval_duration": 1,
                "eval_count": 10**15,
            }
        if fault == "torn":
            await self.lines([message], torn=True)
        elif fault == "error-line":
            await self.lines([message, {"error": "the runner died"}])
        else:
            await self.lines([message, last])


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
