"""Events for those who watch: exactly from where they were, live, and none held up by another."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tipbench.errors import StoreUnusable
from tipbench.workflows.job_events import Tails, read_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.records import Event


def line(number: int) -> str:
    return json.dumps({"event": "cell", "n": number, "text": "ü\r" * 3}, ensure_ascii=False) + "\n"


class Written:
    """A job's events file as the job writes it, and whether the job has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.over = False
        self.asked = 0

    def add(self, *numbers: int) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(map(line, numbers)))

    def ended(self) -> bool:
        self.asked += 1
        return self.over


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "events.jsonl")


async def followed(
    tails: Tails, written: Written, *, after: int = 0, then: Callable[[Event], Any] = lambda _event: None
) -> list[tuple[int, int]]:
    found = []
    async for number, event in tails.follow(written.path, after=after, ended=written.ended):
        found.append((number, event["n"]))
        await asyncio.sleep(then(event) or 0)
    return found


def test_a_torn_last_line_is_left_for_the_next_read(written: Written) -> None:
    """Half a line is nothing yet; once it is whole it is read, from where the last read ended."""
    written.add(1)
    whole = line(2).encode()
    with written.path.open("ab") as file:
        file.write(whole[:-5])
        file.flush()
        first = read_events(written.path, 0)
        file.write(whole[-5:])
    assert [found.event["n"] for found in first.lines] == [1]
    second = read_events(written.path, first.next)
    assert [found.event["n"] for found in second.lines] == [2]
    assert second.next == written.path.stat().st_size


def test_ids_are_places_in_the_file(written: Written) -> None:
    """To go on after any event's id gives exactly those that follow; a place within a line skips its rest."""
    written.add(*range(20))
    lines = read_events(written.path, 0).lines
    for index, one in enumerate(lines):
        assert read_events(written.path, one.end).lines == lines[index + 1 :]
        assert read_events(written.path, one.start + 1).lines == lines[index + 1 :]
    assert read_events(written.path, 0, size=7).lines == lines[:1]
    assert read_events(written.path.with_name("none"), 5).next == 5


def test_what_is_no_event_is_passed_over(written: Written) -> None:
    """What a killed process left of a line, and other JSON, is not told; what follows is."""
    written.path.write_bytes(b'{"event": "ce\n[1]\n{"no": 1}\n\xff\n\n' + line(7).encode())
    chunk = read_events(written.path, 0)
    assert [found.event["n"] for found in chunk.lines] == [7]
    assert chunk.next == written.path.stat().st_size


async def test_fifty_watchers_share_one_reader(written: Written) -> None:
    """All see every event in order, with one look at the job in a poll for all of them together."""
    written.add(*range(5))
    tails = Tails(poll_s=0.05)
    watchers = [asyncio.create_task(followed(tails, written)) for _ in range(50)]
    began = time.monotonic()
    for number in range(5, 15):
        await asyncio.sleep(0.03)
        written.add(number)
    await asyncio.sleep(0.3)
    written.over = True
    seen = await asyncio.gather(*watchers)
    polls = (time.monotonic() - began) / 0.05
    assert {tuple(one) for one in seen} == {tuple(seen[0])}
    assert [n for _, n in seen[0]] == list(range(15))
    assert 2 <= written.asked <= polls + 2
    assert not tails._tails


async def test_a_watcher_that_comes_back_goes_on_exactly(written: Written) -> None:
    """Whoever was cut off gives the last id it saw and misses nothing, even among others who watch."""
    written.add(*range(10))
    tails = Tails(poll_s=0.02)
    other = asyncio.create_task(followed(tails, written))
    watching = tails.follow(written.path, after=0, ended=written.ended)
    seen = [await watching.__anext__() for _ in range(4)]
    await watching.aclose()  # type: ignore[attr-defined]
    written.add(*range(10, 20))
    written.over = True
    rest = await followed(tails, written, after=seen[-1][0])
    assert [n for _, n in rest] == list(range(4, 20))
    assert [n for _, n in await other] == list(range(20))


