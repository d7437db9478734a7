"""From runs and their scores to the rows that are ranked.

A run has `n_tips` slots. A judged slot is worth the rubric's composite; a missing one, and every slot of a
reply that is unreadable, empty or cut off, is worth the rubric's failure value, since dropping failures would
reward models that fail. An unjudged slot is None. Tips beyond the slots are not scored, and a run in which
the engine failed has no slots at all.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import Run

    Scores = Mapping[str, int] | None
    Judged = tuple[Run, Sequence[Scores]]
    Row = tuple[str, str, str, float | None]

_SHORT = 8


class Rubric(Protocol):
    """What scoring asks of a rubric."""

    @property
    def failure(self) -> float: ...

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float: ...


def slot_values(run: Run, scores: Sequence[Scores], *, rubric: Rubric) -> list[float | None]:
    """What each slot is worth, given the scores of the candidates in order; None or left out is unjudged."""
    if len(scores) > len(run.candidates):
        found = f"{len(scores)} scores for {len(run.candidates)} candidates"
        raise BadInput(f"run {run.run_id} has {found}; give one for each candidate")
    if run.status == "failed":
        return []
    return [_slot_value(run, scores, slot, rubric) for slot in range(run.n_tips)]


def _slot_value(run: Run, scores: Sequence[Scores], slot: int, rubric: Rubric) -> float | None:
    if is_failure(run) or slot >= len(run.candidates):
        return rubric.failure
    given = scores[slot] if slot < len(scores) else None
    if given is None:
        return None
    flags = {
        "format_ok": bool(run.metrics.get("format_ok", 0)),
        "overlong": run.candidates[slot].overlong,
    }
    return rubric.score(given, flags)


def is_failure(run: Run) -> bool:
    """Whether a reply as a whole failed, so that there is nothing to judge in it."""
    return run.how == "none" or run.cut is not None


def cell_rows(judged: Iterable[Judged], *, rubric: Rubric) -> list[Row]:
    """Rows for `rank`, one for each slot: an unjudged one is None, any other carries its scenario's value.

    A run is the mean of its judged slots and a scenario the mean of its runs, whichever of them has more
    slots judged; carrying that value in every row keeps both the mean and the count of slots right.
    """
    runs = [(run, slot_values(run, scores, rubric=rubric)) for run, scores in judged]
    names = labels(run for run, _ in runs)
    slots: dict[tuple[str, str, str], list[list[float | None]]] = defaultdict(list)
    for run, values in runs:
        model, prompt = names[run.digest, run.prompt_hash]
        slots[model, prompt, run.scenario_id].append(values)
    return [(*key, value) for key, repeats in slots.items() for value in _levelled(repeats)]


def _levelled(repeats: Sequence[Sequence[float | None]]) -> list[float | None]:
    known = [[value for value in values if value is not None] for values in repeats]
    means = [sum(values) / len(values) for values in known if values]
    unjudged = sum(value is None for values in repeats for value in values)
    whole = [sum(means) / len(means)] * sum(map(len, known)) if means else []
    return [*whole, *([None] * unjudged)]


def labels(runs: Iterable[Run]) -> dict[tuple[str, str], tuple[str, str]]:
    """For each (digest, prompt hash) the names to show.

    Two digests under one name are two models, `name@1a2b3c4d`, and are never pooled; likewise for prompts.
    """
    runs = list(runs)
    models = _unique({run.digest: run.model for run in runs})
    prompts = _unique({run.prompt_hash: run.prompt_id for run in runs})
    return {(run.digest, run.prompt_hash): (models[run.digest], prompts[run.prompt_hash]) for run in runs}


def _unique(names: Mapping[str, str]) -> dict[str, str]:
    taken = list(names.values())
    return {
        identity: name if taken.count(name) == 1 else f"{name}@{identity.removeprefix('sha256:')[:_SHORT]}"
        for identity, name in names.items()
    }
