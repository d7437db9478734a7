"""Vowpal Wabbit's squareCB in the same world: the same users, contexts, candidates, coins and features.

One model for all users of a seed, which is told who the user is; with `-q ua` it also learns how each user
differs. The package `vowpalwabbit` is needed, and is no dependency of tipbench.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: TID253 - a benchmark may start slowly

from tipbench.bandit import policies
from tipbench.sim.runner import Run

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array
    from tipbench.sim.draws import Draws
    from tipbench.sim.schedule import Wave

# What to try: the best of these is what we are compared with.
CONFIGURATIONS = (
    "--squarecb --gamma_scale 1000",
    "--squarecb -q ua --gamma_scale 1000",
    "--squarecb",
    "--squarecb -q ua",
    "--squarecb --gamma_scale 100",
    "--squarecb --gamma_scale 10000",
    "--squarecb -q ua --gamma_scale 10000",
    "--squarecb --gamma_scale 1000 --learning_rate 0.1",
)


def is_there() -> bool:
    return importlib.util.find_spec("vowpalwabbit") is not None


def regret(draws: Draws, flags: str) -> Array:
    """(S): regret per round of each seed."""
    run = _VowpalRun(draws, flags)
    u = draws.exploration(b"vowpal")
    for round_ in range(len(u)):
        run.decide(round_, u[round_])
        run.learn(round_)
    expected = draws.expected
    chosen = np.take_along_axis(expected, run.chosen[..., None], axis=-1)[..., 0]
    means: Array = (expected.max(axis=-1) - chosen).mean(axis=(0, 2))
    return means


class _VowpalRun(Run):
    """The runner with another learner in it. It borrows the features, and so the profile, of `hybrid`."""

    def __init__(self, draws: Draws, flags: str) -> None:
        import vowpalwabbit  # type: ignore[import-not-found]  # noqa: PLC0415 - optional

        super().__init__(policies.make("hybrid"), draws)
        arguments = f"--cb_explore_adf {flags} --quiet --random_seed 1"
        self.models = [vowpalwabbit.Workspace(arguments) for _ in draws.seeds]
        self.sets: dict[tuple[int, int, int], tuple[list[str], Array]] = {}

    def weigh(self, round_: int, x: Array) -> Array:
        shares = np.empty(x.shape[:-1])
        for seed, model in enumerate(self.models):
            for user in range(x.shape[1]):
                lines = _lines(user, x[seed, user])
                shares[seed, user] = model.predict(lines)
                self.sets[round_, seed, user] = (lines, shares[seed, user].copy())
        whole: Array = shares / shares.sum(axis=-1, keepdims=True)
        return whole

    def teach(self, wave: Wave) -> None:
        rewards = self.reward(wave)
        places = zip(wave.round.tolist(), wave.seed.tolist(), wave.user.tolist(), strict=True)
        for place, reward in zip(places, rewards, strict=True):
            lines, shares = self.sets.pop(place)
            chosen = int(self.chosen[place])
            cost = f"0:{-float(reward)}:{shares[chosen]} "
            self.models[place[1]].learn(
                [*lines[: chosen + 1], cost + lines[chosen + 1], *lines[chosen + 2 :]]
            )


def _lines(user: int, x: Array) -> list[str]:
    rows = [" ".join(f"f{place}:{value:.6g}" for place, value in enumerate(row)) for row in x.tolist()]
    return [f"shared |u user{user}", *(f"|a {row}" for row in rows)]


def best(draws: Draws, configurations: tuple[str, ...] = CONFIGURATIONS) -> tuple[str, Array]:
    """The configuration with the least regret in this very world, and its regret."""
    found: list[tuple[str, Any]] = [(flags, regret(draws, flags)) for flags in configurations]
    return min(found, key=lambda each: float(each[1].mean()))
