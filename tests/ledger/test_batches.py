"""Batches as MLflow holds them: what a stranger's hand leaves of them, and what is read from the cache."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_batches import (
    begun,
    experiment_tags,
    ids,
    raw_client,
    raw_runs,
    sample_application,
    sample_batch,
    words_of,
)
from ledger_samples import sample_pin, sample_result
from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger import MlflowLedger, chunks, open_ledger
from tipbench.ledger.address import parse_address
from tipbench.ledger.batches import APPLIED, APPLY, BATCH, CONTENT, application_tags, batch_tags
from tipbench.ledger.codec import application_to_json
from tipbench.ledger.mlflow_store import Store
from tipbench.ledger.words import LEASE_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.records import Batch


def test_a_batch_is_one_ended_run(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """It is told from cells by its kind, is no run that can be shown, and has what was applied beside it."""
    batch = begun(mlflow_ledger, experiment)
    application = sample_application(batch)
    mlflow_ledger.commit(batch, application)
    (run,) = raw_runs(mlflow_ledger, experiment)
    tags = run.data.tags
    assert (run.info.status, run.info.start_time, tags["tipbench.kind"]) == ("FINISHED", 1000, "batch")
    assert tags[BATCH] == "b1"
    assert json.loads(tags[CONTENT])["items"][0]["text"].startswith("Begin with the smallest task — it")
    parts, pointer = application_tags(application)
    assert tags.items() >= (parts | pointer).items()
    assert list(pointer) == [f"{APPLIED}x1"]
    assert all(name.startswith(f"{APPLY}x1.") for name in parts)
    assert mlflow_ledger.runs(experiment) == []
    with pytest.raises(NotFound):
        mlflow_ledger.run(run.info.run_id)


def test_a_batch_left_open_does_not_exist(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """Neither for readers nor for those who apply; keeping it again completes that very run."""
    mlflow_ledger.pin(experiment, sample_pin())
    batch = sample_batch(experiment, experiment[-12:])
    client = raw_client(mlflow_ledger)
    experiment_id = client.get_experiment_by_name(experiment).experiment_id
    tags = batch_tags(batch)
    left = client.create_run(experiment_id, tags=tags | {CONTENT: tags[CONTENT][:9]})
    other = client.create_run(experiment_id, tags=batch_tags(replace(batch, judge="bert")))
    assert mlflow_ledger.batches(experiment) == []
    with pytest.raises(NotFound):
        mlflow_ledger.batch(batch.batch_id)
    with pytest.raises(NotFound):
        mlflow_ledger.commit(batch, sample_application(batch))
    mlflow_ledger.add_batch(batch)
    assert mlflow_ledger.batches(experiment) == [batch]
    statuses = {run.info.run_id: run.info.status for run in raw_runs(mlflow_ledger, experiment)}
    assert statuses == {left.info.run_id: "FINISHED", other.info.run_id: "RUNNING"}


def test_parts_without_the_last_tag_do_not_count(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """What a dead writer left is ignored, and the same application is committed as if it were not there."""
    batch = begun(mlflow_ledger, experiment)
    application = sample_application(batch)
    parts, _ = application_tags(application)
    (run,) = raw_runs(mlflow_ledger, experiment)
    for name, value in parts.items():
        raw_client(mlflow_ledger).set_tag(run.info.run_id, name, value[:1])
    other = sample_application(batch, note="x" * 20_000)
    mlflow_ledger._store.write_tags(run.info.run_id, application_tags(other)[0])
    assert mlflow_ledger.batches(experiment) == [batch]
    mlflow_ledger.commit(batch, application)
    assert mlflow_ledger.batches(experiment) == [replace(batch, applications=(application,))]


class Cutting(Store):
    """A store that cuts long tags without a word, as servers do that know shorter ones only."""

    def _write_portion(self, run_id: str, tags: Mapping[str, str]) -> None:
        super()._write_portion(run_id, {name: value[:4000] for name, value in tags.items()})


def test_what_the_store_did_not_keep_does_not_count(embedded_home: Path, experiment: str) -> None:
    """Neither a batch nor an application counts before it was read back; the refusal names tag and run."""
    ledger = open_ledger("", home=embedded_home)
    batch = begun(ledger, experiment, experiment[-12:], size=60)
    store = Cutting(parse_address("", home=embedded_home), home=embedded_home)
    cutting = MlflowLedger(store, home=embedded_home)
    with pytest.raises(LedgerUnreachable, match=r"did not keep the tag 'tipbench.apply.x1.* of run"):
        cutting.commit(batch, sample_application(batch))
    other = sample_batch(experiment, f"{batch.batch_id}-2", size=60)
    client = raw_client(ledger)
    client.create_run(client.get_experiment_by_name(experiment).experiment_id, tags=batch_tags(other))
    with pytest.raises(LedgerUnreachable, match=r"did not keep the tag 'tipbench.batch.content"):
        cutting.add_batch(other)
    assert ledger.batches(experiment) == [batch]


@pytest.mark.parametrize("damage", ["changed", "missing", "another checksum", "no JSON", "swapped"])
def test_damaged_verdicts_are_never_dropped(
    mlflow_ledger: MlflowLedger, experiment: str, damage: str
) -> None:
    """The refusal names batch, run, experiment and both ways out; without the last tag it reads again."""
    batch = begun(mlflow_ledger, experiment, experiment[-12:])
    application = sample_application(batch)
    mlflow_ledger.commit(batch, application)
    (run,) = raw_runs(mlflow_ledger, experiment)
    client = raw_client(mlflow_ledger)
    parts, pointer = application_tags(application)
    first, last = next(iter(parts)), next(iter(pointer))
    if damage == "missing":
        client.delete_tag(run.info.run_id, first)
    elif damage == "swapped":
        swapped = chunks.to_tags(first, application_to_json(sample_application(batch, note="mine")))
        mlflow_ledger._store.write_tags(run.info.run_id, swapped)
    elif damage == "another checksum":
        client.set_tag(run.info.run_id, last, "0" * 64)
    else:
        client.set_tag(run.info.run_id, first, "x" + parts[first][1:] if damage == "changed" else "{")
    with pytest.raises(BadInput) as refusal:
        mlflow_ledger.batch(batch.batch_id)
    for named in ("'x1'", batch.batch_id, run.info.run_id, experiment, "backup", f"delete the tag {last}"):
        assert named in str(refusal.value)
    client.delete_tag(run.info.run_id, last)
    assert mlflow_ledger.batch(batch.batch_id).applications == ()
    mlflow_ledger.commit(batch, application)
    assert mlflow_ledger.batch(batch.batch_id).applications == (application,)


def test_a_damaged_batch_is_named(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """A batch whose tags were changed by hand is not taken for another one."""
    begun(mlflow_ledger, experiment, "fine")
    begun(mlflow_ledger, experiment, "hurt")
    hurt = next(run for run in raw_runs(mlflow_ledger, experiment) if run.data.tags[BATCH] == "hurt")
    raw_client(mlflow_ledger).set_tag(hurt.info.run_id, CONTENT, "{}")
    reader = open_ledger(mlflow_ledger.uri, home=mlflow_ledger._home / "another")
    with pytest.raises(BadInput, match=f"'hurt' .run {hurt.info.run_id}.*damaged.*backup"):
        reader.batches(experiment)


def test_one_batch_in_two_runs_is_one(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """Two that kept it at the same moment made two runs: what was applied to either counts, once."""
    batch = begun(mlflow_ledger, experiment, experiment[-12:])
    twin, client = self_made_twin(mlflow_ledger, batch), raw_client(mlflow_ledger)
    shared, own = sample_application(batch, "shared"), sample_application(batch, "own")
    mlflow_ledger.commit(batch, shared)
    for application in (shared, own):
        parts, pointer = application_tags(application)
        mlflow_ledger._store.write_tags(twin, parts | pointer)
    assert ids(mlflow_ledger.batch(batch.batch_id)) == ["own", "shared"]
    mlflow_ledger.commit(batch, own)
    assert [ids(each) for each in mlflow_ledger.batches(experiment)] == [["own", "shared"]]
    mlflow_ledger._store.write_tags(twin, batch_tags(replace(batch, judge="bert")))
    with pytest.raises(BadInput, match=f"different batches under one id, '{batch.batch_id}'"):
        mlflow_ledger.batch(batch.batch_id)
    client.delete_run(twin)
    assert ids(mlflow_ledger.batch(batch.batch_id)) == ["shared"]


def self_made_twin(ledger: MlflowLedger, batch: Batch) -> str:
    client = raw_client(ledger)
    experiment_id = client.get_experiment_by_name(batch.experiment).experiment_id
    run_id: str = client.create_run(experiment_id, tags=batch_tags(batch)).info.run_id
    client.set_terminated(run_id)
    return run_id


def test_a_renamed_experiment_keeps_its_batches(embedded_home: Path, experiment: str) -> None:
    """A batch belongs to the experiment that its run is in, whatever that is called now."""
    ledger = open_ledger("", home=embedded_home)
    batch = begun(ledger, experiment, experiment[-12:])
    client = raw_client(ledger)
    client.rename_experiment(client.get_experiment_by_name(experiment).experiment_id, f"{experiment} new")
    found = ledger.batch(batch.batch_id)
    assert found == replace(batch, experiment=f"{experiment} new")
    ledger.commit(found, sample_application(found))
    assert len(ledger.batches(f"{experiment} new")[0].verdicts) == 4


def test_batches_are_read_from_the_cache(embedded_home: Path, experiment: str) -> None:
    """While nobody keeps or applies anything, MLflow is not read; the single batch always is."""
    ledger = open_ledger("", home=embedded_home)
    batch = begun(ledger, experiment, experiment[-12:])
    assert ledger.batches(experiment) == [batch]
    (run,) = raw_runs(ledger, experiment)
    for tags in application_tags(sample_application(batch)):
        ledger._store.write_tags(run.info.run_id, tags)
    assert ledger.batches(experiment) == [batch]
    assert ids(ledger.batch(batch.batch_id)) == ["x1"]
    ledger.commit(batch, sample_application(batch, "x2"))
    assert ids(ledger.batches(experiment)[0]) == ["x1", "x2"]


def test_judging_leaves_the_cells_cache_alone(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """Neither a batch nor an application changes the cells' revision, so their snapshot is still used."""
    mlflow_ledger.pin(experiment, sample_pin())
    mlflow_ledger.record(experiment, [sample_result()])
    (run,) = mlflow_ledger.runs(experiment)
    revision = experiment_tags(mlflow_ledger, experiment)["tipbench.revision"]
    raw_client(mlflow_ledger).set_tag(run.run_id, "judge_pending", "false")
    batch = begun(mlflow_ledger, experiment)
    mlflow_ledger.commit(batch, sample_application(batch))
    assert experiment_tags(mlflow_ledger, experiment)["tipbench.revision"] == revision
    assert mlflow_ledger.runs(experiment) == [run]


