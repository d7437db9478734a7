"""Batches and applications to keep, as exporting and applying would make them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger_samples import sample_pin
from tipbench.ledger.batches import WORDS
from tipbench.records import Application, Batch, Item, Judge, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.ledger import MlflowLedger

ANNE = Judge(id="anne", kind="human")
TEXT = (
    "Begin with the smallest task — it takes two minutes ☕ and the rest of the list looks shorter then. {}"
)


def sample_batch(
    experiment: str, batch_id: str = "b1", *, size: int = 6, created_ms: int = 1000, text: str = TEXT
) -> Batch:
    return Batch(
        batch_id=batch_id,
        experiment=experiment,
        created_ms=created_ms,
        purpose="judge",
        judge="anne",
        rubric_id="tip-v1",
        rubric_hash="r" * 64,
        items=tuple(_item(n, text) for n in range(size)),
        contexts={f"s{n}": f"Scene {n}\n– Anna, morning – 行" for n in range(min(size, 8))},
        tips_per_cell=2,
        race=True,
    )


def _item(n: int, text: str) -> Item:
    item = Item(id=f"i{n:03}", role="foil", scenario_id=f"s{n % 8}", text=text.format(n))
    if n % 6 == 4:
        agreed = {"relevance": 3.5, "actionability": 4.25, "tone": 1 / 3}
        return replace(
            item, role="anchor", anchor_id=f"a{n}", reference=agreed, n_references=4, by_people=True
        )
    return item if n % 30 == 5 else replace(item, role="real", candidate=f"{n:016x}")


def sample_application(
    batch: Batch, application_id: str = "x1", *, at_ms: int = 2000, judge: Judge = ANNE, note: str = "hm – ☕"
) -> Application:
    scores = {"relevance": 4, "actionability": 3, "tone": 5}
    return Application(
        application_id=application_id,
        judge=judge,
        at_ms=at_ms,
        verdicts=tuple(
            Verdict(
                candidate=item.candidate,
                scores=scores,
                judge=judge,
                at_ms=at_ms,
                rubric_hash=batch.rubric_hash,
                batch_id=batch.batch_id,
                overlong=None,
                note=note,
                drift_z=-0.7,
            )
            for item in batch.items
            if item.role == "real"
        ),
        hidden={item.id: scores for item in batch.items if item.role != "real"},
        drift_z=-0.7,
        shift=0.125,
    )


def ids(batch: Batch) -> Sequence[str]:
    return [each.application_id for each in batch.applications]


def raw_client(ledger: MlflowLedger) -> Any:  # noqa: ANN401 - MLflow's own client
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=ledger._store.address.uri)


def experiment_tags(ledger: MlflowLedger, experiment: str) -> dict[str, str]:
    return dict(raw_client(ledger).get_experiment_by_name(experiment).tags)


def words_of(ledger: MlflowLedger, experiment: str) -> dict[str, str]:
    tags = experiment_tags(ledger, experiment)
    return {name: value for name, value in tags.items() if name.startswith(WORDS)}


def begun(ledger: MlflowLedger, experiment: str, batch_id: str = "b1", **how: Any) -> Batch:  # noqa: ANN401
    ledger.pin(experiment, sample_pin())
    batch = sample_batch(experiment, batch_id, **how)
    ledger.add_batch(batch)
    return batch


def raw_runs(ledger: MlflowLedger, experiment: str) -> list[Any]:
    client = raw_client(ledger)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))
