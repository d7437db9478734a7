"""Tips that were served, for pages that tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.settings import home
from tips_world import KINDS, TEXTS

if TYPE_CHECKING:
    from api_world import Api


def serve(api: Api, route: str, count: int, *, event: str = "completed", users: int = 7) -> None:
    tips = [{"id": kind, "kind": kind, "text": text} for kind, text in zip(KINDS, TEXTS, strict=True)]
    for at in range(count):
        asked = {"user_id": f"u{at % users}", "context": {"hour": at % 24}, "candidates": tips}
        made = api.admin.post(route, json=asked).json()
        told = {"decision_id": made["decision_id"], "reward_id": "1", "event": event}
        assert api.admin.post("/reward", json=told).status_code == 200


def clear(api: Api) -> None:
    """No gate, and nothing served."""
    api.service.desk.stop()
    for path in [*home().glob("gates/*.json"), *home().glob("gates/plans/*"), *home().glob("tips.db*")]:
        path.unlink()
