"""The pages in a real browser: by keyboard, on a phone, in the dark, and as axe sees them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from api_world import score
from browser import chromium
from job_world import ending_what_runs
from stand_in import FakeModel, StandIn, running
from tipbench.settings import Settings, home
from tipbench.workflows.judged import judged_experiment
from web_world import AWAY, BIG, JUDGED, SEEN, TOUCHED, WAITING, Site, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from judged_world import World

    Opened = Callable[..., Page]

WIDTH = "document.documentElement.scrollWidth"
TYPED_INTO = "document.activeElement?.id === 'token'"
SCALES = ("relevance", "actionability", "tone")
PAGES = (
    "/experiments",
    f"/experiments/{JUDGED}",
    "/jobs",
    "/judge",
    f"/judge/{SEEN}",
    f"/judge/{JUDGED}/result",
    "/system",
    "/tokens",
    "/audit",
    "/nowhere",
)
MODELS = [FakeModel("small:0.5b"), FakeModel("large:8b", parameters=8_000_000_000)]


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


def at_rest(page: Page) -> Page:
    """Once what its script fetches is there."""
    if "/judge/" in page.url and not page.url.endswith("result"):
        page.locator("#desk, #finished, #nothing").locator("visible=true").first.wait_for()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_and_nothing_is_too_wide(page_of: Opened, width: int, scheme: str) -> None:
    """No page has an accessibility fault, or has to be scrolled sideways."""
    page = page_of("/experiments", width=width, color_scheme=scheme)
    faults = []
    for path in PAGES:
        page.goto(path)
        found = Axe().run(at_rest(page)).response["violations"]
        faults += [(path, one["id"], one["nodes"][0]["html"]) for one in found]
        assert page.evaluate(WIDTH) <= width, path
    assert faults == []


def test_the_login_page_has_no_fault(page_of: Opened) -> None:
    """Neither at first nor with its message."""
    page = page_of("/login", None)
    page.wait_for_function(TYPED_INTO)
    assert Axe().run(page).response["violations"] == []
    page.keyboard.type("tb_admin_nobody")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert Axe().run(page).response["violations"] == []


def test_one_logs_in_by_keyboard_and_arrives_where_one_was_going(page_of: Opened, site: Site) -> None:
    """A page asked for without a login is there after it; logging out ends it."""
    page = page_of("/tokens", None)
    page.wait_for_function(TYPED_INTO)
    page.keyboard.type(site.api.tokens["root"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Tokens", exact=True).wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()
    page.goto("/tokens")
    assert "/login" in page.url


def test_dark_is_dark(page_of: Opened) -> None:
    """Pages follow the reader's choice."""
    colours = [
        page_of("/experiments", color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    ]
    assert colours == ["rgb(251, 250, 247)", "rgb(20, 24, 26)"]


def test_lists_and_the_board_need_no_script(page_of: Opened) -> None:
    """Without JavaScript one reads, filters and compares; what needs it says so."""
    page = page_of("/experiments", java_script_enabled=False)
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    page.get_by_role("link", name=JUDGED, exact=True).click()
    page.locator("table.board a").first.click()
    page.locator("select[name=scenario]").select_option(index=1)
    page.get_by_role("button", name="Filter").click()
    page.locator(".cells-table a").first.click()
    page.get_by_label("Beside it").select_option(index=1)
    page.get_by_role("button", name="Compare").click()
    assert page.locator("article").count() == 2


def test_the_dialog_offers_what_the_host_has(page_of: Opened) -> None:
    """Models with their sizes, those too large greyed with the reason, the cost before the start."""
    page = page_of("/experiments")
    page.get_by_role("button", name="Run collection").click()
    small, large = page.get_by_label("small:0.5b"), page.get_by_label("large:8b")
    small.wait_for()
    assert small.is_checked()
    assert large.is_disabled()
    assert "8.0" in page.locator("label", has=large).inner_text()
    page.get_by_text("of memory").wait_for()
    assert re.search(r"\d+ cells.*minute.*free", page.locator("#estimate").inner_text())
    assert Axe().run(page).response["violations"] == []
    page.get_by_label("Tips per cell").fill("99")
    page.get_by_text("99 is not between 1 and 50.").wait_for()
    assert page.get_by_label("Tips per cell").get_attribute("aria-invalid") == "true"
    page.get_by_label("Tips per cell").fill("2")
    page.get_by_text("of memory").wait_for()
    assert page.get_by_text("99 is not between").count() == 0
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate(WIDTH) <= 360
    page.keyboard.press("Escape")
    assert not page.locator("#run").is_visible()


def test_a_collection_is_started_and_watched(page_of: Opened) -> None:
    """From the dialog to the job's page, which goes on by itself until the job is done."""
    page = page_of("/experiments")
    page.get_by_role("button", name="Run collection").click()
    page.get_by_label("small:0.5b").wait_for()
    page.get_by_label("Prompts").fill("v1")
    page.get_by_label("Experiment", exact=True).fill("from the page")
    page.get_by_label("Scenarios", exact=True).fill("2")
    page.get_by_label("Tips per cell").fill("2")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/jobs/*")
    page.locator("#told", has_text="Done: 2 of 2 cells.").wait_for(timeout=150_000)
    assert page.get_by_role("progressbar", name="small:0.5b").get_attribute("value") == "2"
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("link", name="Experiment", exact=True).click()
    page.get_by_text("Nothing is judged yet").wait_for()


def batch_of(page: Page, experiment: str) -> list[dict[str, Any]]:
    """The items of the batch, as the service has them now."""
    asked = f"fetch('/api/judge/{experiment}/batch').then((answer) => answer.json())"
    items: list[dict[str, Any]] = page.evaluate(asked)["items"]
    return items


def judge_by_keys(page: Page, site: Site, *, until: int = 10_000) -> int:
    """Score what is shown as somebody would who sees the truth, by keys alone; how many were scored."""
    texts = {item["tip"]: item for item in batch_of(page, WAITING)}
    for done in range(until):
        if not page.locator("#tip").is_visible():
            return done
        given = score(site.api.world, texts[page.locator("#tip").inner_text()])
        page.keyboard.type("".join(str(given[name]) for name in SCALES))
        page.keyboard.press("Enter")
    return until


def test_a_batch_is_judged_by_keys_alone(page_of: Opened, site: Site) -> None:
    """Scores, undo, a note, help, leaving and coming back, handing in: the board has them in the end."""
    page = at_rest(page_of(f"/judge/{WAITING}", "ann"))
    total = int(page.locator("#far").get_attribute("max") or 0)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    page.keyboard.press("Enter")
    assert page.get_by_role("alert").inner_text() == "relevance still needs a score."
    page.keyboard.type("55")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    assert page.locator(".scale-tab.given").count() == 0
    page.keyboard.press("n")
    page.keyboard.type("5 is not a score here")
    page.keyboard.press("Escape")
    judge_by_keys(page, site, until=3)
    page.get_by_text("Saved", exact=True).wait_for()
    page.wait_for_load_state("networkidle")  # an earlier stroke may have said so
    page.reload()
    assert at_rest(page).locator("#far-told").inner_text() == f"3 of {total} judged"
    assert re.search(r"about \d+ min left", page.locator("#time-left").inner_text())
    assert page.locator("#number").inner_text() == f"4 of {total}"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.get_by_label("Note on this tip").input_value() == "5 is not a score here"
    judge_by_keys(page, site)
    page.get_by_role("heading", name="All judged").wait_for()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Drift and agreement").wait_for()
    assert page.get_by_role("img", name="Drift, batch by batch").is_visible()
    for name in (BIG, "gemma", "v1"):
        assert name not in page.content()
    verdicts = judged_experiment(site.api.service.settings({"experiment": WAITING})).verdicts
    assert len(verdicts) == 4
    assert {one.judge.id for one in verdicts} == {"ann"}


def test_a_phone_has_big_keys(page_of: Opened, site: Site) -> None:
    """On a phone's width tips are judged by thumb, and every stroke is kept."""
    page = at_rest(page_of(f"/judge/{TOUCHED}", "bob", width=360, has_touch=True))
    key = page.locator(".pad-key").nth(3)
    box = key.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 44
    assert page.locator("#tip").bounding_box()["y"] < 400  # type: ignore[index]
    for _ in SCALES:
        key.tap()
    page.get_by_role("button", name="Next").tap()
    page.get_by_text("Saved", exact=True).wait_for()
    kept = batch_of(page, TOUCHED)[0]["answer"]
    assert {name: kept[name] for name in SCALES} == dict.fromkeys(SCALES, 4)


def test_strokes_survive_a_service_that_is_away(page_of: Opened) -> None:
    """While nothing can be saved the page says so, and saves when it can again."""
    page = at_rest(page_of(f"/judge/{AWAY}", "bob"))
    page.route("**/api/judge/batches/**", lambda route: route.abort())
    page.keyboard.press("2")
    page.get_by_text("Not saved yet").wait_for()
    page.unroute("**/api/judge/batches/**")
    page.get_by_text("Saved", exact=True).wait_for()
    page.reload()
    assert at_rest(page).locator(".scale-tab.given").count() >= 1


def test_a_token_is_made_shown_once_and_revoked(page_of: Opened, site: Site) -> None:
    """A name that is taken is told below its field; a revoked token is gone from the list."""
    page = page_of("/tokens")
    name = page.get_by_label("Name")
    name.fill("ann")
    page.get_by_role("button", name="Make token").click()
    page.get_by_text("there is a token named", exact=False).wait_for()
    name.fill("zoe")
    page.get_by_role("button", name="Make token").click()
    page.get_by_text("shown this once").wait_for()
    secret = page.locator("#secret").inner_text()
    assert site.api.service.access.principal(authorization=f"Bearer {secret}", cookie="", now_ms=0)
    page.get_by_role("button", name="Revoke zoe").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_role("rowheader", name="zoe").wait_for(state="detached")
    assert not site.api.service.access.principal(authorization=f"Bearer {secret}", cookie="", now_ms=0)
