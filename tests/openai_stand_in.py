"""A stand-in for an OpenAI-compatible server: real HTTP on loopback, with answers and faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What is sent back; a `body` that is text is sent as it is."""

    body: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def said(text: object) -> Reply:
    """A good reply with this text."""
    message = {"role": "assistant", "content": text}
    return Reply({"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def refused(status: int, message: str, **headers: str) -> Reply:
    return Reply(
        {"error": {"message": message}}, status, {k.replace("_", "-"): v for k, v in headers.items()}
    )


Answer = Callable[[int, dict[str, Any]], Reply]


@dataclass
class OpenAIStandIn:
    """`answer(number, body)` makes each reply; `requests` has (path, headers, body) of all that came."""

    answer: Answer
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]


@contextmanager
def openai_running(server: OpenAIStandIn) -> Iterator[OpenAIStandIn]:
    """Serve it from threads until the block ends."""
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with guard:
                server.requests.append((self.path, headers, body))
                number = len(server.requests)
            self.reply(server.answer(number, body))

        def reply(self, reply: Reply) -> None:
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
