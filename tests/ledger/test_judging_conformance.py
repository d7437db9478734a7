"""What every ledger promises of batches, applications and marks, shown on every ledger."""

from __future__ import annotations

import math
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from ledger_batches import ANNE, ids, sample_application, sample_batch
from ledger_samples import sample_pin, sample_result
from tipbench.errors import BadInput, NotFound, PinConflict
from tipbench.records import Judge, Mark, Rejection, Release

if TYPE_CHECKING:
    from tipbench.ledger import MemoryLedger, MlflowLedger
    from tipbench.records import Batch

    from .conftest import Place

    AnyLedger = MlflowLedger | MemoryLedger

LONG = "Zeile – línea – 行 😀\r\n" * 900


@pytest.fixture
def pinned(place: Place, experiment: str) -> AnyLedger:
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    return ledger


@pytest.fixture
def batch(pinned: AnyLedger, experiment: str) -> Batch:
    """A batch that is kept, under an id that no other test uses."""
    batch = sample_batch(experiment, uuid.uuid4().hex[:16])
    pinned.add_batch(batch)
    return batch


def test_a_batch_is_read_back_whole(place: Place, pinned: AnyLedger, experiment: str) -> None:
    """Another opening finds every item, reference and scenario, at any length and in any script."""
    batch = sample_batch(experiment, f"B-1_{experiment[-12:]}.x", size=60, text=f"{LONG[:500]} {{}}")
    batch = replace(batch, contexts={"s0": LONG, "": "", "ß": "\t\x7f\u2028"}, judge="", purpose="second")
    pinned.add_batch(batch)
    assert place.open().batches(experiment) == [batch]
    assert place.elsewhere().batch(batch.batch_id) == batch


def test_batches_come_oldest_first(pinned: AnyLedger, experiment: str) -> None:
    """The order is that of their making, then of their ids, not that of being kept."""
    for batch_id, created_ms in (("c", 5), ("a", 9), ("b", 5)):
        pinned.add_batch(sample_batch(experiment, batch_id, created_ms=created_ms))
    assert [batch.batch_id for batch in pinned.batches(experiment)] == ["b", "c", "a"]


def test_an_experiment_without_batches_has_none(place: Place, experiment: str) -> None:
    """Neither one that nobody began nor one that was only pinned."""
    ledger = place.open()
    assert ledger.batches(experiment) == []
    ledger.pin(experiment, sample_pin())
    assert ledger.batches(experiment) == []


def test_a_batch_kept_again_stays_as_it_is(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """The same content once more changes nothing, not even what was applied meanwhile."""
    pinned.commit(batch, sample_application(batch))
    place.elsewhere().add_batch(batch)
    (kept,) = pinned.batches(batch.experiment)
    assert kept == replace(batch, applications=(sample_application(batch),))


def test_another_batch_under_the_same_id_is_refused(pinned: AnyLedger, batch: Batch) -> None:
    """The refusal names id and experiment, and the first one stays."""
    with pytest.raises(BadInput, match=f"{batch.experiment}.*another batch '{batch.batch_id}'"):
        pinned.add_batch(replace(batch, judge="bert"))
    assert pinned.batches(batch.experiment) == [batch]


def test_a_batch_needs_a_pinned_experiment(place: Place, experiment: str) -> None:
    """A batch must never be there before the rubric it is judged under."""
    with pytest.raises(NotFound, match="it is made by being pinned"):
        place.open().add_batch(sample_batch(experiment))
    with pytest.raises(NotFound, match="it is made by being pinned"):
        place.open().commit(sample_batch(experiment), sample_application(sample_batch(experiment)))


@pytest.mark.parametrize(
    "text", ["", "nosuchbatch", "a' OR tags.`x` = 'b", "é", "x" * 65, "a\n", "`", "\x00"]
)
def test_a_batch_that_is_not_there_is_named(place: Place, text: str) -> None:
    """Whatever somebody wrote into a file is repeated as it is, with the place that was searched."""
    ledger = place.open()
    with pytest.raises(NotFound) as refusal:
        ledger.batch(text)
    assert repr(text) in str(refusal.value)
    assert ledger.uri in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "a'b", "a b", "é", ".x", "x" * 65, "a\n"])
