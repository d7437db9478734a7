"""A policy in a world, in process: the very code that serves, for all seeds and users side by side.

Within a round all users decide from what was known at its start; then the outcomes that are due are learned,
in the order of the users. Over HTTP the same happens one request at a time, and gives the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tipbench.bandit import policies
from tipbench.bandit.draws import pick
from tipbench.bandit.features import FEATURES, Decisions, matrix
from tipbench.bandit.formulae import Dial
from tipbench.bandit.policy import Memory
from tipbench.sim.histories import Ended, Histories
from tipbench.sim.strangers import theirs, weighed
from tipbench.sim.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Array, Ridge
    from tipbench.sim.draws import Draws
    from tipbench.sim.schedule import Wave


def simulate(
    policy: Policy, draws: Draws, *, serve_seed: bytes, tick: Callable[[int], None] | None = None
) -> Trace:
    """What the policy does in this world when it explores by a service's seed. `tick` is told every round.

    PolicyFailed where it raises, or gives what are no probabilities: as a service would refuse it.
    """
    run = Run(policy, draws)
    explore = draws.exploration(serve_seed)
    for round_ in range(len(explore)):
        run.decide(round_, explore[round_])
        run.learn(round_)
        if tick is not None:
            tick(round_ + 1)
    return Trace(
        policy=policy.name,
        version=policies.version(policy),
        draws=draws,
        chosen=run.chosen,
        propensity=run.propensity,
    )


class Run:
    """The state of a simulation between rounds.

    Whoever learns in another way than a policy does overrides `weigh` and `teach`.
    """

    def __init__(self, policy: Policy, draws: Draws) -> None:
        rounds, seeds, users, _ = draws.shape
        self.policy, self.draws, self.scenery = policy, draws, draws.scenery
        with theirs(policy):
            self.memory = policy.fresh(own=(seeds, users), pooled=(seeds, 1))
        self.histories = Histories(seeds, users, len(self.scenery.world.kinds))
        self.chosen = np.zeros((rounds, seeds, users), dtype=int)
        self.propensity = np.zeros((rounds, seeds, users))
        self.latest = len(self.scenery.world.delay)
        self.rows = np.zeros((self.latest, seeds, users, FEATURES[policy.features].dims))
        self.everyone = np.nonzero(np.ones((seeds, users)))
        known = draws.before.known
        self.groups = [np.nonzero(~known), np.nonzero(known)] if policy.features == "v2" else []

    def decide(self, round_: int, u: Array) -> None:
        tips = self.draws.tips[round_]
        x = self._features(round_, self.scenery.kind[tips])
        propensities = self.weigh(round_, x)
        chosen = pick(propensities, u)
        self.chosen[round_] = chosen
        self.propensity[round_] = _along(propensities, chosen)
        self.rows[round_ % self.latest] = np.take_along_axis(x, chosen[..., None, None], axis=-2)[..., 0, :]
        self.histories.shown(self.scenery.kind[_along(tips, chosen)])

    def weigh(self, round_: int, x: Array) -> Array:  # noqa: ARG002 - for those who override it
        """(S, U, K): the propensities of the candidates x (S, U, K, D)."""
        return weighed(self.policy, self.memory, x)

    def _features(self, round_: int, kinds: Array) -> Array:
        """(S, U, K, D). Users of whom something is known beforehand are seen with it, by policies of v2."""
        alike = self.histories.alike(kinds)
        if not self.groups:
            seeds, users, places = kinds.shape
            flat = self._matrix(round_, self.everyone, kinds, alike, before=False)
            return flat.reshape(seeds, users, places, -1)
        parts = [
            self._matrix(round_, group, kinds, alike, before=bool(number))
            for number, group in enumerate(self.groups)
        ]
        x = np.empty((*kinds.shape, parts[0].shape[-1]))
        for group, part in zip(self.groups, parts, strict=True):
            x[group] = part
        return x

    def _matrix(
        self, round_: int, group: tuple[Array, ...], all_kinds: Array, alike: Array, *, before: bool
    ) -> Array:
        """(n, K, D) of a group of users, given as (seed, user)."""
        place = group
        context, tips, kinds = (
            self.draws.context[round_][place],
            self.draws.tips[round_][place],
            all_kinds[place],
        )
        of_kind = (place[0][:, None], place[1][:, None], kinds)
        said = (
            {name: getattr(self.draws.before, name)[of_kind] for name in self.draws.before.NAMES}
            if before
            else {}
        )
        decisions = Decisions(
            effort=self.scenery.effort[tips],
            overlap=self.scenery.overlap[context[:, None], tips],
            hour=self.scenery.hour[context],
            open_tasks=self.scenery.open_tasks[context],
            alike=alike[place],
            recent=np.full(len(context), float(self.histories.recent)),
            suits=Dial(np.asarray(self.scenery.suits.cos)[kinds], np.asarray(self.scenery.suits.sin)[kinds]),
            of_kind=self.histories.by_kind.at(*of_kind) if self.groups else None,
            of_all=self.histories.total.at(*place) if self.groups else None,
            by_kind=said,
        )
        return matrix(self.policy.features, decisions)

    def learn(self, round_: int) -> None:
        """All that is due at the end of a round."""
        if self.policy.features == "v2":
            for wave in self.draws.waves(apart=False)[round_]:
                self.histories.ended(wave.seed, wave.user, self._outcome(wave))
        if self.memory.own is None and self.memory.pooled is None:
            return
        for wave in self.draws.waves(apart=self.memory.pooled is not None)[round_]:
            self.teach(wave)

    def teach(self, wave: Wave) -> None:
        """Let what came of these decisions be learned."""
        own, pooled, seed, user = self.memory.own, self.memory.pooled, wave.seed, wave.user
        part = Memory(
            own=own.at(seed, user) if own is not None else None,
            pooled=pooled.at(seed, 0) if pooled is not None else None,
        )
        x = self.rows[wave.round % self.latest, seed, user]
        with theirs(self.policy):
            taught = self.policy.learn(part, x, self.reward(wave).astype(float))
        if own is not None and taught.own is not None:
            _put(own, (seed, user), taught.own)
        if pooled is not None and taught.pooled is not None:
            _put(pooled, (seed, 0), taught.pooled)

    def _shown(self, wave: Wave) -> tuple[Array, ...]:
        """The index of what was chosen, in arrays (R, S, U, K)."""
        return (*wave.place, self.chosen[wave.place])

    def reward(self, wave: Wave) -> Array:
        rewarded: Array = self.draws.rewarded[self._shown(wave)]
        return rewarded

    def _outcome(self, wave: Wave) -> Ended:
        reward, context = self.reward(wave), self.draws.context[wave.place]
        kind = self.scenery.kind[self.draws.tips[self._shown(wave)]]
        return Ended(
            kind=kind,
            reward=reward.astype(float),
            dismissed=(~reward & self.draws.dismissed[wave.place]).astype(float),
            dwell_s=self.draws.dwell_s(kind, reward, wave.place),
            cos=self.scenery.cos[context],
            sin=self.scenery.sin[context],
        )


def _along(values: Array, chosen: Array) -> Array:
    taken: Array = np.take_along_axis(values, chosen[..., None], axis=-1)[..., 0]
    return taken


def _put(into: Ridge, place: tuple[Array | int, ...], taught: Ridge) -> None:
    """Write models back in place: nobody else reads a memory while it is simulated."""
    for name in ("inverse", "moment", "weights", "seen"):
        getattr(into, name)[place] = getattr(taught, name)
