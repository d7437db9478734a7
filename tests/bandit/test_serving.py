"""Tips served and rewards counted, by the rules, on both kinds of books."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from tipbench.bandit import draws, policies, tip_text
from tipbench.bandit.asked import Candidate, RewardReply, RewardRequest, ScoreReply, ScoreRequest
from tipbench.bandit.asks import Choose, Done, Note, Remembered, Reset, Reward, Score
from tipbench.bandit.books import POOLED, ShadowTotal, Total
from tipbench.bandit.decisions import decode
from tipbench.bandit.policy import Memory, Weighed
from tipbench.bandit.profiles import Profile
from tipbench.bandit.recall import Recall
from tipbench.bandit.serving import Tips
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import BadInput, Conflict, NotFound, PolicyFailed
from tips_world import (
    Clock,
    decided,
    make_tips,
    one,
    only,
    request,
    reward,
    ridge,
    score,
    seen,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.bandit.books import Books
    from tipbench.bandit.ridge import Array

    OpenBooks = Callable[[], Books]


NAMES = ("egreedy", "egreedy-v2", "hybrid", "linucb", "thompson", "random")


def profile(books: Books, user: str = "anna") -> Profile:
    with books.reading() as reading:
        body = reading.profiles([user]).get(user)
    return Profile() if body is None else Profile.decode(body)


def totals(books: Books) -> dict[str, Total]:
    with books.reading() as reading:
        return {total.policy: total for total in reading.totals()}


def test_a_decision_is_logged_with_its_probability(books: Books) -> None:
    """What is needed to replay a decision, and to judge others by it, is in the log."""
    tips = make_tips(books)
    reply = decided(tips, score("anna", "q1"))
    with books.reading() as reading:
        (entry,) = reading.entries(after=0, limit=5)
    logged = decode(entry)
    assert (entry.signal, entry.user_id, entry.policy) == ("serve", "anna", "egreedy-v2")
    assert logged.ids[logged.chosen] == reply.tip_id
    assert logged.matrix().shape == (4, 12)
    assert sum(reply.propensities.values()) == pytest.approx(1.0)
    assert min(reply.propensities.values()) > 0
    u = draws.uniform(books.seed(), "q1")
    assert int(draws.pick(np.array([*reply.propensities.values()]), u)) == logged.chosen
    assert reply.policy_version == policies.version(policies.make("egreedy-v2"))
    assert totals(books)["egreedy-v2"] == Total("egreedy-v2", 1, int(reply.explored), 0, 0.0)


def test_a_repeated_request_has_the_same_answer(books: Books, open_books: OpenBooks) -> None:
    """To the byte: in the same batch, later, after a restart, and whatever was learned in between."""
    tips = make_tips(books)
    first, again = only(ScoreReply, tips.run([score("anna", "q1"), score("anna", "q1")]))
    told(tips, reward(first))
    later = decided(tips, score("anna", "q1"))
    another = ScoreRequest(user_id="anna", request_id="q1", candidates=[Candidate(id="x", text="other")])
    restarted = decided(make_tips(open_books()), Score("egreedy-v2", another))
    assert {msgspec.json.encode(reply) for reply in (first, again, later, restarted)} == {
        msgspec.json.encode(first)
    }
    with books.reading() as reading:
        assert reading.last_seq() == 1
    assert totals(books)["egreedy-v2"].decisions == 1
    assert profile(books).total.shown == 1


def test_requests_without_an_id_and_of_others_are_decisions_of_their_own(books: Books) -> None:
    """The same id from another user or to another policy is another decision."""
    tips = make_tips(books)
    asks = [score("a", "q"), score("b", "q"), score("a", "q", "egreedy"), score("a"), score("a")]
    replies = only(ScoreReply, tips.run(asks))
    assert len({reply.decision_id for reply in replies}) == 5


def test_a_reward_is_learned_once(books: Books) -> None:
    """From the first terminal event; a repeat and a later event are ignored, and say so."""
    tips = make_tips(books)
    decision = decided(tips)
    assert told(tips, reward(decision, "r1", "completed")) == RewardReply(
        decision_id=decision.decision_id, learned=True, ignored=False
    )
    weights = ridge(books, "anna")
    repeat = told(tips, reward(decision, "r1", "completed"))
    later = told(tips, reward(decision, "r2", "dismissed"))
    assert (repeat.learned, repeat.ignored, "before" in repeat.reason) == (False, True, True)
    assert (later.learned, later.ignored, "ended" in later.reason) == (False, True, True)
    after = ridge(books, "anna")
    assert weights is not None
    assert after is not None
    assert np.array_equal(weights.weights, after.weights)
    assert totals(books)["egreedy-v2"].rewards == 1
    assert totals(books)["egreedy-v2"].reward_sum == 1.0


def test_a_batch_of_all_kinds_from_a_cold_start(books: Books, open_books: OpenBooks) -> None:
    """Repeated requests, rewards of old decisions, repeats of rewards and new requests, all in one go."""
    tips = make_tips(books)
    old = [decided(tips, score(f"u{n}", f"q{n}", "hybrid")) for n in range(5)]
    told(tips, reward(old[0], "before"))
    asks: list[Any] = [
        score("u1", "q1", "hybrid"),
        reward(old[0], "before"),
        reward(old[1]),
        score("u1", "q1", "hybrid"),
        score("u1", "new", "hybrid"),
        reward(old[2]),
        score("u2", "q2", "hybrid"),
        reward(old[3], policy="egreedy"),
        score("u4", "q4", "hybrid"),
    ]
    answers = make_tips(open_books()).run(asks)
    assert answers[0] == answers[3] == old[1]
    assert (answers[6], answers[8]) == (old[2], old[4])
    assert [getattr(answers[n], "learned", None) for n in (1, 2, 5)] == [False, True, True]
    assert isinstance(answers[4], ScoreReply)
    assert isinstance(answers[7], Conflict)
    assert seen(books, POOLED, "hybrid") == 3


def test_a_batch_is_as_one_after_the_other(books: Books, tmp_path: Path) -> None:
    """The same asks give the same answers and the same state, to the bit, together and one by one."""
    alone = SqliteBooks(tmp_path / "alone.db")
    both = [
        Tips(one, {n: policies.make(n) for n in NAMES}, seed=b"s" * 32, clock_ms=Clock())
        for one in (books, alone)
    ]
    asks: list[Any] = [score(f"u{n % 3}", f"q{n}", NAMES[n % len(NAMES)]) for n in range(18)]
    together, single = both[0].run(asks), [both[1].run([ask])[0] for ask in asks]
    assert together == single
    events = [reward(reply, worth=n / 18) for n, reply in enumerate(only(ScoreReply, together))]
    asks = [
        each
        for n, event in enumerate(events)
        for each in (event, score(f"u{(n + 1) % 3}", f"again{n}", NAMES[n % 3]))
    ]
    assert both[0].run(asks) == [both[1].run([ask])[0] for ask in asks]
    keys = [(user, name) for user in ("u0", "u1", "u2", POOLED) for name in NAMES]
    with books.reading() as one_, alone.reading() as other:
        assert one_.memories(keys) == other.memories(keys)
        assert one_.profiles(["u0", "u1", "u2"]) == other.profiles(["u0", "u1", "u2"])
        assert one_.totals() == other.totals()
    alone.close()


def test_repeats_in_one_batch_count_once(books: Books) -> None:
    """The same reward ten times at once, and ten different ones for one decision, teach once."""
    tips = make_tips(books)
    first, second = decided(tips, score("a")), decided(tips, score("b"))
    asks = [reward(first, "same") for _ in range(10)] + [reward(second, f"r{n}") for n in range(10)]
    replies = only(RewardReply, tips.run(asks))
    assert [reply.learned for reply in replies] == [True, *[False] * 9, True, *[False] * 9]
    assert (seen(books, "a"), seen(books, "b")) == (1, 1)


@pytest.mark.parametrize(
    ("event", "worth", "expected"),
    [("completed", None, 1.0), ("dismissed", None, 0.0), ("completed", 0.25, 0.25), ("shared", 0.5, 0.5)],
)
def test_an_event_is_worth_what_it_says(
    books: Books, event: str, worth: float | None, expected: float
) -> None:
    """Completed is 1, dismissed 0, and an explicit reward is taken before either."""
    tips = make_tips(books)
    decision = decided(tips)
    assert told(tips, reward(decision, event=event, worth=worth)).learned
    assert totals(books)["egreedy-v2"].reward_sum == expected
    with books.reading() as reading:
        outcome = reading.decisions([decision.decision_id])[decision.decision_id].outcome
    assert outcome is not None
    assert (outcome.reward, outcome.event) == (expected, event)


def test_the_weights_are_those_of_the_policy(books: Books, open_books: OpenBooks) -> None:
    """What is kept after rewards is what the policy itself makes of the logged vectors, to the last bit."""
    tips = make_tips(books)
    policy = policies.make("egreedy-v2")
    memory = policy.fresh()
    for number in range(6):
        decision = decided(tips, score("anna", f"q{number}"))
        worth = number / 5
        told(tips, reward(decision, worth=worth))
        with books.reading() as reading:
            logged = decode(reading.decisions([decision.decision_id])[decision.decision_id].entry)
        memory = policy.learn(memory, logged.matrix()[logged.chosen], np.asarray(worth))
        tips = make_tips(open_books()) if number == 3 else tips
    kept = ridge(open_books(), "anna")
    assert kept is not None
    assert memory.own is not None
    assert kept.weights.tobytes() == memory.own.weights.tobytes()
    assert kept.inverse.tobytes() == memory.own.inverse.tobytes()


def test_dwell_feeds_the_profile_and_never_trains(books: Books) -> None:
    """Before and after the end of a decision; with a reward beside it, too."""
    tips = make_tips(books)
    decision = decided(tips)
    reply = told(tips, reward(decision, "d1", "dwell", dwell_s=30))
    assert (reply.learned, reply.ignored) == (False, False)
    told(tips, reward(decision, "d2", "dwell", dwell_s=10_000, worth=1.0))
    assert seen(books, "anna") == 0
    assert told(tips, reward(decision, "r", "completed", dwell_s=5)).learned
    told(tips, reward(decision, "d3", "dwell", dwell_s=1))
    assert told(tips, reward(decision, "d3", "dwell", dwell_s=1)).ignored
    kept = profile(books).total
    assert (kept.dwell_n, kept.dwell_sum, kept.ended) == (4, 30 + 600 + 5 + 1, 1)
    assert seen(books, "anna") == 1


def test_another_policys_decision_is_a_conflict(books: Books) -> None:
    """At the policy's own place; at the common one it goes to the policy that decided."""
    tips = make_tips(books)
    decision = decided(tips, score(policy="egreedy"))
    with pytest.raises(Conflict, match="one of egreedy, not of egreedy-v2"):
        told(tips, reward(decision, policy="egreedy-v2"))
    assert told(tips, reward(decision, policy="egreedy")).learned
    with pytest.raises(Conflict):
        told(tips, reward(decision, policy="egreedy-v2"))
    assert seen(books, "anna", "egreedy", dims=7) == 1
    assert ridge(books, "anna") is None


