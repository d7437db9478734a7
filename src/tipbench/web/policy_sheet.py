"""What the page on policies shows, in words and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tipbench.compare import charts, figures
from tipbench.web.regret_chart import Series, regret_chart
from tipbench.workflows.gate_views import Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.bandit.canary import Finding, Seen, Trial
    from tipbench.web.regret_chart import RegretChart
    from tipbench.workflows.gate_views import ControlView, GateView, LogView

OUTCOMES = {"passed": "done", "refused": "warn", "void": "failed"}
STANCES = {"neutral": "", "no objection": "done", "veto": "failed"}


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A feature's weight as a bar from the middle: where it begins and how wide it is, in percent."""

    name: str
    text: str
    left: float
    width: float
    sign: str


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a policy has learned: of how many users these weights are the mean."""

    policy: str
    of: str
    weights: tuple[Weight, ...]


@dataclass(frozen=True, kw_only=True)
class PolicyRow:
    name: str
    version: str
    features: str
    tags: tuple[str, ...]
    decisions: int
    rewards: int
    mean: str
    bar: float | None
    explored: str


@dataclass(frozen=True, kw_only=True)
class ShadowRow:
    name: str
    policy: str
    state: str
    told: str
    agreement: str
    bar: float | None
    decisions: int
    dropped: str
    trouble: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a chart of ranges."""

    label: str
    below: str
    svg: Markup
    rank: str = ""
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class Strips:
    rows: tuple[Line, ...]
    axis: Markup
    legend: tuple[tuple[Markup, str], ...]


@dataclass(frozen=True, kw_only=True)
class GateSheet:
    """A gate as it is read: its sentence, the numbers, the controls, what the log says, the curves."""

    view: GateView
    state: str
    size: str
    confidence: str
    gains: Strips
    controls: Sequence[ControlView]
    log: Sequence[tuple[str, str]]
    curves: RegretChart | None


def policy_rows(serving: Mapping[str, Any], active: Mapping[str, Any]) -> list[PolicyRow]:
    """Every served policy; those that have decided most come first, the one in force before all."""
    found = sorted(serving["policies"].values(), key=lambda one: -one["decisions"])
    found.sort(key=lambda one: one["policy"] != active["policy"])
    return [_policy_row(one, _tags(one["policy"], active)) for one in found]


def _tags(policy: str, active: Mapping[str, Any]) -> tuple[str, ...]:
    if policy == active["policy"]:
        return ("on trial" if active["on_trial"] else "in force",)
    return ("in force",) if active["on_trial"] and policy == active["replaced"] else ()


def _policy_row(one: Mapping[str, Any], tags: tuple[str, ...]) -> PolicyRow:
    mean = one["mean_reward"]
    return PolicyRow(
        name=one["policy"],
        version=one["policy_version"],
        features=one["feature_version"],
        tags=tags,
        decisions=one["decisions"],
        rewards=one["rewards"],
        mean=figures.number(mean, 3),
        bar=None if mean is None else round(100 * mean, 1),
        explored=figures.percent(one["exploration_share"]),
    )


def learned(serving: Mapping[str, Any]) -> list[Learned]:
    """The weights of every policy that has learned any."""
    return [each for one in serving["policies"].values() for each in _learned(one)]


def _learned(one: Mapping[str, Any]) -> list[Learned]:
    """Bars to one scale within a policy, what is shared and what is not; the numbers stand beside them."""
    by_user = ("weights", f"mean of {figures.count(one['weights_of'], 'user')}")
    fields = (("pooled_weights", "shared by all users"), by_user)
    each = [(of, one[field]) for field, of in fields if one[field]]
    most = max((abs(value) for _, weights in each for value in weights.values()), default=0.0) or 1.0
    return [Learned(policy=one["policy"], of=of, weights=_weights(weights, most)) for of, weights in each]


def _weights(weights: Mapping[str, float], most: float) -> tuple[Weight, ...]:
    return tuple(_weight(name, value, most) for name, value in weights.items())


def _weight(name: str, value: float, most: float) -> Weight:
    width = round(50 * abs(value) / most, 1)
    return Weight(
        name=name.replace("_", " "),
        text=f"{round(value, 3) + 0.0:+.3f}".replace("-", "−"),
        left=round(50 - width, 1) if value < 0 else 50,
        width=width,
        sign="under" if value < 0 else "over",
    )


def shadow_rows(shadows: Mapping[str, Mapping[str, Any]]) -> list[ShadowRow]:
    return [_shadow_row(name, one) for name, one in shadows.items()]


def _shadow_row(name: str, one: Mapping[str, Any]) -> ShadowRow:
    agreement = one["agreement"]
    reasons = ", ".join(f"{count} {why}" for why, count in one["dropped_since_start"].items() if count)
    return ShadowRow(
        name=name,
        policy=one["policy"],
        state="on" if one["enabled"] else "off",
        told=_told(one),
        agreement=figures.percent(agreement),
        bar=None if agreement is None else round(100 * agreement, 1),
        decisions=one["decisions"],
        dropped=f"{one['dropped']}" + (f" ({reasons} since the start)" if reasons else ""),
        trouble=one["trouble"],
    )


