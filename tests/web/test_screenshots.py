"""The README's pictures: taken of real pages. `make pictures` takes them anew and keeps them."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import chromium
from picture_world import JUDGED, WAITING, plant_pictures
from web_world import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from web_world import Site

ROOT = Path(__file__).parent.parent.parent
NAMES = ("screenshot-experiment.png", "screenshot-judge.png")
WIDTH, HEIGHT = 1280, 800
HEAVIEST = 150_000


@pytest.fixture
def site(fresh_home: Path, made_home: Path) -> Iterator[Site]:
    shutil.copytree(made_home, fresh_home)
    with serving(plant_pictures(fresh_home)) as opened:
        yield opened


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def page_of(browser: Browser, site: Site, path: str, who: str) -> Page:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", base_url=site.url
    )
    context.add_cookies([site.cookie(who)])  # type: ignore[list-item]
    page = context.new_page()
    page.goto(path)
    return page


def judged_half_way(page: Page) -> Page:
    """Some items are scored, and the next has its first score."""
    for number in range(7):
        page.locator("#number", has_text=f"{number + 1} of").wait_for()
        page.keyboard.type("434" if number % 2 else "553")
        page.keyboard.press("Enter")
    page.keyboard.press("4")
    page.get_by_text("Saved", exact=True).wait_for()
    return page


def check(picture: bytes) -> None:
    """A PNG of the size that was asked for, neither blank nor heavy."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (WIDTH, HEIGHT)
    assert 15_000 < len(picture) < HEAVIEST


def test_pictures_are_taken(browser: Browser, site: Site, tmp_path: Path) -> None:
    """The top of an experiment and of the judge's page, in light colours."""
    folder = Path(os.environ.get("TIPBENCH_PICTURES") or tmp_path)
    experiment = page_of(browser, site, f"/experiments/{JUDGED}", "root")
    experiment.get_by_role("heading", name="Leaderboard").wait_for()
    judge = judged_half_way(page_of(browser, site, f"/judge/{WAITING}", "ann"))
    for name, page in zip(NAMES, (experiment, judge), strict=True):
        check(page.screenshot(path=folder / name))


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_shows_them(name: str) -> None:
    """Both pictures are there, and the README refers to them."""
    check((ROOT / "docs" / name).read_bytes())
    assert f"](docs/{name})" in (ROOT / "README.md").read_text(encoding="utf-8")
