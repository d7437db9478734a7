"""The simulation: CPU seconds for six policies, and regret beside Vowpal Wabbit's on the same draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import vowpal
from measures import Measure
from processes import TIPBENCH, clean_env, run
from tipbench.bandit import policies
from tipbench.sim.draws import draw
from tipbench.sim.runner import simulate
from tipbench.sim.scenery import scenery
from tipbench.sim.world_file import load_world

if TYPE_CHECKING:
    from measures import Options
    from tipbench.sim.draws import Draws

CPU_BAR_S = 20.0
RATIO_BAR = 1.0
# The defaults of `hybrid` were chosen on the first five, with other seeds, and how fast it forgets on the
# first seven; on the last nothing was.
WORLDS = ("tip", "drift", "loners", "crowd", "busy", "office", "unsettled", "seasons")
_FOLDER = Path(__file__).parent / "worlds"
_FIRST_SEED = 30_000


def bench_sim(options: Options) -> list[Measure]:
    """Speed, then regret. Without the package `vowpalwabbit` the second is left out, and that is said."""
    measures = [_speed(options)]
    if not vowpal.is_there():
        print("  regret beside Vowpal Wabbit is left out: pip install vowpalwabbit to have it measured")
        return measures
    for name in WORLDS:
        measures += _beside(name, seeds=2 if options.quick else 5, quick=options.quick)
    return measures


def _speed(options: Options) -> Measure:
    size = ["--seeds", "20", "--users", "40", "--rounds", "300"]
    names = ["--policies", ",".join(policies.NAMES)]
    done = run([*TIPBENCH, "sim", "run", "--no-record", *size, *names], env=clean_env(options.work / "sim"))
    return Measure(
        what="6 policies × 20 seeds × 40 users × 300 rounds, CPU", value=done.cpu_s, unit="s", bar=CPU_BAR_S
    )


def _beside(name: str, *, seeds: int, quick: bool) -> list[Measure]:
    draws = _drawn(name, seeds)
    ours = {each: _regret(each, draws) for each in policies.NAMES if each != "random"}
    best = min(ours, key=lambda each: ours[each])
    flags, theirs = vowpal.best(draws, vowpal.CONFIGURATIONS[:2] if quick else vowpal.CONFIGURATIONS)
    print(f"  {name}: {json.dumps({each: round(value, 4) for each, value in ours.items()})}")
    print(f"  {name}: Vowpal Wabbit's best is {theirs.mean():.4f} with {flags}", flush=True)
    return [
        Measure(
            what=f"{name}: regret of {best} / Vowpal Wabbit's best",
            value=ours[best] / float(theirs.mean()),
            unit="×",
            bar=RATIO_BAR,
        ),
        Measure(what=f"{name}: regret of {best}", value=ours[best], unit="per round"),
    ]


def _drawn(name: str, seeds: int) -> Draws:
    own = _FOLDER / f"{name}.yaml"
    world = load_world(str(own) if own.exists() else name)
    return draw(scenery(world), seeds=range(_FIRST_SEED, _FIRST_SEED + seeds), users=40, rounds=300)


def _regret(name: str, draws: Draws) -> float:
    return float(simulate(policies.make(name), draws, serve_seed=b"benchmark").by_seed().mean())
