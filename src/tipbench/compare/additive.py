"""The additive fit, value = cell + scenario + rest: it compares cells judged on different scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tipbench.compare.scores import Scores

_STEPS = 2000


@dataclass(frozen=True, kw_only=True)
class Fit:
    """`means` are the cells' expected means over all scenarios; `noise` is the mean square of the rest.

    `noise` is None where there are no degrees of freedom left to estimate it.
    """

    means: NDArray[Any]
    noise: float | None
    df: int


def fit(scores: Scores) -> Fit:
    """Least squares. On a complete grid the means are the plain ones."""
    import numpy as np

    cells, scenarios = len(scores.cells), len(scores.scenarios)
    cell_effect = _plain_means(scores) if scores.complete else _cell_effects(scores)
    scenario_effect = _mean_by(scores.scenario, scores.value - cell_effect[scores.cell], scenarios)
    parts = np.zeros(scenarios, dtype=int) if scores.complete else _connected(scores)
    df = len(scores.value) - cells - scenarios + len(np.unique(parts))
    rest = scores.value - cell_effect[scores.cell] - scenario_effect[scores.scenario]
    level = _mean_by(parts, scenario_effect, scenarios)
    part_of_cell = np.zeros(cells, dtype=int)
    part_of_cell[scores.cell] = parts[scores.scenario]
    noise = float(rest @ rest) / df if df > 0 else None
    return Fit(means=cell_effect + level[part_of_cell], noise=noise, df=df)


def _plain_means(scores: Scores) -> NDArray[Any]:
    return _mean_by(scores.cell, scores.value, len(scores.cells))


def _mean_by(groups: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[Any]:
    import numpy as np

    return np.asarray(
        np.bincount(groups, values, count) / np.maximum(np.bincount(groups, minlength=count), 1)
    )


def _cell_effects(scores: Scores) -> NDArray[Any]:
    """The normal equations with the scenarios eliminated, solved without ever building the matrix."""
    import numpy as np

    cells, scenarios = len(scores.cells), len(scores.scenarios)
    sizes = np.bincount(scores.cell, minlength=cells).astype(float)

    def within(values: NDArray[Any]) -> NDArray[Any]:
        """Cell sums of values from which their scenario's mean is taken away."""
        middle = _mean_by(scores.scenario, values, scenarios)
        return np.bincount(scores.cell, values - middle[scores.scenario], cells)

    centre = float(scores.value.mean())
    solution = _conjugate_gradient(
        lambda effect: within(effect[scores.cell]), within(scores.value - centre), scale=sizes
    )
    return solution + centre


def _conjugate_gradient(
    product: Callable[[NDArray[Any]], NDArray[Any]], target: NDArray[Any], *, scale: NDArray[Any]
) -> NDArray[Any]:
    """Solves a symmetric system of which only the product with a vector is known."""
    import numpy as np

    solution = np.zeros_like(target)
    rest = target.copy()
    guide = rest / scale
    step, size = guide.copy(), float(rest @ guide)
    enough = size * 1e-26
    for _ in range(_STEPS):
        if size <= enough:
            break
        image = product(step)
        curvature = float(step @ image)
        if curvature <= 0:
            break
        solution += size / curvature * step
        rest -= size / curvature * image
        guide = rest / scale
        size, before = float(rest @ guide), size
        step = guide + size / before * step
    return solution


def _connected(scores: Scores) -> NDArray[Any]:
    """For each scenario the part of the grid that it belongs to: cells join scenarios into parts."""
    import numpy as np

    part = list(range(len(scores.scenarios)))

    def root(at: int) -> int:
        while part[at] != at:
            part[at] = part[part[at]]
            at = part[at]
        return at

    first: dict[int, int] = {}
    for cell, scenario in zip(scores.cell.tolist(), scores.scenario.tolist(), strict=True):
        part[root(scenario)] = root(first.setdefault(cell, scenario))
    return np.array([root(at) for at in range(len(part))], dtype=int)
