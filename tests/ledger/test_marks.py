"""Marks and the cells' cache: nothing that others wrote is hidden, and nothing is read anew without need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_batches import experiment_tags as tags
from ledger_batches import raw_client
from ledger_samples import sample_pin, sample_result
from tipbench.errors import LedgerUnreachable
from tipbench.ledger import MlflowLedger, open_ledger
from tipbench.ledger.address import parse_address
from tipbench.ledger.mlflow_ledger import MARKS, REVISION
from tipbench.ledger.mlflow_store import Store
from tipbench.records import Mark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.records import Run

JUDGED = Mark(metrics={"composite": 4.0, "n_judged": 2.0}, judge_pending=False)


class Interrupted(Store):
    """A store in which something happens just before the second mark of several is written."""

    meanwhile: Callable[[], None]
    written = 0

    def write_mark(self, run_id: str, mark: Mark) -> None:
        if self.written == 1:
            self.meanwhile()
        self.written += 1
        super().write_mark(run_id, mark)


def interrupted(ledger: MlflowLedger, meanwhile: Callable[[], None]) -> MlflowLedger:
    """The same ledger from the same home, but for what happens in between."""
    store = Interrupted(parse_address(ledger.uri, home=ledger._home), home=ledger._home)
    store.meanwhile = meanwhile
    return MlflowLedger(store, home=ledger._home)


@pytest.fixture
def ledger(embedded_home: Path, experiment: str) -> MlflowLedger:
    """The embedded store with three cells, its runs in the cache."""
    ledger = open_ledger("", home=embedded_home)
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(n) for n in range(3)])
    ledger.runs(experiment)
    return ledger


@pytest.fixture
def elsewhere(ledger: MlflowLedger, tmp_path: Path) -> MlflowLedger:
    """The same store from another home."""
    return open_ledger(ledger.uri, home=tmp_path / "other")


def marked(run: Run, mark: Mark = JUDGED) -> Run:
    return replace(run, metrics={**run.metrics, **mark.metrics}, judge_pending=mark.judge_pending)


def fresh(ledger: MlflowLedger, experiment: str, tmp_path: Path) -> list[Run]:
    """The runs as a home sees them that has nothing in its cache."""
    return open_ledger(ledger.uri, home=tmp_path / "never used before").runs(experiment)


def test_marking_spares_the_next_read(ledger: MlflowLedger, experiment: str, tmp_path: Path) -> None:
    """The marks are in the cache as they are in MLflow, which is not read again."""
    runs = ledger.runs(experiment)
    for run in runs[:2]:
        ledger.mark(experiment, {run.run_id: JUDGED})
    expected = [marked(runs[0]), marked(runs[1]), runs[2]]
    assert fresh(ledger, experiment, tmp_path) == expected
    raw_client(ledger).set_tag(runs[2].run_id, "judge_pending", "false")
    assert ledger.runs(experiment) == expected
    (summary,) = [entry for entry in ledger.experiments() if entry.name == experiment]
    assert summary.pending == 1


def test_marks_have_words_of_their_own(ledger: MlflowLedger, experiment: str) -> None:
    """The cells' revision stays, one new word says that something was marked; a repeated mark is silent."""
    before = tags(ledger, experiment)
    (run, *_) = ledger.runs(experiment)
    ledger.mark(experiment, {run.run_id: JUDGED})
    first = tags(ledger, experiment)
    assert first[REVISION] == before[REVISION]
    assert len([name for name in first if name.startswith(MARKS)]) == 1
    ledger.mark(experiment, {run.run_id: JUDGED})
    assert tags(ledger, experiment) == first
    ledger.mark(experiment, {run.run_id: replace(JUDGED, judge_pending=True)})
    second = tags(ledger, experiment)
    assert len([name for name in second if name.startswith(MARKS)]) == 1
    assert second != first


def test_only_what_changes_is_written(ledger: MlflowLedger, experiment: str) -> None:
    """Of runs that are marked so already, as the cache knows, none is written to."""
    first, second, third = ledger.runs(experiment)
    ledger.mark(experiment, {first.run_id: JUDGED, second.run_id: JUDGED})
    client = raw_client(ledger)
    ledger.mark(experiment, {run.run_id: JUDGED for run in (first, second, third)})
    counts = [len(client.get_metric_history(run.run_id, "composite")) for run in (first, second, third)]
    assert counts == [1, 1, 1]


def test_cells_recorded_meanwhile_are_never_hidden(
    ledger: MlflowLedger, elsewhere: MlflowLedger, experiment: str
) -> None:
    """A collection that records while somebody marks is seen at once, the marks as well."""
    runs = ledger.runs(experiment)
    between = interrupted(ledger, lambda: elsewhere.record(experiment, [sample_result(9)]))
    between.mark(experiment, {run.run_id: JUDGED for run in runs})
    for reader in (ledger, elsewhere):
        now = reader.runs(experiment)
        assert [run.scenario_id for run in now] == ["s0", "s1", "s2", "s9"]
        assert now[:3] == [marked(run) for run in runs]


@pytest.mark.parametrize("where", ["this home", "another home"])
def test_two_that_mark_at_once_see_each_other(
    ledger: MlflowLedger, elsewhere: MlflowLedger, experiment: str, where: str
) -> None:
    """What another one marked in between, from this home or another, is in nobody's cache as it was."""
    runs = ledger.runs(experiment)
    elsewhere.runs(experiment)
    other = ledger if where == "this home" else elsewhere
    between = interrupted(ledger, lambda: other.mark(experiment, {runs[2].run_id: JUDGED}))
    between.mark(experiment, {run.run_id: JUDGED for run in runs[:2]})
    for reader in (ledger, elsewhere):
        assert reader.runs(experiment) == [marked(run) for run in runs]
    ledger.mark(experiment, {runs[0].run_id: replace(JUDGED, judge_pending=True)})
    assert len([name for name in tags(ledger, experiment) if name.startswith(MARKS)]) == 1


def test_marks_of_one_that_died_are_seen(ledger: MlflowLedger, experiment: str) -> None:
    """What was written before the ledger went away is not hidden by an older snapshot."""

    def die() -> None:
        raise LedgerUnreachable("gone")

    runs = ledger.runs(experiment)
    with pytest.raises(LedgerUnreachable, match="gone"):
        interrupted(ledger, die).mark(experiment, {run.run_id: JUDGED for run in runs})
    assert ledger.runs(experiment) == [marked(runs[0]), *runs[1:]]
    ledger.mark(experiment, {run.run_id: JUDGED for run in runs})
    assert ledger.runs(experiment) == [marked(run) for run in runs]


def test_without_a_cache_all_are_marked(
    ledger: MlflowLedger, elsewhere: MlflowLedger, experiment: str, tmp_path: Path
) -> None:
    """A home that has not read the runs marks them all the same."""
    runs = ledger.runs(experiment)
    elsewhere.mark(experiment, {run.run_id: JUDGED for run in runs})
    assert ledger.runs(experiment) == elsewhere.runs(experiment) == [marked(run) for run in runs]