def test_every_write_leaves_one_new_word(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """A batch or an application gives the experiment a word never used before; repeating one does not."""
    batch = begun(mlflow_ledger, experiment)
    first = words_of(mlflow_ledger, experiment)
    mlflow_ledger.commit(batch, sample_application(batch))
    second = words_of(mlflow_ledger, experiment)
    assert [*first.values(), *second.values()] == ["written", "written"]
    assert first.keys() != second.keys()
    mlflow_ledger.commit(batch, sample_application(batch))
    mlflow_ledger.add_batch(batch)
    mlflow_ledger.batches(experiment)
    assert words_of(mlflow_ledger, experiment) == second


def test_while_somebody_writes_nothing_is_cached(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """One that dies between its last tag and its word is seen all the same; later its word is cleared."""
    batch = begun(mlflow_ledger, experiment)
    assert mlflow_ledger.batches(experiment) == [batch]
    found = mlflow_ledger._store.experiment(experiment)
    assert found is not None
    word = mlflow_ledger._batches._words.begin(found)
    assert mlflow_ledger.batches(experiment) == [batch]
    (run,) = raw_runs(mlflow_ledger, experiment)
    for tags in application_tags(sample_application(batch)):
        mlflow_ledger._store.write_tags(run.info.run_id, tags)
    assert ids(mlflow_ledger.batches(experiment)[0]) == ["x1"]
    mlflow_ledger.commit(batch, sample_application(batch, "x2"))
    assert word in words_of(mlflow_ledger, experiment)
    long_ago = f"writing since {time.time_ns() // 1_000_000 - LEASE_MS - 1}"
    mlflow_ledger._store.tag_experiment(found.experiment_id, word, long_ago)
    mlflow_ledger.commit(batch, sample_application(batch, "x3"))
    assert list(words_of(mlflow_ledger, experiment).values()) == ["written"]
    assert ids(mlflow_ledger.batches(experiment)[0]) == ["x1", "x2", "x3"]
