"""Suite × models → the cells still to generate, in the order that loads each model once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tipbench.records import Cell, Model, Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from tipbench.suite import Prompt, Scenario, Suite


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What a person asked for: which prompts and scenarios of a suite, and how to sample."""

    suite: Suite
    prompts: Sequence[Prompt]
    scenarios: Sequence[Scenario]
    n_tips: int
    temperature: float
    num_ctx: int
    num_predict: int
    seed: int
    repeats: int

    def sampling(self, prompt: Prompt) -> Sampling:
        """The person's own choice goes before the prompt's, the prompt's before the suite's."""
        num_ctx, num_predict = self.suite.limits(prompt, n_tips=self.n_tips)
        return Sampling(
            temperature=self.temperature,
            num_ctx=self.num_ctx or num_ctx,
            num_predict=self.num_predict or num_predict,
            think=prompt.think,
        )

    @property
    def slots(self) -> int:
        """How many candidates a cell is asked for: one where the suite's reply is a single text."""
        return self.suite.reply.slots(self.n_tips)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`cells` are to be generated; `done` are the cells of the grid that are there already."""

    cells: tuple[Cell, ...]
    done: tuple[Cell, ...] = ()

    @property
    def skipped(self) -> int:
        return len(self.done)

    def by_model(self) -> Iterator[tuple[Model, list[Cell]]]:
        """Each model once, with all its cells."""
        for model, cells in groupby(self.cells, key=lambda cell: cell.model):
            yield model, list(cells)


def plan_cells(grid: Grid, *, models: Sequence[Model], done: AbstractSet[str]) -> Plan:
    """Cells still to generate, ordered model → prompt → scenario; those whose key is done are skipped.

    Two names for one digest are one model: the first name given is kept.
    """
    unique = {model.digest: model for model in reversed(models)}
    kept = [model for model in models if unique[model.digest] is model]
    cells = [cell for model in kept for cell in _model_cells(grid, model)]
    return Plan(
        cells=tuple(cell for cell in cells if cell.key not in done),
        done=tuple(cell for cell in cells if cell.key in done),
    )


def _model_cells(grid: Grid, model: Model) -> Iterator[Cell]:
    for prompt in grid.prompts:
        sampling = grid.sampling(prompt)
        for scenario in grid.scenarios:
            for repeat in range(grid.repeats):
                yield Cell(
                    model=model,
                    prompt_id=prompt.id,
                    prompt_hash=prompt.hash,
                    scenario_id=scenario.id,
                    scenario_hash=scenario.hash,
                    n_tips=grid.slots,
                    sampling=sampling,
                    base_seed=grid.seed,
                    repeat=repeat,
                )
