"""Everything that chance decides, drawn before a policy is asked: all policies meet the same world.

A reward is a coin that lies ready for every candidate of every decision; whoever shows that candidate gets
that coin. So two policies that choose alike earn alike, and the difference between two is theirs alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit import draws as chance
from tipbench.errors import BadInput
from tipbench.sim.schedule import waves
from tipbench.sim.world import CONTRACT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.bandit.ridge import Array
    from tipbench.sim.scenery import Scenery
    from tipbench.sim.schedule import Wave
    from tipbench.sim.world import World

_MOST_AT_ONCE = 2_000_000
_MOST_CANDIDATES = 40_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownBefore:
    """What an app knows of its users beforehand: (S, U, N) each, in the units that a request sends."""

    known: Array  # (S, U) whether it knows anything
    completion_rate: Array
    dismiss_rate: Array
    mean_dwell_s: Array
    preferred_hour: Array
    tip_volume: Array

    NAMES = ("completion_rate", "dismiss_rate", "mean_dwell_s", "preferred_hour", "tip_volume")


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """R rounds, S seeds, U users, K candidates."""

    scenery: Scenery
    seeds: tuple[int, ...]
    persona: Array  # (U) the same for every seed
    context: Array  # (R, S, U)
    tips: Array  # (R, S, U, K)
    expected: Array  # (R, S, U, K) the probability of a reward
    rewarded: Array  # (R, S, U, K) whether the coin fell below it
    dismissed: Array  # (R, S, U) whether it is waved away, if it is not completed
    dwell: Array  # (R, S, U) what the median time is multiplied with
    due: Array  # (R, S, U) the round at whose end the outcome is known; -1 where it never is
    before: KnownBefore
    _streams: dict[bytes, Array] = field(default_factory=dict, repr=False)
    _waves: dict[bool, list[list[Wave]]] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Rounds, seeds, users, candidates."""
        rounds, seeds, users, places = self.tips.shape
        return rounds, seeds, users, places

    @property
    def is_null(self) -> bool:
        """Whether no candidate is ever better than another, so that no policy can be."""
        return bool((self.expected.max(axis=-1) - self.expected.min(axis=-1)).max() <= 0.0)

    def waves(self, *, apart: bool) -> list[list[Wave]]:
        """For each round, the outcomes that are learned at its end: the same for every policy."""
        if apart not in self._waves:
            self._waves[apart] = waves(self.due, apart=apart)
        return self._waves[apart]

    def dwell_s(self, kind: Array, reward: Array, place: tuple[Array, ...]) -> Array:
        """Seconds spent on tips of these kinds, completed or not, at these places in (R, S, U)."""
        seconds: Array = self.scenery.dwell[kind, reward.astype(int)] * self.dwell[place]
        return seconds

    def exploration(self, serve_seed: bytes) -> Array:
        """(R, S, U): the number in [0, 1) that a service with this seed draws for each request."""
        if serve_seed not in self._streams:
            rounds, _, users, _ = self.shape
            flat = [
                chance.uniform(serve_seed, request_id(seed, user, round_))
                for round_ in range(rounds)
                for seed in self.seeds
                for user in range(users)
            ]
            self._streams[serve_seed] = np.array(flat).reshape(self.context.shape)
        return self._streams[serve_seed]


def request_id(seed: int, user: int, round_: int) -> str:
    """The same in process and over HTTP, and so is what a service draws for it."""
    return f"sim-{seed}-{user}-{round_}"


def draw(scenery: Scenery, *, seeds: Sequence[int], users: int, rounds: int) -> Draws:
    """The world's chances for these seeds; each seed's do not depend on which others are asked for."""
    check_size(scenery.world, seeds=len(seeds), users=users, rounds=rounds)
    persona = _personas(scenery, users)
    drawn = [_Seed(scenery, seed, persona, rounds) for seed in seeds]

    def stacked(name: str, axis: int = 1) -> Array:
        return np.stack([getattr(each, name) for each in drawn], axis=axis)

    return Draws(
        scenery=scenery,
        seeds=tuple(seeds),
        persona=persona,
        context=stacked("context"),
        tips=stacked("tips"),
        expected=stacked("expected"),
        rewarded=stacked("rewarded"),
        dismissed=stacked("dismissed"),
        dwell=stacked("dwell"),
        due=stacked("due"),
        before=KnownBefore(**{name: stacked(name, 0) for name in ("known", *KnownBefore.NAMES)}),
    )


