"""Judging in a real browser: by keys, by thumb, in two tabs, without a connection, after a logout."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from api_world import score
from browsing import SCALES, at_rest, batch_of, faults
from tipbench.workflows.judged import judged_experiment
from web_world import (
    AWAY,
    BIG,
    CARELESS,
    EXPIRED,
    FILED,
    HASTY,
    OFFLINE,
    ROBOT,
    STALE,
    TABS,
    TOUCHED,
    WAITING,
)

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from browsing import Opened
    from web_world import Site

STROKES = "**/api/judge/batches/**"
KEPT = "Object.keys(localStorage).length"


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
    assert faults(page) == []
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
    assert faults(page) == []
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Drift and agreement").wait_for()
    page.get_by_text("Your scores agree with the agreed scores").wait_for()
    assert page.get_by_role("img", name="Drift, batch by batch").count() == 0
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
    page.locator("#saved", has_text="Not saved yet").wait_for()
    page.unroute("**/api/judge/batches/**")
    page.get_by_text("Saved", exact=True).wait_for()
    page.reload()
    assert at_rest(page).locator(".scale-tab.given").count() >= 1


def scored(page: Page) -> int:
    """How many scales of the tip that is shown have a score."""
    return page.locator(".scale-tab.given").count()


def test_a_stroke_outlives_a_reload_without_a_connection(page_of: Opened) -> None:
    """What could not be saved waits in the browser and is saved when the page is open again."""
    page = at_rest(page_of(f"/judge/{OFFLINE}", "ann"))
    page.route(STROKES, lambda route: route.abort())
    page.keyboard.type("34")
    page.locator("#saved", has_text="does not answer").wait_for()
    page.reload()
    assert scored(at_rest(page)) == 2
    page.unroute(STROKES)
    page.get_by_text("Saved", exact=True).wait_for()
    assert page.evaluate(KEPT) == 0
    kept = batch_of(page, OFFLINE)[0]["answer"]
    assert [kept.get(name) for name in SCALES] == [3, 4, None]


def test_a_session_that_ends_loses_no_stroke(page_of: Opened, site: Site) -> None:
    """Whoever is logged out while judging is told, logs in, and finds the stroke that was not saved."""
    page = at_rest(page_of(f"/judge/{EXPIRED}", "ann"))
    tip = page.locator("#tip").inner_text()
    page.context.clear_cookies()
    page.keyboard.press("2")
    page.get_by_text("You are logged out").first.wait_for()
    assert faults(page) == []
    page.get_by_role("link", name="Log in").click()
    page.get_by_label("Token").fill(site.api.tokens["ann"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/judge/*")
    assert at_rest(page).locator("#tip").inner_text() == tip
    assert scored(page) == 1
    page.get_by_text("Saved", exact=True).wait_for()
    assert batch_of(page, EXPIRED)[0]["answer"]["relevance"] == 2


def test_two_tabs_are_one_desk(page_of: Opened) -> None:
    """What is scored in one tab is scored in the other; a batch that is in is in everywhere."""
    first = at_rest(page_of(f"/judge/{TABS}", "bob"))
    second = first.context.new_page()
    second.goto(first.url)
    at_rest(second)
    first.keyboard.type("55")
    second.locator(".scale-tab.given").nth(1).wait_for()
    assert second.locator("#tip").inner_text() == first.locator("#tip").inner_text()
    for _ in batch_of(first, TABS):
        first.keyboard.type("333")
        first.keyboard.press("Enter")
    first.get_by_role("heading", name="All judged").wait_for()
    far = second.locator("#far")
    second.wait_for_function("document.getElementById('far').value === document.getElementById('far').max")
    assert far.get_attribute("max") == str(len(batch_of(first, TABS)))


def test_a_batch_that_is_in_is_judged_no_further(page_of: Opened, site: Site) -> None:
    """A tab that was left open says that its batch was handed in, and leads on."""
    page = at_rest(page_of(f"/judge/{STALE}", "bob"))
    hand_in(site, STALE, "bob")
    page.keyboard.press("4")
    page.get_by_text("was handed in before").wait_for()
    assert not page.locator("#desk").is_visible()
    page.get_by_role("link", name="Look for more").click()
    page.locator("#nothing-told", has_text="nothing").wait_for()


def hand_in(site: Site, experiment: str, who: str) -> None:
    """As the same judge does elsewhere."""
    client = site.api.caller(who)
    batch = client.get(f"/api/judge/{experiment}/batch").json()
    for item in batch["items"]:
        path = f"/api/judge/batches/{batch['batch']}/items/{item['id']}"
        assert client.put(path, json=score(site.api.world, item)).status_code == 200
    answer = client.post(f"/api/judge/batches/{batch['batch']}/submit", json={})
    assert answer.status_code == 200, answer.text


def test_a_file_is_handed_in(page_of: Opened, site: Site, tmp_path: Path) -> None:
    """A judge file is taken from the page and handed in on it; what is none is refused with the reason."""
    page = page_of("/judge", "ann")
    row = page.locator(".entry", has=page.get_by_role("heading", name=FILED))
    with page.expect_download() as taken:
        row.get_by_role("link", name="As a file").click()
    path = tmp_path / "batch.json"
    taken.value.save_as(path)
    page.get_by_text("Hand in a file").click()
    page.get_by_label("Judge file").set_input_files(
        {"name": "x.json", "mimeType": "application/json", "buffer": b"[]"}
    )
    page.get_by_role("button", name="Hand in").click()
    page.get_by_role("alert").wait_for()
    assert faults(page) == []
    document = json.loads(path.read_text(encoding="utf-8"))
    for item in document["items"]:
        item["judge"] |= score(site.api.world, item)
    path.write_text(json.dumps(document), encoding="utf-8")
    page.get_by_label("Judge file").set_input_files(path)
    page.get_by_role("button", name="Hand in").click()
    page.get_by_text(re.compile(r"Taken in: \d+ verdicts")).wait_for()
    row.wait_for(state="detached")
    assert {
        one.judge.id for one in judged_experiment(site.api.service.settings({"experiment": FILED})).verdicts
    } >= {"ann"}


def test_a_model_is_let_judge(page_of: Opened) -> None:
    """The dialog tells a judge that cannot be, starts one that can, and people still have work afterwards."""
    page = page_of(f"/experiments/{ROBOT}")
    page.get_by_role("button", name="AI judge").click()
    page.get_by_label("Judge", exact=True).fill("oracle:delphi")
    assert faults(page) == []
    page.keyboard.press("Enter")
    page.locator("#auto .problem").locator("visible=true").wait_for()
    page.get_by_label("Judge", exact=True).fill("proxy")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.locator(".state.done").wait_for(timeout=60_000)
    assert page.locator("#told").inner_text() == "Done."
    page.goto(f"/judge/{ROBOT}/result")
    page.get_by_text("2 tips that no person has judged").wait_for()
    page.get_by_role("link", name="Judge on").wait_for()


def test_a_rejected_batch_leads_to_another_look(page_of: Opened) -> None:
    """A judge who did not read is told why nothing counts; Enter looks through it again, then hands it in."""
    page = at_rest(page_of(f"/judge/{CARELESS}", "ann"))
    for _ in batch_of(page, CARELESS):
        page.keyboard.type("555")
        page.keyboard.press("Enter")
    page.get_by_role("heading", name="All judged").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Not taken").wait_for()
    page.locator("#finished-problem", has_text="nothing of it is recorded").wait_for()
    assert faults(page) == []
    page.keyboard.press("Enter")
    page.locator("#number", has_text="1 of").wait_for()
    page.reload()
    page.get_by_role("heading", name="Not taken").wait_for()


def test_a_page_whose_batch_is_closed_offers_another_one(page_of: Opened, site: Site) -> None:
    """After three rejections the page ends with a sentence without numbers and a link to the next batch."""
    token = site.api.service.store.tokens.create("eve", "judge", now_ms=0)
    eve = replace(site, api=replace(site.api, tokens={"eve": token}))
    page = page_of("/", None)
    page.context.add_cookies([eve.cookie("eve")])  # type: ignore[list-item]
    page.goto(f"/judge/{HASTY}")
    at_rest(page)
    for keys in ("555", "554", "545"):
        page.evaluate(
            """async ([experiment, keys]) => {
              const batch = await (await fetch(`/api/judge/${experiment}/batch`)).json();
              const given = Object.fromEntries(batch.scales.map((one, n) => [one.name, Number(keys[n])]));
              for (const item of batch.items) {
                const path = `/api/judge/batches/${batch.batch}/items/${item.id}`;
                const headers = { "Content-Type": "application/json" };
                await fetch(path, { method: "PUT", headers, body: JSON.stringify(given) });
              }
            }""",
            [HASTY, keys],
        )
        page.reload()
        page.get_by_role("button", name="Hand in").click()
        told = page.locator("#finished-problem, #nothing-told").locator("visible=true")
        told.filter(has_text="rejected").wait_for()
    page.get_by_text("It is closed now").wait_for()
    assert not re.search(r"\d", page.locator("#nothing-told").inner_text())
    page.get_by_role("link", name="Look for more to judge here").wait_for()
    assert faults(page) == []
