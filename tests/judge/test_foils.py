from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from batch_samples import CONTEXTS, FITTING, SCALES, anchor, dice
from tipbench.judge.candidates import normalised
from tipbench.judge.foils import (
    Foil,
    Source,
    draw_foils,
    relevant_anchors,
    relevant_candidates,
    scenario_stems,
)
from tipbench.judge.hidden import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ABOUT = scenario_stems(CONTEXTS)
SOURCES = [Source(scenario_id=name, text=text, anchor_id=name) for name, text in FITTING.items()]


def drawn(
    sources: Sequence[Source],
    *,
    n: int = 2,
    targets: Sequence[str] = tuple(CONTEXTS),
    room: int = 4,
    shown: frozenset[str] = frozenset(),
    known: frozenset[tuple[str, str]] = frozenset(),
    recent: Sequence[Sequence[str]] = (),
    about: Mapping[str, frozenset[str]] = ABOUT,
    seed: int = 0,
) -> list[Foil]:
    usage, space = Usage(recent=recent), dict.fromkeys(targets, room)
    return draw_foils(
        sources, n=n, room=space, about=about, shown=shown, known=known, usage=usage, rng=dice(seed)
    )


@pytest.mark.parametrize("seed", range(10))
def test_foils_come_from_another_scenario(seed: int) -> None:
    """Two foils: two texts, two scenarios, and neither under its own."""
    foils = drawn(SOURCES, seed=seed)
    assert len({foil.scenario_id for foil in foils}) == 2
    assert len({foil.source for foil in foils}) == 2
    assert all(foil.scenario_id != foil.source.scenario_id for foil in foils)


def test_a_text_that_might_fit_is_no_foil() -> None:
    """One word in common with the scenario it would be shown under, in whichever form, rules a text out."""
    text = "Knead the dough while you are answering calls."
    assert drawn([Source(scenario_id="bakery", text=text)], targets=["office"]) == []
    assert drawn([Source(scenario_id="bakery", text=FITTING["bakery"])], targets=["office"], n=1)


def test_scenarios_that_are_alike_give_no_foils() -> None:
    """A text for the same person on another day may be relevant after all."""
    twin = CONTEXTS | {"bakery-2": CONTEXTS["bakery"].replace("flour", "sugar")}
    source = Source(scenario_id="bakery", text="Sit down first.")
    assert drawn([source], targets=["bakery-2"], about=scenario_stems(twin)) == []


def test_the_scenario_that_differs_most_is_taken() -> None:
    """Of several texts that qualify, the one whose scenario shares the fewest words."""
    about = {
        "here": frozenset("abcdefgh"),
        "near": frozenset("abxyzuvw"),
        "far": frozenset("mnopqrst"),
    }
    sources = [Source(scenario_id="near", text="one"), Source(scenario_id="far", text="two")]
    assert {
        foil.source.text
        for seed in range(10)
        for foil in drawn(sources, n=1, targets=["here"], about=about, seed=seed)
    } == {"two"}


def test_no_text_is_seen_twice() -> None:
    """What is in the batch, was written for the scenario, or is another foil, is not taken."""
    shown = frozenset(normalised(FITTING[name]) for name in ("clinic", "garden"))
    assert [foil.source.scenario_id for foil in drawn(SOURCES, targets=["office"], shown=shown)] == ["bakery"]
    known = frozenset(("office", normalised(FITTING[name])) for name in ("clinic", "garden", "bakery"))
    assert drawn(SOURCES, targets=["office"], known=known) == []


def test_foils_rest_like_anchors() -> None:
    """A text that was shown lately is taken only where there is no other."""
    recent = [["bakery", "clinic"]]
    assert {
        drawn(SOURCES, n=1, targets=["office"], recent=recent, seed=seed)[0].source.text for seed in range(9)
    } == {FITTING["garden"]}


def test_a_scenario_without_room_has_no_foil() -> None:
    """Where every place is taken by anchors, the foil goes elsewhere or nowhere."""
    assert drawn(SOURCES, room=0) == []
    assert len(drawn(SOURCES, targets=["office"], room=1)) == 1


def test_only_relevant_texts_can_be_foils() -> None:
    """An anchor needs 4.5 of 5 in relevance; a candidate needs two longer words of its own scenario."""
    anchors = [anchor("bakery", 10, relevance=4.5), anchor("clinic", 10, relevance=4.4)]
    assert [one.anchor_id for one in relevant_anchors(anchors, relevance=SCALES[0])] == ["bakery-10"]
    texts = [("bakery", FITTING["bakery"]), ("bakery", "Knead well."), ("lost", "Knead dough")]
    found = relevant_candidates(texts, about=ABOUT, rng=dice())
    assert [one.text for one in found] == [FITTING["bakery"]]


def test_labels_tell_nothing() -> None:
    """A word that every scenario has, such as a heading, does not make two of them alike."""
    assert "task" not in ABOUT["bakery"]
    assert {"knea", "doug"} <= ABOUT["bakery"]
