"""Shadows beside a real counter: what they say is in the books, and no answer differs because of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from shadow_world import BRISK, bad, settled, until
from tipbench.bandit import policies
from tipbench.bandit.asked import Candidate, RewardReply, RewardRequest, ScoreReply, ScoreRequest
from tipbench.bandit.asks import Reset, Reward, Score
from tipbench.bandit.books import POOLED
from tipbench.bandit.counter import Counter
from tipbench.bandit.serving import Tips
from tipbench.bandit.shadow import ShadowResult, ShadowSpec
from tipbench.bandit.shadowing import Shadowing
from tipbench.bandit.sqlite_books import SqliteBooks
from tips_world import seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

V2 = ShadowSpec(name="egreedy-v2-shadow", policy="egreedy-v2")
STUDENT = ShadowSpec(name="student", policy="egreedy-v2", apprentice=True)


class Service:
    """A counter with shadows beside it, asked as HTTP would."""

    def __init__(self, counter: Counter, shadowing: Shadowing) -> None:
        self.counter = counter
        self.shadowing = shadowing

    def score(self, number: int, user: str = "u", *, source: str = "given") -> ScoreReply:
        tips = [
            Candidate(id=kind, kind=kind, text=f"Think of {kind}") for kind in ("focus", "rest", "people")
        ]
        request = ScoreRequest(user_id=user, request_id=f"{user}-{number}", candidates=tips)
        reply = self.counter.ask_from_thread(Score("egreedy", request, source=source)).result(30)
        assert isinstance(reply, ScoreReply)
        return reply

    def reward(self, decision_id: str, event: str = "completed", reward_id: str = "r") -> RewardReply:
        request = RewardRequest(decision_id=decision_id, reward_id=reward_id, event=event, dwell_s=5.0)
        reply = self.counter.ask_from_thread(Reward(None, request)).result(30)
        assert isinstance(reply, RewardReply)
        self.shadowing.rewarded(request, reply)
        return reply


class Crowded(Counter):
    """A counter where more people wait than there are."""

    crowd = 0

    def waiting(self) -> int:
        return super().waiting() + self.crowd


@contextmanager
def serving(
    folder: Path, specs: Sequence[ShadowSpec], *, counted_by: type[Counter] = Counter
) -> Iterator[Service]:
    books = SqliteBooks(folder / "tips.db")
    tips = Tips(books, {"egreedy": policies.make("egreedy")}, seed=b"s" * 32, clock_ms=lambda: 1000)
    try:
        with counted_by(tips) as counter:
            shadowing = Shadowing(counter, specs, limits=BRISK)
            try:
                yield Service(counter, shadowing)
            finally:
                assert shadowing.stop()
    finally:
        books.close()


def logged(service: Service, signal: str) -> list[ShadowResult]:
    with service.counter.tips.books.reading() as reading:
        entries = reading.entries(after=0, limit=1000)
    return [
        msgspec.msgpack.decode(entry.body, type=ShadowResult) for entry in entries if entry.signal == signal
    ]


def test_what_a_shadow_decides_is_logged_and_counted(tmp_path: Path) -> None:
    """Under its own signal, once for each decision, with how often it agreed."""
    with serving(tmp_path, [V2]) as service:
        replies = [service.score(number) for number in range(20)]
        service.score(3)  # answered again, and no new decision
        settled(service.shadowing.shadows, V2.name)
        until(lambda: len(logged(service, V2.signal)) == 20)
        results = logged(service, V2.signal)
        with service.counter.tips.books.reading() as reading:
            total = reading.shadows()[0]
    assert [one.decision_id for one in results] == [one.decision_id for one in replies]
    assert [one.agrees for one in results] == [
        one.tip_id == reply.tip_id for one, reply in zip(results, replies, strict=True)
    ]
    assert (total.signal, total.decisions, total.agreed) == (V2.signal, 20, sum(o.agrees for o in results))
    assert not any(one.apprentice for one in results)


def test_drops_are_kept_too(tmp_path: Path) -> None:
    """What a shadow failed at is in the totals when the service is asked again tomorrow."""
    with serving(tmp_path, [bad("raises")]) as service:
        for number in range(5):
            service.score(number)
        settled(service.shadowing.shadows, "raises")

        def dropped() -> int:
            with service.counter.tips.books.reading() as reading:
                return sum(total.dropped for total in reading.shadows())

        until(lambda: dropped() == 5)
        assert not logged(service, "shadow:raises")


def test_what_there_was_no_room_for_counts_as_dropped(tmp_path: Path) -> None:
    """While many wait nothing of a shadow is kept; how much that was is noted as soon as there is room."""
    with serving(tmp_path, [V2, bad("raises")], counted_by=Crowded) as service:
        assert isinstance(service.counter, Crowded)
        service.counter.crowd = 1000
        for number in range(5):
            service.score(number)
        settled(service.shadowing.shadows, V2.name)
        settled(service.shadowing.shadows, "raises")
        until(lambda: service.shadowing.unkept[V2.name] == 5)
        service.counter.crowd = 0
        service.score(5)

        def totals() -> dict[str, tuple[int, int]]:
            with service.counter.tips.books.reading() as reading:
                return {total.signal: (total.decisions, total.dropped) for total in reading.shadows()}

        until(lambda: totals() == {V2.signal: (1, 5), "shadow:raises": (0, 6)})
        assert service.shadowing.unkept == {V2.name: 5, "raises": 0}


def test_an_apprentice_learns_only_from_what_apps_are_served(tmp_path: Path) -> None:
    """What somebody asked one policy for is not shown to it: a reward for that teaches it nothing."""
    spec = ShadowSpec(name="keen", policy="egreedy", apprentice=True)
    with serving(tmp_path, [spec]) as service:
        assert service.reward(service.score(1, source="").decision_id).learned
        settled(service.shadowing.shadows, "keen", lessons=1)
        counts = service.shadowing.counts()["keen"]
    assert (counts.learned, counts.lessons_dropped, counts.trouble) == (0, {"unknown": 1}, "")


def test_an_apprentices_lessons_outlive_the_service(tmp_path: Path) -> None:
    """It goes on where it was, and learns from decisions that it met in an earlier service."""
    with serving(tmp_path, []) as service:
        unmet = service.score(0)
    with serving(tmp_path, [STUDENT]) as service:
        first, second = service.score(1), service.score(2)
        assert service.reward(first.decision_id).learned
        settled(service.shadowing.shadows, "student", lessons=1)
        until(lambda: len(logged(service, STUDENT.signal)) == 2)
    with serving(tmp_path, [STUDENT]) as service:
        assert not service.reward(first.decision_id, reward_id="again").learned
        third = service.score(3)
        settled(service.shadowing.shadows, "student")
        service.reward(third.decision_id)
        settled(service.shadowing.shadows, "student", lessons=1)
        until(lambda: len(logged(service, STUDENT.signal)) == 3)
        # The policy that served these reads other features: what the shadow made of them, it has said.
        service.reward(second.decision_id)
        service.reward(unmet.decision_id)
        settled(service.shadowing.shadows, "student", lessons=3)
        counts = service.shadowing.counts()["student"]
        last = logged(service, STUDENT.signal)[-1]
        until(lambda: seen(service.counter.tips.books, "u", "student") == 3)
    assert (counts.learned, counts.lessons_dropped) == (2, {"unfit": 1})
    assert "was not made by this shadow" in counts.trouble
    assert last.apprentice
    assert any(last.scores.values()), "it has forgotten what it learned before"


def test_a_reset_reaches_apprentices(tmp_path: Path) -> None:
    """After it an apprentice knows as little of the user as the policy that serves."""
    with serving(tmp_path, [STUDENT]) as service:
        service.reward(service.score(1).decision_id)
        settled(service.shadowing.shadows, "student", lessons=1)
        service.counter.ask_from_thread(Reset("u")).result(30)
        service.score(2)
        settled(service.shadowing.shadows, "student")
        until(lambda: len(logged(service, STUDENT.signal)) == 2)
        assert not any(logged(service, STUDENT.signal)[-1].scores.values())


def test_services_beside_each_other_teach_one_apprentice(tmp_path: Path) -> None:
    """No lesson of one is lost to another, of the user nor of what all share; a reset by one is heard."""
    spec = ShadowSpec(name="keen", policy="hybrid", apprentice=True)
    with serving(tmp_path, [spec]) as one, serving(tmp_path, [spec]) as other:
        for number in range(6):
            for place, service in enumerate((one, other)):
                service.reward(service.score(2 * number + place).decision_id)
        until(lambda: seen(one.counter.tips.books, POOLED, "keen") == 12)
        assert seen(one.counter.tips.books, "u", "keen", dims=7) == 12
        assert sum(service.shadowing.counts()["keen"].learned for service in (one, other)) == 12
        one.counter.ask_from_thread(Reset("u")).result(30)
        other.reward(other.score(100).decision_id)
        until(lambda: seen(one.counter.tips.books, POOLED, "keen") == 13)
        assert seen(one.counter.tips.books, "u", "keen", dims=7) == 1
        assert not any(service.shadowing.unkept_lessons["keen"] for service in (one, other))


@pytest.mark.parametrize("apprentice", [False, True])
def test_answers_are_the_same_beside_bad_shadows(tmp_path: Path, *, apprentice: bool) -> None:
    """To the byte, whatever runs beside: nothing, or shadows that hang, raise and allocate."""
    names = ("sleeps", "spins", "raises", "allocates", "exits", "chatters", "cannot_learn")
    answers = []
    for specs in ([], [bad(name, apprentice=apprentice) for name in names]):
        folder = tmp_path / str(len(specs))
        folder.mkdir()
        with serving(folder, specs) as service:
            said = []
            for number in range(30):
                reply = service.score(number, user=f"u{number % 3}")
                said.append(msgspec.json.encode(reply))
                said.append(msgspec.json.encode(service.reward(reply.decision_id, reward_id=f"r{number}")))
            answers.append(said)
    assert answers[0] == answers[1]
