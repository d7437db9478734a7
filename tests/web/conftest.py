"""Planted experiments, behind the real application, and a browser to look at them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from api_world import Api, open_api
from browser import chromium
from job_world import ending_what_runs
from stand_in import FakeModel, StandIn, running
from tipbench.settings import Settings, home
from web_world import Site, plant_both, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from browsing import Opened
    from judged_world import World

MODELS = [FakeModel("small:0.5b"), FakeModel("large:8b", parameters=8_000_000_000)]


@pytest.fixture(scope="session")
def planted_pages(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("pages") / "home"
    shutil.copytree(made_home, folder)
    return folder, plant_both(folder)


@pytest.fixture(scope="module")
def pages_home(
    planted_pages: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A copy of what was planted as the home of all tests of a file."""
    home = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(planted_pages[0], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIPBENCH_HOME", str(home))
        for name in ("OLLAMA_HOST", "MLFLOW_TRACKING_URI", "TIPBENCH_MLFLOW_HOST_HEADER"):
            patch.delenv(name, raising=False)
        yield planted_pages[1]


@pytest.fixture(scope="module")
def pages(pages_home: World) -> Iterator[Api]:
    """The application without a server; callers share it."""
    opened = open_api(pages_home)
    yield opened
    opened.service.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def host() -> Iterator[StandIn]:
    with running(StandIn(models=MODELS, latency_s=0.05)) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def site(pages_home: World, host: StandIn) -> Iterator[Site]:
    settings = Settings.of({"ollama_url": host.url, "engine": "ollama", "n_scenarios": 2})
    with serving(pages_home, settings=settings) as opened, ending_what_runs(home()):
        yield opened


@pytest.fixture
def page_of(browser: Browser, site: Site) -> Iterator[Opened]:
    """Opens a page as one of the callers; in the end nothing was wrong and nobody else was asked."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def opened(path: str, who: str | None = "root", *, width: int = 1280, **how: Any) -> Page:  # noqa: ANN401 - as Playwright takes
        context = browser.new_context(viewport={"width": width, "height": 800}, base_url=site.url, **how)
        contexts.append(context)
        if who:
            context.add_cookies([site.cookie(who)])  # type: ignore[list-item]
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    # What a test provokes is told by the browser as well: answers that are errors.
    assert [one for one in complaints if "Failed to load resource" not in one] == []
    assert [url for url in asked if not url.startswith(site.url)] == []
