"""An app that asks a real service for tips, and gates that were won."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tip_service import told
from tipbench.bandit import policies
from tipbench.settings import home
from tipbench.sim.world_file import load_world
from tipbench.workflows import gate_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from tip_service import TipService


class App:
    """Asks for tips as an app does, and tells what people do with them."""

    def __init__(self, service: TipService) -> None:
        self.service = service
        self.served: list[tuple[str, str]] = []

    def tip(self, user: str) -> dict[str, Any]:
        reply = self.service.recommend(user)
        assert reply.status_code == 200, reply.text
        self.served.append((user, reply.json()["policy"]))
        return dict(reply.json())

    def tell(self, tip: dict[str, Any], *, worth: float) -> None:
        event = "completed" if worth else "dismissed"
        reply = self.service.post("/reward", told(tip["decision_id"], event=event, reward=worth))
        assert reply.status_code == 200, reply.text

    def active(self) -> dict[str, Any]:
        return dict(self.service.get("/stats")["active"])

    def until(self, holds: Callable[[dict[str, Any]], bool], *, seconds: float = 15.0) -> dict[str, Any]:
        """What is active once that holds, or at the end of one's patience."""
        end = time.monotonic() + seconds
        while not holds(found := self.active()) and time.monotonic() < end:
            time.sleep(0.2)
        return found


def version(name: str) -> str:
    return policies.version(policies.make(name))


def won(challenger: str, champion: str = "egreedy", **changes: Any) -> str:  # noqa: ANN401 - parts of a record
    """The id of a gate on this disk that was won just now, but for what is changed about it."""
    plan = {
        "challenger": challenger,
        "challenger_version": version(challenger),
        "champion": champion,
        "champion_version": version(champion),
        "world": "tip",
        "world_hash": load_world("tip").hash,
        "guardrail": 0.02,
        "rounds": 300,
        **changes.pop("plan", {}),
    }
    record = {
        "form": 1,
        "held_ms": time.time_ns() // 1_000_000,
        "outcome": "passed",
        "passed": True,
        "rehearsal": False,
        "verdict": {"reason": "it won"},
        **changes,
        "plan": plan,
    }
    return gate_files.keep(record, home() / "gates")
