"""A process that serves rewards until it is killed, and says which ones it has acknowledged.

`python tips_process.py LOCATION NAME SEED ROUNDS`: serves decisions for a few users, whom others serve
too, tells their rewards through the counter, and prints a line for each reward once it is acknowledged.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING

from tipbench.bandit.asked import RewardReply, ScoreReply
from tipbench.bandit.counter import Counter
from tipbench.bandit.opening import open_books
from tips_world import make_tips, reward, score

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tipbench.bandit.asks import Answer

USERS = 5


def main(location: str, name: str, seed: str, rounds: str) -> None:
    chance = random.Random(seed)  # noqa: S311 - which of the tests' users
    tips = make_tips(open_books(location), expire_ms=10**15)
    tips._clock_ms = lambda: time.time_ns() // 1_000_000
    with Counter(tips) as counter:
        say("ready")
        for number in range(int(rounds)):
            asked = [
                counter.ask_from_thread(score(f"u{chance.randrange(USERS)}", f"{name}-{number}-{n}"))
                for n in range(8)
            ]
            ids = [one.decision_id for one in map(answer, asked) if isinstance(one, ScoreReply)]
            # Each twice, as a client does that has not heard in time.
            waiting = [(one, counter.ask_from_thread(reward(one, f"r-{one}"))) for one in ids * 2]
            for one, future in waiting:
                if isinstance(answer(future), RewardReply):
                    say(one)


def answer(future: Future[Answer]) -> Answer:
    return future.result(60)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