def test_ids_that_cannot_be_looked_for_are_refused(pinned: AnyLedger, batch: Batch, text: str) -> None:
    """Neither a batch nor an application gets an id that a search or a tag cannot hold."""
    with pytest.raises(BadInput, match="cannot be the id of a batch"):
        pinned.add_batch(replace(batch, batch_id=text))
    with pytest.raises(BadInput, match="cannot be the id of an application"):
        pinned.commit(batch, sample_application(batch, text))
    assert pinned.batches(batch.experiment) == [batch]


def test_what_is_committed_is_read_back_whole(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """Every verdict, hidden score and number of an application is seen by all, at once."""
    reader = place.elsewhere()
    assert reader.batches(batch.experiment)[0].verdicts == ()
    application = replace(
        sample_application(batch, note=LONG, judge=Judge(id="gpt – β", kind="ai", model="m:1b")),
        drift_accepted=True,
    )
    pinned.commit(batch, application)
    assert reader.batches(batch.experiment) == [replace(batch, applications=(application,))]
    assert place.open().batch(batch.batch_id).verdicts == application.verdicts


def test_applications_come_in_the_order_of_their_time(pinned: AnyLedger, batch: Batch) -> None:
    """However late one is committed; of the same time, in the order of their ids."""
    for name, at_ms in (("b", 7), ("z", 3), ("a", 7)):
        pinned.commit(batch, sample_application(batch, name, at_ms=at_ms))
    assert ids(pinned.batch(batch.batch_id)) == ["z", "a", "b"]


def test_a_second_commit_changes_nothing(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """The same application once more, or something else under its id, leaves the first as it was."""
    first = sample_application(batch)
    pinned.commit(batch, first)
    place.elsewhere().commit(batch, first)
    pinned.commit(batch, sample_application(batch, note="changed my mind", at_ms=9))
    assert pinned.batch(batch.batch_id).applications == (first,)


def test_an_application_without_verdicts_is_one(pinned: AnyLedger, batch: Batch) -> None:
    """Hidden items alone may be judged, or nothing at all."""
    empty = replace(sample_application(batch), verdicts=(), hidden={}, drift_z=None, shift=None)
    pinned.commit(batch, empty)
    assert pinned.batch(batch.batch_id).applications == (empty,)


def test_nothing_is_applied_to_a_batch_that_is_not_there(pinned: AnyLedger, batch: Batch) -> None:
    """The refusal names batch and experiment."""
    for batch_id in ("nosuchbatch", "it's"):
        stranger = replace(batch, batch_id=batch_id)
        with pytest.raises(NotFound) as refusal:
            pinned.commit(stranger, sample_application(stranger))
        assert repr(batch_id) in str(refusal.value)
        assert repr(batch.experiment) in str(refusal.value)


def test_two_that_apply_at_once_keep_both(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """Two homes commit to one batch at the same moment, several times: nobody's verdicts are lost."""
    ledgers = [pinned, place.elsewhere()]
    start = Barrier(2)

    def apply(ledger: AnyLedger, who: str) -> None:
        start.wait(timeout=30)
        for n in range(4):
            ledger.commit(batch, sample_application(batch, f"{who}-{n}", at_ms=n))

    with ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(apply, ledger, who) for ledger, who in zip(ledgers, "ab", strict=True)]
        for each in tries:
            each.result(timeout=120)
    (seen,) = ledgers[1].batches(batch.experiment)
    assert ids(seen) == [f"{who}-{n}" for n in range(4) for who in "ab"]
    assert ids(pinned.batches(batch.experiment)[0]) == ids(seen)
    assert seen.applications[3] == sample_application(batch, "b-1", at_ms=1)


def test_batches_are_not_cells(pinned: AnyLedger, batch: Batch) -> None:
    """Runs and counts see cells alone, batches see batches alone."""
    pinned.record(batch.experiment, [sample_result(1), sample_result(2, error="x")])
    pinned.commit(batch, sample_application(batch))
    assert [run.scenario_id for run in pinned.runs(batch.experiment)] == ["s1", "s2"]
    (summary,) = [entry for entry in pinned.experiments() if entry.name == batch.experiment]
    assert (summary.done, summary.failed, summary.pending) == (1, 1, 1)
    assert len(pinned.batches(batch.experiment)) == 1
    with pytest.raises(NotFound):
        pinned.run(batch.batch_id)


def test_what_no_store_can_hold_is_replaced(place: Place, pinned: AnyLedger, experiment: str) -> None:
    """NUL and lone surrogates become U+FFFD instead of failing a batch or an application."""
    batch = replace(sample_batch(experiment, size=1, text="a\x00b\ud800"), contexts={"s\x000": "\udfff"})
    pinned.add_batch(batch)
    pinned.commit(batch, sample_application(batch, note="n\x00"))
    pinned.add_batch(batch)
    (kept,) = place.open().batches(experiment)
    assert (kept.items[0].text, kept.contexts) == ("a\ufffdb\ufffd", {"s\ufffd0": "\ufffd"})
    assert kept.verdicts[0].note == "n\ufffd"


def test_a_mark_is_seen_by_all(place: Place, pinned: AnyLedger, experiment: str) -> None:
    """Numbers join those of the run, and it waits for a judge or does not; other runs are as before."""
    pinned.record(experiment, [sample_result(1), sample_result(2)])
    first, second = pinned.runs(experiment)
    reader = place.elsewhere()
    assert reader.runs(experiment) == [first, second]
    pinned.mark(experiment, {first.run_id: Mark(metrics={"composite": 3.25}, judge_pending=False)})
    marked = replace(first, metrics={**first.metrics, "composite": 3.25}, judge_pending=False)
    assert pinned.runs(experiment) == reader.runs(experiment) == [marked, second]
    assert place.open().run(first.run_id)[0] == marked
    (summary,) = [entry for entry in reader.experiments() if entry.name == experiment]
    assert summary.pending == 1


def test_the_latest_mark_counts(place: Place, pinned: AnyLedger, experiment: str) -> None:
    """A number may go down, or be taken back, and a run may wait again; the same mark again is harmless."""
    pinned.record(experiment, [sample_result(1)])
    (run,) = pinned.runs(experiment)
    high = Mark(metrics={"composite": 5.0, "n_judged": 2}, judge_pending=False)
    low = Mark(metrics={"composite": math.nan, "n_judged": 1, "tone": math.inf}, judge_pending=True)
    for ledger, mark in ((pinned, high), (pinned, high), (place.elsewhere(), low), (pinned, low)):
        ledger.mark(experiment, {run.run_id: mark})
    expected = replace(run, metrics={**run.metrics, "n_judged": 1.0}, judge_pending=True)
    assert pinned.runs(experiment) == place.elsewhere().runs(experiment) == [expected]
    pinned.mark(experiment, {})
    assert pinned.runs(experiment) == [expected]


def test_only_what_is_there_is_marked(pinned: AnyLedger, experiment: str) -> None:
    """A run or an experiment that is not there is an error."""
    mark = Mark(metrics={}, judge_pending=False)
    with pytest.raises(NotFound):
        pinned.mark(experiment, {"f" * 32: mark})
    with pytest.raises(NotFound, match="it is made by being pinned"):
        pinned.mark(f"{experiment} other", {"f" * 32: mark})


def test_the_rubric_is_changed_on_purpose_only(place: Place, pinned: AnyLedger, experiment: str) -> None:
    """The pin has the new rubric and all else as before; the old one is what is refused from then on."""
    pinned.record(experiment, [sample_result(1)])
    before = pinned.runs(experiment)
    expected = replace(sample_pin(), rubric_id="tip-v2", rubric_hash="q" * 64, rubric_text=LONG)
    for _ in range(2):
        now = place.elsewhere().change_rubric(
            experiment, rubric_id="tip-v2", rubric_hash="q" * 64, rubric_text=LONG
        )
        assert now == expected
    assert pinned.pinned(experiment) == expected
    assert place.open().pin(experiment, replace(expected, prompts={"v2": "h"})).prompts.keys() == {"v1", "v2"}
    with pytest.raises(PinConflict, match="pinned to the rubric 'tip-v2', and this is 'tip-v1'"):
        pinned.pin(experiment, sample_pin())
    assert pinned.runs(experiment) == before


def test_an_experiment_that_is_not_there_has_no_rubric_to_change(place: Place, experiment: str) -> None:
    """It is not made by the way."""
    ledger = place.open()
    with pytest.raises(NotFound, match="it is made by being pinned"):
        ledger.change_rubric(experiment, rubric_id="a", rubric_hash="b", rubric_text="c")
    assert ledger.pinned(experiment) is None


def test_the_revision_changes_with_everything_that_is_written(
    place: Place, pinned: AnyLedger, experiment: str
) -> None:
    """It stands while nothing happens, and a cell, a batch, an application, a mark or a rubric changes it."""
    batch = sample_batch(experiment, uuid.uuid4().hex[:16])
    seen = [pinned.revision(experiment)]
    assert place.elsewhere().revision(experiment) == seen[0] != ""
    pinned.record(experiment, [sample_result()])
    seen.append(pinned.revision(experiment))
    pinned.add_batch(batch)
    seen.append(pinned.revision(experiment))
    pinned.commit(batch, sample_application(batch))
    seen.append(pinned.revision(experiment))
    (run,) = pinned.runs(experiment)
    pinned.mark(experiment, {run.run_id: Mark(metrics={"composite": 9.0}, judge_pending=False)})
    seen.append(pinned.revision(experiment))
    pinned.change_rubric(experiment, rubric_id="tip-v2", rubric_hash="s" * 64, rubric_text="Be kind.")
    seen.append(pinned.revision(experiment))
    assert len(set(seen)) == len(seen)
    assert place.elsewhere().revision(experiment) == seen[-1]
    assert pinned.revision("nobody's") == ""


def sample_rejection(
    name: str = "r1", *, at_ms: int = 3000, reason: str = "2.1 points off – ☕"
) -> Rejection:
    return Rejection(
        rejection_id=name, judge=ANNE, at_ms=at_ms, reason=reason, drift_z=-4.2, shift=-2.1, foils_failed=1
    )


def test_rejections_are_read_back_and_kept_once(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """In the order of their making, from another opening; the same id again changes nothing."""
    later, first = sample_rejection("r2", at_ms=3001, reason=LONG), sample_rejection()
    for one in (later, first, sample_rejection(at_ms=9999)):
        pinned.reject(batch, one)
    (kept,) = place.elsewhere().batches(batch.experiment)
    assert kept.rejections == (first, later)
    assert kept == replace(batch, rejections=(first, later))
    pinned.add_batch(batch)
    assert place.open().batch(batch.batch_id) == kept, "keeping the batch again takes no rejection away"


def test_a_release_is_read_back(place: Place, pinned: AnyLedger, batch: Batch) -> None:
    """A closed batch is open after its release, for every reader."""
    for name in ("r1", "r2", "r3"):
        pinned.reject(batch, sample_rejection(name))
    assert place.elsewhere().batch(batch.batch_id).is_closed
    release = Release(at_ms=5, by="root – ☕", forgiven=("r1", "r2", "r3"))
    pinned.release(batch, release)
    (kept,) = place.elsewhere().batches(batch.experiment)
    assert (kept.releases, kept.is_closed) == ((release,), False)


def test_batches_with_rejections_are_found_in_every_experiment(
    place: Place, pinned: AnyLedger, batch: Batch, experiment: str
) -> None:
    """Those with a rejection, whole, oldest first; a batch without one is not among them."""
    other = f"{experiment}-other"
    pinned.pin(other, sample_pin())
    second = sample_batch(other, uuid.uuid4().hex[:16], created_ms=batch.created_ms - 1)
    plain = sample_batch(experiment, uuid.uuid4().hex[:16])
    for one in (second, plain):
        pinned.add_batch(one)
    for one in (batch, second):
        pinned.reject(one, sample_rejection())
    names = {batch.batch_id, second.batch_id, plain.batch_id}
    found = [one for one in place.elsewhere().rejected_batches() if one.batch_id in names]
    assert [one.batch_id for one in found] == [second.batch_id, batch.batch_id]
    assert found[1] == replace(batch, rejections=(sample_rejection(),))


def test_a_rejection_of_an_unknown_batch_is_refused(pinned: AnyLedger, batch: Batch) -> None:
    """Nothing is written for a batch that is not there."""
    missing = replace(batch, batch_id="nope")
    with pytest.raises(NotFound, match="nope"):
        pinned.reject(missing, sample_rejection())
    with pytest.raises(NotFound, match="nope"):
        pinned.release(missing, Release(at_ms=1, by="root", forgiven=()))
