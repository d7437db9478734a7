"""The page on policies: with nothing, with much, and where something is damaged."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from gate_samples import gate_record
from policies_world import clear, serve
from tipbench.settings import home
from tipbench.workflows.gate_files import keep
from web_world import inlined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import Api

HEAVIEST = 150_000


@pytest.fixture(autouse=True)
def _clean(pages: Api) -> Iterator[None]:
    """Each test begins with no gate and nothing served."""
    yield
    clear(pages)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_without_anything_the_page_teaches_the_next_step(pages: Api) -> None:
    """How a tip is asked for, how a gate is held, how a shadow is switched on, how something is shipped."""
    text = text_of(pages.admin.get("/policies").text)
    assert "egreedy picks the tips that apps ask for" in text
    for step in (
        "curl -s localhost/recommend",
        "tipbench sim gate --challenger egreedy-v2",
        "tipbench serve --shadow",
        "tipbench ship --experiment",
    ):
        assert step in text
    assert "Roll back" not in text


def test_with_much_the_page_tells_it_all_and_stays_light(pages: Api) -> None:
    """Statistics, weights with their names, the verdict with its numbers, controls, curves, older gates."""
    for route in ("/recommend", "/score/egreedy/v2", "/score/hybrid", "/score/linucb", "/score/thompson"):
        serve(pages, route, 14)
    old = keep(gate_record(outcome="refused", held_ms=1000), home() / "gates")
    keep(gate_record(), home() / "gates")
    html = pages.admin.get("/policies").text
    text = text_of(html)
    assert len(html.encode()) < HEAVIEST
    assert inlined(html) == []
    assert "task overlap" in text
    assert "tip volume" in text
    assert "hybrid against egreedy on tip: passed: it is so." in text
    assert "picking at random was refused" in text
    assert "0.0900 (−0.0500 to 0.1200): not enough" in text
    assert 'class="curve s1"' in html
    assert "2 gates so far" in text
    assert "Promote hybrid" in text
    refused = text_of(pages.admin.get(f"/policies?gate={old}").text)
    assert "It was not passed, so it promotes nobody." in refused
    assert refused.count("hybrid against egreedy on tip: refused: it is so.") == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"world_hash": "x", "world": "drift"}, "it was held in the world drift, and what counts is tip"),
        ({"champion_version": "1-old"}, "it was against another version of egreedy"),
        ({"guardrail": 0.4}, "be worse by 0.4"),
    ],
)
def test_a_gate_that_would_be_refused_has_no_button(pages: Api, changes: dict[str, Any], says: str) -> None:
    """The page says why, as whoever promotes would be told."""
    record = gate_record()
    record["plan"] |= changes
    keep(record, home() / "gates")
    text = text_of(pages.admin.get("/policies").text)
    assert says in text
    assert "Promote hybrid" not in text


def test_a_log_that_said_nothing_has_no_numbers(pages: Api) -> None:
    """No estimate of no decisions; what the log may do is said."""
    said = "no decision with a reward was logged, so the log says nothing"
    record = gate_record()
    nothing = {"n": 0, "users": 0, "effective": 0.0}
    record["verdict"]["off_policy"] = {"stance": "neutral", "reason": said, **nothing}
    keep(record, home() / "gates")
    text = text_of(pages.admin.get("/policies").text)
    assert f"Neutral: {said}." in text
    assert "The log can veto" in text
    assert "from 0 decisions" not in text


def test_a_gate_that_is_not_there_is_a_page_that_says_so(pages: Api) -> None:
    """404 for an id that nobody has, 422 for what is none."""
    assert pages.admin.get(f"/policies?gate={'0' * 16}").status_code == 404
    assert pages.admin.get("/policies?gate=../x").status_code == 422


def test_damage_is_told_and_hides_nothing_else(pages: Api) -> None:
    """Books that are no database and a gate that was changed: a sentence for each, and the rest is there."""
    keep(gate_record(), home() / "gates")
    (home() / "gates" / f"{'a' * 16}.json").write_text("{}")
    (home() / "tips.db").write_bytes(b"no database" * 1000)
    answer = pages.admin.get("/policies")
    assert answer.status_code == 200
    text = text_of(answer.text)
    assert "tips.db" in text
    assert "a" * 16 in text
    assert "hybrid against egreedy on tip" in text
    assert "is in force cannot be read" in text


def test_what_is_damaged_of_one_user_does_not_hide_which_policy_is_in_force(pages: Api) -> None:
    """It is named, once; the policy, how it came to be, and the way back are there."""
    gate_id = keep(gate_record(), home() / "gates")
    promoted = pages.admin.post("/api/policies/promote", json={"policy": "hybrid", "gate": gate_id})
    assert promoted.status_code == 200
    serve(pages, "/score/egreedy", 7)
    with closing(sqlite3.connect(home() / "tips.db")) as books, books:
        assert books.execute("UPDATE memories SET body = x'01' WHERE user_id = 'u3'").rowcount == 1
    text = text_of(pages.admin.get("/policies").text)
    assert text.count("hat egreedy has learned about user") == 1
    assert "hybrid is on trial with 10 % of the users" in text
    assert "Roll back" in text
