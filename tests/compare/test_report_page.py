"""The HTML report in a real browser, opened from a file, with JavaScript off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from browser import chromium
from report_samples import nasty_report, report_of_hosts, sample_report
from tipbench.compare.baseline import compare_to_baseline
from tipbench.compare.html import report_html
from tipbench.compare.report import Exploration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from tipbench.compare.report import Report

    Opened = Callable[..., Page]
    Scheme = Literal["light", "dark"]

# For every element with a text of its own: its contrast with the background behind it.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const seen = (one) => one.getClientRects().length && !one.closest('style, title, desc, .skip, .unseen');
  return [...document.body.querySelectorAll('*')].filter((one) => own(one) && seen(one)).map((one) => {
    const style = getComputedStyle(one);
    const colour = one.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(parse(colour)), light(behind(one))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), one.outerHTML.slice(0, 120)];
  });
}"""
WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page_of(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Opens a report and, in the end, holds that nothing was wrong with it and nothing was asked for."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def opened(report: Report, *, width: int = 1280, scheme: Scheme = "light") -> Page:
        file = tmp_path_factory.mktemp("page") / "report.html"
        file.write_text(report_html(report), encoding="utf-8")
        viewport = {"width": width, "height": 800}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, java_script_enabled=False)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file://", "data:,"))] == []


def everything() -> Report:
    """A report with all of its parts."""
    report = sample_report(first=("Judged by the proxy.",), notes=("Judge drift not checked.",))
    explored = Exploration(weights={"tone": 2.0}, board=report.board, sentence="The winner stays.")
    then = [
        (model, prompt, one.scenario, one.value)
        for (model, prompt), own in report.facts.items()
        for one in own.candidates
    ]
    now = [(*row[:3], row[3] and row[3] - 2) for row in then if row[0] != "gemma3:1b"]
    return replace(report, exploration=explored, baseline=compare_to_baseline(now, then))


def test_the_answer_is_seen_at_once(page_of: Opened) -> None:
    """What the ranking must not be taken for and the two sentences come before the table."""
    report = everything()
    page = page_of(report)
    order = [
        page.get_by_text(text, exact=True).first.bounding_box()
        for text in (report.first[0], *report.sentences)
    ]
    order.append(page.locator("table.board").bounding_box())
    tops = [box["y"] for box in order if box]
    assert len(tops) == 4
    assert tops == sorted(tops)
    assert tops[2] < 800


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("make", [everything, nasty_report, report_of_hosts])
def test_nothing_is_wider_than_the_page(
    page_of: Opened, make: Callable[[], Report], width: int, scheme: Scheme
) -> None:
    """Neither a phone nor a desktop has to be scrolled sideways, folded or unfolded."""
    page = page_of(make(), width=width, scheme=scheme)
    assert page.evaluate(WIDTH) <= width
    page.locator("summary").first.click()
    assert page.evaluate(WIDTH) <= width


@pytest.mark.parametrize("n_models", [12, 1])
def test_very_large_and_very_small_boards_fit_a_phone(page_of: Opened, n_models: int) -> None:
    """Sixty combinations and a single one on one scenario."""
    prompts = ("v1", "v2", "v3", "v4", "v5") if n_models > 1 else ("v1",)
    models = [f"model-{at}:{at}b" for at in range(n_models)]
    report = sample_report(models=models, prompts=prompts, n_scenarios=1 if n_models == 1 else 24, n_tips=1)
    assert page_of(report, width=360).evaluate(WIDTH) <= 360


def test_tables_on_a_phone_do_not_break_numbers(page_of: Opened) -> None:
    """A table that is too wide is moved sideways in its place; no cell becomes a column of letters."""
    page = page_of(everything(), width=360)
    heights = page.evaluate("[...document.querySelectorAll('.plain tr')].map((row) => row.offsetHeight)")
    assert len(heights) == 2 * 13
    assert max(heights) < 70


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_host_has_its_picture_and_each_row_its_host(page_of: Opened, scheme: Scheme) -> None:
    """One chart under each host's name, told apart by those who listen too; small words are readable."""
    page = page_of(report_of_hosts(), scheme=scheme)
    pictures = page.get_by_role("img", name="Mean score against latency on")
    assert pictures.count() == page.locator("#speed h3").count() == 2
    assert page.get_by_role("img", name="Mean score against latency on gpu-1:11434").count() == 1
    assert page.locator("table.board small.on").all_inner_texts().count("mixed hosts") == 3
    assert [one for one in page.evaluate(CONTRASTS) if one[0] < 4.5] == []


def test_dark_is_dark(page_of: Opened) -> None:
    """The page follows the reader's choice of light or dark."""
    colours = {
        scheme: page_of(sample_report(), scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    }
    assert colours["light"] == "rgb(251, 250, 247)"
    assert colours["dark"] == "rgb(20, 24, 26)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(page_of: Opened, scheme: Scheme) -> None:
    """Contrast is at least 4.5 to 1 everywhere."""
    page = page_of(everything(), scheme=scheme)
    page.locator("summary").first.click()
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 200
    assert [one for one in contrasts if one[0] < 4.5] == []


def test_candidates_unfold(page_of: Opened) -> None:
    """A combination's candidates are hidden until it is opened, by hand or by its name in the table."""
    page = page_of(sample_report())
    first, second = page.locator("#c1 li").first, page.locator("#c2 li").first
    assert not first.is_visible()
    page.locator("summary").first.click()
    assert first.is_visible()
    assert not second.is_visible()
    page.locator("table.board a").nth(1).click()
    assert second.is_visible()


def test_print_shows_everything_on_white(page_of: Opened) -> None:
    """On paper every candidate is there and the page is black on white, whatever the screen was."""
    page = page_of(sample_report(), scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#c1 li").first.is_visible()
    assert page.locator("#c12 li").last.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_texts_are_shown_and_never_run(page_of: Opened) -> None:
    """Markup in names, tips and notes is read as letters: the page has no script and no stray element."""
    page = page_of(nasty_report())
    assert page.locator("script, b:text('First')").count() == 0
    assert page.locator("h1").inner_text() == '<script>alert("x")</script>'
    page.locator("summary").first.click()
    assert page.locator("#c1 li").first.inner_text().startswith("<script>")
    assert page.locator("#reading").is_visible()


def test_words_from_right_to_left_keep_to_themselves(page_of: Opened) -> None:
    """A tip in Hebrew runs from the right; what stands around it does not."""
    page = page_of(nasty_report())
    page.locator("summary").first.click()
    tip = page.locator("#c1 li p:first-child", has_text="שלום").first
    assert tip.evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert page.evaluate("getComputedStyle(document.body).direction") == "ltr"


def test_a_reader_who_listens_gets_the_numbers(page_of: Opened) -> None:
    """Landmarks, headings of tables, and pictures with words."""
    page = page_of(everything())
    for role in ("banner", "main", "navigation", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    table = page.get_by_role("table").first
    assert table.get_by_role("rowheader").count() == 12
    assert table.get_by_role("columnheader").count() > 8
    assert page.get_by_role("img", name="gemma3:1b with v1: mean").count() == 1
    assert page.get_by_role("img", name="Mean score against latency").count() == 1
    assert page.locator("svg:not([aria-hidden]):not([role]):not(svg svg)").count() == 0
