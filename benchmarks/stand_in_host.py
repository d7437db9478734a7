"""The stand-in for an Ollama host, in a process of its own: `stand_in_host.py SEEN LATENCY_S MODEL…`.

It prints its address, serves until its standard input closes, and then writes what it saw to the file SEEN.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stand_in import FakeModel, StandIn, running


def main() -> None:
    seen, latency, *names = sys.argv[1:]
    host = StandIn([FakeModel(name) for name in names], latency_s=float(latency))
    with running(host):
        print(host.url, flush=True)
        sys.stdin.read()
    what = {
        "switches": host.switches,
        "most_models_in_flight": host.most_models_in_flight,
        "most_resident": host.most_resident,
        "loads": len(host.loads),
        "chats": host.chats,
    }
    Path(seen).write_text(json.dumps(what))


if __name__ == "__main__":
    main()
