"""Shadows at work: what they decide and learn, and what they are never told."""

from __future__ import annotations

import os
import signal

import numpy as np
import psutil
import pytest

from shadow_world import BRISK, Reported, bad, decision, reward, row, running, settled, until
from tipbench.bandit import policies
from tipbench.bandit.asked import Candidate, ScoreRequest
from tipbench.bandit.draws import pick
from tipbench.bandit.profiles import Profile
from tipbench.bandit.ridge_codec import decode_ridge
from tipbench.bandit.shadow import Decide, Logged, ShadowSpec, Teach
from tipbench.bandit.shadow.line import Line, LookAgain
from tipbench.errors import BadState

V2 = ShadowSpec(name="egreedy-v2-shadow", policy="egreedy-v2")
STUDENT = ShadowSpec(name="student", policy="egreedy", apprentice=True)
HYBRID = ShadowSpec(name="hybrid-student", policy="hybrid", apprentice=True)


def test_a_shadow_decides_what_its_policy_decides() -> None:
    """The same scores, propensities and draw as the policy itself, with its versions."""
    reported = Reported()
    offered = [decision(n, u=(n + 0.5) / 20, features="v2", served="t1") for n in range(20)]
    with running([V2], reported) as shadows:
        for one in offered:
            shadows.offer(one)
        settled(shadows, V2.name)
        counts = shadows.counts()[V2.name]
    policy = policies.make("egreedy-v2")
    x = np.array([row(place, 12) for place in range(3)])
    weighed = policy.weigh(policy.fresh(), x)
    results = reported.results(V2.name)
    assert [one.decision_id for one in results] == [one.decision_id for one in offered]
    assert [one.tip_id for one in results] == [f"t{pick(weighed.propensities, one.u)}" for one in offered]
    assert [one.agrees for one in results] == [one.tip_id == "t1" for one in results]
    assert (counts.offered, counts.decided, counts.dropped) == (20, 20, {})
    assert counts.agreed == sum(one.agrees for one in results) > 0
    first = results[0]
    assert dict(first.propensities) == dict(
        zip(("t0", "t1", "t2"), weighed.propensities.tolist(), strict=True)
    )
    assert (first.policy, first.policy_version) == ("egreedy-v2", policies.version(policy))
    assert (first.feature_version, first.apprentice) == ("v2", False)
    assert first.served_x == x[1].tobytes()


def test_the_profile_is_read_as_it_is_sent() -> None:
    """Features made of texts use the profile that came with the decision; what is absent is marked."""
    reported = Reported()
    asked = ScoreRequest(user_id="u", candidates=[Candidate(id="a", kind="focus", text="Plan the day")])
    known = Profile().shown("focus", "egreedy", False)
    with running([V2], reported) as shadows:
        for name, profile in (("d1", None), ("d2", known)):
            shadows.offer(
                Decide(decision_id=name, user_id="u", request=asked, profile=profile, u=0.5, served="a")
            )
        settled(shadows, V2.name)
    without, with_profile = reported.results(V2.name)
    assert "tip_volume" in without.absent
    assert "tip_volume" not in with_profile.absent
    assert without.served_x != with_profile.served_x


def test_no_reward_reaches_a_shadow() -> None:
    """A shadow that is no apprentice learns nothing, and stays as fresh as at first."""
    reported = Reported()
    with running([V2, STUDENT], reported) as shadows:
        for number in range(10):
            shadows.offer(decision(number, features="v2"))
            shadows.teach(reward(number, 1.0))
        settled(shadows, V2.name)
        counts = shadows.counts()[V2.name]
    assert (counts.learned, counts.lessons_dropped) == (0, {})
    assert {tuple(one.scores.values()) for one in reported.results(V2.name)} == {(0.0, 0.0, 0.0)}
    assert not [name for name, _ in reported.recalled if name == V2.name]
    assert not [name for name, _ in reported.kept if name == V2.name]


