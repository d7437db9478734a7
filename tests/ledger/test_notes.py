"""Runs beside cells and batches: what a simulation showed, what a gate said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlflow import MlflowClient

from tipbench.ledger import Note, open_ledger

if TYPE_CHECKING:
    from pathlib import Path

NOTE = Note(
    kind="simulation",
    key="0123456789abcdef",
    name="egreedy on tip",
    started_ms=1_000,
    ended_ms=2_000,
    params={"policy": "egreedy"},
    metrics={"regret": 0.15},
    curves={"regret_so_far": [(step, 1 / step) for step in range(1, 801)]},
    tags={"tipbench.world": "tip"},
    texts={"gate.json": "{}"},
)


def test_a_note_is_recorded_whole(home: Path) -> None:
    """Parameters, numbers, curves of many steps and tags are all there, in an experiment of their own."""
    run_id = open_ledger("", home=home).note("tip-sim-tip", NOTE)
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"policy": "egreedy"}
    assert run.data.metrics["regret"] == 0.15
    assert [point.step for point in client.get_metric_history(run_id, "regret_so_far")] == list(range(1, 801))
    assert run.data.tags["tipbench.world"] == "tip"


def test_a_note_is_recorded_once(home: Path) -> None:
    """The same key gives the same run; experiments of notes are not listed among those of cells."""
    ledger = open_ledger("", home=home)
    first = ledger.note("tip-sim-tip", NOTE)
    assert ledger.note("tip-sim-tip", NOTE) == first
    assert ledger.experiments() == []
