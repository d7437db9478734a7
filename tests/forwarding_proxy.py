"""A reverse proxy in a process of its own: `forwarding_proxy.py TARGET_PORT HOST [HEADER...]`.

It passes each connection on to the target, as plain HTTP proxies do: every request gets HOST in the place of
its own Host (`-` keeps it), and these headers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEEP_HOST = "-"


@contextmanager
def proxy_to(port: int, *headers: str, host: str = KEEP_HOST) -> Iterator[str]:
    """The URL of a proxy in front of this port of the machine."""
    command = [sys.executable, __file__, str(port), host, *headers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def _serve(port: int, host: str, headers: Sequence[str]) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        head = await reader.readuntil(b"\r\n\r\n")
        forth.write(_changed(head, host, headers))
        await asyncio.wait(
            [asyncio.create_task(_copy(reader, forth)), asyncio.create_task(_copy(back, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        forth.close()
        writer.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the caller reads it
    await server.serve_forever()


def _changed(head: bytes, host: str, headers: Sequence[str]) -> bytes:
    """The request's head for the target. The target closes the connection after one answer."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    dropped = ("connection:",) if host == KEEP_HOST else ("connection:", "host:")
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    added = [*headers, "Connection: close", *([] if host == KEEP_HOST else [f"Host: {host}"])]
    return "\r\n".join([first, *kept, *added, "", ""]).encode("latin-1")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
