"""How a service begins."""

from __future__ import annotations

import asyncio
import time

import pytest

from tipbench.bandit.asked import Candidate, Context, RecommendRequest
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.settings import Settings
from tipbench.workflows import tip_desk
from tipbench.workflows.tip_desk import TipDesk

pytestmark = pytest.mark.usefixtures("fresh_home")


def test_what_is_not_in_its_place_is_read_before_anybody_asks() -> None:
    """There may be much of it, and whoever comes first would wait for all."""
    tips = [Candidate(id=kind, kind=kind, text=f"a {kind}") for kind in ("break", "focus")]
    desk = TipDesk(Settings.of({}), shadows={})
    try:
        for user in ("anna", "bert"):
            asked = RecommendRequest(user_id=user, context=Context(hour=9.0), candidates=tips)
            asyncio.run(desk.recommend(asked))
    finally:
        desk.stop()
    later = TipDesk(Settings.of({}), shadows={})
    try:
        books = later.now.books
        assert isinstance(books, SqliteBooks)
        assert set(books._behind._fresh["profiles"]) == {"anna", "bert"}
    finally:
        later.stop()


def test_many_who_read_a_long_log_take_no_more_time_than_one() -> None:
    """Each rests between its pieces, one after the other: meanwhile others have their tips."""
    pages, readers = 3, 12
    desk = TipDesk(Settings.of({}), shadows={})
    try:
        asyncio.run(_served(desk, pages * tip_desk._PAGE))
        began = time.monotonic()
        asyncio.run(_read(desk, pages=pages, readers=readers))
        assert time.monotonic() - began >= readers * (pages - 1) * tip_desk._REST_S
    finally:
        desk.stop()


async def _served(desk: TipDesk, many: int) -> None:
    tips = [Candidate(id="a", kind="focus", text="Write for 25 minutes")]
    users = (RecommendRequest(user_id=f"user {place}", candidates=tips) for place in range(many))
    await asyncio.gather(*map(desk.recommend, users))


async def _read(desk: TipDesk, *, pages: int, readers: int) -> None:
    async def one() -> None:
        follows = await desk.signals(after=0, quiet_s=60.0)
        for _ in range(pages):
            assert len(await anext(follows)) == tip_desk._PAGE

    await asyncio.gather(*(one() for _ in range(readers)))
