"""The real service over a real ledger, and callers with every kind of token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from tipbench.service import create_app
from tipbench.settings import Settings
from tipbench.workflows.service_state import Service, ServiceConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI

    from judged_world import World
    from tipbench.workflows.access import Role

GOOD, POOR = "qwen2.5:0.5b", "gemma3:1b"
EXPERIMENT = "tip-bench-may"
SECRET = "a secret that both sides know"  # noqa: S105 - of a test
CALLERS: Mapping[str, Role] = {"root": "admin", "ann": "judge", "bob": "judge", "program": "service"}


@dataclass(frozen=True, kw_only=True)
class Api:
    """A running service without a server: requests go straight to the application."""

    app: FastAPI
    service: Service
    world: World
    tokens: Mapping[str, str]

    def caller(self, name: str | None, **how: Any) -> TestClient:  # noqa: ANN401 - as TestClient takes
        """A client with this caller's token; with None, without any."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        here = {"base_url": "http://localhost", "client": ("127.0.0.1", 1)}
        return TestClient(self.app, headers=headers, **{**here, **how})

    @property
    def admin(self) -> TestClient:
        return self.caller("root")

    @property
    def ann(self) -> TestClient:
        return self.caller("ann")

    @property
    def bob(self) -> TestClient:
        return self.caller("bob")

    @property
    def nobody(self) -> TestClient:
        return self.caller(None)


def open_api(world: World, **config: Any) -> Api:  # noqa: ANN401 - fields of ServiceConfig
    """A service in the test's home, with a token for each caller."""
    usual: dict[str, Any] = {"settings": Settings.of({}), "webhook_secret": SECRET}
    service = Service(ServiceConfig(**(usual | config)))
    tokens = {name: service.store.tokens.create(name, role, now_ms=0) for name, role in CALLERS.items()}
    return Api(app=create_app(service), service=service, world=world, tokens=tokens)


def score(world: World, item: Mapping[str, Any], *, shift: int = 0) -> dict[str, int]:
    """What somebody who sees the truth would give an item, moved by `shift` on each scale."""
    truth = world.true_scores(item["scenario"], item["tip"])
    return {name: max(1, min(5, round(value) + shift)) for name, value in truth.items()}


def judge_all(client: TestClient, world: World, experiment: str = EXPERIMENT, *, shift: int = 0) -> str:
    """Take the batch and score every item of it; the batch's id."""
    batch = client.get(f"/api/judge/{experiment}/batch").json()
    for item in batch["items"]:
        path = f"/api/judge/batches/{batch['batch']}/items/{item['id']}"
        assert client.put(path, json=score(world, item, shift=shift)).status_code == 200
    return str(batch["batch"])
