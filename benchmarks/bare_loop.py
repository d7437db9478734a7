"""The least that the same calls can take: `bare_loop.py URL BODIES PARALLEL`, nothing kept, nothing read.

BODIES holds one request per line, in order. They are sent model by model, PARALLEL at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import httpx


async def work_off(client: httpx.AsyncClient, bodies: Iterator[bytes]) -> None:
    for body in bodies:
        reply = await client.post("/api/chat", content=body, headers={"Content-Type": "application/json"})
        reply.raise_for_status()


async def call_all(url: str, models: Sequence[Sequence[bytes]], *, parallel: int) -> dict[str, float]:
    import httpx

    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        started, clock = time.time(), time.perf_counter()
        for same in models:
            bodies = iter(same)
            await asyncio.gather(*(work_off(client, bodies) for _ in range(parallel)))
        return {"started": started, "wall_s": time.perf_counter() - clock}


def main() -> None:
    url, path, parallel = sys.argv[1:]
    lines = Path(path).read_bytes().splitlines()
    models = [list(same) for _, same in groupby(lines, key=lambda line: json.loads(line)["model"])]
    print(json.dumps(asyncio.run(call_all(url, models, parallel=int(parallel)))))


if __name__ == "__main__":
    main()
