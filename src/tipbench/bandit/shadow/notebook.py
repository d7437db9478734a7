"""What an apprentice has learned, kept outside its process: encoded, bounded, and read again when needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tipbench.bandit.shadow.messages import Batch, Decide, Teach

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tipbench.bandit.shadow.messages import Decided, Learned

_Kept = TypeVar("_Kept")
EVERYBODY = ""  # the key of what is pooled


class _Latest(Generic[_Kept]):
    """A mapping that lets go of what was used longest ago."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> _Kept | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: str, value: _Kept) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, key: str) -> None:
        self._kept.pop(key, None)

    def clear(self) -> None:
        self._kept.clear()


class Logged(NamedTuple):
    """A decision that was served: whose it was, and the vector of the tip that was shown."""

    user_id: str
    x: bytes


class Archive(Protocol):
    """What was kept on disk. Asked only about what was not met lately, and on a shadow's own thread."""

    def memory(self, shadow: str, user_id: str) -> bytes | None:
        """What was kept of a shadow's lessons with a user, or with EVERYBODY."""

    def decision(self, shadow: str, decision_id: str) -> Logged | None:
        """A decision that was served, with the vector that the shadow made for it, if it made one."""


class Notebook:
    """One apprentice's memory of users, and the vectors of the decisions that may yet be rewarded."""

    def __init__(self, name: str, archive: Archive | None, *, users: int, decisions: int) -> None:
        self._name = name
        self._archive = archive
        self._own: _Latest[bytes | None] = _Latest(users)
        self._pooled: _Latest[bytes | None] = _Latest(1)
        self._served: _Latest[Logged] = _Latest(decisions)

    def batch(self, asks: Collection[Decide | Teach]) -> Batch:
        """These asks, with all that an apprentice needs to know for them."""
        users = {ask.user_id for ask in asks} - {EVERYBODY}
        known = {user: self._of(self._own, user) for user in users}
        own = {user: body for user, body in known.items() if body is not None}
        return Batch(asks=list(asks), own=own, pooled=self._of(self._pooled, EVERYBODY))

    def _of(self, latest: _Latest[bytes | None], key: str) -> bytes | None:
        if key not in latest:
            latest.put(key, self._archive.memory(self._name, key) if self._archive else None)
        return latest.get(key)

    def completed(self, asks: Collection[Decide | Teach]) -> list[Decide | Teach]:
        """These asks, every reward with what is known of its decision."""
        here = {ask.decision_id: ask.user_id for ask in asks if isinstance(ask, Decide)}
        return [ask if isinstance(ask, Decide) else self._completed(ask, here) for ask in asks]

    def _completed(self, ask: Teach, here: Mapping[str, str]) -> Teach:
        if ask.decision_id in here:
            return msgspec.structs.replace(ask, user_id=here[ask.decision_id])
        known = self._served.get(ask.decision_id)
        if known is None and self._archive:
            known = self._archive.decision(self._name, ask.decision_id)
        return msgspec.structs.replace(ask, user_id=known.user_id, x=known.x) if known else ask

    def decided(self, user_id: str, answer: Decided) -> None:
        self._served.put(answer.decision_id, Logged(user_id, answer.served_x))

    def learned(self, user_id: str, answer: Learned) -> tuple[bytes | None, bytes | None]:
        """What was known of the user, and of everybody, before."""
        was = self._own.get(user_id), self._pooled.get(EVERYBODY)
        self._own.put(user_id, answer.own)
        self._pooled.put(EVERYBODY, answer.pooled)
        return was

    def look_again(self, user_id: str) -> None:
        self._own.drop(user_id)
        self._pooled.drop(EVERYBODY)

    def forget(self, user_id: str | None) -> None:
        """Nothing is known of this user any more; None: of nobody, and nothing that is pooled either."""
        if user_id is None:
            self._own.clear()
            self._pooled.put(EVERYBODY, None)
            self._served.clear()
        else:
            # Known to be nothing, rather than unknown: what is persisted may be older than the wish.
            self._own.put(user_id, None)
