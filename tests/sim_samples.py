"""Small worlds and what happens in them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tipbench.sim.draws import draw
from tipbench.sim.gate import Compared, GatePlan
from tipbench.sim.scenery import scenery
from tipbench.sim.world_file import load_world

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.bandit.ridge import Array
    from tipbench.sim.draws import Draws

STREAM = b"a stream"

OWN_WORLD = """\
title: Two people
candidates: 2
intercept: -0.5
taste: 0.3
overlap: 1
personas:
  ann:
    likes: {focus: 1}
    slots:
      morning:
        hour: 9
        tasks: [write the report, call the bank]
  ben:
    share: 2
    slots:
      night: {hour: 22, likes: {rest: 1.5}}
kinds:
  focus:
    dwell_s: {completed: 60, otherwise: 5}
    tips: [Write the report for 20 minutes., Close the door.]
  rest:
    tips: [Go to bed., Breathe out slowly.]
"""


@cache
def drawn(world: str = "tip", *, seeds: int = 3, users: int = 8, rounds: int = 30, first: int = 0) -> Draws:
    """A small part of a world that ships; made once, so it must not be changed."""
    return draw(scenery(load_world(world)), seeds=range(first, first + seeds), users=users, rounds=rounds)


def world_file(folder: Path, text: str = OWN_WORLD, *, name: str = "own.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def plan(*, number: int = 0, n: int = 20, margin: float = 0.0, guardrail: float = 0.02) -> GatePlan:
    return GatePlan(
        challenger="new",
        challenger_version="1-new",
        champion="old",
        champion_version="1-old",
        world="tip",
        world_hash="w",
        number=number,
        n=n,
        margin=margin,
        guardrail=guardrail,
    )


def gained(mean: float, *, spread: float = 0.01, n: int = 20, seed: int = 0, **personas: float) -> Compared:
    """Gains over the champion that have exactly this mean and spread; personas by their own mean."""
    return Compared(
        name="new",
        overall=_exactly(mean, spread, n, seed),
        personas={
            name: _exactly(each, spread, n, seed + place)
            for place, (name, each) in enumerate(personas.items(), start=1)
        },
    )


def _exactly(mean: float, spread: float, n: int, seed: int) -> Array:
    values = np.random.default_rng(seed).standard_normal(n)
    scaled: Array = mean + spread * (values - values.mean()) / values.std(ddof=1)
    return scaled