def test_unknown_and_expired_decisions_are_refused(books: Books) -> None:
    """Not found, and a conflict; what was counted in time is still a repeat."""
    clock = Clock()
    tips = make_tips(books, clock=clock, expire_ms=1000)
    first, second = decided(tips), decided(tips)
    told(tips, reward(first, "r1"))
    clock.now_ms += 1001
    with pytest.raises(NotFound, match="no decision"):
        told(tips, reward("00112233445566778899aabbccddeeff"))
    with pytest.raises(Conflict, match="too old"):
        told(tips, reward(second))
    assert told(tips, reward(first, "r1")).ignored
    assert seen(books, "anna") == 1


@pytest.mark.parametrize(
    ("event", "worth", "dwell_s"),
    [
        ("completed", math.nan, None),
        ("completed", math.inf, None),
        ("completed", 1.01, None),
        ("completed", -0.01, None),
        ("completed", None, math.nan),
        ("dwell", None, math.inf),
        ("dwell", None, -1.0),
        ("dwell", None, None),
        ("glanced", None, None),
        ("x\0", 1.0, None),
    ],
)
def test_what_means_nothing_is_refused(
    books: Books, event: str, worth: float | None, dwell_s: float | None
) -> None:
    """Numbers that are none, and events without a reward; nothing of them is kept."""
    tips = make_tips(books)
    decision = decided(tips)
    with pytest.raises(BadInput):
        told(tips, reward(decision, "r1", event, worth=worth, dwell_s=dwell_s))
    assert told(tips, reward(decision, "r1")).learned


