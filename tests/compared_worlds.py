"""Small experiments in a ledger that forgets, judged as a test wants them, and the report on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judged_world import plant
from tipbench.ledger.memory import MemoryLedger
from tipbench.workflows.comparing import report_on
from tipbench.workflows.judged import read_judged
from verdict_planting import ANNA, by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tipbench.compare.report import Report
    from tipbench.records import CellResult, Judge
    from verdict_planting import Points

    Given = Mapping[tuple[str, str], Sequence[int]]

BIG, SMALL, OTHER = ("a-big:1b", "v1"), ("b:500m", "v1"), ("b:500m", "v2-mentor")
AHEAD: Given = {BIG: (15, 14, 15, 14), SMALL: (11, 10, 10, 11)}
CLOSE: Given = {BIG: (12, 10, 13, 9), SMALL: (12, 11, 12, 8)}
UNSURE: Given = {BIG: (15, 4, 14, 5), SMALL: (5, 14, 4, 14)}


def world(
    *combinations: tuple[str, str],
    name: str = "x",
    into: MemoryLedger | None = None,
    **how: Any,  # noqa: ANN401 - as `plant` takes
) -> MemoryLedger:
    """An experiment that nobody has judged; `how` is for `plant`."""
    place = into or MemoryLedger()
    plant(name, quality=dict.fromkeys(combinations or (BIG, SMALL), 3.0), ledger=place, **how)
    return place


def judged(points: Given, who: Judge = ANNA, **how: Any) -> MemoryLedger:  # noqa: ANN401 - as `judge` takes
    """An experiment of these combinations, with these points for each scenario; `how` is for `judge`."""
    place = world(*points)
    judge(place, "x", who, by_scenario(points), **how)
    return place


def report(place: MemoryLedger, name: str = "x", **how: Any) -> Report:  # noqa: ANN401 - as `report_on` takes
    return report_on(read_judged(place, name), **how)


def flat(points: int) -> Points:
    return lambda _run, _slot: points


def cut_off(name: tuple[str, str]) -> Callable[[CellResult], CellResult]:
    def changed(one: CellResult) -> CellResult:
        cut = (one.cell.model.name, one.cell.prompt_id) == name
        return (
            replace(one, completion=one.completion and replace(one.completion, cut="reply")) if cut else one
        )

    return changed
