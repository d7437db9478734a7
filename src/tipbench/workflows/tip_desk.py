"""The serving half as it runs: books, policies, the counter where everybody asks, pool and shadows."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tipbench.bandit import tip_text
from tipbench.bandit.active import failure
from tipbench.bandit.asked import Candidate, RecommendReply, ScoreRequest
from tipbench.bandit.asks import Reward, Score
from tipbench.bandit.counter import Counter
from tipbench.bandit.decisions import decode, reply_to
from tipbench.bandit.draws import decision_id, seed_of
from tipbench.bandit.opening import open_books
from tipbench.bandit.policies import NAMES, make
from tipbench.bandit.serving import Tips
from tipbench.bandit.shadow import ShadowSpec
from tipbench.bandit.shadowing import Shadowing
from tipbench.bandit.suites import owner_of_state, use_suite
from tipbench.errors import BadState, PolicyFailed, TipbenchError
from tipbench.workflows.canary_keeper import CanaryKeeper, now_ms, read_active
from tipbench.workflows.serving_state import location
from tipbench.workflows.tip_pool import TipPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from tipbench.bandit.active import Active
    from tipbench.bandit.asked import RecommendRequest, RewardReply, RewardRequest
    from tipbench.bandit.asks import Signal
    from tipbench.bandit.books import Books, Entry
    from tipbench.bandit.canary import Trial
    from tipbench.bandit.policy import Policy
    from tipbench.settings import Settings, ShadowPolicy

SEED_ENV = "TIPBENCH_SERVE_SEED"
# Where a policy is asked for; the rest of the path is the same for scores, rewards and statistics.
ROUTES = {"egreedy/v2" if name == "egreedy-v2" else name: name for name in NAMES}
RECOMMEND = "recommend"
_LOOK_EVERY_S = 1.0
# Who reads a long log from its beginning does so in little pieces, with a rest after each: they are worked on
# where everybody else is answered. One rests after the other, so that many read no more in a second than one.
_PAGE = 100
_REST_S = 0.01


class TipDesk:
    """Everything that serves tips in one process. Opened on first use, so that a damaged book of tips keeps
    nobody from the rest of the service.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        shadows: Mapping[str, ShadowPolicy],
        folder: Path | None = None,
        audit: Callable[[Active], None] | None = None,
        own: Mapping[str, Policy] | None = None,
    ) -> None:
        self._settings = settings
        self._audit = audit or _nobody
        self._own = dict(own or {})
        self._folder = folder
        self.shadow_policies = dict(shadows)
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self._opening: asyncio.Task[_Open] | None = None

    @property
    def now(self) -> _Open:
        """What is running, started where it was not. BadState or StateUnusable where it cannot be."""
        if self._open is not None:
            return self._open
        with self._lock:
            if self._open is None:
                self._open = _Open(
                    self._settings,
                    folder=self._folder,
                    shadows=self.shadow_policies,
                    audit=self._audit,
                    own=self._own,
                )
            return self._open

    async def opened(self) -> None:
        """Open it, where it is not, beside the event loop: a database that is away may take its time.

        Whoever asks meanwhile waits for the same attempt.
        """
        if self._open is None:
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(asyncio.to_thread(lambda: self.now))
            await asyncio.shield(self._opening)

    @property
    def counter(self) -> Counter:
        return self.now.counter

    def stop(self) -> None:
        """End what runs; what was taken on is answered first. Blocks. Whoever asks then starts it anew."""
        with self._lock:
            running, self._open = self._open, None
        if running is not None:
            running.stop()

    def look(self) -> Active:
        """See at once what is chosen in the books; it is looked at every second anyway."""
        return self.now.look()

    def trial(self, active: Active) -> Trial | None:
        """How a canary stood when this process last looked at it; None where it has not yet."""
        return self.now.trial(active)

    async def recommend(self, asked: RecommendRequest) -> RecommendReply:
        """A tip by the active policy: of the candidates that are given, else of what was shipped."""
        running = self.now
        candidates, source = asked.candidates, "given"
        if candidates is None:
            try:
                candidates, source = running.pooled(asked)
            except TipbenchError:
                # Nothing may be left of what it was picked from.
                given = await asyncio.to_thread(running.given_before, asked)
                if given is None:
                    raise
                return given
        request = ScoreRequest(
            user_id=asked.user_id,
            request_id=asked.request_id,
            context=asked.context,
            candidates=candidates,
            profile_features=asked.profile_features,
        )
        policy = running.policy_for(asked.user_id)
        ask = Score(policy=policy, request=request, scope=RECOMMEND, source=source)
        try:
            return cast("RecommendReply", await running.counter.ask(ask))
        except (PolicyFailed, BadState) as error:
            instead = running.failed(policy, asked.user_id, error)
            if instead is None:
                raise
            return cast("RecommendReply", await running.counter.ask(ask._replace(policy=instead)))

    async def reward(self, policy: str | None, told: RewardRequest) -> RewardReply:
        """Count what came of a decision; apprentices among the shadows hear of it too."""
        running = self.now
        reply = cast("RewardReply", await running.counter.ask(Reward(policy=policy, request=told)))
        running.shadowing.rewarded(told, reply)
        return reply

    def end_streams(self) -> None:
        """End what follows the log, now and later."""
        running = self._open
        if running is not None:
            running.end_streams()

    async def signals(self, *, after: int, quiet_s: float) -> AsyncIterator[list[Entry]]:
        """What follows an entry of the log, as it comes; nothing whenever nothing came for so long.

        After an entry that the log has not come to it is told from the beginning: that number is of a log
        that is gone, and whoever has it would hear nothing until this one is as long. Where the log cannot be
        read that is raised at once, before anything is said.
        """
        running = self.now
        last = await asyncio.to_thread(running.last_seq)
        return running.signals(after=after if after <= last else 0, quiet_s=quiet_s)