def test_a_bad_ask_leaves_the_others_alone(books: Books, open_books: OpenBooks) -> None:
    """Each bad one of a batch has its own error; the good ones are on disk, and nothing else is."""
    tips = make_tips(books)
    decision = decided(tips, score("anna", "q0"))
    twins = [Candidate(id="x", text="a"), Candidate(id="x", text="b")]
    asks: list[Any] = [
        score("bert", "q1"),
        score("bad\0id", "q2"),
        Score("no-such-policy", request()),
        Score("egreedy-v2", ScoreRequest(user_id="carl", candidates=twins)),
        Score("egreedy-v2", ScoreRequest(user_id="carl", candidates=[Candidate(id="x")])),
        Score("egreedy-v2", ScoreRequest(user_id="carl", candidates=[Candidate(id="x", features=[1.0])])),
        score("lone \ud800", "q3"),
        Score(
            "egreedy-v2",
            ScoreRequest(user_id="carl", candidates=[Candidate(id="x", kind="\udfff", text="stretch")]),
        ),
        reward(decision, "r1"),
        reward("nothing", "r1"),
        reward(decision, "r\0"),
        score("x" * 201),
        Reset(""),
    ]
    answers = tips.run(asks)
    good = {0: ScoreReply, 8: RewardReply}
    for number, answer in enumerate(answers):
        assert isinstance(answer, good.get(number, BadInput)), (number, answer)
    assert "no-such-policy" in str(answers[2])
    assert "same id" in str(answers[3])
    fresh = open_books()
    with fresh.reading() as reading:
        assert {one.user_id for one in reading.entries(after=0, limit=99)} == {"anna", "bert"}
        assert [*reading.profiles(["carl", "bert", "anna"])] != []
        assert reading.profiles(["carl"]) == {}
    assert seen(fresh, "anna") == 1


