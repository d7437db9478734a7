"""What waits for a shadow: bounded in number and in bytes, and free for the one who adds to it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tipbench.bandit.shadow.messages import Decide, Teach


class Mark:
    """Something in the line that is not for the shadow, but for what is remembered of it."""

    size = 0


class Forget(Mark):
    """From here on nothing learned of this user counts, or of anybody (None)."""

    def __init__(self, user_id: str | None) -> None:
        self.user_id = user_id


class LookAgain(Mark):
    """What was learned of this user last was not kept: what is remembered is not what holds.

    It goes before all that waits. Of lessons that were refused together, each would else be learned without
    those before it, which are not kept yet, and be refused again.
    """

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id


class Line:
    """A queue of many producers and one consumer.

    Producers answer requests: they must never wait for the consumer, which the system may have put aside.
    So each side counts for itself, and the lock is among producers only, for an append.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._items: deque[Decide | Teach | Mark] = deque()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes_in = 0  # the producers'
        self._bytes_out = 0  # the consumer's
        self._offered: Counter[type] = Counter()  # the producers'
        self._refused: Counter[type] = Counter()  # the producers'
        self._door = threading.Lock()
        self._something = threading.Event()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Decide | Teach | Mark) -> bool:
        """Whether there was room. A mark is always taken."""
        size = item.size
        with self._door:
            self._offered[type(item)] += 1
            held = self._bytes_in - self._bytes_out + size
            if size and (len(self._items) >= self._most or held > self._most_bytes):
                self._refused[type(item)] += 1
                return False
            self._bytes_in += size
            if isinstance(item, LookAgain):
                self._items.appendleft(item)
            else:
                self._items.append(item)
        self.wake()
        return True

    def offered(self, kind: type[Decide | Teach]) -> int:
        """How many of this kind were to be added."""
        return self._offered[kind]

    def refused(self, kind: type[Decide | Teach]) -> int:
        """How many of this kind found no room."""
        return self._refused[kind]

    def wake(self) -> None:
        if not self._something.is_set():
            self._something.set()

    def wait(self) -> None:
        """Until something was added since the last wait, or somebody wakes the consumer."""
        if not self._items:
            self._something.wait()
        # What is added from here on sets it again: the consumer looks into the line after this, never before.
        self._something.clear()

    def take(self, *, most: int, most_bytes: int) -> list[Decide | Teach | Mark]:
        """The next items, at least one where there is any; a mark comes alone."""
        taken: list[Decide | Teach | Mark] = []
        held = 0
        while self._items and len(taken) < most:
            item = self._items.popleft()
            if taken and (held + item.size > most_bytes or isinstance(item, Mark)):
                self._items.appendleft(item)
                break
            taken.append(item)
            held += item.size
            if isinstance(item, Mark):
                break
        self._bytes_out += held
        return taken

    def put_back(self, items: Iterable[Decide | Teach]) -> None:
        """Items that were taken, at the head of the line again, in their order."""
        back = list(items)
        self._items.extendleft(reversed(back))
        self._bytes_out -= sum(item.size for item in back)
