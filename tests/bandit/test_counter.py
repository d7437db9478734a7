"""The group commit: everybody's asks in one queue, answered when they are on disk."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from tipbench.bandit.asked import RewardReply, ScoreReply
from tipbench.bandit.counter import Counter
from tipbench.errors import BadInput, Busy, NotFound, Unavailable
from tips_world import decided, make_tips, only, reward, score, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tipbench.bandit.asks import Ask, Signal
    from tipbench.bandit.books import Books
    from tipbench.bandit.serving import Begun, Ran


class HeldUp:
    """The disk takes nothing until it is opened."""

    def __init__(self, counter: Counter) -> None:
        self.gate = threading.Event()
        self.sizes: list[int] = []
        self._tips = counter.tips
        self._begin, self._batch = counter.tips.begin, counter.tips.batch
        counter.tips.begin = self.begin  # type: ignore[method-assign]
        counter.tips.batch = self.batch  # type: ignore[method-assign]

    def begin(self, asks: Sequence[Ask]) -> Begun | None:
        begun = self._begin(asks)
        if begun is not None:
            self.sizes.append(len(asks))
            commit = begun.commit
            begun.commit = lambda: (self.gate.wait(30), commit())[1]  # type: ignore[method-assign]
        return begun

    def batch(self, asks: Sequence[Ask]) -> Ran:
        self.gate.wait(30)
        self.sizes.append(len(asks))
        return self._batch(asks)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that")


async def test_many_at_once_are_answered_and_kept(books: Books) -> None:
    """Each has its own answer, in few transactions."""
    with Counter(make_tips(books)) as counter:
        held = HeldUp(counter)
        asked = [asyncio.ensure_future(counter.ask(score(f"u{n}", f"q{n}"))) for n in range(100)]
        await asyncio.sleep(0.05)
        held.gate.set()
        replies = only(ScoreReply, await asyncio.gather(*asked))
        rewards = await asyncio.gather(*(counter.ask(reward(one)) for one in replies))
    assert all(one.learned for one in only(RewardReply, rewards))
    assert [seen(books, f"u{n}") for n in range(100)] == [1] * 100
    assert len(held.sizes) < 20


async def test_an_error_is_raised_to_whoever_asked(books: Books) -> None:
    """The others of the batch do not notice."""
    with Counter(make_tips(books)) as counter:
        good, missing, bad = await asyncio.gather(
            counter.ask(score()),
            counter.ask(reward("nothing")),
            counter.ask(score("a\0b")),
            return_exceptions=True,
        )
    assert isinstance(good, ScoreReply)
    assert isinstance(missing, NotFound)
    assert isinstance(bad, BadInput)


def test_eight_threads_on_one_user_lose_nothing(books: Books) -> None:
    """Two hundred rewards each, every one sent twice, are learned once each."""
    tips = make_tips(books)
    decisions = [
        [one.decision_id for one in only(ScoreReply, tips.run([score("anna") for _ in range(25)]))]
        for _ in range(8)
    ]
    learned: list[bool] = []

    def send(mine: Sequence[str], counter: Counter) -> None:
        asked = [counter.ask_from_thread(reward(one, "r")) for one in mine for _ in range(2)]
        learned.extend(one.learned for one in only(RewardReply, [each.result(30) for each in asked]))

    with Counter(tips) as counter:
        threads = [threading.Thread(target=send, args=(mine, counter)) for mine in decisions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(learned), sum(learned)) == (400, 200)
    assert seen(books, "anna") == 200


async def test_a_full_queue_is_busy(books: Books) -> None:
    """Whoever comes too many is told at once; those who wait are served."""
    with Counter(make_tips(books), most_waiting=5) as counter:
        held = HeldUp(counter)
        first = asyncio.ensure_future(counter.ask(score("first")))
        await asyncio.sleep(0)
        await until(lambda: not counter.waiting())
        waiting = [asyncio.ensure_future(counter.ask(score(f"u{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="5 requests"):
            await counter.ask(score("late"))
        held.gate.set()
        only(ScoreReply, await asyncio.gather(first, *waiting))
        assert isinstance(await counter.ask(score("late")), ScoreReply)


async def test_to_stop_answers_what_was_taken(books: Books) -> None:
    """Everything in the queue is worked on; what comes later is refused."""
    counter = Counter(make_tips(books), most_together=3)
    counter.start()
    held = HeldUp(counter)
    asked = [asyncio.ensure_future(counter.ask(score(f"u{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    stopping = asyncio.get_running_loop().run_in_executor(None, counter.stop)
    await asyncio.sleep(0.02)
    with pytest.raises(Unavailable, match="stopping"):
        await counter.ask(score())
    held.gate.set()
    only(ScoreReply, await asyncio.gather(*asked))
    await stopping
    counter.stop()


async def test_who_is_in_no_hurry_goes_with_the_next(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is begun for them, so nobody who comes meanwhile waits for it."""
    monkeypatch.setattr("tipbench.bandit.counter._PATIENCE_S", 60.0)
    with Counter(make_tips(books), most_waiting=4) as counter:
        held = HeldUp(counter)
        held.gate.set()
        in_passing = [counter.ask_in_passing(score(f"u{n}", f"q{n}")) for n in range(3)]
        await asyncio.sleep(0.1)
        assert (held.sizes, counter.waiting()) == ([], 3)
        assert isinstance(await counter.ask(score("anna")), ScoreReply)
        replies = only(ScoreReply, [await asyncio.to_thread(one.result, 30) for one in in_passing])
        assert (held.sizes, len({one.decision_id for one in replies})) == ([4], 3)
        last = [counter.ask_in_passing(score(f"u{n}", f"q{n}")) for n in range(4, 8)]
        with pytest.raises(Busy, match="4 requests"):
            counter.ask_in_passing(score())
    only(ScoreReply, [one.result(timeout=0) for one in last])  # to stop does not wait for company
    with pytest.raises(Unavailable, match="stopping"):
        counter.ask_in_passing(score())


