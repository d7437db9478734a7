"""A collected experiment whose candidates have a known worth, and a judge who knows it more or less."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tipbench.ledger import open_ledger
from tipbench.records import (
    Candidate,
    Cell,
    CellResult,
    Completion,
    Host,
    Message,
    Model,
    Reading,
    Sampling,
)
from tipbench.settings import Settings, home
from tipbench.suite import load_suite, normalised
from tipbench.workflows.applying import apply_file
from tipbench.workflows.collect import make_grid, pin_of
from tipbench.workflows.exporting import Order, export

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tipbench.records import Ledger, Run
    from tipbench.suite import Suite
    from tipbench.workflows.applying import Applied

SCALES = ("relevance", "actionability", "tone")
FOREIGN = {"relevance": 1, "actionability": 3, "tone": 3}
_DO = ("Put", "Write", "Call", "Sort", "Pack", "Read", "Clean", "Plan", "Set", "Move", "List", "Book")
_WHAT = ("the notes", "the oven", "two folders", "the bag", "a timer", "the desk", "the phone", "the shelf")
_WHEN = ("before noon", "at four", "after the call", "tonight", "in ten minutes", "on the way", "by six")


@dataclass(frozen=True, kw_only=True)
class World:
    """What was planted: `worth` has the true scores of every text within its scenario."""

    experiment: str
    suite: Suite
    worth: Mapping[tuple[str, str], Mapping[str, int]]
    suite_name: str = "tip"

    @property
    def ledger(self) -> Ledger:
        return open_ledger("", home=home())

    @property
    def settings(self) -> Settings:
        return Settings.of({"experiment": self.experiment, "suite": self.suite_name})

    @property
    def runs(self) -> list[Run]:
        """The cells as a new reader sees them."""
        return self.ledger.runs(self.experiment)

    def true_scores(self, scenario: str, text: str) -> Mapping[str, float]:
        """Of a candidate what was planted, of an anchor its reference, of a foil nothing that fits."""
        key = (scenario, normalised(text))
        if key in self.worth:
            return self.worth[key]
        for anchor in self.suite.anchors:
            if (anchor.scenario_id, normalised(anchor.text)) == key:
                return anchor.reference
        return FOREIGN


def plant(
    experiment: str,
    *,
    quality: Mapping[tuple[str, str], float],
    n_scenarios: int = 4,
    n_tips: int = 2,
    suite: str = "tip",
    repeats: int = 1,
    seed: int = 0,
    changed: Callable[[CellResult], CellResult | None] = lambda result: result,
    ledger: Ledger | None = None,
    remembers: bool = True,
) -> World:
    """Record an experiment of (model, prompt) combinations with tips worth about `quality` on each scale.

    `changed` may alter a result (cut it off, fail it, leave it out with None). An experiment of an earlier
    version is one that does not remember its suite.
    """
    rng = random.Random(seed)  # noqa: S311 - a world that is the same each time
    prompts = sorted({prompt for _, prompt in quality})
    settings = Settings.of(
        {"prompts": prompts, "n_scenarios": n_scenarios, "n_tips": n_tips, "suite": suite, "repeats": repeats}
    )
    grid = make_grid(settings)
    worth: dict[tuple[str, str], Mapping[str, int]] = {}
    results: list[CellResult] = []
    for model, prompt in quality:
        for scenario in grid.scenarios:
            for repeat in range(repeats):
                tips = []
                for slot in range(n_tips):
                    text = _text(rng, f"{len(worth)}{slot}")
                    worth[scenario.id, normalised(text)] = _scores(rng, quality[model, prompt], grid.suite)
                    tips.append(text)
                cell = Cell(
                    model=_model(model),
                    prompt_id=prompt,
                    prompt_hash=grid.suite.prompt(prompt).hash,
                    scenario_id=scenario.id,
                    scenario_hash=scenario.hash,
                    n_tips=n_tips,
                    sampling=Sampling(temperature=0.7, num_ctx=2048, num_predict=400),
                    base_seed=0,
                    repeat=repeat,
                )
                made = changed(_result(cell, tips, grid.suite, started_ms=1_700_000_000_000 + len(results)))
                if made is not None:
                    results.append(made)
    place = ledger or open_ledger("", home=home())
    pin = pin_of(grid)
    place.pin(experiment, pin if remembers else replace(pin, places=(), suites={}))
    place.record(experiment, results)
    return World(experiment=experiment, suite=load_suite(suite), worth=worth, suite_name=suite)


def plant_home(folder: Path, made_home: Path, experiment: str, **how: Any) -> World:  # noqa: ANN401 - as `plant`
    """Plant into a home of its own, which tests copy: planting takes a while."""
    shutil.copytree(made_home, folder, dirs_exist_ok=True)
    return plant(experiment, ledger=open_ledger("", home=folder), **how)


def with_tips(result: CellResult, tips: Sequence[str], *, suite: Suite, **reading: Any) -> CellResult:  # noqa: ANN401 - any field of a reading
    """The result with other tips in it, as they would have been read."""
    assert result.reading is not None
    return replace(
        result,
        reading=replace(result.reading, candidates=tuple(tips), **reading),
        candidates=tuple(Candidate(text=tip, overlong=suite.rubric.is_overlong(tip)) for tip in tips),
    )


def _model(name: str) -> Model:
    size = 1_000_000_000 if "big" in name else 500_000_000
    digest = f"sha256:{abs(hash_of(name)):064x}"
    family = name.partition(":")[0]
    return Model(name=name, digest=digest, parameters=size, size_bytes=size // 2, family=family)


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode()[:24], "big")


def _text(rng: random.Random, salt: str) -> str:
    return f"{rng.choice(_DO)} {rng.choice(_WHAT)} {rng.choice(_WHEN)}, then rest {salt} breaths."


def _scores(rng: random.Random, level: float, suite: Suite) -> dict[str, int]:
    return {
        scale.name: max(scale.low, min(scale.high, round(level + rng.gauss(0, 0.6))))
        for scale in suite.rubric.scales
    }


def _result(cell: Cell, tips: Sequence[str], suite: Suite, *, started_ms: int) -> CellResult:
    return CellResult(
        cell=cell,
        suite_id=suite.id,
        rubric_id=suite.rubric.id,
        rubric_hash=suite.rubric.hash,
        host=Host(kind="ollama", url="http://127.0.0.1:11434", version="0.9"),
        messages=(Message(role="user", content="Go."),),
        started_ms=started_ms,
        ended_ms=started_ms + 500,
        completion=Completion(
            text=json.dumps(tips),
            prompt_tokens=100,
            output_tokens=40,
            latency_ms=400.0 + 100 * ("big" in cell.model.name),
            load_ms=0.0,
            tokens_per_s=80.0,
        ),
        reading=Reading(candidates=tuple(tips), how="strict", format_ok=True),
        candidates=tuple(Candidate(text=tip, overlong=suite.rubric.is_overlong(tip)) for tip in tips),
    )


def fill(
    path: Path,
    world: World,
    *,
    judge: str = "",
    kind: str = "",
    shift: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    only: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    foils_relevant: bool = False,
) -> None:
    """Fill in a judge's file as somebody would who sees the truth, moved by `shift` on each scale."""
    rng = random.Random(seed)  # noqa: S311 - a judge who is the same each time
    document = json.loads(path.read_text(encoding="utf-8"))
    for item in document["items"]:
        if not only(item):
            continue
        truth = world.true_scores(item["scenario"], item["tip"])
        for scale in world.suite.rubric.scales:
            given = truth[scale.name] + shift + (rng.gauss(0, noise) if noise else 0)
            item["judge"][scale.name] = max(scale.low, min(scale.high, round(given)))
        if foils_relevant and truth is FOREIGN:
            item["judge"]["relevance"] = 5
    if judge:
        document["judged_by"]["id"] = judge
    if kind:
        document["judged_by"]["kind"] = kind
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")


def judge_next(world: World, path: Path, *, order: Order | None = None, **filling: Any) -> Applied:  # noqa: ANN401 - as `fill`
    """Export the next batch, fill it in and apply it, as one judge does from beginning to end."""
    order = order or Order(judge=filling.pop("judge", "ann"))
    export(world.settings, order, out=str(path), force=True)
    fill(path, world, **filling)
    return apply_file(world.settings, str(path))
