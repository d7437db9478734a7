"""Verdicts on a planted experiment, given without a file: whoever judged, whatever they gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import slot_texts
from tipbench.records import Application, Batch, Item, Judge, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tipbench.records import Ledger, Run

    Points = Callable[[Run, int], int]

ANNA = Judge(id="anna", kind="human")
BEN = Judge(id="ben", kind="human")
CODY = Judge(id="cody", kind="agent", model="some-agent")
ROBOT = Judge(id="ollama:judge", kind="ai", model="judge")
PROXY = Judge(id="proxy", kind="proxy")


def spread(points: int) -> dict[str, int]:
    """Scores for the three scales of `tip-v1` that add up to so many points, 3 to 15."""
    least, more = divmod(points, 3)
    names = ("relevance", "actionability", "tone")
    return {name: least + (at < more) for at, name in enumerate(names)}


def by_scenario(points: Mapping[tuple[str, str], Sequence[int]]) -> Points:
    """What a judge gives who knows for each (model, prompt) the points of its first, second … scenario."""
    places: dict[tuple[str, str], dict[str, int]] = {}

    def given(run: Run, _slot: int) -> int:
        name = (run.model, run.prompt_id)
        seen = places.setdefault(name, {})
        at = seen.setdefault(run.scenario_id, len(seen))
        return points[name][at % len(points[name])]

    return given


def judge(
    ledger: Ledger,
    experiment: str,
    who: Judge,
    points: Points,
    *,
    only: Callable[[Run, int], bool] = lambda _run, _slot: True,
    batch_id: str = "",
    rubric_hash: str = "",
    at_ms: int = 1000,
    anchors: Sequence[Item] = (),
    drift_z: float | None = None,
    drift_accepted: bool = False,
    adjudicated: bool = False,
    tips_per_cell: int = 0,
    race: bool = False,
    note: str = "",
) -> Batch:
    """Add a batch with every candidate that `only` lets through, and one application with `points` for each.

    The scenario's places are those of the order in which its runs were recorded.
    """
    pin = ledger.pinned(experiment)
    assert pin is not None
    rubric = rubric_hash or pin.rubric_hash
    name = batch_id or f"b{len(ledger.batches(experiment)) + 1}"
    found: dict[str, tuple[Item, int]] = {}
    for run in ledger.runs(experiment):
        for slot, text in enumerate(slot_texts(run)):
            given = points(run, slot)
            if only(run, slot):
                key = candidate_key(run.scenario_id, text)
                item = Item(
                    id=f"{name}-{key}", role="real", scenario_id=run.scenario_id, text=text, candidate=key
                )
                found.setdefault(key, (item, given))
    batch = Batch(
        batch_id=name,
        experiment=experiment,
        created_ms=at_ms,
        purpose="adjudicate" if adjudicated else "judge",
        judge=who.id,
        rubric_id=pin.rubric_id,
        rubric_hash=rubric,
        items=(*(item for item, _ in found.values()), *anchors),
        contexts={item.scenario_id: f"About {item.scenario_id}\nas it was" for item, _ in found.values()},
        tips_per_cell=tips_per_cell,
        race=race,
    )
    verdicts = tuple(
        Verdict(
            candidate=item.candidate,
            scores=spread(given),
            judge=who,
            at_ms=at_ms,
            rubric_hash=rubric,
            batch_id=name,
            drift_z=drift_z,
            adjudicated=adjudicated,
            note=note,
        )
        for item, given in found.values()
    )
    ledger.add_batch(batch)
    application = Application(
        application_id=f"a-{name}",
        judge=who,
        at_ms=at_ms,
        verdicts=verdicts,
        hidden={item.id: item.reference for item in anchors},
        drift_z=drift_z,
        shift=None if drift_z is None else 0.0,
        drift_accepted=drift_accepted,
    )
    ledger.commit(batch, application)
    return batch


def anchor(number: int, *, by_people: bool) -> Item:
    return Item(
        id=f"anchor-{number}",
        role="anchor",
        scenario_id="monday-inbox",
        text=f"An anchor, the {number}th.",
        anchor_id=f"anchor-{number}",
        reference=spread(9),
        n_references=4,
        by_people=by_people,
    )