@pytest.mark.parametrize("user", ["../../x", "😀", "x" * 200, "a/b\\c", "'; --", "%s", "\n"])
def test_any_id_is_a_user(books: Books, user: str) -> None:
    """What looks like a path, a statement or nothing at all learns for itself."""
    tips = make_tips(books)
    decision = decided(tips, score(user, user))
    assert told(tips, reward(decision, user)).learned
    assert told(tips, reward(decision, user)).ignored
    assert decided(tips, score(user, user)) == decision
    assert (seen(books, user), seen(books, "anna")) == (1, 0)


def test_the_pooled_part_learns_from_everybody(books: Books) -> None:
    """Hybrid keeps one memory for each user and one for all."""
    tips = make_tips(books)
    decisions = only(ScoreReply, tips.run([score(f"u{n}", policy="hybrid") for n in range(5)]))
    only(RewardReply, tips.run([reward(decision) for decision in decisions]))
    assert seen(books, POOLED, "hybrid") == 5
    assert [seen(books, f"u{n}", "hybrid", dims=7) for n in range(5)] == [1] * 5


def test_a_reset_forgets_a_user(books: Books, open_books: OpenBooks) -> None:
    """Every policy's memory and the profile; decisions from before teach nothing, those after do."""
    tips = make_tips(books)
    names = ("egreedy", "egreedy-v2", "hybrid")
    old = [decided(tips, score("anna", f"old-{name}", name)) for name in names]
    kept = decided(tips, score("bert"))
    only(RewardReply, tips.run([*(reward(decision) for decision in old), reward(kept)]))
    waiting = decided(tips, score("anna", "waiting"))
    assert isinstance(one(tips, Reset("anna", b"by hand")), Done)
    with books.reading() as reading:
        assert reading.memories([("anna", name) for name in names]) == {}
        assert reading.entries(after=0, limit=99)[-1][2:] == ("reset", "", "anna", "", b"by hand")
    assert profile(books).total.shown == 0
    for again in (tips, make_tips(open_books())):
        reply = told(again, reward(waiting, f"r{id(again)}"))
        assert (reply.learned, reply.ignored, "reset" in reply.reason) == (False, True, True)
    assert told(tips, reward(decided(tips, score("anna", "new")))).learned
    assert (seen(books, "anna"), seen(books, "bert"), seen(books, POOLED, "hybrid")) == (1, 1, 1)


