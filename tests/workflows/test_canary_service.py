"""A promotion over the real service: who gets which policy, and how a canary ends by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from promoting_world import App, won
from tip_service import ONLY_TIPS, serving
from tipbench.settings import Settings, home
from tipbench.store import FILE_NAME, Store
from tipbench.workflows.promoting import promote, roll_back, status
from tipbench.workflows.tokens import Doer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ANN = Doer(who="ann", role="local")
SETTINGS = Settings.of({})
USERS = [f"user-{number}" for number in range(40)]
ROUNDS = 60


@pytest.fixture
def app(fresh_home: Path) -> Iterator[App]:
    with serving(fresh_home, *ONLY_TIPS) as service:
        yield App(service)


def audited() -> list[tuple[str, str]]:
    with Store(home() / FILE_NAME) as store:
        return [(entry.who, entry.action) for entry in reversed(store.audit.page())]


def live(app: App, worth: Callable[[str, int], float]) -> None:
    """People get tips and do something with them, until the canary has ended."""
    for round_ in range(ROUNDS):
        for user in USERS:
            tip = app.tip(user)
            app.tell(tip, worth=worth(tip["policy"], round_))
        if not app.active()["on_trial"]:
            return


def test_a_promotion_takes_effect_without_a_restart_and_users_stay_where_they_are(app: App) -> None:
    """A share of the users get the new policy, each always the same one; after a rollback nobody does."""
    assert {app.tip(user)["policy"] for user in USERS} == {"egreedy"}
    promote(SETTINGS, "linucb", won("linucb"), by=ANN, canary=0.4)
    assert app.until(lambda active: active["policy"] == "linucb")["share"] == 0.4
    app.served.clear()
    for user in USERS * 3:
        app.tip(user)
    assert len(set(app.served)) == len(USERS)
    new = [user for user, policy in set(app.served) if policy == "linucb"]
    assert 3 <= len(new) <= 30
    roll_back(SETTINGS, by=ANN)
    assert not app.until(lambda active: active["policy"] == "egreedy")["on_trial"]
    assert {app.tip(user)["policy"] for user in USERS} == {"egreedy"}
    assert audited()[-2:] == [("ann", "tips.promote"), ("ann", "tips.rollback")]


def test_a_policy_that_turns_bad_is_rolled_back_by_itself(app: App) -> None:
    """As good as the other at first, then people dismiss what it shows: all are served the old one again."""
    gate = won("egreedy-v2")
    promote(SETTINGS, "egreedy-v2", gate, by=ANN, canary=0.4)
    app.until(lambda active: active["on_trial"])
    coin = random.Random(1)  # noqa: S311 - what people do

    def worth(policy: str, round_: int) -> float:
        return float(coin.random() < (0.05 if policy == "egreedy-v2" and round_ >= 3 else 0.7))

    live(app, worth)
    assert app.until(lambda active: not active["on_trial"])["policy"] == "egreedy"
    assert {app.tip(user)["policy"] for user in USERS} == {"egreedy"}
    step = status(SETTINGS).history[0]
    assert (step.what, step.policy, step.by, step.gate) == ("rolled back", "egreedy-v2", "canary", gate)
    assert "it is worse: " in step.reason
    assert audited()[-1] == ("canary", "tips.canary.rolled_back")
    assert_told(app, ["promoted", "rolled back"])


def test_a_policy_that_is_fine_is_completed_by_itself(app: App) -> None:
    """People do with its tips what they do with the others: in the end it serves everybody."""
    promote(SETTINGS, "egreedy-v2", won("egreedy-v2"), by=ANN, canary=0.5)
    app.until(lambda active: active["on_trial"])
    coin = random.Random(2)  # noqa: S311 - what people do
    live(app, lambda _policy, _round: coin.choice((0.6, 0.7, 0.8)))
    active = app.until(lambda active: not active["on_trial"])
    assert (active["policy"], active["share"], active["replaced"]) == ("egreedy-v2", 1.0, "egreedy")
    assert {app.tip(user)["policy"] for user in USERS} == {"egreedy-v2"}
    assert audited()[-1] == ("canary", "tips.canary.completed")
    assert roll_back(SETTINGS, by=ANN).policy == "egreedy"
    assert app.until(lambda active: active["policy"] == "egreedy")["policy"] == "egreedy"


def assert_told(app: App, steps: list[str]) -> None:
    """Whoever follows the signals hears of every step."""
    heard: list[str] = []
    with app.service.client.stream("GET", "/signals") as stream:
        lines = stream.iter_lines()
        while len(heard) < len(steps):
            if next(lines) == "event: canary":
                heard.append(next(lines))
    assert [step for step, line in zip(steps, heard, strict=True) if f'"what":"{step}"' in line] == steps
