"""Ollama's routes. Every reply is an ASGI application that stops its work when the client hangs up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from tipbench.engine.embedded import replies
from tipbench.engine.embedded.asks import ApiError, Ask, chat_ask, generate_ask, model_of, read_json

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from tipbench.engine.embedded.engine import Engine
    from tipbench.engine.embedded.replies import Reply

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = "application/json; charset=utf-8"
_NOT_OFFERED = {
    "/api/push": "push",
    "/api/create": "create",
    "/api/copy": "copy",
    "/api/embed": "embed",
    "/api/embeddings": "embeddings",
}


def build_app(engine: Engine, *, ready: Callable[[], None]) -> Starlette:
    """The application; `ready` is called once it takes requests."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        ready()
        yield
        await engine.close()

    handlers: Any = {ApiError: _refused, HTTPException: _no_route, Exception: _failed}
    return Starlette(routes=_routes(engine), exception_handlers=handlers, lifespan=lifespan)


def _routes(engine: Engine) -> list[Any]:
    from starlette.routing import Route

    async def tags(_request: Request) -> Response:
        return _json(await engine.tags())

    async def show(request: Request) -> Response:
        body = read_json(await request.body())
        return _json(await engine.show(model_of(body), verbose=bool(body.get("verbose"))))

    async def running(_request: Request) -> Response:
        return _json(await engine.running())

    async def pull(request: Request) -> Response:
        return _pull(engine, read_json(await request.body()))

    async def delete(request: Request) -> Response:
        entry = engine.entry(model_of(read_json(await request.body())))
        raise ApiError(501, f"the embedded engine does not delete models: {entry.path} is yours to remove")

    async def chat(request: Request) -> _Replies:
        return _Replies(engine, chat_ask(read_json(await request.body())))

    async def generate(request: Request) -> _Replies:
        return _Replies(engine, generate_ask(read_json(await request.body())))

    return [
        Route("/", _hello),
        Route("/api/version", _version),
        Route("/api/tags", tags),
        Route("/api/ps", running),
        Route("/api/show", show, methods=["POST"]),
        Route("/api/pull", pull, methods=["POST"]),
        Route("/api/delete", delete, methods=["DELETE"]),
        Route("/api/chat", chat, methods=["POST"]),
        Route("/api/generate", generate, methods=["POST"]),
        *(Route(path, _not_offered, methods=["POST"]) for path in _NOT_OFFERED),
    ]


class _Replies:
    """The answer to a chat or generate request, streamed or in one piece."""

    def __init__(self, engine: Engine, ask: Ask) -> None:
        self._engine = engine
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Work until done, or until the client is gone, whichever is first."""
        work = asyncio.create_task(self._answer(scope, receive, send))
        gone = asyncio.create_task(_hung_up(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = work.done()
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        if finished:
            work.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._engine.reply(self._ask)) as parts:
            try:
                first = await anext(parts)
            except ApiError as error:
                await _error(error)(scope, receive, send)
                return
            if self._ask.stream:
                await self._stream(first, parts, send)
            else:
                await (await self._whole(first, parts))(scope, receive, send)

    async def _stream(self, first: Reply, parts: AsyncIterator[Reply], send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(_line(first))
        try:
            async for part in parts:
                await send(_line(part))
        except ApiError as error:
            await send(_line({"error": error.message}))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(self, first: Reply, parts: AsyncIterator[Reply]) -> Response:
        try:
            return _json(replies.joined(self._ask, [first, *[part async for part in parts]]))
        except ApiError as error:
            return _error(error)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _line(reply: Reply) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": _encoded(reply) + b"\n", "more_body": True}


def _encoded(reply: Reply) -> bytes:
    """Plain ASCII: clients that split lines the Unicode way would break a reply at a separator in it."""
    return json.dumps(reply, ensure_ascii=True, separators=(",", ":")).encode()


def _json(reply: Reply, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(_encoded(reply), status_code=status, media_type=_JSON)


def _error(error: ApiError) -> Response:
    return _json({"error": error.message}, error.status)


async def _refused(_request: Request, error: ApiError) -> Response:
    return _error(error)


async def _failed(_request: Request, error: Exception) -> Response:
    """A fault of our own: the client is told as Ollama would, the server's log has the traceback."""
    return _json({"error": f"the engine failed: {type(error).__name__}: {error}"}, 500)


async def _no_route(_request: Request, error: Any) -> Response:  # noqa: ANN401 - starlette's HTTPException
    from starlette.responses import PlainTextResponse

    text = {404: "404 page not found", 405: "405 method not allowed"}.get(error.status_code, error.detail)
    return PlainTextResponse(text, status_code=error.status_code, headers=error.headers)


async def _hello(_request: Request) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("Ollama is running")


async def _version(_request: Request) -> Response:
    """The engine's version, and a word that it is not Ollama."""
    try:
        number = version("xllamacpp")
    except PackageNotFoundError:
        number = "0.0.0"
    return _json({"version": number, "engine": "tipbench embedded llama.cpp"})


async def _not_offered(request: Request) -> Response:
    what = _NOT_OFFERED[request.url.path]
    raise ApiError(501, f"the embedded engine does not offer {what}; use Ollama for it")


def _pull(engine: Engine, body: Reply) -> Response:
    """A model that is here is pulled; another cannot be."""
    from starlette.responses import Response

    name = model_of(body)
    try:
        engine.entry(name)
    except ApiError as error:
        if error.status != 404:
            raise
        message = f"model '{name}' cannot be pulled: the embedded engine serves the GGUF files it was given"
        raise ApiError(404, message) from None
    if body.get("stream") is False:
        return _json({"status": "success"})
    lines = _encoded({"status": "pulling manifest"}) + b"\n" + _encoded({"status": "success"}) + b"\n"
    return Response(lines, media_type="application/x-ndjson")
