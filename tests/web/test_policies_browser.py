"""The page on policies in a browser: as axe sees it, and from a gate to a promotion and back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from browsing import WIDTH, faults
from gate_samples import gate_record
from policies_world import clear, serve
from tipbench.settings import home
from tipbench.workflows.gate_files import keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from browsing import Opened
    from web_world import Site


@pytest.fixture(autouse=True)
def _clean(site: Site) -> Iterator[None]:
    """Each test begins with no gate and nothing served."""
    yield
    clear(site.api)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_axe_finds_nothing_with_much_on_the_page(
    page_of: Opened, site: Site, width: int, scheme: str
) -> None:
    """Nor in its dialogs; nothing is too wide."""
    serve(site.api, "/recommend", 5)
    keep(gate_record(), home() / "gates")
    page = page_of("/policies", width=width, color_scheme=scheme)
    assert faults(page) == []
    assert page.evaluate(WIDTH) <= width
    for name in ("Run a gate", "Simulate", "Promote hybrid"):
        page.get_by_role("button", name=name).click()
        assert faults(page) == []
        assert page.evaluate(WIDTH) <= width
        page.keyboard.press("Escape")


def test_the_table_of_a_trial_fits_a_tablet(page_of: Opened, site: Site) -> None:
    """Its last column holds what the others are measured by: nobody has to look for it to the side."""
    gate_id = keep(gate_record(), home() / "gates")
    asked = {"policy": "hybrid", "gate": gate_id, "canary": 0.5}
    assert site.api.admin.post("/api/policies/promote", json=asked).status_code == 200
    for event in ("completed", "dismissed"):
        serve(site.api, "/recommend", 40, event=event, users=20)
    page = page_of("/policies", width=768)
    deadline = time.monotonic() + 20
    while "a difference of" not in page.locator("#active").inner_text() and time.monotonic() < deadline:
        page.reload()  # the trial is looked at now and then
    table = page.get_by_role("region", name="The trial, the table")
    assert "of 0" not in table.inner_text()
    assert table.evaluate("(it) => it.scrollWidth <= it.clientWidth")


def test_from_a_gate_to_a_promotion_and_back(page_of: Opened) -> None:
    """By keys: start a gate, watch it to its verdict, promote for a share of the users, roll back."""
    page = page_of("/policies")
    page.get_by_text("No gate was held yet.").wait_for()
    page.get_by_role("button", name="Run a gate").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Challenger").select_option("hybrid")
    page.get_by_role("spinbutton", name="Seeds").fill("2")
    page.get_by_role("button", name="Start", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_text("must be at least 5").wait_for()
    assert page.get_by_role("spinbutton", name="Seeds").get_attribute("aria-invalid") == "true"
    page.keyboard.press("Escape")
    until_it_is_passed(page)
    assert page.get_by_role("progressbar", name="random").get_attribute("value") == "100"
    assert faults(page) == []
    page.get_by_role("link", name="The verdict with its numbers").click()
    page.get_by_role("button", name="Promote hybrid").click()
    page.get_by_label("Share of the users").fill("25")
    page.get_by_role("button", name="Promote", exact=True).click()
    page.get_by_role("heading", name="On trial").wait_for()
    assert "25 % of the users" in page.locator("#active").inner_text()
    page.get_by_role("button", name="Roll back").click()
    assert faults(page) == []
    page.locator("#back").get_by_role("button", name="Roll back").click()
    page.get_by_role("heading", name="In force").wait_for()
    assert "egreedy picks the tips" in page.locator(".heading").inner_text()
    page.get_by_text("What was done").click()
    assert "rolled back" in page.locator(".history").inner_text()


def until_it_is_passed(page: Page) -> None:
    """Start gates by keys and watch them. One in forty is void by chance, as seeds are drawn anew."""
    passed = "hybrid against egreedy on tip: passed"
    size = {"Seeds": "8", "Users": "16", "Rounds": "100"}
    for _ in range(3):
        page.get_by_role("button", name="Run a gate").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Challenger").select_option("hybrid")
        for name, value in size.items():
            page.get_by_role("spinbutton", name=name).fill(value)
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/*")
        page.locator("#told", has_text="Done.").wait_for(timeout=90_000)
        page.locator(".result", has_text="hybrid against egreedy on tip:").wait_for()
        if passed in page.locator(".result").inner_text():
            return
        page.goto("/policies")
    raise AssertionError("no gate of three was passed")


def test_a_simulation_is_started_and_its_curves_are_shown(page_of: Opened) -> None:
    """Side by side, each with a line of its own, and the least regret in words."""
    page = page_of("/policies")
    page.get_by_role("button", name="Simulate").click()
    for name in ("egreedy-v2", "linucb"):
        page.locator("#sim").get_by_label(name, exact=True).uncheck()
    for name, value in (("Seeds", "3"), ("Users", "8"), ("Rounds", "40")):
        page.locator("#sim").get_by_label(name).fill(value)
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/jobs/*")
    page.locator(".result", has_text="has the least regret").wait_for(timeout=90_000)
    assert page.locator("polyline.curve").count() == 2
    assert faults(page) == []
