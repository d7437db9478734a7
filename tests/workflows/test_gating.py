"""The gate from end to end, and what the log says beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sim_samples import drawn
from tipbench.bandit import policies
from tipbench.bandit.asks import Reward, Score
from tipbench.bandit.serving import Tips
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import BadInput, NotFound
from tipbench.settings import Settings
from tipbench.sim.over_http import simulate_over
from tipbench.workflows.gate_files import kept
from tipbench.workflows.gating import Gated, gates_folder, hold_gate
from tipbench.workflows.off_policy import ask_log, since_ms
from tipbench.workflows.sim_options import GateOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

SMALL = {"seeds": 5, "users": 8, "rounds": 60}


def hold(challenger: str, **options: Any) -> Gated:  # noqa: ANN401 - options of several types
    asked = GateOptions(challenger=challenger, **{**SMALL, **options})
    return hold_gate(asked, Settings.of({}), emit=lambda _: None)


def test_a_better_policy_passes_and_the_same_one_does_not(fresh_home: Path) -> None:
    """`hybrid` beats `random`; a policy does not beat itself, and `random` beats nobody."""
    assert hold("hybrid", champion="random").verdict.passed
    assert hold("egreedy").verdict.outcome == "refused"
    assert hold("random").verdict.outcome == "refused"


def test_a_rehearsal_leaves_nothing_behind(fresh_home: Path) -> None:
    """Without `record` there is no id and no file, and the same rehearsal gives the same numbers."""
    one, other = hold("hybrid"), hold("hybrid")
    assert one.gate_id is None
    assert one.verdict == other.verdict
    assert not gates_folder().exists()


def test_a_recorded_gate_is_kept(home: Path) -> None:
    """Plan, seeds, verdict, controls and curves can be read again by the id, and stand in MLflow."""
    gated = hold("hybrid", record=True)
    assert gated.gate_id is not None
    record = kept(gated.gate_id, gates_folder())
    assert record == json.loads(json.dumps(gated.record))
    assert record["plan"]["seeds"] == list(gated.plan.seeds)
    assert record["plan"]["challenger_version"] == policies.version(policies.make("hybrid"))
    assert len(record["verdict"]["controls"]) == 3
    assert (record["passed"], record["rehearsal"]) == (gated.verdict.passed, False)


def test_every_recorded_gate_has_fresh_seeds_and_a_stricter_level(home: Path) -> None:
    """The second gate against a champion is decided on other seeds and at a lower level than the first."""
    first, second = (hold(name, record=True).plan for name in ("linucb", "hybrid"))
    assert not set(first.seeds) & set(second.seeds)
    assert second.level < first.level


def test_a_gate_counts_although_mlflow_is_away(fresh_home: Path) -> None:
    """The gate is kept on this disk, and a notice says what is missing."""
    notices: list[dict[str, Any]] = []
    asked = GateOptions(challenger="hybrid", record=True, seeds=5, users=8, rounds=60)
    away = Settings.of({"mlflow_url": "http://127.0.0.1:9"})
    gated = hold_gate(asked, away, emit=lambda event: notices.append(dict(event)))
    assert gated.gate_id is not None
    assert kept(gated.gate_id, gates_folder())["outcome"] == gated.verdict.outcome
    assert "not recorded in MLflow" in next(each["message"] for each in notices if each["event"] == "notice")


def test_on_null_nobody_passes(fresh_home: Path) -> None:
    """In a world without better tips even `hybrid` is refused, and the oracle is not asked."""
    gated = hold("hybrid", champion="random", world="null")
    assert gated.verdict.outcome == "refused"
    assert len(gated.verdict.controls) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -0.1}, "--margin"),
        ({"seeds": 3}, "--seeds"),
        ({"users": 2}, "--users"),
        ({"rounds": 0}, "--rounds"),
        ({"champion": "egredy"}, "did you mean 'egreedy'"),
        ({"world": "nul"}, "did you mean 'null'"),
        ({"seeds": 10_000, "users": 1000, "rounds": 1000}, "give fewer"),
    ],
)
def test_bad_options_use_up_no_gate(options: dict[str, Any], message: str, fresh_home: Path) -> None:
    """What cannot be simulated is said before a plan is kept."""
    with pytest.raises(BadInput, match=message):
        hold("hybrid", record=True, **options)
    assert not gates_folder().exists()


class Direct:
    """The serving half as a service."""

    def __init__(self, books: SqliteBooks) -> None:
        known = {name: policies.make(name) for name in policies.NAMES}
        self.tips = Tips(books, known, seed=b"s", clock_ms=lambda: 1_700_000_000_000)

    def score(self, policy: str, requests: Sequence[Any]) -> list[Any]:
        return self.tips.run([Score(policy, each) for each in requests])

    def reward(self, policy: str, requests: Sequence[Any], *, in_order: bool) -> None:  # noqa: ARG002
        self.tips.run([Reward(policy, each) for each in requests])


@pytest.fixture
def served_home(fresh_home: Path) -> Path:
    """A home from which `random` has served 20 users for 60 rounds."""
    fresh_home.mkdir()
    books = SqliteBooks(fresh_home / "tips.db")
    draws = drawn(seeds=1, users=20, rounds=60)
    simulate_over(Direct(books), policies.make("random"), draws, run="a")
    books.close()
    return fresh_home


def test_the_log_of_a_service_is_read(served_home: Path) -> None:
    """A policy that learns is estimated from what `random` served, by its users; others have no objection."""
    found = ask_log("egreedy-v2")
    assert found.users == 20
    assert 400 < found.n < 600
    assert found.stance in {"no objection", "neutral"}
    assert ask_log("random").effective == pytest.approx(found.n)


def test_what_is_too_old_is_left_out(served_home: Path) -> None:
    """With a date after all that was served the log says nothing."""
    found = ask_log("egreedy-v2", since="2026-01-01")
    assert (found.n, found.stance) == (0, "neutral")


def test_without_a_log_there_is_nothing_to_say(fresh_home: Path) -> None:
    """Where nothing has been served, asking says so, and the gate goes without."""
    with pytest.raises(NotFound, match="no tip has been served"):
        ask_log("egreedy-v2")
    assert hold("hybrid").verdict.off_policy is None


def test_a_gate_shows_what_the_log_says(served_home: Path) -> None:
    """The off-policy estimate stands beside the verdict and in the record."""
    gated = hold("hybrid")
    assert gated.verdict.off_policy is not None
    assert gated.record["verdict"]["off_policy"]["users"] == 20


def test_times_ago_and_dates() -> None:
    """`24h`, `7d`, `2w` and dates are understood, anything else is bad input."""
    from datetime import datetime, timedelta, timezone

    now: datetime = datetime(2026, 5, 31, tzinfo=timezone.utc)
    for text, ago in (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("2w", timedelta(weeks=2))):
        assert since_ms(text, now=now) == int((now - ago).timestamp() * 1000)
    assert since_ms("2026-05-31", now=now) == int(now.timestamp() * 1000)
    assert since_ms("") == 0
    for wrong in ("yesterday", "7", "-3d", "0d"):
        with pytest.raises(BadInput, match="--since"):
            since_ms(wrong)
