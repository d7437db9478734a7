"""A job's events for those who watch: from any byte of the file on, live, one reader for all of them.

An event's id is where its line ends in the file, so whoever has seen an event goes on exactly after it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tipbench.records import Event

POLL_S = 0.25
_READ_BYTES = 1 << 18
_KEPT_LINES = 1000
_QUIET: Event = {"event": "quiet"}


@dataclass(frozen=True, kw_only=True)
class Line:
    start: int
    end: int
    event: Event


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Whole lines of the file, and the byte to go on from."""

    lines: tuple[Line, ...]
    next: int


def read_events(path: Path, start: int, *, size: int = _READ_BYTES) -> Chunk:
    """The whole lines from a byte on, about `size` bytes of them; a torn last line is left for later.

    What is no event is passed over: half a line that a killed process left, or the rest of one that the
    start is in the middle of.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size)
            while data and b"\n" not in data and (more := file.read(size)):
                data += more
    except OSError:
        return Chunk(lines=(), next=start)
    whole = data[: data.rfind(b"\n") + 1]
    return Chunk(lines=tuple(_lines(whole, start)), next=start + len(whole))


def _lines(data: bytes, start: int) -> Iterator[Line]:
    for text in data.split(b"\n")[:-1]:
        end = start + len(text) + 1
        event = _event(text)
        if event is not None:
            yield Line(start=start, end=end, event=event)
        start = end


def _event(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


class Tails:
    """The files that are being watched, each read by one task however many watch it."""

    def __init__(self, *, poll_s: float = POLL_S) -> None:
        self._poll_s = poll_s
        self._tails: dict[Path, _Tail] = {}
        self._closed = False

    async def follow(
        self, path: Path, *, after: int, ended: Callable[[], bool], quiet_s: float | None = None
    ) -> AsyncIterator[tuple[int, Event]]:
        """Events with their ids from a byte on, until `ended()` and everything was delivered, or `close()`.

        With `quiet_s` there is a `quiet` event whenever nothing else came for so long. Whoever takes events
        slowly holds up nobody: what is no longer in memory is read from the file again.
        """
        start = max(0, min(after, await asyncio.to_thread(size_of, path)))
        if self._closed:
            return
        tail = self._tails.get(path)
        if tail is None or tail.over:
            tail = self._tails[path] = _Tail(path, start=start, ended=ended, poll_s=self._poll_s)
        tail.watchers += 1
        try:
            async for found in tail.follow(start, quiet_s=quiet_s):
                yield found
        finally:
            tail.watchers -= 1
            if not tail.watchers:
                tail.stop()
                if self._tails.get(path) is tail:
                    del self._tails[path]

    def close(self) -> None:
        """End for everybody who follows anything, now and later."""
        self._closed = True
        for tail in self._tails.values():
            tail.stop()


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _Tail:
    """One file's new lines, kept a while for those who watch it."""

    def __init__(self, path: Path, *, start: int, ended: Callable[[], bool], poll_s: float) -> None:
        self._path = path
        self._ended = ended
        self._poll_s = poll_s
        self._lines: deque[Line] = deque()
        self._kept_from = start
        self._read_to = start
        self._news = asyncio.Event()
        self.watchers = 0
        self._task = asyncio.create_task(self._keep_reading())
        self._task.add_done_callback(lambda _task: self._wake())

    @property
    def over(self) -> bool:
        return self._task.done()

    def stop(self) -> None:
        self._task.cancel()

    async def follow(self, position: int, *, quiet_s: float | None) -> AsyncIterator[tuple[int, Event]]:
        while True:
            news, over = self._news, self.over
            chunk = await self._from(position)
            for line in chunk.lines:
                yield line.end, line.event
            if chunk.next > position:
                position = chunk.next
            elif over:
                self._raise_what_ended_it()
                return
            elif not await _within(news, quiet_s):
                yield position, _QUIET

    async def _from(self, position: int) -> Chunk:
        """What follows a position: out of memory where it goes back so far, else out of the file."""
        if position < self._kept_from:
            return await asyncio.to_thread(read_events, self._path, position)
        found: list[Line] = []
        for line in reversed(self._lines):
            if line.start < position:
                break
            found.append(line)
        return Chunk(lines=tuple(reversed(found)), next=max(position, self._read_to))

    async def _keep_reading(self) -> None:
        while True:
            chunk, ended = await asyncio.to_thread(self._look)
            news = chunk.next - self._read_to
            if ended and not news:
                return
            if news:
                self._keep(chunk)
                self._wake()
            if news < _READ_BYTES // 2:
                await asyncio.sleep(self._poll_s)

    def _look(self) -> tuple[Chunk, bool]:
        """What is new, and whether nothing can come any more: the end is seen before the last read."""
        chunk = read_events(self._path, self._read_to)
        if chunk.next > self._read_to or not self._ended():
            return chunk, False
        return read_events(self._path, self._read_to), True

    def _keep(self, chunk: Chunk) -> None:
        self._lines.extend(chunk.lines)
        self._read_to = chunk.next
        while len(self._lines) > _KEPT_LINES:
            self._kept_from = self._lines.popleft().end

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _raise_what_ended_it(self) -> None:
        if not self._task.cancelled():
            self._task.result()


async def _within(news: asyncio.Event, quiet_s: float | None) -> bool:
    try:
        await asyncio.wait_for(news.wait(), quiet_s)
    except asyncio.TimeoutError:
        return False
    return True
