"""A real Chromium: one that is installed, or Playwright's own."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, closed in the end. Where there is none, `.ci/browser` says how to get one."""
    installed = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        assert installed or Path(own).exists(), "no browser is installed: run .ci/browser"
        browser = playwright.chromium.launch(executable_path=installed)
        try:
            yield browser
        finally:
            browser.close()
