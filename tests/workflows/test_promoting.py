"""What a promotion takes, what it leaves behind, and how it is taken back."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from promoting_world import won
from sim_samples import world_file
from tipbench.bandit import policies
from tipbench.bandit.active import CANARY, Active, Place, Step, change
from tipbench.bandit.asked import Candidate, Context, RecommendRequest, RewardRequest
from tipbench.bandit.policies.linucb import LinUCB
from tipbench.bandit.serving import Tips
from tipbench.errors import (
    BadInput,
    CheckFailed,
    Conflict,
    NotFound,
    PolicyFailed,
    StateUnusable,
    TipbenchError,
)
from tipbench.settings import Settings, home
from tipbench.sim.world_file import load_world
from tipbench.store import FILE_NAME, Store
from tipbench.workflows.gating import hold_gate
from tipbench.workflows.promoting import promote, roll_back, status
from tipbench.workflows.serving_state import opened
from tipbench.workflows.sim_options import GateOptions
from tipbench.workflows.tip_desk import TipDesk
from tipbench.workflows.tokens import Doer
from tips_world import KINDS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tipbench.bandit.canary import Trial
    from tipbench.bandit.policy import Memory, Weighed
    from tipbench.bandit.ridge import Array

ANN = Doer(who="ann", role="admin", ip="10.0.0.1")
SETTINGS = Settings.of({})
AWAY = Settings.of({"mlflow_url": "http://127.0.0.1:9"})
DAY_MS = 24 * 3600 * 1000

pytestmark = pytest.mark.usefixtures("fresh_home")


def audited() -> list[tuple[str, str, str, str]]:
    with Store(home() / FILE_NAME) as store:
        return [(one.who, one.action, one.target, one.ip) for one in reversed(store.audit.page())]


def test_a_gate_that_was_really_won_promotes() -> None:
    """From the gate to the canary: in force for a share, its version and gate, in the log and the audit."""
    asked = GateOptions(challenger="hybrid", seeds=8, users=16, rounds=100, record=True)
    # Seeds are drawn anew, and one gate in forty is void by chance: its control was let through.
    tries = (hold_gate(asked, AWAY, emit=lambda _: None) for _ in range(3))
    gated = next(one for one in tries if one.verdict.passed)
    assert gated.gate_id is not None
    active = promote(SETTINGS, "hybrid", gated.gate_id, by=ANN)
    assert (active.policy, active.replaced, active.share) == ("hybrid", "egreedy", 0.1)
    assert active.version == policies.version(policies.make("hybrid"))
    found = status(SETTINGS)
    assert found.active == active
    assert found.canary is not None
    assert found.canary.ruling == "wait"
    assert [(one.what, one.gate, one.by) for one in found.history] == [("promoted", gated.gate_id, "ann")]
    assert audited() == [("ann", "tips.promote", "hybrid", "10.0.0.1")]
    with opened() as books, books.reading() as reading:
        assert [entry.signal for entry in reading.entries(after=0, limit=9)] == [CANARY]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"passed": False, "outcome": "refused"}, "was not passed but refused"),
        ({"passed": True, "outcome": "void"}, "was not passed but void"),
        ({"rehearsal": True}, "was a rehearsal"),
        ({"held_ms": time.time_ns() // 1_000_000 - 8 * DAY_MS}, "is 8 days old, more than 7"),
        ({"held_ms": time.time_ns() // 1_000_000 + DAY_MS}, "held in the future"),
        ({"plan": {"challenger": "linucb"}}, "was one of linucb, not of hybrid"),
        ({"plan": {"challenger_version": "1-old"}}, "another version of hybrid"),
        ({"plan": {"champion": "linucb"}}, "was against linucb, but egreedy is active now"),
        ({"plan": {"champion_version": "1-old"}}, "another version of egreedy"),
        ({"plan": {"world": "null", "world_hash": "x"}}, "in the world null, and what counts is tip"),
        ({"plan": {"guardrail": 0.5}}, "be worse by 0.5, and 0.02 is the most"),
        ({"plan": {"rounds": 99}}, "had 99 rounds, too few"),
    ],
)
def test_a_gate_that_does_not_fit_promotes_nothing(changes: dict[str, Any], says: str) -> None:
    """The reason in one sentence and what to do; nothing changes, and the refusal is in the audit log."""
    with pytest.raises(CheckFailed, match=says) as refused:
        promote(SETTINGS, "hybrid", won("hybrid", **changes), by=ANN)
    assert "tipbench sim gate --challenger hybrid --champion egreedy --record" in str(refused.value)
    assert status(SETTINGS).active == Active()
    assert [action for _, action, _, _ in audited()] == ["tips.promote.refused"]


@pytest.mark.parametrize(
    ("policy", "gate", "canary", "error", "says"),
    [
        ("hybrid", "0" * 16, 0.1, NotFound, "there is no gate"),
        ("hybrid", "../../x", 0.1, BadInput, "not a gate's id"),
        ("hybird", "", 0.1, BadInput, "did you mean 'hybrid'"),
        ("tipbench.bandit.policies.linucb:LinUCB", "", 0.1, BadInput, "is not served"),
        ("egreedy", "", 0.1, Conflict, "is the active policy already"),
        ("hybrid", "", 0.0, BadInput, "--canary"),
        ("hybrid", "", 1.0, BadInput, "--canary"),
        ("hybrid", "", float("nan"), BadInput, "--canary"),
    ],
)
def test_what_cannot_be_asked_is_told(
    policy: str, gate: str, canary: float, error: type[TipbenchError], says: str
) -> None:
    """A gate that is not there, a policy that is not served, a share that is none."""
    with pytest.raises(error, match=says):
        promote(SETTINGS, policy, gate or won("hybrid"), by=ANN, canary=canary)
    assert status(SETTINGS).active == Active()


def test_a_gate_that_was_tampered_with_promotes_nothing() -> None:
    """The id is a hash of what is in it."""
    gate = won("hybrid", passed=False, outcome="refused")
    path = home() / "gates" / f"{gate}.json"
    path.write_text(
        path.read_text().replace('"passed": false', '"passed": true').replace("refused", "passed")
    )
    with pytest.raises(StateUnusable, match="is not what was written there"):
        promote(SETTINGS, "hybrid", gate, by=ANN)


def test_a_world_of_ones_own_counts_where_that_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate in another world than the one that is named counts for nothing."""
    own = world_file(tmp_path)
    monkeypatch.setenv("TIPBENCH_GATE_WORLD", own)
    with pytest.raises(CheckFailed, match="in the world tip, and what counts is own"):
        promote(SETTINGS, "hybrid", won("hybrid"), by=ANN)
    ours = won("hybrid", plan={"world": "own", "world_hash": load_world(own).hash})
    assert promote(SETTINGS, "hybrid", ours, by=ANN).policy == "hybrid"


