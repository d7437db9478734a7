"""What a policy is: one contract, kept by every file under `policies/` and checked by one suite of tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tipbench.bandit.features import FEATURES, LARGEST
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    from tipbench.bandit.ridge import Array, Ridge


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What a policy has learned: about one user, and about all of them. A part it does not keep is None.

    Arrays may have leading axes: the simulation runs many users and seeds side by side with the very code
    that serves one. `pooled` may have axes of length 1 where `own` has many: they are shared.
    """

    own: Ridge | None = None
    pooled: Ridge | None = None

    @property
    def mine(self) -> Ridge:
        """The user's own part, for a policy that keeps one."""
        return _kept(self.own, "a user's own")

    @property
    def shared(self) -> Ridge:
        """The part of all users, for a policy that keeps one."""
        return _kept(self.pooled, "the pooled")


def _kept(part: Ridge | None, which: str) -> Ridge:
    if part is None:
        raise ValueError(f"{which} part is missing in a memory handed to a policy that keeps it")
    return part


class Weighed(NamedTuple):
    """What a policy makes of the candidates of a decision, in their order: (…, K) each."""

    scores: Array
    propensities: Array


class Policy(Protocol):
    """A rule that picks a tip, as pure functions of what it remembers.

    Chance enters at one place only, and not here: `draws.pick` turns the propensities and one number into a
    choice. So the propensity that is logged is the one the tip was drawn with, and decisions can be replayed.
    """

    @property
    def name(self) -> str:
        """Under which its state and its decisions are kept."""

    @property
    def features(self) -> str:
        """The version of the feature set it reads: `v1` or `v2`."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The keyword arguments that make an equal policy."""

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:
        """A memory of nothing, with these leading axes."""

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        """Scores and propensities of the candidates, x being (…, K, D)."""

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        """What is remembered after the candidate x (…, D) earned this reward (…).

        Where several share the pooled part, they teach it one after the other, in their order. Places at
        which `where` is False earned nothing yet, and leave all as it is.
        """


def parameters_of(policy: DataclassInstance) -> dict[str, Any]:
    """The fields of a policy that are its parameters: all but what it is called and what it reads."""
    return {
        field.name: getattr(policy, field.name)
        for field in fields(policy)
        if field.name not in {"name", "features"}
    }


def refuse_parameter(name: str, value: object, *, least: float, most: float, above: bool = False) -> None:
    """A BadInput unless the value is a number from least (above: beyond it) to most."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= value <= most and not (above and value == least) and abs(value) < math.inf):  # type: ignore[operator, arg-type]
        asked = f"{'above' if above else 'from'} {least:g}" + (f" to {most:g}" if most < math.inf else "")
        raise BadInput(f"{name} is {value!r}: it must be a number {asked}")


def refuse_vectors(x: Array, version: str) -> None:
    """A BadInput unless x has the dimensions of the feature set, and numbers that can be reckoned with."""
    if x.shape[-1] != FEATURES[version].dims:
        raise BadInput(f"x has {x.shape[-1]} dimensions: feature set {version} has {FEATURES[version].dims}")
    # The sum of squares tells at once that all is well; NaN compares as False.
    if not np.vdot(x, x) <= LARGEST and not (np.abs(x) <= LARGEST).all():
        raise BadInput(
            f"x holds a number that is not finite, or not between -{LARGEST:.0f} and {LARGEST:.0f}"
        )


def refuse_rewards(reward: Array) -> None:
    """A BadInput unless every reward is from 0 to 1."""
    if not ((reward >= 0.0) & (reward <= 1.0)).all():
        raise BadInput("a reward is not a number from 0 to 1")


def greedy(scores: Array, *, floor: float) -> Array:
    """Propensities that favour the best score (ties share), and give every candidate floor / K at least."""
    if scores.ndim == 1:
        return np.array(_greedy(scores.tolist(), floor))
    best = scores >= scores.max(axis=-1, keepdims=True)
    share = best / best.sum(axis=-1, keepdims=True)
    propensities: Array = floor / scores.shape[-1] + (1.0 - floor) * share
    return propensities


def _greedy(scores: list[float], floor: float) -> list[float]:
    """The same for one decision: for a few candidates plain floats take a third of the time of arrays."""
    best = max(scores)
    rest = floor / len(scores)
    top = rest + (1.0 - floor) * (1.0 / scores.count(best))
    return [top if score == best else rest for score in scores]


def explored(weighed: Weighed, chosen: int) -> bool:
    """Whether the tip that was picked is not one of those with the best score."""
    scores: list[float] = weighed.scores.tolist()
    return scores[chosen] < max(scores)
