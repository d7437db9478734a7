"""An experiment's cells as a list that can be filtered, by the names that the leaderboard has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from fastapi import Query, Request

from tipbench.compare import figures
from tipbench.workflows.browse import runs_in
from tipbench.workflows.facts import combinations
from tipbench.workflows.places import by_place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.compare.report import Report
    from tipbench.compare.scores import Combination
    from tipbench.records import Run
    from tipbench.workflows.service_state import Service

_MOST_KEPT = 15
JUDGED = (("yes", "judged"), ("no", "waiting for a judge"), ("failed", "failed"))


class Filter:
    """Which cells an address asks for; what is empty asks for nothing."""

    def __init__(
        self,
        model: str = Query(""),
        prompt: str = Query(""),
        scenario: str = Query(""),
        judged: str = Query(""),
    ) -> None:
        asked = {"model": model, "prompt": prompt, "scenario": scenario, "judged": judged}
        self.query = {name: value for name, value in asked.items() if value}


@dataclass(frozen=True, kw_only=True)
class FilterField:
    name: str
    title: str
    choices: Sequence[tuple[str, str]]
    chosen: str


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """A cell in the list, in short texts."""

    run_id: str
    model: str
    prompt: str
    scenario: str
    judged: str
    score: str
    latency: str
    host: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Cells:
    runs: Sequence[Run]
    titles: Mapping[str, str]

    @cached_property
    def names(self) -> Mapping[str, Combination]:
        """By run id, what people call its model and prompt."""
        return {run.run_id: name for name, runs in combinations(self.runs).items() for run in runs}

    @cached_property
    def on_several_hosts(self) -> bool:
        return len(by_place(self.runs)) > 1

    def title(self, scenario_id: str) -> str:
        return self.titles.get(scenario_id) or scenario_id

    def matching(self, chosen: Filter) -> list[Run]:
        asked = chosen.query
        return [run for run in self.runs if all(self._has(run, name, asked[name]) for name in asked)]

    def _has(self, run: Run, name: str, value: str) -> bool:
        if name == "judged":
            return _standing(run) == value
        known = {
            "model": self.names[run.run_id].model,
            "prompt": self.names[run.run_id].prompt,
            "scenario": run.scenario_id,
        }
        return known[name] == value

    def filters(self, chosen: Filter) -> list[FilterField]:
        names = self.names.values()
        choices: dict[str, Sequence[tuple[str, str]]] = {
            "model": _same(one.model for one in names),
            "prompt": _same(one.prompt for one in names),
            "scenario": [(one, self.title(one)) for one in self._scenarios()],
            "judged": JUDGED,
        }
        return [
            FilterField(name=name, title=name, choices=some, chosen=chosen.query.get(name, ""))
            for name, some in choices.items()
        ]

    def _scenarios(self) -> list[str]:
        there = {run.scenario_id for run in self.runs}
        known = [one for one in self.titles if one in there]
        return known + sorted(there - set(known))

    def shown(self, run: Run) -> CellRow:
        name = self.names[run.run_id]
        return CellRow(
            run_id=run.run_id,
            model=name.model,
            prompt=name.prompt,
            scenario=self.title(run.scenario_id),
            judged=_judged(run),
            score=figures.number(run.metrics.get("composite")),
            latency=figures.duration(run.metrics.get("latency_ms")),
            host=place_of(run) if self.on_several_hosts else "",
            tags=tuple(_tags(run)),
        )


class KeptCells:
    """Cells beside the report that they were read with.

    The service hands out one report for as long as nothing has changed, so the same report means the same
    cells; reading them anew would take longer than all else on the page.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Report, Cells]] = []
        self._lock = Lock()

    def of(self, service: Service, experiment: str, report: Report | None) -> Cells:
        """The cells, oldest first, with the report's titles for scenarios where there is a report."""
        with self._lock:
            found = next((cells for known, cells in self._kept if known is report), None)
        if found is not None:
            return found
        runs = runs_in(service.settings({"experiment": experiment}))
        made = Cells(runs, report.titles if report else {})
        if report is not None:
            with self._lock:
                self._kept = [*self._kept[-_MOST_KEPT:], (report, made)]
        return made


def cells_of(request: Request, experiment: str, report: Report | None) -> Cells:
    """The experiment's cells, as they were when the report was made."""
    state = request.app.state
    if not hasattr(state, "kept_cells"):
        state.kept_cells = KeptCells()
    kept: KeptCells = state.kept_cells
    return kept.of(state.service, experiment, report)


def _same(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in sorted(set(values))]


def _standing(run: Run) -> str:
    return "failed" if run.status == "failed" else "no" if run.judge_pending else "yes"


def _judged(run: Run) -> str:
    judged = int(run.metrics.get("n_judged", 0))
    there = run.status == "done" and run.candidates
    return f"{judged} of {len(run.candidates)}" if there else figures.UNKNOWN


def _tags(run: Run) -> list[str]:
    tags = {
        "failed": run.status == "failed",
        "cut off": run.cut is not None,
        "unreadable": run.status == "done" and run.how == "none",
        f"repeat {run.repeat + 1}": run.repeat > 0,
        **{mark.replace("-", " "): True for mark in run.marks if mark != "first-call"},
    }
    return [tag for tag, holds in tags.items() if holds]