async def test_a_slow_watcher_holds_up_nobody_and_misses_nothing(written: Written) -> None:
    """While one sleeps over its first event, thousands are told to another; then it is told them too."""
    written.add(0)
    tails = Tails(poll_s=0.01)
    quick_is_done = asyncio.Event()
    slow: list[int] = []

    async def sleepy() -> None:
        async for _, event in tails.follow(written.path, after=0, ended=written.ended):
            slow.append(event["n"])
            await quick_is_done.wait()

    async def quick() -> list[int]:
        found = [n for _, n in await followed(tails, written)]
        quick_is_done.set()
        return found

    both = asyncio.gather(sleepy(), quick())
    await asyncio.sleep(0.05)
    for start in range(1, 5000, 500):
        written.add(*range(start, start + 500))
        await asyncio.sleep(0.02)
    written.over = True
    _, found = await asyncio.wait_for(both, 30)
    assert found == slow == list(range(5001))


async def test_everything_is_told_before_the_end(written: Written) -> None:
    """What is written just before the job ends is delivered; half a line that nobody ends is not."""
    tails = Tails(poll_s=0.01)

    def last_words() -> None:
        time.sleep(0.1)
        written.add(1, 2, 3)
        with written.path.open("a") as file:
            file.write('{"event": "cell", "n": 4')
        written.over = True

    thread = threading.Thread(target=last_words)
    thread.start()
    assert [n for _, n in await followed(tails, written)] == [1, 2, 3]
    thread.join()


async def test_what_comes_between_the_last_look_and_the_end_is_told(written: Written) -> None:
    """The job writes its last event just as it is asked whether it has ended."""
    written.add(1)

    def ends() -> bool:
        if written.asked == 0:
            written.add(2)
        written.over = True
        return written.ended()

    found = [event["n"] async for _, event in Tails(poll_s=0.01).follow(written.path, after=0, ended=ends)]
    assert found == [1, 2]


@pytest.mark.parametrize("after", [-5, 10**9])
async def test_a_place_that_is_not_in_the_file_is_one_of_its_ends(written: Written, after: int) -> None:
    """Below zero is the beginning; beyond the end is what is new from now on."""
    written.add(1, 2)
    tails = Tails(poll_s=0.01)
    watching = asyncio.create_task(followed(tails, written, after=after))
    await asyncio.sleep(0.1)
    written.add(3)
    await asyncio.sleep(0.1)
    written.over = True
    assert [n for _, n in await watching] == ([1, 2, 3] if after < 0 else [3])


async def test_quiet_is_told_where_it_is_asked_for(written: Written) -> None:
    """Nothing happens for a while: a `quiet` event with the id of the last one keeps a connection open."""
    written.add(1)
    watching = Tails(poll_s=0.01).follow(written.path, after=0, ended=written.ended, quiet_s=0.05)
    first, _ = await watching.__anext__()
    assert await watching.__anext__() == (first, {"event": "quiet"})
    assert await watching.__anext__() == (first, {"event": "quiet"})
    await watching.aclose()  # type: ignore[attr-defined]


async def test_a_store_that_fails_is_told_to_everyone_who_watches(written: Written) -> None:
    """Whether the job has ended cannot be known: watchers hear why instead of waiting for ever."""
    written.add(1)
    tails = Tails(poll_s=0.01)

    def fails() -> bool:
        raise StoreUnusable("the file is gone")

    async def watch() -> None:
        async for _ in tails.follow(written.path, after=0, ended=fails):
            pass

    heard = await asyncio.wait_for(asyncio.gather(watch(), watch(), return_exceptions=True), 10)
    assert [type(one) for one in heard] == [StoreUnusable, StoreUnusable]


async def test_a_job_that_was_resumed_is_followed_anew(written: Written) -> None:
    """Watchers of the first run get their end; whoever comes after the resume sees what is new."""
    written.add(1)
    written.over = True
    tails = Tails(poll_s=0.01)
    old = tails.follow(written.path, after=0, ended=written.ended)
    first, _ = await old.__anext__()
    await asyncio.sleep(0.1)
    written.over = False
    new = asyncio.create_task(followed(tails, written, after=first))
    await asyncio.sleep(0.05)
    written.add(2)
    await asyncio.sleep(0.1)
    written.over = True
    assert [n for _, n in await new] == [2]
    assert [event["n"] async for _, event in old] in ([], [2])
