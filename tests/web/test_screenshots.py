"""The README's pictures: taken of real pages. `make pictures` takes them anew and keeps them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import chromium
from picture_world import JUDGED, QWEN, TIPS, WAITING, plant_pictures
from png_files import lighter, size_of
from web_world import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from web_world import Site

ROOT = Path(__file__).parent.parent.parent
# How much of the top of a page is in its picture: of an experiment so much that the ranking is seen.
HEIGHTS = {"screenshot-experiment.png": 975, "screenshot-judge.png": 800}
WIDTH = 1280
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
        viewport={"width": WIDTH, "height": 800}, color_scheme="light", base_url=site.url
    )
    context.add_cookies([site.cookie(who)])  # type: ignore[list-item]
    page = context.new_page()
    page.goto(path)
    return page


def judged_half_way(page: Page) -> Page:
    """Some items are scored, and the next one, a tip that is worth reading, has its first score."""
    number = page.locator("#number")
    for done in range(20):
        number.filter(has_text=f"{done + 1} of").wait_for()
        if done >= 5 and fits(page):
            break
        page.keyboard.type("434" if done % 2 else "553")
        page.keyboard.press("Enter")
    page.keyboard.press("4")
    page.get_by_text("Saved", exact=True).wait_for()
    return page


def fits(page: Page) -> bool:
    """Whether the tip is one of the good ones of ours, written for the person beside it."""
    tip = page.locator("#tip").inner_text()
    person = page.locator("#context-h").inner_text().partition(",")[0].lower()
    good = {text: scenario for (model, scenario), text in TIPS.items() if model != QWEN}
    return tip in good and good[tip].startswith(person)


def check(picture: bytes, *, height: int) -> None:
    """A PNG of the size that was asked for, neither blank nor heavy."""
    assert size_of(picture) == (WIDTH, height)
    assert 15_000 < len(picture) < HEAVIEST


def test_pictures_are_taken(browser: Browser, site: Site, tmp_path: Path) -> None:
    """The top of an experiment and of the judge's page, in light colours."""
    folder = Path(os.environ.get("TIPBENCH_PICTURES") or tmp_path)
    experiment = page_of(browser, site, f"/experiments/{JUDGED}", "root")
    experiment.get_by_role("heading", name="Leaderboard").wait_for()
    judge = judged_half_way(page_of(browser, site, f"/judge/{WAITING}", "ann"))
    for (name, height), page in zip(HEIGHTS.items(), (experiment, judge), strict=True):
        page.set_viewport_size({"width": WIDTH, "height": height})
        picture = lighter(page.screenshot())
        check(picture, height=height)
        (folder / name).write_bytes(picture)


@pytest.mark.parametrize("name", HEIGHTS)
def test_the_readme_shows_them(name: str) -> None:
    """Both pictures are there, and the README refers to them."""
    check((ROOT / "docs" / name).read_bytes(), height=HEIGHTS[name])
    assert f"](docs/{name})" in (ROOT / "README.md").read_text(encoding="utf-8")
