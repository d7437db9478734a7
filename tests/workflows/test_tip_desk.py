"""How a service begins."""

from __future__ import annotations

import asyncio

import pytest

from tipbench.bandit.asked import Candidate, Context, RecommendRequest
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.settings import Settings
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