def test_a_reset_of_everybody_forgets_what_is_shared(books: Books, open_books: OpenBooks) -> None:
    """All memories and profiles go; decisions from before teach nothing, those after do."""
    tips = make_tips(books)
    waiting = [decided(tips, score(user, policy="hybrid")) for user in ("anna", "bert")]
    told(tips, reward(waiting[0]))
    one(tips, Reset(None))
    assert told(make_tips(open_books()), reward(waiting[1])).ignored
    assert told(tips, reward(decided(tips, score("carl", policy="hybrid")))).learned
    assert (seen(books, POOLED, "hybrid"), seen(books, "anna", "hybrid", dims=7)) == (1, 0)


def test_a_reset_in_the_middle_of_a_batch_is_in_its_place(books: Books) -> None:
    """What was asked before it is forgotten, what was asked after it is not."""
    tips = make_tips(books)
    first, second = decided(tips, score("anna", "1")), decided(tips, score("anna", "2"))
    answers = tips.run([reward(first), Reset("anna"), reward(second), score("anna", "3")])
    assert [getattr(answer, "learned", None) for answer in answers] == [True, None, False, None]
    assert seen(books, "anna") == 0
    assert profile(books).total.shown == 1
    assert told(tips, reward(only(ScoreReply, answers[3:])[0])).learned
    assert seen(books, "anna") == 1


def test_small_caches_change_nothing(books: Books, open_books: OpenBooks) -> None:
    """With room for two users in memory, ten learn as they do with room for all."""
    small = make_tips(books, recall=Recall(users=2, decisions=2))
    for turn in range(3):
        for user in range(10):
            decision = decided(small, score(f"u{user}", f"q{turn}", "hybrid"))
            assert told(small, reward(decision, worth=0.1 * user)).learned
    assert [seen(books, f"u{n}", "hybrid", dims=7) for n in range(10)] == [3] * 10
    assert seen(books, POOLED, "hybrid") == 30


def test_two_that_serve_one_user_lose_nothing(books: Books, open_books: OpenBooks) -> None:
    """Each sees what the other has learned, served and counted, though both remember."""
    both = [make_tips(books), make_tips(open_books())]
    for number in range(10):
        decision = decided(both[number % 2], score("anna", f"q{number}"))
        assert told(both[(number + 1) % 2], reward(decision)).learned
        assert told(both[number % 2], reward(decision)).ignored
    assert seen(books, "anna") == 10
    assert profile(books).total.ended == profile(books).total.shown == 10
    with books.reading() as reading:
        assert reading.last_seq() == 10


def test_a_shadows_note_is_logged_and_counted(books: Books) -> None:
    """Its signal, whether it agreed, what was dropped, and what it learned where it may learn."""
    tips = make_tips(books)
    signal = "shadow:egreedy-v2-shadow"
    lesson = decided(tips, score("anna")).decision_id
    first, second = Remembered("anna", None, b"half"), Remembered("anna", b"half", b"learned")
    done = tips.run(
        [
            Note(signal, "d1", "anna", "egreedy-v2-shadow", b"body", agreed=True),
            Note(signal, "", "", "egreedy-v2-shadow", memories=(first,), lesson=lesson),
            Note(signal, "", "", "egreedy-v2-shadow", memories=(second,), lesson=lesson),
            Note(signal, "d2", "anna", "egreedy-v2-shadow", b"body"),
            Note(signal, "", "", "", dropped=3),
            Choose("active", "hybrid"),
        ]
    )
    assert all(isinstance(answer, Done) for answer in done)
    with books.reading() as reading:
        assert [(e.signal, e.decision_id) for e in reading.entries(after=1, limit=9)] == [
            (signal, "d1"),
            (signal, "d2"),
        ]
        assert reading.shadows() == [ShadowTotal(signal, 2, 1, 3)]
        key = ("anna", "egreedy-v2-shadow")
        assert reading.memories([key]) == {key: b"learned"}
        assert reading.choices()["active"] == "hybrid"


