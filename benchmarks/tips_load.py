"""Requests from a file, sent by many connections: `tips_load.py PORT PATH FILE IN_FLIGHT RATE`.

With a rate, requests start at their times whatever became of those before; the wait is counted from then, so
that a stall is seen by everybody it holds up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop  # noqa: TID253 - a process of its own


async def main(port: int, path: str, bodies: list[bytes], in_flight: int, rate: float) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    took = [0.0] * len(requests)
    replies: list[bytes] = [b""] * len(requests)
    waiting = iter(range(len(requests)))
    begun = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place in waiting:
            due = begun + place / rate if rate else time.perf_counter()
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            writer.write(requests[place])
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            replies[place] = await reader.readexactly(length)
            took[place] = time.perf_counter() - due
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{answer!r} {replies[place]!r}")
        writer.close()

    await asyncio.gather(*(connection() for _ in range(in_flight)))
    wall_s = time.perf_counter() - begun
    took.sort()
    told = {
        "wall_s": wall_s,
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[int(len(took) * 0.99)] * 1000,
        "worst_ms": took[-1] * 1000,
        "replies": [json.loads(reply) for reply in replies] if len(replies) <= 50_000 else [],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    lines = Path(sys.argv[3]).read_bytes().splitlines()
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], lines, int(sys.argv[4]), float(sys.argv[5])))
