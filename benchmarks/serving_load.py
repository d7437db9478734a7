"""Load on the serving half in a process of its own: `serving_load.py MODE FOLDER SECONDS` answers JSON.

Modes: `groups` (CPU of a group of asks), `rewards` (acknowledged in a second), `stalls` (the longest anybody
waited at a steady rate), `users` (start and memory with the state of many).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tipbench.bandit import policies
from tipbench.bandit.asked import Candidate, Context, RewardRequest, ScoreReply, ScoreRequest
from tipbench.bandit.asks import Reward, Score
from tipbench.bandit.books import Changes
from tipbench.bandit.counter import Counter
from tipbench.bandit.profiles import Profile
from tipbench.bandit.ridge_codec import encode_ridge
from tipbench.bandit.serving import Tips
from tipbench.bandit.sqlite_books import SqliteBooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.asks import Ask

USERS, MANY_USERS, CANDIDATES, DIMS = 5_000, 100_000, 10, 12
IN_FLIGHT = 64
POLICY = "egreedy-v2"
KINDS = ("focus", "break", "movement", "admin", "planning")
TEXTS = (
    "Close every tab and write the report for 25 minutes",
    "Make tea and look out of the window",
    "Walk around the block before lunch",
    "Answer the oldest email first",
    "Write down the three tasks of tomorrow",
)
_CHANCE = random.Random(7)  # noqa: S311 - which user comes next


def tips_in(folder: Path) -> Tips:
    books = SqliteBooks(folder / "tips.db")
    made = {POLICY: policies.make(POLICY)}
    return Tips(books, made, seed=books.seed(), clock_ms=lambda: time.time_ns() // 1_000_000)


def score(*, verbatim: bool = False, users: int = USERS) -> Score:
    numbers = [_CHANCE.random() for _ in range(DIMS)]
    candidates = [
        Candidate(
            id=f"tip-{n}",
            kind=KINDS[n % len(KINDS)],
            text=None if verbatim else TEXTS[n % len(TEXTS)],
            features=numbers if verbatim else None,
        )
        for n in range(CANDIDATES)
    ]
    context = Context(hour=9.5, weekday=2, open_tasks=["write the report", "call Bo"])
    user, ask = f"user-{_CHANCE.randrange(users)}", f"{_CHANCE.random()}"
    return Score(POLICY, ScoreRequest(user_id=user, request_id=ask, context=context, candidates=candidates))


def reward(reply: object) -> Reward:
    assert isinstance(reply, ScoreReply), reply  # noqa: S101 - it was asked for
    return Reward(None, RewardRequest(decision_id=reply.decision_id, reward_id="r", event="completed"))


def groups(folder: Path, seconds: float) -> dict[str, float]:
    """CPU microseconds of one ask, in groups: learned and logged, with what the commit takes."""
    tips = tips_in(folder)
    spent: dict[str, list[float]] = {"text": [], "verbatim": [], "reward": []}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        replies: list[object] = []
        for form in ("text", "verbatim"):
            asks = [score(verbatim=form == "verbatim") for _ in range(32)]
            spent[form].append(_cpu_us(tips, asks, replies))
        spent["reward"].append(_cpu_us(tips, [reward(reply) for reply in replies], []))
    return {name: sum(took) / len(took) for name, took in spent.items()}


def _cpu_us(tips: Tips, asks: Sequence[Any], answers: list[object]) -> float:
    before = time.process_time()
    answers += tips.run(asks)
    return 1e6 * (time.process_time() - before) / len(asks)


def rewards(folder: Path, seconds: float) -> dict[str, float]:
    """How many are acknowledged in a second, and the CPU of each, with many in flight."""
    tips = tips_in(folder)
    many = int(seconds * 6_000)
    waiting = [reply for _ in range(many // 64) for reply in tips.run([score() for _ in range(64)])]
    with Counter(tips) as counter:
        return asyncio.run(_rewards(counter, waiting, seconds))


async def _rewards(counter: Counter, waiting: list[Any], seconds: float) -> dict[str, float]:
    done, ends = 0, time.monotonic() + seconds

    async def send() -> None:
        nonlocal done
        while waiting and time.monotonic() < ends:
            await counter.ask(reward(waiting.pop()))
            done += 1

    started, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
    took = time.monotonic() - started
    return {"in_a_second": done / took, "cpu_us": 1e6 * (time.process_time() - cpu) / done}


def stalls(folder: Path, seconds: float, rate: float = 500) -> dict[str, float]:
    """The longest and the usual wait, at a steady rate of decisions, each followed by its reward."""
    with Counter(tips_in(folder)) as counter:
        found = asyncio.run(_stalls(counter, seconds, rate))
    wal = folder / "tips.db-wal"
    return {**found, "wal_mb": wal.stat().st_size / 1e6 if wal.exists() else 0.0}


async def _stalls(counter: Counter, seconds: float, rate: float) -> dict[str, float]:
    waits: list[float] = []
    largest = 0

    async def visit() -> None:
        reply = await timed(score())
        await timed(reward(reply))

    async def timed(ask: Ask) -> object:
        begun = time.monotonic()
        reply = await counter.ask(ask)
        waits.append(time.monotonic() - begun)
        return reply

    started, tasks = time.monotonic(), set[asyncio.Task[None]]()
    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        task = asyncio.create_task(visit())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        largest = max(largest, len(tasks))
    await asyncio.gather(*tasks)
    waits.sort()
    p99 = waits[int(0.99 * len(waits))]
    return {"longest_ms": 1e3 * waits[-1], "p99_ms": 1e3 * p99, "most_waiting": float(largest)}


def users(folder: Path, _: float) -> dict[str, float]:
    """Start with many users' state on disk, decide for every one of them, and see what that takes."""
    if not (folder / "tips.db").exists():
        _fill(folder)
        return {}
    process, started = psutil.Process(), time.monotonic()
    before = process.memory_info().rss
    tips = tips_in(folder)
    tips.run([score(users=MANY_USERS)])
    ready = time.monotonic() - started
    for start in range(0, MANY_USERS, 256):
        asks = [score(verbatim=True) for _ in range(256)]
        tips.run([_of_user(ask, start + place) for place, ask in enumerate(asks)])
    return {"start_s": ready, "rss_mb": (process.memory_info().rss - before) / 1e6}


def _of_user(ask: Score, number: int) -> Score:
    request = ask.request
    user = f"user-{number}"
    return Score(
        ask.policy, ScoreRequest(user_id=user, context=request.context, candidates=request.candidates)
    )


def _fill(folder: Path) -> None:
    books = SqliteBooks(folder / "tips.db")
    own = policies.make(POLICY).fresh().own
    assert own is not None  # noqa: S101 - it is a policy with state of users
    memory, profile = encode_ridge(own), Profile().shown("focus", POLICY, False).encode()
    for start in range(0, MANY_USERS, 5_000):
        names = [f"user-{number}" for number in range(start, start + 5_000)]
        with books.transaction() as tx:
            tx.write(
                Changes(
                    profiles=dict.fromkeys(names, profile),
                    memories={(name, POLICY): memory for name in names},
                )
            )
    books.close()


if __name__ == "__main__":
    mode, place, length = sys.argv[1:]
    print(json.dumps(globals()[mode](Path(place), float(length))))
