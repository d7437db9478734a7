"""LinUCB: the tip that may earn most, given how little is known of it; a floor keeps the rest possible."""

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
class LinUCB:
    """A ridge regression for each user; `alpha` standard deviations are added to what it expects.

    LinUCB alone is deterministic, and nothing can be estimated from its log. So every tip keeps floor / K.
    """

    EDITION: ClassVar[int] = 1

    name: str = "linucb"
    features: str = "v1"
    alpha: float = 0.3
    floor: float = 0.05
    penalty: float = 1.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        refuse_parameter("alpha", self.alpha, least=0.0, most=1e3)
        refuse_parameter("floor", self.floor, least=0.0, most=1.0)
        refuse_parameter("penalty", self.penalty, least=0.0, most=1e6, above=True)
        refuse_parameter("discount", self.discount, least=0.0, most=1.0, above=True)

    @property
    def parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    def fresh(self, *, own: tuple[int, ...] = (), pooled: tuple[int, ...] = ()) -> Memory:  # noqa: ARG002
        return Memory(own=Ridge.fresh(FEATURES[self.features].dims, penalty=self.penalty, shape=own))

    def weigh(self, memory: Memory, x: Array) -> Weighed:
        refuse_vectors(x, self.features)
        scores = memory.mine.mean(x) + self.alpha * memory.mine.spread(x)
        return Weighed(scores=scores, propensities=greedy(scores, floor=self.floor))

    def learn(self, memory: Memory, x: Array, reward: Array, *, where: Array | None = None) -> Memory:
        refuse_vectors(x, self.features)
        refuse_rewards(reward)
        return Memory(
            own=memory.mine.learn(x, reward, penalty=self.penalty, discount=self.discount, where=where)
        )