class _Waker(NamedTuple):
    """Somebody in an event loop who waits for something new."""

    loop: asyncio.AbstractEventLoop
    event: asyncio.Event

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and who waited with it
            self.loop.call_soon_threadsafe(self.event.set)


class _Open:
    def __init__(
        self,
        settings: Settings,
        *,
        folder: Path | None,
        shadows: Mapping[str, ShadowPolicy],
        audit: Callable[[Active], None],
        own: Mapping[str, Policy],
    ) -> None:
        self.books: Books = open_books(location(folder))
        with self.books.transaction():  # the first one reads what is not in its place yet: nobody waits now
            pass
        given = os.environ.get(SEED_ENV, "")
        self.seed = seed_of(given) if given else self.books.seed()
        self.tips = Tips(
            self.books,
            {**{route: make(name) for route, name in ROUTES.items()}, **own},
            seed=self.seed,
            clock_ms=now_ms,
        )
        self._sides = self.books.seed()
        self.counter = Counter(self.tips)
        self._keeper = CanaryKeeper(self.books, self.counter, audit)
        self._one_looks = threading.Lock()
        self.active: Active = read_active(self.books)[1]
        self.pool = TipPool(settings, kind_of=tip_text.kind_of, folder=folder)
        self._wakers: tuple[_Waker, ...] = ()
        self._ended = threading.Event()
        self._resting = asyncio.Lock()
        specs = [
            ShadowSpec(name=name, policy=one.policy, apprentice=one.apprentice)
            for name, one in shadows.items()
            if one.enabled
        ]
        self.shadowing = Shadowing(self.counter, specs)
        self._looking = threading.Thread(target=self._look, name="tips-choices", daemon=True)
        self.counter.subscribe(self._heard)
        self.counter.start()
        self.pool.start()
        self._suite: str | None = None
        self._owner = self._use_shipped_suite()
        self._looking.start()

    def end_streams(self) -> None:
        self._ended.set()
        for waker in self._wakers:
            waker.wake()

    def stop(self) -> None:
        self.end_streams()
        self.shadowing.stop()
        self._looking.join()
        self.pool.stop()
        self.counter.stop()
        self.books.close()

    def given_before(self, asked: RecommendRequest) -> RecommendReply | None:
        """What was answered to the same request, by what the log says."""
        if asked.request_id is None:
            return None
        found = decision_id(self.seed, policy=RECOMMEND, user_id=asked.user_id, request_id=asked.request_id)
        with self.books.reading() as reading:
            past = reading.decisions([found]).get(found)
        return None if past is None else cast("RecommendReply", reply_to(past.entry, decode(past.entry)))

    def pooled(self, asked: RecommendRequest) -> tuple[list[Candidate], str]:
        context = asked.situation
        said: dict[str, Any] = {
            name: getattr(context, name) for name in ("hour", "weekday", "persona", "scenario")
        }
        pool = self.pool.tips({name: value for name, value in said.items() if value is not None})
        return [Candidate(id=tip.id, kind=tip.kind, text=tip.text) for tip in pool.tips], pool.source

    # -- what is new

    async def signals(self, *, after: int, quiet_s: float) -> AsyncIterator[list[Entry]]:
        waker = _Waker(asyncio.get_running_loop(), asyncio.Event())
        self._wakers = (*self._wakers, waker)
        try:
            waited = 0.0
            while not self._ended.is_set():
                waker.event.clear()
                entries = await asyncio.to_thread(self._entries, after)
                waited = 0.0 if entries else waited + await _wait(waker.event, _LOOK_EVERY_S)
                if entries or waited >= quiet_s:
                    yield entries
                    after, waited = entries[-1].seq if entries else after, 0.0
                if len(entries) == _PAGE:
                    async with self._resting:
                        await asyncio.sleep(0.0 if self._ended.is_set() else _REST_S)
        finally:
            self._wakers = tuple(one for one in self._wakers if one is not waker)

    def last_seq(self) -> int:
        with self.books.reading() as reading:
            return reading.last_seq()

    def _entries(self, after: int) -> list[Entry]:
        with self.books.reading() as reading:
            return reading.entries(after=after, limit=_PAGE)

    def _heard(self, _signals: Sequence[Signal]) -> None:
        """Called by the thread that everybody waits for, so it only passes on."""
        for waker in self._wakers:
            waker.wake()

    # -- which policy it is

    def policy_for(self, user_id: str) -> str:
        active = self.active
        # The seed of the books: all processes put a user on the same side, whatever they explore by.
        return active.policy_for(self._sides, user_id) if active.on_trial else active.policy

    def failed(self, policy: str, user_id: str, error: TipbenchError) -> str | None:
        """Note that a policy failed while it is watched; which one answers instead of a canary."""
        active = self.active
        if not active.on_trial or policy not in {active.policy, active.replaced}:
            return None
        with suppress(TipbenchError):  # too busy to note it: others will be noted
            self.counter.ask_from_thread(failure(policy, user_id, error))
        return active.replaced if policy == active.policy else None

    def look(self) -> Active:
        """See what was chosen, by whomever; a canary is ended where its rule says so."""
        with self._one_looks:
            was, now = read_active(self.books)
            self.active = now
            self.active = self._keeper.look(was, now)
            return self.active

    def trial(self, active: Active) -> Trial | None:
        return self._keeper.trial(active)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            with suppress(TipbenchError):  # asked again in a moment; what was active stays so
                self.look()
                owner = self._use_shipped_suite()
                if owner != self._owner:  # shadows still decide with the state of the other suite
                    self._owner = owner
                    self.shadowing.shadows.forget(None)

    def _use_shipped_suite(self) -> str:
        """Switch to the state of the shipped suite when that has changed. Return the owner of the state.

        `ship` does the same. This is for a suite that was shipped while the state could not be reached, or
        from another machine.
        """
        suite = self.pool.suite_id
        if suite is not None and suite != self._suite:
            use_suite(self.books, suite)
            self._suite = suite
        with self.books.reading() as reading:
            return owner_of_state(reading.choices())


async def _wait(event: asyncio.Event, timeout_s: float) -> float:
    """Until it is set, at most so long; how long it was, where nothing came."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except asyncio.TimeoutError:
        return timeout_s
    return 0.0


def _nobody(_now: Active) -> None:
    """Where there is no service there is no audit log; the log of the books has every step."""
