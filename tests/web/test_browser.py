"""The pages in a real browser: by keyboard, on a phone, in the dark, and as axe sees them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from browsing import WIDTH, at_rest, faults
from web_world import JUDGED, SEEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browsing import Opened
    from web_world import Site

# Passwords of which no password manager, and no screen reader, can tell whose they are.
NAMELESS = """[...document.querySelectorAll("input[type=password]")].filter((password) => {
  const fields = [...(password.form?.elements ?? [])];
  const name = fields.findIndex((one) => one.type === "text" && one.autocomplete === "username");
  return name < 0 || name > fields.indexOf(password);
}).length"""
TYPED_INTO = "document.activeElement?.id === 'token'"
PAGES = (
    "/experiments",
    f"/experiments/{JUDGED}",
    "/jobs",
    "/policies",
    "/judge",
    f"/judge/{SEEN}",
    f"/judge/{JUDGED}/result",
    "/system",
    "/tokens",
    "/audit",
    "/docs",
    "/nowhere",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_and_nothing_is_too_wide(page_of: Opened, width: int, scheme: str) -> None:
    """No page has an accessibility fault, or has to be scrolled sideways."""
    page = page_of("/experiments", width=width, color_scheme=scheme)
    found = []
    for path in PAGES:
        page.goto(path)
        found += [(path, *fault) for fault in faults(at_rest(page))]
        assert page.evaluate(WIDTH) <= width, path
    assert found == []


def test_the_login_page_has_no_fault(page_of: Opened) -> None:
    """Neither at first nor with its message."""
    page = page_of("/login", None)
    page.wait_for_function(TYPED_INTO)
    assert faults(page) == []
    page.keyboard.type("tb_admin_nobody")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert faults(page) == []


def test_every_password_form_has_a_username_field(page_of: Opened) -> None:
    """A hidden one before the password: Chromium prints a warning for each form without it."""
    page = page_of("/login", None)
    assert page.locator("input[type=password]").count() == 1
    assert page.evaluate(NAMELESS) == 0
    page.locator("#token").fill("tb_admin_nobody")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert page.evaluate(NAMELESS) == 0
    page = page_of("/experiments")
    for path in PAGES:
        page.goto(path)
        assert page.evaluate(NAMELESS) == 0, path


MAIL = "http://mail.example/"


def test_a_link_of_another_site_opens_its_page(browser: Browser, site: Site) -> None:
    """Who is logged in stays so, and a form of that site changes nothing."""
    letter = f"""<a href="{site.url}/tokens">Tokens</a>
      <form method="post" action="{site.url}/logout"><button>Win</button></form>"""
    with browser.new_context() as context:
        context.route(MAIL, lambda route: route.fulfill(body=letter, content_type="text/html"))
        page = context.new_page()
        page.goto(f"{site.url}/login")
        page.locator("#token").fill(site.api.tokens["root"])
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site.url}/experiments")
        for _ in range(2):
            page.goto(MAIL)
            page.get_by_role("link", name="Tokens").click()
            page.wait_for_url(f"{site.url}/tokens")
            page.goto(MAIL)
            with page.expect_response(f"{site.url}/logout") as forged:
                page.get_by_role("button", name="Win").click()
            assert forged.value.status == 403


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
    assert faults(page) == []
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
    assert faults(page) == []
    page.get_by_role("link", name="Experiment", exact=True).click()
    page.get_by_text("Nothing is judged yet").wait_for()


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
    assert faults(page) == []
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_role("rowheader", name="zoe").wait_for(state="detached")
    assert not site.api.service.access.principal(authorization=f"Bearer {secret}", cookie="", now_ms=0)


def test_a_limit_in_the_dialog_decides_what_is_too_large(page_of: Opened) -> None:
    """By keys alone: a model that is too large can be ticked once the limit is raised, and not before."""
    page = page_of("/experiments")
    page.get_by_role("button", name="Run collection").focus()
    page.keyboard.press("Enter")
    large = page.get_by_label("large:8b")
    large.wait_for()
    assert "more than the 4 billion" in page.locator("label", has=large).inner_text()
    page.locator("#run summary").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Largest model, in billions").fill("8")
    assert large.is_enabled()
    large.focus()
    page.keyboard.press("Space")
    page.get_by_text(re.compile(r"of memory")).wait_for()
    assert large.is_checked()
    assert page.get_by_label("small:0.5b").is_checked()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "open-run"


def test_lists_fit_a_phone(page_of: Opened) -> None:
    """Tokens and the audit log are read and used without scrolling sideways, with keys a thumb can hit."""
    page = page_of("/tokens", width=360)
    revoke = page.get_by_role("button", name="Revoke ann")
    box = revoke.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360
    assert box["height"] >= 44
    for link in page.locator(".menu a").all():
        assert link.bounding_box()["height"] >= 44  # type: ignore[index]
    page.goto("/judge")
    page.get_by_text("Hand in a file").click()
    assert page.evaluate(WIDTH) <= 360