def test_one_canary_at_a_time_and_back_again() -> None:
    """While one is watched no other begins; after a rollback by hand the same gate may be used again."""
    gate = won("hybrid")
    promote(SETTINGS, "hybrid", gate, by=ANN, canary=0.2)
    with pytest.raises(Conflict, match="hybrid is a canary since"):
        promote(SETTINGS, "linucb", won("linucb"), by=ANN)
    assert roll_back(SETTINGS, by=ANN, reason="a feeling").policy == "egreedy"
    assert status(SETTINGS).history[0].reason == "a feeling"
    assert status(SETTINGS).canary is None
    with pytest.raises(Conflict, match="nothing to go back to"):
        roll_back(SETTINGS, by=ANN)
    assert promote(SETTINGS, "hybrid", gate, by=ANN).on_trial
    actions = [action for _, action, _, _ in audited()]
    assert actions[-3:] == ["tips.rollback", "tips.rollback.refused", "tips.promote"]


def test_the_log_may_veto() -> None:
    """Where what was served says that it would earn less, a gate that was won does not help."""
    desk = TipDesk(SETTINGS, shadows={})
    try:
        _serve_for_veto(desk)
    finally:
        desk.stop()
    with pytest.raises(CheckFailed, match="the logged decisions say that its reward would be"):
        promote(SETTINGS, "random", won("random"), by=ANN)
    assert promote(SETTINGS, "hybrid", won("hybrid"), by=ANN).policy == "hybrid"


def _serve_for_veto(desk: TipDesk) -> None:
    """People who complete one kind of tip and dismiss all others: to pick at random earns a quarter."""

    async def live() -> None:
        for round_ in range(120):
            replies = await asyncio.gather(*(desk.recommend(asked(f"u{n}", f"{round_}")) for n in range(20)))
            await asyncio.gather(
                *(
                    desk.reward(None, told(one.decision_id, completed=one.tip_id == "tip-focus"))
                    for one in replies
                )
            )

    asyncio.run(live())


def asked(user: str, request_id: str | None = None) -> RecommendRequest:
    tips = [
        Candidate(id=f"tip-{kind}", kind=kind, text=text) for kind, text in zip(KINDS, TEXTS, strict=True)
    ]
    return RecommendRequest(user_id=user, request_id=request_id, context=Context(hour=9.0), candidates=tips)


def told(decision_id: str, *, completed: bool = True) -> RewardRequest:
    event = "completed" if completed else "dismissed"
    return RewardRequest(decision_id=decision_id, reward_id="r", event=event)


class Troubled(LinUCB):
    """LinUCB until it is told to fail, or to dawdle."""

    trouble = ""

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        if Troubled.trouble == "fails":
            raise ZeroDivisionError
        if Troubled.trouble == "dawdles":
            time.sleep(0.03 * len(x))
        return super().weigh(memory, x)