def test_who_is_in_no_hurry_does_not_wait_for_ever(books: Books) -> None:
    """Where nobody comes, they go alone; again and again."""
    with Counter(make_tips(books)) as counter:
        for turn in range(3):
            asked = [counter.ask_in_passing(score(f"u{n}", f"q{turn}")) for n in range(2)]
            only(ScoreReply, [one.result(timeout=30) for one in asked])


async def test_whoever_gives_up_keeps_nobody_waiting(books: Books) -> None:
    """A task that is cancelled while it waits does not disturb its batch; what it asked may have happened."""
    with Counter(make_tips(books)) as counter:
        held = HeldUp(counter)
        gone, stays = (asyncio.ensure_future(counter.ask(score(user))) for user in ("a", "b"))
        await asyncio.sleep(0.01)
        gone.cancel()
        held.gate.set()
        assert isinstance(await stays, ScoreReply)
        assert isinstance(await counter.ask(score("c")), ScoreReply)


async def test_listeners_hear_what_was_committed(books: Books) -> None:
    """Signals with the request and the profile as it was; a listener that fails disturbs nobody."""
    heard: list[Signal] = []

    def fails(signals: Sequence[Signal]) -> None:
        raise RuntimeError("a mistake")

    with Counter(make_tips(books)) as counter:
        end_failing = counter.subscribe(fails)
        end = counter.subscribe(heard.extend)
        reply = await counter.ask(score("anna", "q1"))
        assert isinstance(reply, ScoreReply)
        await counter.ask(score("anna", "q1"))
        await counter.ask(reward(reply))
        await counter.ask(score("bert", "q2"))
        await until(lambda: len(heard) == 2)
        end()
        end_failing()
        await counter.ask(score("carl", "q3"))
    assert [(one.entry.seq, one.entry.user_id) for one in heard] == [(1, "anna"), (2, "bert")]
    assert heard[0].entry.decision_id == reply.decision_id
    assert heard[0].request is not None
    assert heard[0].profile is not None
    assert heard[0].profile.total.shown == 0


async def test_a_batch_that_breaks_is_not_the_end(books: Books) -> None:
    """An error that nobody foresaw reaches those who asked, and the next are served."""
    with Counter(make_tips(books)) as counter:
        tips = counter.tips
        begin, batch = tips.begin, tips.batch

        def breaks(asks):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as Tips.begin and Tips.batch
            tips.begin, tips.batch = begin, batch  # type: ignore[method-assign]
            raise ZeroDivisionError

        tips.begin = tips.batch = breaks  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await counter.ask(score())
        assert isinstance(await counter.ask(score()), ScoreReply)


def test_a_closed_loop_is_no_trouble(books: Books) -> None:
    """Answers for an event loop that has ended are dropped, and others have theirs."""
    with Counter(make_tips(books)) as counter:
        held = HeldUp(counter)
        loop = asyncio.new_event_loop()
        task = loop.create_task(counter.ask(score("gone")))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        other = counter.ask_from_thread(score("here"))
        held.gate.set()
        assert isinstance(other.result(30), ScoreReply)
    assert decided(make_tips(books), score("gone", "again")).tip_id


def test_who_is_in_no_hurry_does_not_wait_for_a_closed_loop(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended with a batch left to it, and nobody else comes: the thread works on that."""
    monkeypatch.setattr(Counter, "_wait_s", lambda *_: 60.0)  # for company, in the loop

    async def ask_and_leave(counter: Counter) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(counter.ask(score("anna")), 0.01)

    with Counter(make_tips(books)) as counter:
        asyncio.run(ask_and_leave(counter))
        assert counter.waiting() == 1
        assert isinstance(counter.ask_in_passing(score("carl")).result(30), ScoreReply)


async def test_books_are_tidied_when_much_was_written(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few wait for their time, which does not come here; many do not."""
    monkeypatch.setattr("tipbench.bandit.counter._TIDY_S", 60.0)
    tidied: list[int] = []
    monkeypatch.setattr(books, "tidy", lambda: tidied.append(1))
    with Counter(make_tips(books)) as counter:
        await asyncio.gather(*(counter.ask(score(f"u{n}", f"few{n}")) for n in range(20)))
        await asyncio.sleep(0.1)
        assert not tidied
        await asyncio.gather(*(counter.ask(score(f"u{n}", f"many{n}")) for n in range(200)))
        await until(lambda: bool(tidied))


async def test_books_are_tidied_soon_after_one_answer_and_then_left_alone(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tipbench.bandit.counter._TIDY_S", 0.01)
    tidied: list[int] = []
    monkeypatch.setattr(books, "tidy", lambda: tidied.append(1))
    with Counter(make_tips(books)) as counter:
        await counter.ask(score("ann", "q"))
        await until(lambda: bool(tidied))
        await asyncio.sleep(0.1)
        assert len(tidied) == 1
