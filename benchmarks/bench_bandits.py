"""Other libraries for bandits beside ours, on the same decisions: what one decision and one lesson cost.

They are no dependencies. `TIPBENCH_BENCH_PYTHON` names a Python that has them, in an environment of its own:

    python -m venv ../bandits-env && ../bandits-env/bin/pip install vowpalwabbit mabwiser river
    TIPBENCH_BENCH_PYTHON=../bandits-env/bin/python python benchmarks/run.py --only bandits
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: TID253 - a benchmark may start slowly

from measures import Measure
from processes import HERE, run
from tipbench.bandit import draws
from tipbench.bandit.policies import make

if TYPE_CHECKING:
    from pathlib import Path

    from measures import Options

K, D, USERS = 10, 12, 50
OTHERS = {"Vowpal Wabbit": "vowpalwabbit", "MABWiser": "mabwiser", "river": "river"}


def bench_bandits(options: Options) -> list[Measure]:
    count = 300 if options.quick else 2000
    file = options.work / "decisions.json"
    file.write_text(json.dumps(_decisions(count)))
    ours = {
        f"tipbench {name}": _ours(name, json.loads(file.read_text())) for name in ("egreedy-v2", "hybrid")
    }
    others = {name: _theirs(package, file) for name, package in OTHERS.items()}
    return [measure for name, took in (ours | others).items() for measure in _measures(name, took)]


def _decisions(count: int) -> dict[str, Any]:
    """Whose it is, the features of the candidates, and what came of each of them."""
    chance = np.random.default_rng(5)
    x = np.round(chance.uniform(-1, 1, (count, K, D)), 4)
    return {
        "user": chance.integers(USERS, size=count).tolist(),
        "x": x.tolist(),
        "reward": (chance.uniform(size=(count, K)) < 0.5 + 0.3 * x[..., 1]).astype(float).tolist(),
    }


def _ours(name: str, decisions: dict[str, Any]) -> dict[str, Any]:
    policy = make(name)
    own = [policy.fresh() for _ in range(USERS)]
    pooled = own[0].pooled
    score_s = learn_s = 0.0
    xs = np.array(decisions["x"])
    for number, user in enumerate(decisions["user"]):
        begun = time.process_time()
        memory = type(own[user])(own=own[user].own, pooled=pooled)
        weighed = policy.weigh(memory, xs[number])
        chosen = draws.pick_one(weighed.propensities.tolist(), draws.uniform(b"seed", str(number)))
        scored = time.process_time()
        own[user] = policy.learn(memory, xs[number, chosen], np.asarray(decisions["reward"][number][chosen]))
        pooled = own[user].pooled
        learn_s += time.process_time() - scored
        score_s += scored - begun
    many = len(xs)
    return {"score_us": score_s / many * 1e6, "learn_us": learn_s / many * 1e6}


def _theirs(package: str, file: Path) -> dict[str, Any]:
    python = os.environ.get("TIPBENCH_BENCH_PYTHON", sys.executable)
    told = run([python, str(HERE / "other_bandits.py"), package, str(file)], env=dict(os.environ))
    found: dict[str, Any] = json.loads(told.out)
    return found


def _measures(name: str, took: dict[str, Any]) -> list[Measure]:
    if "missing" in took:
        print(f"  {name}: {took['missing']}")
        return []
    version = f" {took['version']}" if "version" in took else ""
    return [
        Measure(what=f"{name}{version}: a decision (K={K}, D={D}), CPU", value=took["score_us"], unit="µs"),
        Measure(what="… a lesson, CPU", value=took["learn_us"], unit="µs"),
    ]
