"""Small parts of pages: rubrics, bars, ages, addresses, the drift chart."""

from __future__ import annotations

import re

import pytest

from tipbench.judge.gate import Point
from tipbench.store.jobs import Job
from tipbench.suite import load_suite
from tipbench.web import prose
from tipbench.web.drift_chart import drift_chart
from tipbench.web.guard import as_sentence
from tipbench.web.pages_jobs import told
from tipbench.web.paging import paged
from tipbench.web.render import address, ago, part
from tipbench.web.rubric_sheet import sheet_of
from tipbench.workflows.job_progress import Fold

HOUR = 3_600_000


def test_a_rubric_becomes_a_sheet() -> None:
    """Each scale has its question and its levels, highest first, each with what it asks and examples."""
    sheet = sheet_of(load_suite("tip").rubric)
    assert [scale.name for scale in sheet.scales] == ["relevance", "actionability", "tone"]
    first = sheet.scales[0]
    assert first.question == "Is it about this person, at this moment?"
    assert [level.value for level in first.levels] == [5, 4, 3, 2, 1]
    assert first.levels[1].title == "this task, but anybody's"
    assert first.levels[0].said.startswith("It helps with one of the tasks, and it uses")
    assert first.levels[0].examples.count("<blockquote>") == 2
    assert "Hard cases" in sheet.whole
    assert "overlong_limit" not in sheet.whole


@pytest.mark.parametrize("suite", ["tip", "tip-wide", "support-summary"])
def test_every_rubric_that_ships_has_all_its_levels(suite: str) -> None:
    """No level of a scale is without a word on what it means."""
    for scale in sheet_of(load_suite(suite).rubric).scales:
        assert all(level.title or level.said for level in scale.levels)


def test_markup_in_a_rubric_stays_text() -> None:
    """A rubric is written by somebody: what looks like HTML is shown, not run."""
    html = prose.html(
        prose.blocks("# A <script>\n\n- **b<i>** `x<y`\n- two\n  lines\n\n1. one\n\n> said\n> more")
    )
    assert html == (
        "<h3>A &lt;script&gt;</h3><ul><li><b>b&lt;i&gt;</b> <code>x&lt;y</code></li><li>two lines</li></ul>"
        "<ol><li>one</li></ol><blockquote><p>said more</p></blockquote>"
    )


@pytest.mark.parametrize(
    ("done", "whole", "percent"),
    [(0, 0, 0), (0, 9, 0), (1, 1000, 1), (999, 1000, 99), (9, 9, 100), (1, 2, 50)],
)
def test_a_bar_is_full_only_when_all_is_done(done: int, whole: int, percent: int) -> None:
    """A little is never shown as none, nearly all never as all."""
    assert part(done, whole) == percent


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (0, "just now"),
        (-HOUR, "just now"),
        (90_000, "1 minute ago"),
        (2 * HOUR, "2 hours ago"),
        (49 * HOUR, "2 days ago"),
        (24 * 15 * HOUR, "2023-10-30"),
    ],
)
def test_ages_are_words(age: int, words: str) -> None:
    """How long ago, and a date for what is old; a clock that is ahead does no harm."""
    now = 1_700_000_000_000
    assert ago(now - age, now) == words
    assert ago(None, now) == "–"


def test_addresses_hold_any_name() -> None:
    """Names with slashes, spaces and question marks are one part of a path; what is empty is left out."""
    assert (
        address("experiments", "a/b c?", model="x&y", prompt="", number=None)
        == "/experiments/a%2Fb%20c%3F?model=x%26y"
    )


@pytest.mark.parametrize(("number", "shown"), [(1, [1, 2]), (3, [5]), (0, [1, 2]), (99, [5])])
def test_a_page_beyond_the_last_is_the_last(number: int, shown: list[int]) -> None:
    """Any number leads to a page that exists."""
    paging = paged([1, 2, 3, 4, 5], number=number, size=2, link=str)
    assert list(paging.shown) == shown


def test_an_empty_list_has_one_empty_page() -> None:
    """Nothing to show is no mistake."""
    nothing: list[int] = []
    paging = paged(nothing, number=1, size=2, link=str)
    assert (list(paging.shown), paging.first, paging.last, paging.pages) == ([], 0, 0, 1)


def points(*ewmas: float) -> list[Point]:
    return [
        Point(batch_id=f"b{at}", z=2 * ewma, ewma=ewma, limit=1.0, accepted=False)
        for at, ewma in enumerate(ewmas)
    ]


@pytest.mark.parametrize(
    ("ewma", "sentence"),
    [
        (0.1, "You score as was agreed."),
        (0.7, "a little higher"),
        (-0.7, "a little lower"),
        (-1.5, "lower than was agreed, by more"),
    ],
)
def test_the_drift_chart_says_what_it_shows(ewma: float, sentence: str) -> None:
    """The last batch decides the sentence, which is the picture's name as well."""
    chart = drift_chart(points(0.0, ewma))
    assert chart is not None
    assert sentence in chart.sentence
    assert sentence in chart.svg
    assert "style=" not in chart.svg


def test_many_batches_make_a_chart_of_the_last_ones() -> None:
    """A long history stays readable, and its numbers go on counting."""
    chart = drift_chart(points(*[0.0] * 90))
    assert chart is not None
    assert chart.svg.count("<title>batch ") == 40
    assert "batch 90:" in chart.svg
    assert not re.search(r">51<", chart.svg)
    assert drift_chart([]) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the host is busy", "The host is busy."),
        ("http://127.0.0.1:1 does not answer.", "http://127.0.0.1:1 does not answer."),
        ("qwen2.5:0.5b is not there", "qwen2.5:0.5b is not there."),
        ("", "."),
    ],
)
def test_a_sentence_begins_as_it_should(text: str, sentence: str) -> None:
    """With a capital, unless it begins with an address or the name of a model."""
    assert as_sentence(text) == sentence


def test_what_is_in_backticks_is_code() -> None:
    """And what looks like markup stays text."""
    assert prose.code("run `ollama pull <x>` & wait") == "run <code>ollama pull &lt;x&gt;</code> &amp; wait"


@pytest.mark.parametrize(
    ("planned", "left", "words"),
    [
        (1, 0, "Done: its only cell was there before."),
        (4, 0, "Done: all 4 cells were there before."),
        (2, 1, "Done: 0 of 1 cell; 1 was there before."),
        (4, 2, "Done: 0 of 2 cells; 2 were there before."),
    ],
)
def test_one_cell_is_not_several(planned: int, left: int, words: str) -> None:
    """What was there before is counted as one would say it."""
    job = Job(
        job_id="j", kind="collect", title="", experiment="", params={}, folder="", by="ann", created_ms=0,
        state="done",
    )  # fmt: skip
    fold = Fold()
    models = {"a": left} if left else {}
    fold.add({"event": "plan", "planned": planned, "models": models})
    assert told(job, fold.progress(ended=True)) == words
