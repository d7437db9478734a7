"""The real service behind a real server, over planted experiments, for pages and browsers."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from api_world import open_api
from judged_world import plant
from tipbench.ledger import open_ledger
from tipbench.workflows.access import COOKIE
from tipbench.workflows.judged import read_judged
from verdict_planting import by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import Api
    from judged_world import World

BIG, SMALL = "gemma3:1b-big", "qwen2.5:0.5b"
JUDGED, WAITING = "tips-may", "nightly tips"
# A batch is its judge's alone, so whoever judges in a browser has an experiment of their own.
SEEN, TOUCHED, AWAY = "seen by all", "by thumb", "away"
EXPIRED, TABS, FILED, ROBOT = "logged out", "two tabs", "on paper", "by a model"
OFFLINE, STALE, CARELESS, HASTY = "offline", "left open", "without reading", "in haste"
ANNE = "anne"
POINTS = {
    (BIG, "v1"): (13, 12, 13, 12),
    (BIG, "v2-mentor"): (12, 13, 12, 12),
    (SMALL, "v1"): (9, 8, 9, 10),
    (SMALL, "v2-mentor"): (7, 8, 7, 9),
}


def plant_both(home: Path) -> World:
    """One experiment that is judged and some that wait for a judge: the world is that of the last one."""
    from tipbench.records import Judge

    ledger = open_ledger("", home=home)
    plant(JUDGED, quality=dict.fromkeys(POINTS, 3.0), ledger=ledger)
    judge(ledger, JUDGED, Judge(id=ANNE, kind="human"), by_scenario(POINTS), note="a <b>note</b>")
    ledger.mark(JUDGED, read_judged(ledger, JUDGED).marks())
    waiting = {(BIG, "v1"): 4.0, (SMALL, "v1"): 2.0}
    for name in (SEEN, TOUCHED, AWAY, EXPIRED, TABS, FILED, ROBOT, OFFLINE, STALE, CARELESS, HASTY):
        plant(name, quality=waiting, n_scenarios=1, n_tips=1, ledger=ledger)
    return plant(WAITING, quality=waiting, n_scenarios=2, n_tips=1, ledger=ledger)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A service that listens; `url` is where."""

    api: Api
    url: str

    def cookie(self, name: str) -> dict[str, Any]:
        """What this caller's browser holds after a login."""
        token = self.api.tokens[name]
        _, value = self.api.service.access.log_in(token, address="test", now_ms=time.time_ns() // 1_000_000)
        return {"name": COOKIE, "value": value, "url": self.url}


@contextmanager
def serving(world: World, **config: Any) -> Iterator[Site]:  # noqa: ANN401 - fields of ServiceConfig
    """The service on a free port of this machine, ended with the block."""
    api = open_api(world, **config)
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(api.app, log_level="error", timeout_graceful_shutdown=2)
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield Site(api=api, url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()
        api.service.close()


def inlined(html: str) -> list[str]:
    """What a page's own policy would forbid: styles and scripts within it, and files from elsewhere."""
    found = re.findall(r"<style|<script(?![^>]*\bsrc=)| style=| on\w+=\"|(?:src|href)=\"(?:https?:)?//", html)
    return [str(one) for one in found]
