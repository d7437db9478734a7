"""What tests do with a page in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    Opened = Callable[..., Page]

SCALES = ("relevance", "actionability", "tone")
WIDTH = "document.documentElement.scrollWidth"


def faults(page: Page) -> list[tuple[str, str]]:
    """What axe finds on the page as it is now: the rule, and the first place."""
    return [(one["id"], one["nodes"][0]["html"]) for one in Axe().run(page).response["violations"]]


def at_rest(page: Page) -> Page:
    """Once what its script fetches is there."""
    if "/judge/" in page.url and not page.url.endswith("result"):
        page.locator("#desk, #finished, #nothing").locator("visible=true").first.wait_for()
    return page


def batch_of(page: Page, experiment: str) -> list[dict[str, Any]]:
    """The items of the batch, as the service has them now."""
    asked = f"fetch('/api/judge/{experiment}/batch').then((answer) => answer.json())"
    items: list[dict[str, Any]] = page.evaluate(asked)["items"]
    return items
