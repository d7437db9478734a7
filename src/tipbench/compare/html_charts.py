"""The report's numbers as the page's charts want them."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from markupsafe import Markup

from tipbench.compare import charts, figures
from tipbench.compare.report import Facts, Speed
from tipbench.compare.table import first_rows, ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tipbench.compare.charts import Axis, Mark
    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.report import Report

HEAT_STEPS = 7
NO_SPEED = Speed(n_cells=0)


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A row of a chart: its two labels, and what is drawn beside them."""

    label: str
    below: str
    svg: Markup
    first: bool = False
    rank: str = ""


@dataclass(frozen=True, kw_only=True)
class Strips:
    """Rows over one common axis."""

    rows: tuple[Strip, ...]
    axis: Markup
    legend: tuple[tuple[Markup, str], ...]


def forest(report: Report) -> Strips | None:
    """Means with their intervals and estimates; None while nothing is judged."""
    board = report.board
    judged = [row for row in board.rows if row.mean is not None]
    if not judged:
        return None
    axis, firsts, places = _forest_axis(report, judged), first_rows(board), ranks(board)
    rows = tuple(
        Strip(
            label=row.model,
            below=row.prompt,
            svg=_forest_row(report, row, axis, first=at in firsts),
            first=at in firsts,
            rank=places[at],
        )
        for at, row in enumerate(board.rows)
        if row.mean is not None
    )
    legend = (
        (_markup(charts.swatch("mean")), "mean"),
        (_markup(charts.swatch("range")), f"{100 * (1 - board.alpha):g} % range"),
        (_markup(charts.swatch("estimate")), "what to expect"),
    )
    return Strips(rows=rows, axis=_markup(charts.axis_strip(axis)), legend=legend)


def _forest_axis(report: Report, judged: list[LeaderboardRow]) -> Axis:
    """Over the means and ranges, but no further than scores can go: two scenarios have endless ranges."""
    inner = [value for row in judged for value in (row.mean, row.estimate) if value is not None]
    ends = [value for row in judged for value in (row.low, row.high) if value is not None]
    lowest = min([*inner, *ends]) if report.lowest is None else min([report.lowest, *inner])
    highest = max([*inner, *ends]) if report.highest is None else max([report.highest, *inner])
    return charts.axis_for([*inner, *(min(max(end, lowest), highest) for end in ends)])