def test_an_apprentice_learns_from_what_was_served() -> None:
    """Its memory is what the policy itself remembers after the same rewards for the same vectors."""
    reported = Reported()
    with running([STUDENT], reported) as shadows:
        for number in range(30):
            shadows.offer(decision(number, served="t2"))
            shadows.teach(reward(number, 1.0))
        settled(shadows, STUDENT.name, lessons=30)
        shadows.offer(decision("last", served="t2"))
        settled(shadows, STUDENT.name)
        counts = shadows.counts()[STUDENT.name]
    policy = policies.make("egreedy")
    memory = policy.fresh()
    for _ in range(30):
        memory = policy.learn(memory, np.array(row(2, 7)), np.asarray(1.0))
    kept = decode_ridge(reported.kept["student", "u"], dims=7, what="it")
    assert memory.own is not None
    assert np.allclose(kept.weights, memory.own.weights)
    assert (counts.learned, counts.lessons_dropped, float(kept.seen)) == (30, {}, 30.0)
    last = reported.results(STUDENT.name)[-1]
    assert last.apprentice
    assert last.tip_id == "t2"


def test_what_an_apprentice_learned_outlives_its_process_and_its_service() -> None:
    """Neither a killed process nor a new service begins anew; earlier decisions can still be rewarded."""
    reported = Reported()
    with running([HYBRID], reported) as shadows:
        shadows.offer(decision(1, features="v2", served="t1"))
        shadows.offer(decision(2, features="v2", served="t1"))
        shadows.teach(reward(1, 1.0))
        settled(shadows, HYBRID.name, lessons=1)
        killed = shadows.pids()[HYBRID.name]
        assert killed
        os.kill(killed, signal.SIGKILL)
        until(lambda: psutil.Process(killed).status() == psutil.STATUS_ZOMBIE)
        shadows.teach(reward(2, 1.0))
        settled(shadows, HYBRID.name, lessons=2)
        counts = shadows.counts()[HYBRID.name]
    assert (counts.learned, counts.starts, counts.lessons_dropped) == (2, 2, {})
    reported.logged["d2"] = Logged("u", reported.results(HYBRID.name)[1].served_x)
    with running([HYBRID], reported) as shadows:
        shadows.teach(reward(2, 1.0))
        settled(shadows, HYBRID.name, lessons=1)
    own = decode_ridge(reported.kept[HYBRID.name, "u"], dims=7, what="own")
    pooled = decode_ridge(reported.kept[HYBRID.name, ""], dims=12, what="pooled")
    assert (round(float(own.seen)), round(float(pooled.seen))) == (3, 3)


def test_an_apprentice_survives_the_restart_of_its_process() -> None:
    """A policy that falls over one decision has learned no less after it."""
    reported = Reported()
    spec = bad("falls", apprentice=True)
    with running([spec], reported) as shadows:
        for number in range(5):
            shadows.offer(decision(number))
            shadows.teach(reward(number, 1.0))
        shadows.offer(decision("bad", marked=True))
        for number in range(5, 10):
            shadows.offer(decision(number))
            shadows.teach(reward(number, 1.0))
        settled(shadows, "falls", lessons=10)
        counts = shadows.counts()["falls"]
    assert (counts.decided, counts.dropped, counts.learned, counts.starts) == (10, {"broken": 1}, 10, 2)
    assert float(decode_ridge(reported.kept["falls", "u"], dims=7, what="it").seen) == 10.0


def test_users_are_learned_apart_and_forgotten_alone() -> None:
    """A reset makes an apprentice begin anew with that user, or with everybody."""
    reported = Reported()

    def taught(number: int, user: str) -> None:
        shadows.offer(decision(number, user=user))
        shadows.teach(reward(number, 1.0))

    def seen(user: str) -> float:
        return float(decode_ridge(reported.kept["student", user], dims=7, what="it").seen)

    with running([STUDENT], reported) as shadows:
        for number, user in enumerate(("a", "b", "a")):
            taught(number, user)
        shadows.forget("a")
        for number, user in enumerate(("a", "b"), start=3):
            taught(number, user)
        settled(shadows, "student", lessons=5)
        assert (seen("a"), seen("b")) == (1.0, 2.0)
        reported.kept.clear()
        shadows.forget(None)
        taught(5, "b")
        settled(shadows, "student", lessons=6)
    assert seen("b") == 1.0