def check_size(world: World, *, seeds: int, users: int, rounds: int) -> None:
    """A BadInput where a simulation would be of nothing, or of more than a machine can hold."""
    for name, value in (("seeds", seeds), ("users", users), ("rounds", rounds)):
        if value < 1:
            raise BadInput(f"--{name} must be 1 or more, not {value}")
    least = len(world.personas)
    if users < least:
        raise BadInput(f"--users: the world {world.id!r} has {least} personas; give {least} or more")
    most = _MOST_CANDIDATES // world.candidates
    if seeds * users * rounds > most:
        raise BadInput(
            f"{seeds} seeds × {users} users × {rounds} rounds are more than the {most:,} decisions "
            "that can be held in memory; give fewer of one of them"
        )


def _personas(scenery: Scenery, users: int) -> Array:
    """Users by persona: as near to the shares as whole people allow, and at least one of each."""
    shares = np.array([persona.share for persona in scenery.world.personas])
    counts = np.ones(len(shares), dtype=int)
    for _ in range(users - len(shares)):
        counts[np.argmax(shares / shares.sum() * users - counts)] += 1
    return np.repeat(np.arange(len(shares)), counts)


class _Seed:
    """What one seed decides: (R, U, …) each, and (U, N) for what is known of users beforehand."""

    def __init__(self, scenery: Scenery, seed: int, persona: Array, rounds: int) -> None:
        self.scenery, self.world, self.persona = scenery, scenery.world, persona
        self.rng = np.random.default_rng([CONTRACT, seed])
        self.users, self.shape = len(persona), (rounds, len(persona))
        self.taste = self.world.taste * self.rng.standard_normal((self.users, len(self.world.kinds)))
        self.context = self._context()
        self.tips = self._tips()
        self.expected = self._expected()
        self.rewarded = self.rng.random(self.expected.shape) < self.expected
        self.dismissed = self.rng.random(self.shape) < self.world.dismissed
        self.dwell = np.exp(self.world.dwell_spread * self.rng.standard_normal(self.shape))
        self.due = self._due()
        self._know()

    def _context(self) -> Array:
        slot, tasks = self.rng.random(self.shape), self.rng.random(self.shape)
        context = np.zeros(self.shape, dtype=int)
        for number, persona in enumerate(self.world.personas):
            mine = self.persona == number
            weights = np.cumsum([each.weight for each in persona.slots])
            place = np.minimum(
                np.searchsorted(weights / weights[-1], slot[:, mine], side="right"), len(weights) - 1
            )
            counts = np.array([len(each.tasks) for each in persona.slots])[place]
            # one task or more is open, where the slot has any
            some = np.where(counts > 0, 1 + np.floor(tasks[:, mine] * counts), 0).astype(int)
            context[:, mine] = np.array(self.scenery.first[number])[place] + some
        return context

    def _tips(self) -> Array:
        """K different tips for each decision, every set as likely as every other."""
        rounds, users = self.shape
        every, places = len(self.world.tips), self.world.candidates
        tips = np.empty((rounds, users, places), dtype=int)
        step = max(1, _MOST_AT_ONCE // (users * every))
        for start in range(0, rounds, step):
            some = tips[start : start + step]
            keys = self.rng.random((*some.shape[:2], every))
            some[...] = np.argpartition(keys, places - 1, axis=-1)[..., :places]
        return np.sort(tips, axis=-1)

    def _expected(self) -> Array:
        if self.world.same_for_all is not None:
            return np.full((*self.shape, self.world.candidates), self.world.same_for_all)
        liked_as = self._places()[:, None, None]
        kinds = np.take_along_axis(
            np.broadcast_to(liked_as, (*self.tips.shape[:2], 1, liked_as.shape[-1])),
            self.scenery.kind[self.tips][:, :, None, :],
            axis=-1,
        )[:, :, 0]
        liking = self.scenery.likes[self.context[..., None], kinds]
        taste = self.taste[np.arange(self.users)[:, None], kinds]
        return _logistic(self.scenery.logits(self.context, self.tips, liking + taste))

    def _places(self) -> Array:
        """(R, N): as which kind a kind is liked in each round."""
        rounds, names = self.shape[0], [kind.id for kind in self.world.kinds]
        swapped = np.arange(len(names))
        for one, other in self.world.drift.swap:
            swapped[[names.index(one), names.index(other)]] = names.index(other), names.index(one)
        times = np.zeros(rounds, dtype=int)
        for share in self.world.drift.after:
            times[round(share * rounds) :] += 1
        return np.where(times[:, None] % 2 == 1, swapped, np.arange(len(names)))

    def _due(self) -> Array:
        rounds = np.arange(self.shape[0])[:, None]
        ends = np.cumsum(self.world.delay)
        delay = np.searchsorted(ends / ends[-1], self.rng.random(self.shape), side="right")
        late = rounds + np.minimum(delay, len(ends) - 1)
        return np.where(self.rng.random(self.shape) < self.world.missing, -1, late)

    def _know(self) -> None:
        """The rates that so many earlier tips of each kind had, shown to people of slightly other tastes."""
        said, kinds = self.world.profile, self.world.kinds
        shape = (self.users, len(kinds))
        self.known = self.rng.random(self.users) < said.share
        at_slots = self._earlier(said.noise * self.rng.standard_normal(shape))
        completed = self.rng.binomial(said.events, at_slots.mean(axis=0))
        dismissed = self.rng.binomial(said.events - completed, self.world.dismissed)
        spread = np.exp(self.world.dwell_spread * self.rng.standard_normal(shape) / np.sqrt(said.events))
        times = np.array([[kind.dwell_completed_s, kind.dwell_otherwise_s] for kind in kinds]).T
        share = completed / said.events
        self.completion_rate = share
        self.dismiss_rate = dismissed / said.events
        self.mean_dwell_s = (share * times[0] + (1.0 - share) * times[1]) * spread
        self.preferred_hour = self._best_hour(at_slots)
        self.tip_volume = np.full(shape, float(said.events))

    def _earlier(self, changed: Array) -> Array:
        """(…, U, N): how likely a middling tip of each kind was followed, at slots taken by their weight."""
        if self.world.same_for_all is not None:
            return np.full((1, *changed.shape), self.world.same_for_all)
        kinds = np.arange(len(self.world.kinds))
        effort = np.array([self.scenery.effort[self.scenery.kind == kind].mean() for kind in kinds])
        rows = []
        for quantile in (np.arange(_SLOTS) + 0.5) / _SLOTS:
            context = self._at(quantile)
            likes = self.scenery.likes[context] + self.scenery.laziness[context][:, None] * effort
            rows.append(_logistic(self.world.intercept + likes + self.taste + changed))
        return np.array(rows)

    def _at(self, quantile: float) -> Array:
        """(U): the context of every user at this quantile of their persona's slots."""
        return np.array([self.scenery.first[number][self._slot(number, quantile)] for number in self.persona])

    def _slot(self, number: int, quantile: float) -> int:
        ends = np.cumsum([slot.weight for slot in self.world.personas[number].slots])
        place = int(np.searchsorted(ends / ends[-1], quantile, side="right"))
        return min(place, len(ends) - 1)

    def _best_hour(self, at_slots: Array) -> Array:
        """(U, N): the hour of the slot at which tips of the kind were followed most."""
        quantiles = (np.arange(len(at_slots)) + 0.5) / len(at_slots)
        hours = np.array([self.scenery.hour[self._at(quantile)] for quantile in quantiles])
        best = at_slots.argmax(axis=0)
        found: Array = np.take_along_axis(hours.T, best, axis=-1) % 24.0
        return found


_SLOTS = 8


def _logistic(logits: Array) -> Array:
    probability: Array = 1.0 / (1.0 + np.exp(-logits))
    return probability
