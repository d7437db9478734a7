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
    rejection_from_json,
    rejection_to_json,
    release_from_json,
    release_to_json,
    to_json,
)
from tipbench.records import Application, Batch, Item, Judge, Rejection, Release, SuitePlace, Verdict

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
        remarks=st.dictionaries(texts, st.dictionaries(texts, st.one_of(st.booleans(), texts)), max_size=2),
    )


def rejections(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Rejection]:
    return st.builds(
        Rejection,
        rejection_id=texts,
        judge=st.builds(Judge, id=texts, kind=st.sampled_from(["human", "agent"]), model=texts),
        at_ms=st.integers(0),
        reason=texts,
        drift_z=st.one_of(st.none(), NUMBERS),
        shift=st.one_of(st.none(), NUMBERS),
        foils_failed=st.integers(0, 2),
    )


def releases(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Release]:
    forgiven = st.lists(texts, max_size=3).map(tuple)
    return st.builds(Release, at_ms=st.integers(0), by=texts, forgiven=forgiven)


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
        replaces=texts,
        rejections=st.lists(rejections(texts), max_size=3).map(tuple),
        releases=st.lists(releases(texts), max_size=2).map(tuple),
    )


@given(batches(CLEAN))
def test_a_batch_comes_back_equal(batch: Batch) -> None:
    """From its tags without its applications, from the cache with them."""
    text = chunks.from_tags("tipbench.batch.content", batch_tags(batch))
    assert text is not None
    assert batch_from_json(text, experiment=batch.experiment) == replace(
        batch, applications=(), rejections=(), releases=()
    )
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


@given(rejections(CLEAN), releases(CLEAN))
def test_rejections_and_releases_come_back_equal(rejection: Rejection, release: Release) -> None:
    """Every field, through the text of their tags."""
    assert rejection_from_json(rejection_to_json(rejection)) == rejection
    assert release_from_json(release_to_json(release)) == release


def test_a_batch_of_an_earlier_version_is_read() -> None:
    """Texts without the fields that came later: no rejection, no release, nothing replaced."""
    kept = json.loads(batch_to_json(sample_batch("e")))
    del kept["replaces"]
    assert batch_from_json(json.dumps(kept), experiment="e") == sample_batch("e")
    cached = json.loads(
        to_json([replace(sample_batch("e"), applications=(sample_application(sample_batch("e")),))])
    )
    for name in ("replaces", "rejections", "releases"):
        del cached[0][name]
    del cached[0]["applications"][0]["remarks"]
    (read,) = batches_from_json(json.dumps(cached))
    assert (read.rejections, read.releases, read.replaces, read.is_closed) == ((), (), "", False)


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
