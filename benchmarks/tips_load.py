"""Requests from a file, sent by many connections: `tips_load.py PORT PATH FILE COUNT IN_FLIGHT RATE`.

The file's bodies are sent in turn until there are so many; where one holds the mark, the number of the
request takes its place. With a rate, requests start at their times whatever became of those before; the wait
is counted from then, so that a stall is seen by everybody it holds up.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path

import uvloop  # noqa: TID253 - a process of its own

MARK = b"@NUMBER@"
MOST_KEPT = 50_000


async def main(where: tuple[int, str], bodies: list[bytes], count: int, in_flight: int, rate: float) -> None:
    port, path = where
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    took = [0.0] * count
    replies: list[bytes] = [b""] * (count if count <= MOST_KEPT else 0)
    waiting = iter(range(count))
    begun = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place in waiting:
            due = begun + place / rate if rate else time.perf_counter()
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            writer.write(requests[place % len(requests)].replace(MARK, b"%08d" % place))
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            reply = await reader.readexactly(length)
            took[place] = time.perf_counter() - due
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{answer!r} {reply!r}")
            if replies:
                replies[place] = reply
        writer.close()

    await asyncio.gather(*(connection() for _ in range(in_flight)))
    wall_s = time.perf_counter() - begun
    took.sort()
    told = {
        "wall_s": wall_s,
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[int(len(took) * 0.99)] * 1000,
        "worst_ms": took[-1] * 1000,
        "replies": [json.loads(reply) for reply in replies],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    lines = Path(sys.argv[3]).read_bytes().splitlines()
    gc.disable()  # its pauses would be told as the server's
    many, together = map(int, sys.argv[4:6])
    uvloop.run(main((int(sys.argv[1]), sys.argv[2]), lines, many, together, float(sys.argv[6])))
