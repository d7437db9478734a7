"""The least that an answer over this stack can cost: a bare application that sends the body back."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn  # noqa: TID253 - a process of its own


async def echo(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has them
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"echoing at http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        echo,
        log_level="warning",
        access_log=False,
        server_header=False,
        loop="uvloop",
        http="httptools",
        lifespan="off",
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