def test_a_reward_for_an_unknown_decision_is_counted() -> None:
    """What the shadow has not decided it cannot learn from; a vector of other features is not used either."""
    reported = Reported()
    reported.logged["dother"] = Logged("u", np.ones(12).tobytes())
    with running([STUDENT], reported) as shadows:
        shadows.teach(reward("never", 1.0))
        shadows.teach(reward("other", 1.0))
        settled(shadows, "student", lessons=2)
        assert shadows.counts()["student"].lessons_dropped == {"unknown": 1, "unfit": 1}


def test_damaged_memory_is_named_and_never_an_empty_start() -> None:
    """An apprentice whose memory cannot be read decides nothing for that user, and says why."""
    reported = Reported()
    reported.kept["student", "u"] = b"garbage" * 10
    with running([STUDENT], reported) as shadows:
        shadows.offer(decision(1))
        shadows.offer(decision(2, user="other"))
        settled(shadows, "student")
        counts = shadows.counts()["student"]
    assert (counts.decided, counts.dropped) == (1, {"broken": 1})
    assert "memory of user u" in counts.trouble


def test_features_of_another_version_do_not_fit() -> None:
    """Verbatim features of v1 say nothing to a shadow that reads v2: counted apart, and no restart."""
    with running([V2]) as shadows:
        shadows.offer(decision(1, features="v1"))
        shadows.offer(decision(2, features="v2"))
        settled(shadows, V2.name)
        counts = shadows.counts()[V2.name]
    assert (counts.decided, counts.dropped, counts.starts) == (1, {"unfit": 1}, 1)
    assert "12" in counts.trouble


@pytest.mark.parametrize("worth", [float("nan"), 1e308])
def test_what_would_ruin_a_memory_is_not_kept(worth: float) -> None:
    """A lesson whose outcome is not finite is dropped, and the memory of before stays."""
    reported = Reported()
    with running([STUDENT], reported, limits=BRISK) as shadows:
        shadows.offer(decision(1))
        shadows.teach(reward(1, 1.0))
        shadows.offer(decision(2))
        shadows.teach(reward(2, worth))
        settled(shadows, "student", lessons=2)
        assert shadows.counts()["student"].learned == 1
    assert float(decode_ridge(reported.kept["student", "u"], dims=7, what="it").seen) == 1.0


class _Unreadable(Reported):
    """An archive whose disk is away for one user."""

    def memory(self, shadow: str, user_id: str) -> bytes | None:
        if user_id == "away":
            raise BadState("the memory of user away", "its disk is gone")
        return super().memory(shadow, user_id)


def test_an_archive_that_cannot_be_read_costs_only_what_needs_it() -> None:
    """What cannot be remembered is not decided, the reason is said, and the shadow goes on."""
    with running([STUDENT], _Unreadable()) as shadows:
        shadows.offer(decision(1, user="away"))
        settled(shadows, "student")
        shadows.offer(decision(2))
        settled(shadows, "student")
        counts = shadows.counts()["student"]
    assert (counts.decided, counts.dropped, counts.starts) == (1, {"broken": 1}, 1)
    assert "its disk is gone" in counts.trouble


def test_lessons_that_were_refused_together_are_learned_again_together() -> None:
    """Each from what the one before it has taught: apart, all but the first would be refused once more."""
    line = Line(most=10, most_bytes=10_000)
    for number in range(3):
        line.add(LookAgain("anna"))
        line.add(Teach(decision_id=f"d{number}", reward=1.0))
    marks = [line.take(most=10, most_bytes=10_000) for _ in range(3)]
    assert all(isinstance(mark, LookAgain) for (mark,) in marks)
    again = line.take(most=10, most_bytes=10_000)
    assert [one.decision_id for one in again if isinstance(one, Teach)] == ["d0", "d1", "d2"]
