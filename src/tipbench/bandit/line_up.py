"""The policies that are served, each with what is worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.bandit.books import POOLED
from tipbench.bandit.policies import version
from tipbench.bandit.suites import state_key
from tipbench.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.bandit.books import MemoryKey
    from tipbench.bandit.policy import Memory, Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A policy as it is served, what it remembers of a new user, and its version."""

    name: str
    policy: Policy
    fresh: Memory
    version: str

    @classmethod
    def of(cls, policy: Policy) -> Served:
        return cls(name=policy.name, policy=policy, fresh=policy.fresh(), version=version(policy))

    def keys(self, user: str, suite: str) -> list[MemoryKey]:
        """Return the keys of the memories that it decides with."""
        key = state_key(self.name, suite)
        own = [(user, key)] if self.fresh.own is not None else []
        return own + ([(POOLED, key)] if self.fresh.pooled is not None else [])


class LineUp:
    """Policies by where they are asked for, and by what they call themselves."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._asked_as = {name: Served.of(policy) for name, policy in policies.items()}
        self._called = {served.name: served for served in self._asked_as.values()}

    def asked_as(self, name: str) -> Served:
        found = self._asked_as.get(name) or self._called.get(name)
        if found is None:
            raise NotFound(f"no policy {name!r} is served here; there are {', '.join(self._asked_as)}")
        return found

    def called(self, name: str) -> Served | None:
        return self._called.get(name)

    def all(self) -> list[Served]:
        return [*self._called.values()]
