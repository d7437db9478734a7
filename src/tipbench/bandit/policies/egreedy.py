"""ε-greedy: the tip that is expected to earn most, and with probability ε any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tipbench.bandit.features import FEATURES
from tipbench.bandit.policy import (
    Memory,
    Weighed,
    greedy,
    parameters_of,
    refuse_parameter,
    refuse_rewards,
    refuse_vectors,
)
from tipbench.bandit.ridge import Ridge

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class EpsilonGreedy:
    """A ridge regression for each user. `discount` below 1 lets it forget, for tastes that change."""

    EDITION: ClassVar[int] = 1

    name: str = "egreedy"
    features: str = "v1"
    epsilon: float = 0.1
    penalty: float = 1.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        refuse_parameter("epsilon", self.epsilon, least=0.0, most=1.0)
        refuse_parameter("penalty", self.penalty, least=0.0, most=1e6, above=True)
        refuse_parameter("discount", self.discount, least=0.0, most=1.0, above=True)

    @property
    def parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:  # noqa: ARG002
        return Memory(own=Ridge.fresh(FEATURES[self.features].dims, penalty=self.penalty, shape=own))

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        refuse_vectors(x, self.features)
        scores = memory.mine.mean(x)
        return Weighed(scores=scores, propensities=greedy(scores, floor=self.epsilon))

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        refuse_vectors(x, self.features)
        refuse_rewards(reward)
        return Memory(
            own=memory.mine.learn(x, reward, penalty=self.penalty, discount=self.discount, where=where)
        )
