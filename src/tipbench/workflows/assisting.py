"""Means from the scores of people and of a calibrated AI judge, where people scored only a part."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from tipbench.compare.assisted import Assisted, assist
from tipbench.compare.leaderboard import rank
from tipbench.compare.scores import Combination
from tipbench.judge.scoring import cell_rows
from tipbench.judge.verdicts import counting_judges, latest, wanted
from tipbench.workflows.facts import bounds_around
from tipbench.workflows.judged import PEOPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.scores import Row
    from tipbench.records import Judge, JudgeKind
    from tipbench.workflows.judged import Judged


@dataclass(frozen=True, kw_only=True)
class AssistedMean:
    """The mean of one model with one prompt, from the scores of people and of this AI judge."""

    model: str
    prompt: str
    judge: str
    assisted: Assisted


def assisted_means(state: Judged, ground: JudgeKind | None) -> tuple[AssistedMean, ...]:
    """The means on the ground of people. None unless a calibrated AI judge has scored all candidates.

    None either where people scored all of them: the judge cannot add anything then.
    """
    if ground not in PEOPLE or all(one.judge.kind != "ai" for one in state.verdicts):
        return ()
    keys = wanted(state.runs, tips_per_cell=state.tips_per_cell).values()
    every = {key for some in keys for key in some}
    if every <= state.scores(ground).keys():
        return ()
    judge = _calibrated(state, every)
    if judge is None:
        return ()
    rows = state.rows(ground)
    bounds = bounds_around(state, rows)
    machine = _by_scenario(_rows(state, _scores(state, judge)))
    alone = {row.combination: _interval(row) for row in rank(rows, bounds=bounds).rows}
    found = {
        name: assist(values, machine.get(name, {}), alone=alone.get(name), bounds=bounds)
        for name, values in _by_scenario(rows).items()
    }
    return tuple(
        AssistedMean(model=name.model, prompt=name.prompt, judge=judge.id, assisted=one)
        for name, one in found.items()
        if one is not None
    )


def _calibrated(state: Judged, every: set[str]) -> Judge | None:
    """Of the AI judges that scored everything and may rank alone, the one closest to people."""
    judges = counting_judges(state.verdicts, rubric_hash=state.rubric.hash, kind="ai")
    whole = [judge for judge in judges if every <= _scores(state, judge).keys()]
    found = [(state.calibration(judge), judge) for judge in whole]
    trusted = [(one.least_alpha or 0.0, judge) for one, judge in found if one.passes]
    return max(trusted, key=lambda pair: pair[0])[1] if trusted else None


def _scores(state: Judged, judge: Judge) -> dict[str, Mapping[str, float]]:
    """The scores of one version of a judge, by candidate."""
    return {
        candidate: verdict.scores
        for candidate, by_judge in latest(state.verdicts, rubric_hash=state.rubric.hash).items()
        for one, verdict in by_judge.items()
        if (one.id, one.kind, one.version) == (judge.id, judge.kind, judge.version)
    }


def _interval(row: LeaderboardRow) -> tuple[float, float] | None:
    return None if row.low is None or row.high is None else (row.low, row.high)


def _rows(state: Judged, scores: Mapping[str, Mapping[str, float]]) -> list[Row]:
    return cell_rows(state.runs, scores, rubric=state.rubric, tips_per_cell=state.tips_per_cell)


def _by_scenario(rows: Iterable[Row]) -> dict[Combination, dict[str, float]]:
    """The mean of each scenario, by model and prompt; unjudged slots are left out."""
    values: dict[Combination, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for model, prompt, scenario, value in rows:
        if value is not None:
            values[Combination(model, prompt)][scenario].append(value)
    return {name: {one: fmean(some) for one, some in by.items()} for name, by in values.items()}