@pytest.fixture
def desk() -> Iterator[TipDesk]:
    Troubled.trouble = ""
    desk = TipDesk(SETTINGS, shadows={}, own={"linucb": Troubled()})
    yield desk
    desk.stop()


@pytest.mark.parametrize(("trouble", "says"), [("fails", "failures"), ("dawdles", "slow decisions")])
def test_a_policy_that_fails_or_dawdles_is_rolled_back(desk: TipDesk, trouble: str, says: str) -> None:
    """Meanwhile everybody has a tip: where the canary fails, the other policy answers instead."""
    promote(SETTINGS, "linucb", won("linucb"), by=ANN, canary=0.5)
    assert desk.look().on_trial
    Troubled.trouble = trouble
    # On a busy machine a look takes longer, and so does the rest after it.
    until, round_ = time.monotonic() + 60, 0
    while desk.look().on_trial and time.monotonic() < until:
        asyncio.run(_a_round(desk, round_))
        round_ += 1
    assert desk.look().policy == "egreedy"
    step = status(SETTINGS).history[0]
    assert (step.what, step.by) == ("rolled back", "canary")
    assert says in step.reason
    with pytest.raises(CheckFailed, match="its canary was rolled back because"):
        promote(SETTINGS, "linucb", status(SETTINGS).history[0].gate, by=ANN)


async def _a_round(desk: TipDesk, round_: int) -> None:
    for number in range(24):
        reply = await desk.recommend(asked(f"user-{number}", f"{round_}"))
        assert reply.policy in {"egreedy", "linucb"}
        await desk.reward(None, told(reply.decision_id))


def test_where_nothing_is_watched_a_failure_is_the_answer(desk: TipDesk) -> None:
    """There is no other policy to ask instead, and nothing is noted."""
    with opened(must_exist=False) as books:
        step = Step(ms=0, what="promoted", policy="linucb", against="egreedy", share=1.0, by="ann")
        active = Active().promoted(Place(policy="linucb"), share=1.0, after=0, step=step)
        Tips(books, {}, seed=b"s", clock_ms=lambda: 0).run([change(None, active)])
    Troubled.trouble = "fails"
    with pytest.raises(PolicyFailed, match="linucb failed"):
        asyncio.run(desk.recommend(asked("anna")))
    with opened() as books, books.reading() as reading:
        assert reading.logged("failed", after=0, limit=9) == []


def test_of_two_services_on_the_same_books_one_ends_the_canary() -> None:
    """Both see it; the log has one end of it, and both serve the same afterwards."""
    promote(SETTINGS, "linucb", won("linucb"), by=ANN, canary=0.5)
    audits: list[str] = []
    desks = [
        TipDesk(SETTINGS, shadows={}, audit=lambda now: audits.append(now.steps[-1].what)) for _ in range(2)
    ]
    try:
        for each in desks:
            assert each.look().on_trial
        for round_ in range(20):
            asyncio.run(_both_live(desks, round_))
        actives = [_settled(each) for each in desks]
    finally:
        for each in desks:
            each.stop()
    assert actives[0] == actives[1] == "egreedy"
    assert audits == ["rolled back"]
    with opened() as books, books.reading() as reading:
        assert len(reading.logged(CANARY, after=0, limit=9)) == 2


async def _both_live(desks: list[TipDesk], round_: int) -> None:
    for number in range(20):
        desk = desks[(number + round_) % 2]
        reply = await desk.recommend(asked(f"user-{number}", f"{round_}"))
        await desk.reward(None, told(reply.decision_id, completed=reply.policy == "egreedy"))


def _settled(desk: TipDesk) -> str:
    """What it serves once the canary has ended, whoever ended it."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        try:
            if not desk.look().on_trial:
                break
        except Conflict:  # the other was quicker
            continue
    return desk.look().policy


def test_whoever_watches_a_canary_knows_how_it_stands(desk: TipDesk) -> None:
    """It is what the log says from its beginning, and the log is then not read again."""
    promote(SETTINGS, "linucb", won("linucb"), by=ANN, canary=0.5)
    active = desk.look()
    asyncio.run(_a_round(desk, 0))
    until = time.monotonic() + 20
    while counted(desk.trial(active)) < 24 and time.monotonic() < until:
        time.sleep(0.05)
        desk.look()
    trial = desk.trial(active)
    assert trial is not None
    read = status(SETTINGS).canary
    assert read is not None
    assert (counted(read), trial.findings) == (24, read.findings)
    assert status(SETTINGS, known=lambda _: trial).canary is trial
    roll_back(SETTINGS, by=ANN)
    assert desk.trial(desk.look()) is None


def counted(trial: Trial | None) -> int:
    """The outcomes on both sides."""
    return 0 if trial is None else trial.findings[0].new.count + trial.findings[0].old.count


def test_nothing_served_is_the_first_policy() -> None:
    """Without books there is a status, and asking makes none."""
    assert status(SETTINGS).as_dict()["active"]["policy"] == "egreedy"
    assert not (home() / "tips.db").exists()
