"""Batches and applications as JSON and as tags, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from ledger_batches import sample_application, sample_batch
from ledger_samples import sample_pin
from tipbench.ledger import chunks
from tipbench.ledger.batches import application_tags, batch_tags
from tipbench.ledger.codec import (
    application_from_json,
    application_to_json,
    batch_from_json,
    batch_to_json,
    batches_from_json,
    pin_from_json,
    to_json,
)
from tipbench.records import Application, Batch, Item, Judge, SuitePlace, Verdict

CLEAN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
ANYTHING = st.text(st.characters(), max_size=20)
NUMBERS = st.one_of(st.integers(-5, 10), st.floats(allow_nan=False))


def applications(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Application]:
    scores = st.dictionaries(texts, NUMBERS, max_size=3)
    judges = st.builds(Judge, id=texts, kind=st.sampled_from(["human", "agent", "ai", "proxy"]), model=texts)
    perhaps = st.one_of(st.none(), NUMBERS)
    verdicts = st.builds(
        Verdict,
        candidate=texts,
        scores=scores,
        judge=judges,
        at_ms=st.integers(0),
        rubric_hash=texts,
        batch_id=texts,
        overlong=st.one_of(st.none(), st.booleans()),
        note=texts,
        drift_z=perhaps,
        adjudicated=st.booleans(),
    )
    return st.builds(
        Application,
        application_id=texts,
        judge=judges,
        at_ms=st.integers(0),
        verdicts=st.lists(verdicts, max_size=3).map(tuple),
        hidden=st.dictionaries(texts, scores, max_size=2),
        drift_z=perhaps,
        shift=perhaps,
        drift_accepted=st.booleans(),
    )


def batches(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Batch]:
    items = st.builds(
        Item,
        id=texts,
        role=st.sampled_from(["real", "anchor", "foil"]),
        scenario_id=texts,
        text=texts,
        candidate=texts,
        anchor_id=texts,
        reference=st.dictionaries(texts, NUMBERS, max_size=2),
        n_references=st.integers(0),
        by_people=st.booleans(),
    )
    return st.builds(
        Batch,
        batch_id=texts,
        experiment=texts,
        created_ms=st.integers(0),
        purpose=st.sampled_from(["judge", "second", "adjudicate", "auto"]),
        judge=texts,
        rubric_id=texts,
        rubric_hash=texts,
        items=st.lists(items, max_size=3).map(tuple),
        contexts=st.dictionaries(texts, texts, max_size=2),
        tips_per_cell=st.integers(0),
        race=st.booleans(),
        applications=st.lists(applications(texts), max_size=2).map(tuple),
    )


@given(batches(CLEAN))
def test_a_batch_comes_back_equal(batch: Batch) -> None:
    """From its tags without its applications, from the cache with them."""
    text = chunks.from_tags("tipbench.batch.content", batch_tags(batch))
    assert text is not None
    assert batch_from_json(text, experiment=batch.experiment) == replace(batch, applications=())
    assert batches_from_json(to_json([batch, batch])) == [batch, batch]


@given(applications(CLEAN))
def test_an_application_comes_back_equal(application: Application) -> None:
    """Every verdict and number of it, from the tags that its last tag points to."""
    parts, pointer = application_tags(application)
    ((_, digest),) = pointer.items()
    text = chunks.from_tags(f"tipbench.apply.{application.application_id}.{digest[:16]}", parts)
    assert text is not None
    assert chunks.sha256(text) == digest
    assert application_from_json(text) == application


@given(batches(ANYTHING), applications(ANYTHING))
def test_any_text_can_be_stored(batch: Batch, application: Application) -> None:
    """What no database takes is replaced, once: what was stored is stored again as it is."""
    for text in (batch_to_json(batch), application_to_json(application)):
        assert chunks.storable(text) == text
    stored = batch_from_json(batch_to_json(batch), experiment="e")
    assert [item.text for item in stored.items] == [chunks.storable(item.text) for item in batch.items]
    assert batch_from_json(batch_to_json(stored), experiment="e") == stored


def test_the_order_of_scenarios_is_kept() -> None:
    """A judge reads them in the order of the file."""
    contexts = MappingProxyType({"b": "1", "a": "2", "c": "3"})
    batch = replace(sample_batch("e"), contexts=contexts)
    assert list(batch_from_json(batch_to_json(batch), experiment="e").contexts) == ["b", "a", "c"]


def test_long_ones_are_cut_into_tags_that_any_server_holds() -> None:
    """No tag is longer than an older server takes."""
    batch = sample_batch("e", size=60)
    tags = batch_tags(batch) | application_tags(sample_application(batch))[0]
    assert max(len(value) for value in tags.values()) <= 4900
    assert len(tags) > 6


def test_a_pin_of_an_earlier_version_is_read() -> None:
    """A pin that an earlier version left in the spool names no places and no suites."""
    pin = sample_pin()
    data = {
        name: value for name, value in json.loads(to_json(pin)).items() if name not in {"places", "suites"}
    }
    assert pin_from_json(json.dumps(data)) == pin
    kept = replace(pin, places=(SuitePlace(place="/a", hash="b"),))
    assert pin_from_json(to_json(kept)) == kept
