"""Serving tips: what a decision and a reward cost until they are on disk, and what many users take."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from measures import Measure
from processes import HERE, run

if TYPE_CHECKING:
    from pathlib import Path

    from measures import Options

SCORE_BAR_US, REWARD_BAR_US, REWARDS_BAR = 60, 40, 3_000
MEMORY_BAR_MB, START_BAR_S, STALL_BAR_MS = 300, 2, 100


def bench_serving(options: Options) -> list[Measure]:
    short = options.quick
    groups = _load("groups", options.work / "groups", 3 if short else 15)
    rewards = _load("rewards", options.work / "rewards", 3 if short else 15)
    stalls = _load("stalls", options.work / "stalls", 10 if short else 120)
    _load("users", options.work / "users", 0)
    users = _load("users", options.work / "users", 0)
    return [
        Measure(what="decision of 10 texts in a group of 32, logged, CPU", value=groups["text"], unit="µs"),
        Measure(what="… of 10 vectors", value=groups["verbatim"], unit="µs", bar=SCORE_BAR_US),
        Measure(
            what="reward in a group of 64, learned, CPU", value=groups["reward"], unit="µs", bar=REWARD_BAR_US
        ),
        Measure(
            what="a thousand rewards acknowledged, 64 in flight",
            value=1000 / rewards["in_a_second"],
            unit="s",
            bar=1000 / REWARDS_BAR,
        ),
        Measure(what="… in a second", value=rewards["in_a_second"], unit=""),
        Measure(what="… CPU of each", value=rewards["cpu_us"], unit="µs"),
        Measure(
            what="longest wait, 500 decisions and rewards a second",
            value=stalls["longest_ms"],
            unit="ms",
            bar=STALL_BAR_MS,
        ),
        Measure(what="… 99 in 100 are below", value=stalls["p99_ms"], unit="ms"),
        Measure(what="… write-ahead log at the end", value=stalls["wal_mb"], unit="MB"),
        Measure(
            what="start with the state of 100,000 users", value=users["start_s"], unit="s", bar=START_BAR_S
        ),
        Measure(
            what="… memory after a decision for each", value=users["rss_mb"], unit="MB", bar=MEMORY_BAR_MB
        ),
    ]


def _load(mode: str, folder: Path, seconds: float) -> dict[str, float]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(HERE / "serving_load.py"), mode, str(folder), str(seconds)]
    answer: dict[str, float] = json.loads(run(command, env=dict(os.environ)).out)
    return answer
