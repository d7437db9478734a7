from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from time import process_time
from typing import TYPE_CHECKING

import pytest

from report_samples import NASTY, nasty_report, sample_report
from tipbench.compare.baseline import compare_to_baseline
from tipbench.compare.html import report_html
from tipbench.compare.html_charts import heat_step
from tipbench.compare.leaderboard import rank
from tipbench.compare.report import Exploration, Facts, Report, Shown
from tipbench.compare.scores import Combination
from tipbench.compare.wording import sentences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.compare.scores import Row

VOID = {"meta", "link"}


class Checked(HTMLParser):
    """Reads a page and holds that every element is closed where it should be; keeps the words and the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given), tag
        assert tag not in ("script", "iframe", "img"), tag
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(report: Report) -> Checked:
    page = Checked()
    page.feed(report_html(report))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    return page


def bare_report(rows: list[Row], facts: Mapping[Combination, Facts] | None = None) -> Report:
    """Only what a report must have."""
    board = rank(rows)
    return Report(
        title="bare", board=board, sentences=sentences(board), facts=facts or {}, titles={}, made_ms=0
    )


def test_a_page_says_what_was_compared() -> None:
    """How many of what, judged by whom, under which rubric and when."""
    text = read(sample_report()).text
    assert "4 models × 3 prompts × 8 scenarios" in text
    for part in ("judged by people", "rubric tip-v1", "2025-10-09 08:53 UTC", "288 judged"):
        assert part in text


def test_parts_come_in_the_order_of_reading() -> None:
    """From what to beware of to the fine print."""
    report = sample_report(first=("Beware.",), notes=("A note.",))
    explored = Exploration(weights={"tone": 2.0}, board=report.board, sentence="The winner stays.")
    text = read(replace(report, exploration=explored)).text
    order = [
        "Beware.",
        report.sentences[0],
        report.sentences[1],
        "The 9 rows marked",
        "Two numbers for one row.",
        "Means and how sure they are",
        "The mean of each combination",
        "Scenario by scenario",
        "Quality against speed",
        "Exploration, not a result",
        "A note.",
        "What they wrote",
        "The unit is the scenario",
    ]
    found = [text.index(part) for part in order]
    assert found == sorted(found)


def test_a_page_is_complete_in_itself() -> None:
    """Nothing is loaded: no script, no address, and a policy that forbids both."""
    html = report_html(sample_report())
    assert html.startswith("<!doctype html>")
    assert "default-src 'none'" in html
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert "@import" not in html


def test_nasty_texts_stay_texts() -> None:
    """Markup, quotes, overrides and half characters in any text leave the page sound and can be encoded."""
    page = read(nasty_report())
    assert page.text.count('<script>alert("x")</script>') > 20
    assert "\u202e" not in page.text
    assert report_html(nasty_report()).encode()
    assert NASTY[2] in page.text


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("m", "p", "s", None)],
        [("m", "p", "s", 3.0)],
        [("m", "p", "s", 3.0), ("m", "q", "s", 3.0)],
        [("m", "p", "s", 3.0), ("m", "p", "t", 3.0), ("n", "p", "s", None)],
        [("m", "p", "s", 1e99), ("m", "p", "t", -1e99), ("n", "p", "s", 0.0), ("n", "p", "t", 1e-99)],
        [("m", "p", f"s{at}", 0.5 + at / 100) for at in range(5)]
        + [("n", "p", f"s{at}", 0.5) for at in range(5)],
    ],
)
def test_odd_boards_make_sound_pages(rows: list[Row]) -> None:
    """Nothing judged, one row, one scenario, equal scores, enormous ones: all can be read."""
    report = bare_report(rows)
    text = read(report).text
    assert report.sentences[0] in text
    assert "None" not in text
    assert "nan" not in text


def test_facts_that_are_not_known_are_dashes_or_left_out() -> None:
    """A column of which nothing is known is not there; a single unknown is a dash, never zero."""
    rows: list[Row] = [("m", "p", "s", 3.0), ("m", "p", "t", 4.0), ("n", "p", "s", 2.0), ("n", "p", "t", 2.5)]
    nothing = read(bare_report(rows)).text
    assert "latency" not in nothing
    known = read(bare_report(rows, {Combination("m", "p"): Facts(latency_ms=1200)}))
    assert "1.2 s" in known.text
    assert "Not drawn, for want of a score or a latency: n with p" in known.text


def test_what_was_not_run_or_judged_is_said_so() -> None:
    """The heat map tells a combination that was never run from one that waits for a judge."""
    rows: list[Row] = [("m", "p", "s", 3.0), ("m", "q", "s", None), ("n", "q", "s", 2.0)]
    text = read(bare_report(rows)).text
    assert "not run" in text
    assert "1 to judge" in text
    assert "hatched has no score" in text


def test_candidates_carry_what_the_judges_made_of_them() -> None:
    """Texts with scores, values and notes; what is empty, overlong, truncated or unjudged is marked."""
    shown = (
        Shown(scenario="s", repeat=0, slot=0, text="Go.", value=11.5, scores={"tone": 4.5}, notes=("Kind.",)),
        Shown(scenario="s", repeat=0, slot=1, text="", value=3.0),
        Shown(scenario="s", repeat=0, slot=2, text="Long.", value=None, overlong=True),
        Shown(scenario="t", repeat=1, slot=0, text="Cut", value=3.0, problem="truncated"),
    )
    facts = {Combination("m", "p"): Facts(candidates=shown, by_scenario={"s": 7.5})}
    report = replace(bare_report([("m", "p", "s", 7.5)], facts), titles={"s": "At eight"})
    text = read(report).text
    assert "mean 7.5 · 3 texts · 1 empty · 1 not judged" in text
    parts = ("At eight 7.5", "Go. tone 4.5 11.5 Kind.", "the reply has no candidate here empty 3")
    for part in (*parts, "Long. overlong not judged", "t – Cut truncated 3"):
        assert part in text


def test_a_baseline_is_shown_with_what_dropped_and_what_is_missing() -> None:
    """Each combination then and now; one that cannot be compared says why."""
    then: list[Row] = [(model, "p", f"s{at}", 9.0 + at % 2) for model in "mn" for at in range(8)]
    now: list[Row] = [("m", "p", f"s{at}", 5.0 + at % 3) for at in range(8)]
    now.append(("o", "p", "s1", 9.0))
    found = compare_to_baseline(now, then)
    text = read(replace(bare_report(now), baseline=found)).text
    assert "Against the baseline" in text
    assert all(sentence in text for sentence in found.sentences)
    assert re.search(r"m p 9\.5 5\.9 -3\.6 \S+ to \S+ BLOCK", text)
    assert found.missing[0].reason in text
    assert "New, with nothing to compare: o with p" in text


def test_without_advice_nothing_is_picked_out() -> None:
    """Scores that are no ground for shipping have no recommended row."""
    assert "recommended" in read(sample_report()).text
    held_back = read(sample_report(advise=False, ground="proxy")).text
    assert "recommended" not in held_back
    assert "Cheapest that is close enough to the best" not in held_back
    assert "judged by the proxy, which is rules and no judge" in held_back


def test_a_winner_stands_alone() -> None:
    """It is tagged as the winner, and the page says what that means."""
    rows: list[Row] = [("m", "p", f"s{at}", 9.0 + at % 3) for at in range(8)]
    rows += [("n", "p", f"s{at}", 3.0 + at % 2) for at in range(8)]
    text = read(bare_report(rows)).text
    assert "m p winner" in text
    assert "beats every other by more than luck explains" in text
    assert "1=" not in text.split("How to read this")[1].split("The unit")[0]


def test_a_large_report_stays_small_and_quick() -> None:
    """Twelve combinations on 24 scenarios with 5 tips each: below one megabyte and a second."""
    report = sample_report(n_scenarios=24, n_tips=5)
    report_html(report)
    began = process_time()
    size = len(report_html(report).encode())
    assert size < 1_000_000
    assert process_time() - began < 1


def test_colours_go_from_the_lowest_to_the_highest() -> None:
    """Every step is used, and equal means have the one in the middle."""
    assert [heat_step(value, 0, 6) for value in range(7)] == [0, 1, 2, 3, 4, 5, 6]
    assert heat_step(5, 5, 5) == 3
