"""From loose rows to one value per cell and scenario."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

Row = tuple[str, str, str, float | None]

_LARGEST = 1e100
_ROUNDING = 1e-9


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
    `scale` is the size of the largest value, against which rounding is told from spread. `step` is the
    smallest difference between two scenario means, 0 where all are the same.
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
    def step(self) -> float:
        import numpy as np

        gaps = np.diff(np.unique(self.value))
        real = gaps[gaps > _ROUNDING * self.scale]
        return float(real.min()) if len(real) else 0.0

    @property
    def complete(self) -> bool:
        return len(self.value) == len(self.cells) * len(self.scenarios)


def by_cluster(scores: Scores, clusters: Mapping[str, str]) -> Scores | None:
    """The scores with the mean of each cluster in place of its scenarios. None without two shared clusters.

    A scenario without a cluster is its own.
    """
    import numpy as np

    names = [clusters.get(one, f"scenario {one}") for one in scores.scenarios]
    known = sorted(set(names))
    if not 1 < len(known) < len(names):
        return None
    group = scores.cell * len(known) + np.array([known.index(name) for name in names])[scores.scenario]
    keys, at = np.unique(group, return_inverse=True)
    return replace(
        scores,
        scenarios=tuple(known),
        cell=keys // len(known),
        scenario=keys % len(known),
        value=np.bincount(at, scores.value) / np.bincount(at),
    )


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
