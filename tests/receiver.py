"""Somebody's server that webhooks are sent to: on loopback, answering as a test wants."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass
class Receiver:
    """Somebody's server: what it answers, and what it got."""

    status: int = 200
    reply: bytes = b"thanks"
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    got: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""


@contextmanager
def listening(receiver: Receiver) -> Iterator[Receiver]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                receiver.at_once += 1
                receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
                receiver.got.append((self.path, dict(self.headers), body))
            time.sleep(receiver.pause_s)
            with lock:
                receiver.at_once -= 1
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.reply)))
            self.end_headers()
            self.wfile.write(receiver.reply)

        def log_message(self, *_: object) -> None:
            """A test's output is not for this."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/in?from=tipbench"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