def _forest_row(report: Report, row: LeaderboardRow, axis: Axis, *, first: bool) -> Markup:
    digits = figures.decimals(report.board)
    words = [f"{row.combination}: mean {figures.number(row.mean, digits)}"]
    if row.low is not None:
        words.append(f"range {figures.number(row.low, digits)} to {figures.number(row.high, digits)}")
    if row.estimate is not None:
        words.append(f"expect {figures.number(row.estimate, digits)}")
    if first:
        words.append("winner" if report.board.winner else "tied for first")
    return _markup(
        charts.interval_strip(
            axis,
            told=", ".join(words),
            mean=row.mean,
            low=row.low,
            high=row.high,
            estimate=row.estimate,
            mark="first" if first else "other",
        )
    )


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A combination in the heat map; without a `step` its number is missing and `text` says why."""

    text: str
    rank: str = ""
    step: int | None = None
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    prompts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]
    missing: bool


def heat_map(report: Report) -> HeatMap | None:
    """Models by their best row, prompts by name; None where there is nothing to lay out."""
    rows = report.board.rows
    if not any(row.mean is not None for row in rows):
        return None
    prompts = tuple(sorted({row.prompt for row in rows}))
    tiles = _tiles(report)
    absent = Tile(text="not run")
    lines = tuple(
        (model, tuple(tiles.get((model, prompt), absent) for prompt in prompts))
        for model in dict.fromkeys(row.model for row in rows)
    )
    missing = any(tile.step is None for _, line in lines for tile in line)
    return HeatMap(prompts=prompts, rows=lines, missing=missing)


def _tiles(report: Report) -> dict[tuple[str, str], Tile]:
    board, digits = report.board, figures.decimals(report.board)
    means = [row.mean for row in board.rows if row.mean is not None]
    low, high = min(means), max(means)
    firsts, places = first_rows(board), ranks(board)
    return {
        (row.model, row.prompt): Tile(
            text=figures.number(row.mean, digits) if row.mean is not None else "not judged",
            rank=places[at] if row.mean is not None else "",
            step=None if row.mean is None else heat_step(row.mean, low, high),
            first=at in firsts,
        )
        for at, row in enumerate(board.rows)
    }


def heat_step(value: float, low: float, high: float) -> int:
    """From 0 for the lowest to the last step for the highest; the middle where there is no difference."""
    if high <= low:
        return HEAT_STEPS // 2
    return min(HEAT_STEPS - 1, int(HEAT_STEPS * (value - low) / (high - low)))


def scenario_dots(report: Report) -> Strips | None:
    """One row for each scenario, a dot for each combination; None where no scenario has a value."""
    marks = _marks(report)
    by_scenario: dict[str, list[tuple[LeaderboardRow, float]]] = {name: [] for name in report.titles}
    for row in report.board.rows:
        for scenario, value in _facts(report, row).by_scenario.items():
            by_scenario.setdefault(scenario, []).append((row, value))
    values = [value for found in by_scenario.values() for _, value in found]
    if not values:
        return None
    axis = charts.axis_for(values)
    rows = tuple(
        _dots_row(report, scenario, found, axis, marks) for scenario, found in by_scenario.items() if found
    )
    return Strips(rows=rows, axis=_markup(charts.axis_strip(axis)), legend=_dots_legend(report, marks))


def _marks(report: Report) -> dict[tuple[str, str], Mark]:
    """The one to look at: what is recommended, or else what comes first."""
    board, firsts = report.board, first_rows(report.board)
    marks: dict[tuple[str, str], Mark] = {
        row.combination: "first" if at in firsts else "other" for at, row in enumerate(board.rows)
    }
    looked_at = board.recommended if report.advise else None
    if looked_at or board.rows:
        marks[looked_at or board.rows[0].combination] = "pick"
    return marks


def _dots_legend(report: Report, marks: dict[tuple[str, str], Mark]) -> tuple[tuple[Markup, str], ...]:
    pick = next((row for row in report.board.rows if marks[row.combination] == "pick"), None)
    texts = {
        "pick": str(pick.combination) if pick else "",
        "first": "tied for first" if "first" in marks.values() else "",
        "other": "others" if "other" in marks.values() else "",
        "middle": "mean of all",
    }
    kinds: tuple[charts.Swatch, ...] = ("pick", "first", "other", "middle")
    return tuple((_markup(charts.swatch(kind)), texts[kind]) for kind in kinds if texts[kind])


def _dots_row(
    report: Report,
    scenario: str,
    found: list[tuple[LeaderboardRow, float]],
    axis: Axis,
    marks: dict[tuple[str, str], Mark],
) -> Strip:
    digits = figures.decimals(report.board)
    values = [value for _, value in found]
    best = max(found, key=lambda pair: pair[1])
    dots = [
        charts.Dot(
            value=value,
            told=f"{row.combination}: {figures.number(value, digits)}",
            mark=marks[row.combination],
        )
        for row, value in found
    ]
    middle = fsum(values) / len(values)
    told = (
        f"{figures.count(len(values), 'combination')} from {figures.number(min(values), digits)} to "
        f"{figures.number(max(values), digits)}; highest {best[0].combination}"
    )
    title = report.titles.get(scenario) or scenario
    below = scenario if title != scenario else ""
    svg = charts.dots_strip(axis, dots, told=told, middle=middle)
    return Strip(label=title, below=below, svg=_markup(svg))


@dataclass(frozen=True, kw_only=True)
class Front:
    """The chart of one host, and the combinations on its front from fastest to best.

    Without a `host` there is only one, and nothing to say of it.
    """

    svg: Markup
    on_front: tuple[tuple[str, str, str, str], ...]
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Fronts:
    """A chart for each host, and the combinations that none of them can place."""

    charts: tuple[Front, ...]
    left_out: tuple[str, ...]


def fronts(report: Report) -> Fronts | None:
    """Quality against latency, never of two hosts in one chart; None where no judged row has a latency."""
    marks = _marks(report)
    names = [host.name for host in report.hosts] if report.on_several_hosts else [""]
    found = {
        host: [(row, point) for row in report.board.rows if (point := _point(report, row, marks, host))]
        for host in names
    }
    placed = {row.combination for some in found.values() for row, _ in some}
    drawn = [(host, [point for _, point in some]) for host, some in found.items() if some]
    if not drawn:
        return None
    left_out = [str(row.combination) for row in report.board.rows if row.combination not in placed]
    charted = [_front(report, points, host, at) for at, (host, points) in enumerate(drawn, start=1)]
    return Fronts(charts=tuple(charted), left_out=tuple(left_out))


def _front(report: Report, points: Sequence[charts.Point], host: str, number: int) -> Front:
    digits, best = figures.decimals(report.board), charts.front_of(points)
    described = (
        f"{figures.count(len(points), 'combination')}; on the front, from the fastest: "
        f"{'; '.join(point.told for point in best)}"
    )
    title = f"Mean score against latency{f' on {host}' if host else ''}"
    svg = charts.front_chart(
        points, title=title, described=described, x_text=_time_text(points), number=number
    )
    listed = tuple(
        (charts.letter(at), one.name, figures.number(one.y, digits), figures.duration(one.x))
        for at, one in enumerate(best)
    )
    return Front(svg=_markup(svg), on_front=listed, host=host)


def _point(
    report: Report, row: LeaderboardRow, marks: dict[tuple[str, str], Mark], host: str
) -> charts.Point | None:
    """Where a row lies by what it took on that host; its score is the same on all of them."""
    facts = _facts(report, row)
    latency_ms = facts.by_host.get(host, NO_SPEED).latency_ms if host else facts.latency_ms
    if row.mean is None or latency_ms is None:
        return None
    digits = figures.decimals(report.board)
    size = f", {figures.parameters(facts.parameters)} parameters" if facts.parameters else ""
    words = f"{figures.number(row.mean, digits)} points in {figures.duration(latency_ms)}{size}"
    return charts.Point(
        name=str(row.combination),
        told=f"{row.combination}: {words}",
        x=latency_ms,
        y=row.mean,
        size=facts.parameters,
        mark=marks[row.combination],
    )


def _time_text(points: Sequence[charts.Point]) -> Callable[[float], str]:
    """One unit for the whole axis."""
    if max(point.x for point in points) < 1000:
        return lambda milliseconds: f"{figures.short(milliseconds)} ms"
    return lambda milliseconds: f"{figures.short(milliseconds / 1000)} s"


def _facts(report: Report, row: LeaderboardRow) -> Facts:
    return report.facts.get(row.combination, Facts())


def _markup(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - every text in it was escaped where it was drawn
