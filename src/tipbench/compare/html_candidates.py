"""What each combination wrote, as it unfolds below the charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.compare import figures
from tipbench.compare.table import first_rows, ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.compare.report import Facts, Report, Shown


# What stands in place of a text, by the reply's problem.
_INSTEAD = {
    "truncated": "the reply was truncated before this candidate",
    "prompt truncated": "the host truncated the prompt",
    "unreadable": "the reply could not be read",
}


@dataclass(frozen=True, kw_only=True)
class Tip:
    """One slot: its text, its scores in words, what it counts, and what is the matter with it."""

    place: str
    text: str
    instead: str
    scores: str
    value: str
    tags: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ScenarioTips:
    title: str
    value: str
    tips: tuple[Tip, ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """All that one combination wrote, by scenario."""

    anchor: str
    rank: str
    model: str
    prompt: str
    first: bool
    summary: str
    scenarios: tuple[ScenarioTips, ...]


def candidate_groups(report: Report) -> list[Group]:
    """One group for each row that has candidates, best first."""
    board = report.board
    firsts, places, digits = first_rows(board), ranks(board), figures.decimals(board)
    return [
        Group(
            anchor=f"c{at + 1}",
            rank=places[at],
            model=row.model,
            prompt=row.prompt,
            first=at in firsts,
            summary=_summary(facts, figures.number(row.mean, digits)),
            scenarios=_scenarios(report, facts, digits),
        )
        for at, row in enumerate(board.rows)
        if (facts := report.facts.get(row.combination)) and facts.candidates
    ]


def _summary(facts: Facts, mean: str) -> str:
    empty = sum(not one.text for one in facts.candidates)
    waiting = sum(one.value is None for one in facts.candidates)
    parts = [
        f"mean {mean}",
        figures.count(len(facts.candidates) - empty, "text"),
        f"{empty} empty" if empty else "",
        f"{waiting} not judged" if waiting else "",
    ]
    return " · ".join(part for part in parts if part)


def _scenarios(report: Report, facts: Facts, digits: int) -> tuple[ScenarioTips, ...]:
    """In the suite's order; a scenario that the report has no title for goes by its id, last."""
    by_scenario: dict[str, list[Shown]] = {name: [] for name in report.titles}
    for one in facts.candidates:
        by_scenario.setdefault(one.scenario, []).append(one)
    return tuple(
        ScenarioTips(
            title=report.titles.get(scenario) or scenario,
            value=figures.number(facts.by_scenario.get(scenario), digits),
            tips=_tips(shown, report.scales),
        )
        for scenario, shown in by_scenario.items()
        if shown
    )


def _tips(shown: Sequence[Shown], scales: Sequence[str]) -> tuple[Tip, ...]:
    repeated = len({one.repeat for one in shown}) > 1
    ordered = sorted(shown, key=lambda one: (one.repeat, one.slot))
    return tuple(_tip(one, scales, repeated=repeated) for one in ordered)


def _tip(one: Shown, scales: Sequence[str], *, repeated: bool) -> Tip:
    known = [name for name in scales if name in one.scores]
    known += [name for name in one.scores if name not in known]
    return Tip(
        place=f"repeat {one.repeat + 1}, {one.slot + 1}" if repeated else str(one.slot + 1),
        text=one.text,
        instead=_INSTEAD.get(one.problem, "the reply has no candidate here"),
        scores=" · ".join(f"{name} {figures.short(one.scores[name])}" for name in known),
        value="" if one.value is None else figures.short(one.value),
        tags=_tags(one),
        notes=one.notes,
    )


def _tags(one: Shown) -> tuple[str, ...]:
    tags = {
        one.problem: bool(one.problem),
        "empty": not one.text and not one.problem,
        "overlong": one.overlong,
        "not judged": one.value is None,
    }
    return tuple(tag for tag, holds in tags.items() if holds)