@pytest.mark.parametrize("who", ["anna", None])
def test_what_a_shadow_learned_before_a_reset_is_not_kept(books: Books, who: str | None) -> None:
    """A lesson that waited while its user, or everybody, was reset leaves nothing; one from after it does."""
    tips, name = make_tips(books), "egreedy-v2-shadow"
    before = decided(tips, score("anna", "q1")).decision_id
    late = tuple(Remembered(user, None, b"old") for user in ("anna", POOLED))
    tips.run([Reset(who), Note("s", "", "", name, memories=late, lesson=before)])
    pooled = {} if who is None else {(POOLED, name): b"old"}
    with books.reading() as reading:
        assert reading.memories([("anna", name), (POOLED, name)]) == pooled
    after = decided(tips, score("anna", "q2")).decision_id
    tips.run([Note("s", "", "", name, memories=(Remembered("anna", None, b"new"),), lesson=after)])
    with books.reading() as reading:
        assert reading.memories([("anna", name)]) == {("anna", name): b"new"}


def test_of_two_lessons_from_the_same_memory_one_is_kept(books: Books) -> None:
    """The other is a conflict, in all its parts: whoever learned it has not seen what is kept now."""
    tips, name = make_tips(books), "egreedy-v2-shadow"
    lesson = decided(tips, score("anna")).decision_id
    keys = [("anna", name), (POOLED, name)]

    def learned(own: tuple[bytes | None, bytes], pooled: tuple[bytes | None, bytes]) -> Note:
        both = Remembered("anna", *own), Remembered(POOLED, *pooled)
        return Note("s", "", "", name, memories=both, lesson=lesson)

    answers = tips.run([learned((None, b"a"), (None, b"p")), learned((b"a", b"b"), (None, b"q"))])
    assert [type(answer) for answer in answers] == [Done, Conflict]
    (answer,) = tips.run([learned((None, b"c"), (b"p", b"q"))])
    assert isinstance(answer, Conflict)
    with books.reading() as reading:
        assert reading.memories(keys) == {("anna", name): b"a", (POOLED, name): b"p"}
    tips.run([Reset("anna")])
    after = decided(tips, score("anna", "q2")).decision_id
    one(tips, learned((None, b"d"), (b"p", b"q"))._replace(lesson=after))
    with books.reading() as reading:
        assert reading.memories(keys) == {("anna", name): b"d", (POOLED, name): b"q"}


class Broken:
    """A policy of somebody's own that does not keep the contract."""

    name = "broken"
    features = "v1"
    parameters: dict[str, Any] = {}  # noqa: RUF012 - a protocol's attribute

    def __init__(self, what: str) -> None:
        self.what = what
        self.good = policies.make("egreedy")

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:
        return self.good.fresh(own=own, pooled=pooled)

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        weighed = self.good.weigh(memory, x)
        if self.what == "raises":
            raise RuntimeError("a mistake")
        if self.what == "scores":
            return Weighed(scores=weighed.scores * math.nan, propensities=weighed.propensities)
        if self.what == "shares":
            return Weighed(scores=weighed.scores, propensities=weighed.propensities * 2)
        if self.what == "shape":
            return Weighed(scores=weighed.scores[..., :2], propensities=weighed.propensities[..., :2])
        return weighed

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        if self.what == "learn-raises":
            raise RuntimeError("a mistake")
        return self.good.learn(memory, x * math.inf, reward, where=where)


