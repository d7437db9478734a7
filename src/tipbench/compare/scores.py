"""From loose rows to one value per cell and scenario."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Row = tuple[str, str, str, float | None]

_LARGEST = 1e100


class Combination(NamedTuple):
    """A model with a prompt version: what is ranked, and in the end shipped."""

    model: str
    prompt: str

    def __str__(self) -> str:
        return f"{self.model} with {self.prompt}"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scenario means: `value[i]` is what `cells[cell[i]]` reached on `scenarios[scenario[i]]`.

    The scenario is the unit: repeats and further tips make its value more precise, and are not new scenarios.
    `scale` is the size of the largest value, against which rounding is told from spread.
    """

    cells: tuple[Combination, ...]
    scenarios: tuple[str, ...]
    cell: NDArray[Any]
    scenario: NDArray[Any]
    value: NDArray[Any]
    judged: tuple[int, ...]
    unjudged: Counter[Combination]
    scale: float

    @property
    def complete(self) -> bool:
        return len(self.value) == len(self.cells) * len(self.scenarios)


def gather(rows: Iterable[Row]) -> Scores:
    """Every row checked, unjudged ones counted apart, the rest averaged per cell and scenario."""
    unjudged: Counter[Combination] = Counter()
    judged: dict[tuple[Combination, str], list[float]] = {}
    for number, row in enumerate(rows, start=1):
        cell, scenario, value = _checked(number, row)
        if value is None:
            unjudged[cell] += 1
        else:
            judged.setdefault((cell, scenario), []).append(value)
    return _scores(judged, unjudged)


def _scores(judged: dict[tuple[Combination, str], list[float]], unjudged: Counter[Combination]) -> Scores:
    """Sorted by name, and summed exactly, so that the order of rows cannot matter."""
    import numpy as np

    keys = sorted(judged)
    cells = tuple(sorted({cell for cell, _ in keys}))
    scenarios = tuple(sorted({scenario for _, scenario in keys}))
    cell_at = {cell: at for at, cell in enumerate(cells)}
    scenario_at = {scenario: at for at, scenario in enumerate(scenarios)}
    counts = Counter(dict.fromkeys(cells, 0))
    for cell, scenario in keys:
        counts[cell] += len(judged[cell, scenario])
    return Scores(
        cells=cells,
        scenarios=scenarios,
        cell=np.array([cell_at[cell] for cell, _ in keys], dtype=int),
        scenario=np.array([scenario_at[scenario] for _, scenario in keys], dtype=int),
        value=np.array([math.fsum(judged[key]) / len(judged[key]) for key in keys]),
        judged=tuple(counts[cell] for cell in cells),
        unjudged=unjudged,
        scale=max((abs(value) for values in judged.values() for value in values), default=0.0),
    )


def _checked(number: int, row: Row) -> tuple[Combination, str, float | None]:
    try:
        model, prompt, scenario, value = row
    except (TypeError, ValueError):
        raise BadInput(f"row {number} is not (model, prompt, scenario, value) but {row!r}") from None
    for part, given in (("model", model), ("prompt", prompt), ("scenario", scenario)):
        if not isinstance(given, (str, int)):
            raise BadInput(f"row {number}: the {part} is {given!r}; give its name")
    where = f"row {number} ({model}, {prompt}, {scenario})"
    return Combination(str(model), str(prompt)), str(scenario), _number(where, value)


def _number(where: str, value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real):
        raise BadInput(f"{where}: the value is {value!r}; give a number, or None where nothing is judged")
    number = float(value)
    if not math.isfinite(number):
        raise BadInput(f"{where}: the value is {number}; give a number, or None where nothing is judged")
    if abs(number) > _LARGEST:
        raise BadInput(f"{where}: the value {number} is too large; give one below {_LARGEST:g}")
    return number
