"""What the serving half makes of a world's tips and tasks, worked out once: the same numbers as over HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit.asked import Candidate, Context, ScoreRequest
from tipbench.bandit.features import FEATURES, suits_of, vectors
from tipbench.bandit.profiles import Profile

if TYPE_CHECKING:
    from tipbench.bandit.formulae import Dial
    from tipbench.bandit.ridge import Array
    from tipbench.sim.world import Persona, Slot, World

_AT_ONCE = 100
_TURN = 2.0 * math.pi / 24.0
_NAMES = FEATURES["v1"].names
_EFFORT, _OVERLAP = _NAMES.index("effort"), _NAMES.index("task_overlap")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenery:
    """A world in arrays. A context is a persona at a slot with the first so many of its tasks open.

    T tips, N kinds, C contexts, P personas.
    """

    world: World
    contexts: tuple[Context, ...]
    first: tuple[tuple[int, ...], ...]  # of each persona and slot, the context without open tasks
    kind: Array  # (T) which kind a tip is of
    effort: Array  # (T)
    overlap: Array  # (C, T)
    hour: Array  # (C)
    cos: Array  # (C) of the hour, as the profile counts it
    sin: Array  # (C)
    open_tasks: Array  # (C)
    likes: Array  # (C, N) logits of persona and slot together
    laziness: Array  # (C) logits for an effort of 1
    suits: Dial  # (N)
    dwell: Array  # (N, 2) median seconds on a tip that is not completed, and on one that is

    def logits(self, context: Array, tips: Array, liking: Array) -> Array:
        """Of the reward of tips (…, K) in contexts (…), `liking` being logits of the kind (…, K)."""
        at = context[..., None]
        effort = self.laziness[at] * self.effort[tips]
        overlap = self.world.overlap * self.overlap[at, tips]
        total: Array = self.world.intercept + liking + effort + overlap
        return total


def scenery(world: World) -> Scenery:
    """The arrays of a world."""
    contexts, first, likes, laziness = _contexts(world)
    seen = np.stack([_seen(world, context) for context in contexts])
    hours = [context.hour or 0.0 for context in contexts]
    names = [kind.id for kind in world.kinds]
    return Scenery(
        world=world,
        contexts=tuple(contexts),
        first=first,
        kind=np.array([names.index(kind) for kind, _ in world.tips]),
        effort=seen[0, :, _EFFORT],
        overlap=seen[:, :, _OVERLAP],
        hour=np.array(hours),
        cos=np.array([math.cos(_TURN * hour) for hour in hours]),
        sin=np.array([math.sin(_TURN * hour) for hour in hours]),
        open_tasks=np.array([_count(context) for context in contexts]),
        likes=likes,
        laziness=laziness,
        suits=suits_of(names),
        dwell=np.array([[kind.dwell_otherwise_s, kind.dwell_completed_s] for kind in world.kinds]),
    )


def _contexts(world: World) -> tuple[list[Context], tuple[tuple[int, ...], ...], Array, Array]:
    contexts: list[Context] = []
    likes: list[Array] = []
    laziness: list[float] = []
    first = []
    for persona in world.personas:
        starts = []
        for slot in persona.slots:
            starts.append(len(contexts))
            for count in range(len(slot.tasks) + 1):
                contexts.append(_context(persona, slot, count))
                likes.append(_liking(world, persona, slot))
                laziness.append(world.effort + persona.effort + slot.effort)
        first.append(tuple(starts))
    return contexts, tuple(first), np.array(likes), np.array(laziness)


def _context(persona: Persona, slot: Slot, count: int) -> Context:
    return Context(
        hour=slot.hour,
        weekday=slot.weekday,
        open_tasks=list(slot.tasks[:count]),
        persona=persona.id,
        scenario=slot.scenario or None,
    )


def _count(context: Context) -> int:
    return len(context.open_tasks) if isinstance(context.open_tasks, list) else 0


def _liking(world: World, persona: Persona, slot: Slot) -> Array:
    return np.array([persona.likes.get(kind.id, 0.0) + slot.likes.get(kind.id, 0.0) for kind in world.kinds])


def _seen(world: World, context: Context) -> Array:
    """(T, 7): what the features of the first version say of every tip in a context."""
    tips = [candidate(world, place) for place in range(len(world.tips))]
    parts = [tips[start : start + _AT_ONCE] for start in range(0, len(tips), _AT_ONCE)]
    rows = [
        vectors("v1", ScoreRequest(user_id="nobody", context=context, candidates=part), Profile()).x
        for part in parts
    ]
    return np.concatenate(rows)


def candidate(world: World, tip: int) -> Candidate:
    """A tip as a request sends it."""
    kind, text = world.tips[tip]
    return Candidate(id=f"tip-{tip}", kind=kind, text=text)