@pytest.mark.parametrize("what", ["raises", "scores", "shares", "shape"])
def test_a_policy_that_fails_fails_alone(books: Books, what: str) -> None:
    """Whoever asked it is told; others in the batch are served, and nothing of it is logged."""
    tips = make_tips(books, own={"broken": Broken(what)})
    bad, good = tips.run([score(policy="broken"), score()])
    assert isinstance(bad, PolicyFailed)
    assert "broken" in str(bad)
    assert isinstance(good, ScoreReply)
    with books.reading() as reading:
        assert [one.policy for one in reading.entries(after=0, limit=9)] == ["egreedy-v2"]


def test_a_request_that_cannot_be_read_fails_alone(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever mistake there may be in making features of a text: others in the batch are served."""

    def mistaken(text: str) -> tip_text.Reading:
        if text == "told wrongly":
            raise RuntimeError("a mistake")
        return tip_text.Reading(kind="focus", effort=0.0, words=frozenset())

    monkeypatch.setattr(tip_text, "read", mistaken)
    request = score().request
    wrong = msgspec.structs.replace(
        request, user_id="other", candidates=[Candidate(id="a", text="told wrongly")]
    )
    bad, good = make_tips(books).run([Score("egreedy-v2", wrong), score()])
    assert isinstance(bad, PolicyFailed)
    assert "could not be made into features" in str(bad)
    assert isinstance(good, ScoreReply)


@pytest.mark.parametrize("what", ["learn-raises", "learns what is not finite"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_is_never_kept(books: Books, what: str) -> None:
    """A policy that would spoil its memory is refused, and the decision can still be learned from."""
    tips = make_tips(books, own={"broken": Broken(what)})
    decision = decided(tips, score(policy="broken"))
    with pytest.raises((PolicyFailed, BadInput)):
        told(tips, reward(decision))
    mended = make_tips(books, own={"broken": Broken("nothing")})
    mended.line_up.asked_as("broken").policy.learn = mended.line_up.asked_as("broken").policy.good.learn  # type: ignore[attr-defined, method-assign]
    assert told(mended, reward(decision)).learned
    assert seen(books, "anna", "broken", dims=7) == 1


def test_a_policy_that_is_gone_learns_nothing(books: Books) -> None:
    """A reward for it says so, and is not lost: it can be sent again when the policy is back."""
    decision = decided(make_tips(books))
    without = make_tips(books, "egreedy")
    with pytest.raises(Conflict, match="no longer served"):
        told(without, reward(decision))
    assert told(make_tips(books), reward(decision)).learned


def test_what_is_told_of_a_policy_that_is_gone_costs_no_profile(books: Books) -> None:
    """A dwell for its decision is added to what is known of the user; a refused reward changes nothing."""
    decision = decided(make_tips(books))
    told(make_tips(books), reward(decided(make_tips(books))))
    before = profile(books)
    without = make_tips(books, "egreedy")
    assert not told(without, reward(decision, event="dwell", dwell_s=30.0)).ignored
    assert profile(books) == before.dwelt(decision.tip_id.removeprefix("tip-"), 30.0)
    with pytest.raises(Conflict, match="no longer served"):
        told(without, reward(decision, "r2"))
    decided(without, score(policy="egreedy"))
    assert profile(books).total.shown == before.total.shown + 1
    assert profile(books).total.ended == 1


def test_a_reset_holds_for_a_policy_that_is_gone(books: Books) -> None:
    """Nothing that is told about decisions before it reaches the profile, whoever made them."""
    decision = decided(make_tips(books))
    one(make_tips(books), Reset("anna"))
    without = make_tips(books, "egreedy")
    assert told(without, reward(decision, event="dwell", dwell_s=30.0)).ignored
    assert profile(books).total == Profile().total


def test_words_of_a_reward_may_be_built_by_hand(books: Books) -> None:
    """A decision's id that is no id at all is simply not there."""
    tips = make_tips(books)
    for odd in ("x", "😀", "../../x", "A" * 32, "' OR 1=1 --"):
        with pytest.raises(NotFound):
            told(tips, Reward(None, RewardRequest(decision_id=odd, reward_id="r", event="completed")))