def _told(shadow: Mapping[str, Any]) -> str:
    if not shadow["apprentice"]:
        return "hears of no reward"
    seen = shadow.get("learned_since_start")
    if seen is None:
        return "an apprentice: it learns from rewards"
    return f"an apprentice: it has learned from {figures.count(seen, 'reward')} since the start"


METRICS = {"reward": "reward", "dismissed": "dismissed", "slow": "slow decisions", "failed": "failures"}


def finding_rows(trial: Trial | None) -> list[tuple[str, ...]]:
    """What a trial has seen: the metric, new, old, their difference with its interval, what is borne."""
    return [_finding_row(one) for one in trial.findings] if trial else []


def _finding_row(one: Finding) -> tuple[str, ...]:
    difference = (
        Range(mean=one.difference, low=one.low, high=one.high) if one.difference is not None else None
    )
    bound = f"{'−' if one.metric == 'reward' else ''}{one.margin:g}"
    return METRICS[one.metric], _side(one.new), _side(one.old), ranged(difference), bound


def _side(seen: Seen) -> str:
    return f"{figures.number(seen.mean, 3)} of {seen.count}"


def gate_sheet(view: GateView) -> GateSheet:
    plan, verdict = view.plan, view.verdict
    curves = (
        Series(name=f"{plan.challenger} (challenger)", points=view.curves.challenger),
        Series(name=f"{plan.champion} (champion)", points=view.curves.champion),
    )
    return GateSheet(
        view=view,
        state=OUTCOMES[view.outcome],
        size=f"{figures.count(plan.n, 'seed')} × {figures.count(plan.users, 'user')} × "
        f"{figures.count(plan.rounds, 'round')}",
        confidence=f"{100 * (1 - plan.level):.4g} %",
        gains=_gains(view),
        controls=verdict.controls,
        log=_log_rows(verdict.off_policy),
        curves=regret_chart(curves, title=f"Regret of {plan.challenger} and {plan.champion}"),
    )


def _gains(view: GateView) -> Strips:
    """By how much the challenger's regret is lower: overall and for each persona, with what is needed."""
    plan, verdict = view.plan, view.verdict
    rows = [("everybody", verdict.overall, plan.margin)]
    rows += [(name, each, -plan.guardrail) for name, each in verdict.personas.items()]
    ends = [
        end for _, each, needed in rows for end in (each.mean, each.low, each.high, needed) if end is not None
    ]
    axis = charts.axis_for([0.0, *ends], steps=4)
    lines = tuple(_gain(name, each, needed, axis) for name, each, needed in rows)
    legend = (
        (Markup(charts.swatch("mean")), "mean gain"),  # noqa: S704 - drawn by us
        (Markup(charts.swatch("range")), "its interval"),  # noqa: S704 - drawn by us
        (Markup(charts.swatch("middle")), "must lie to the right of this"),  # noqa: S704 - drawn by us
    )
    return Strips(rows=lines, axis=Markup(charts.axis_strip(axis, text=_tick)), legend=legend)  # noqa: S704 - drawn by us


def _tick(value: float) -> str:
    return f"{round(value, 4) + 0.0:g}".replace("-", "−")


def _gain(name: str, each: Range, needed: float, axis: charts.Axis) -> Line:
    enough = each.low is not None and each.low > needed
    word = "enough" if enough else "not enough"
    below = f"{ranged(each)}: {word}"
    strip = charts.interval_strip(
        axis,
        told=f"{name}: {below}, needed above {needed:g}",
        mean=each.mean,
        low=each.low,
        high=each.high,
        mark="first" if enough else "other",
    )
    at = f"{axis.at(needed):g}%"
    mark = f'<line class="middle" x1="{at}" x2="{at}" y1="12%" y2="88%"/></svg>'
    return Line(label=name, below=below, svg=Markup(strip.removesuffix("</svg>") + mark), first=False)  # noqa: S704 - numbers, and texts that were escaped


def ranged(each: Range | None) -> str:
    """A mean with its bounds, where it has both."""
    if each is None:
        return figures.UNKNOWN
    mean = figures.number(each.mean, 4).replace("-", "−")
    if each.low is None or each.high is None:
        return mean
    return f"{mean} ({figures.span(each.low, each.high, 4)})".replace("-", "−")


def _log_rows(log: LogView | None) -> list[tuple[str, str]]:
    if log is None or log.logged is None:
        return []
    named = (
        ("as served", log.logged),
        ("SNIPS", log.snips),
        ("doubly robust", log.doubly_robust),
        ("gain", log.gain),
    )
    return [(name, ranged(each)) for name, each in named if each is not None]
