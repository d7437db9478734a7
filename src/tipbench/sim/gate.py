"""The gate: what must be shown before a challenger is promoted, fixed before anything is looked at.

For every seed both policies meet the same users, contexts and reward coins, and d is the regret of the
champion less that of the challenger. The challenger passes only if the lower end of the interval of d is
above the margin, and for no persona reaches below minus the guardrail. Three controls run inside every gate;
if one of them does not come out as it must, the gate cannot tell better from worse and is void.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from tipbench.errors import BadInput
from tipbench.sim.intervals import Interval, bounds, interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tipbench.bandit.ridge import Array
    from tipbench.sim.ope import OffPolicy

LEVEL = 0.05
FEWEST_SEEDS = 5
FLIPS = 2000

Outcome = Literal["passed", "refused", "void"]


@dataclass(frozen=True, kw_only=True)
class GatePlan:
    """Everything that is fixed before the first round is simulated.

    `number` is which gate this is against this champion in this world, counted from 1; 0 is a rehearsal.
    `salt` is drawn when the plan is kept. The seeds follow from both, so a decision is made on seeds that
    nobody has looked at, here or on another machine.
    """

    challenger: str
    challenger_version: str
    champion: str
    champion_version: str
    world: str
    world_hash: str
    number: int
    n: int = 20
    users: int = 40
    rounds: int = 300
    metric: str = "regret per round"
    margin: float = 0.0
    guardrail: float = 0.02
    salt: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1 or not 0 <= self.guardrail < 1:
            raise BadInput("--margin and --guardrail are regrets per round, from 0 to below 1")
        if self.n < FEWEST_SEEDS:
            raise BadInput(f"--seeds: a gate needs {FEWEST_SEEDS} seeds or more, not {self.n}")

    @property
    def level(self) -> float:
        """How often the interval may miss: 5 % for the first gate, and less for every further one.

        The k-th gate has 5 % · 2 / (k(k+1)). Half of that is on the side that promotes, and over all gates,
        however many challengers are tried, those halves add up to 5 % at most.
        """
        tried = max(self.number, 1)
        return LEVEL * 2 / (tried * (tried + 1))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Derived from the world, the champion, the gate's number and its salt: not to be chosen."""
        about = f"{self.world_hash}\0{self.champion}\0{self.champion_version}\0{self.number}\0{self.salt}"
        return tuple(_seed(f"{about}\0{place}") for place in range(self.n))


def _seed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), person=b"gate", digest_size=6).digest(), "big")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """By how much one policy beat the champion: overall and per persona, one number for each seed."""

    name: str
    overall: Array
    personas: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What the rule says of one comparison."""

    passed: bool
    reason: str
    overall: Interval
    personas: Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True)
class Control:
    """A comparison whose outcome is known beforehand; `held` says whether it came out so."""

    name: str
    held: bool
    sentence: str
    overall: Interval


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of a gate. `reason` is one sentence, the numbers are under it."""

    outcome: Outcome
    reason: str
    overall: Interval
    personas: Mapping[str, Interval]
    controls: tuple[Control, ...]
    false_pass_rate: float
    off_policy: OffPolicy | None = None

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


def rule(compared: Compared, plan: GatePlan) -> Ruling:
    """Whether this comparison would be enough to promote, and why."""
    overall = interval(compared.overall, level=plan.level)
    personas = {name: interval(each, level=plan.level) for name, each in compared.personas.items()}
    worse = [name for name, each in personas.items() if each.low <= -plan.guardrail]
    passed = overall.low > plan.margin and not worse
    if overall.low <= plan.margin:
        reason = _not_better(overall, plan)
    elif worse:
        reason = _persona_worse(worse, personas, plan)
    else:
        reason = (
            f"its regret per round is {overall.mean:.4f} lower than the champion's ({_confidence(plan)} "
            f"interval {overall.low:.4f} to {overall.high:.4f}), above the margin of {plan.margin:g}, and no "
            f"persona is worse beyond the guardrail of {plan.guardrail:g}"
        )
    return Ruling(passed=passed, reason=reason, overall=overall, personas=personas)


def _not_better(overall: Interval, plan: GatePlan) -> str:
    how = f"{abs(overall.mean):.4f} {'lower' if overall.mean >= 0 else 'higher'}"
    if overall.low == overall.high == 0:
        return "its regret is the same as the champion's on every seed, so there is nothing to gain"
    return (
        f"its regret per round is {how} than the champion's, and the {_confidence(plan)} interval of the "
        f"gain ({overall.low:.4f} to {overall.high:.4f}) is not above the margin of {plan.margin:g}"
    )


def _persona_worse(worse: Sequence[str], personas: Mapping[str, Interval], plan: GatePlan) -> str:
    first = min(worse, key=lambda name: personas[name].low)
    others = f" (and for {', '.join(name for name in worse if name != first)})" if len(worse) > 1 else ""
    return (
        f"it is better overall, but for {first}{others} its regret may be {-personas[first].low:.4f} higher, "
        f"beyond the guardrail of {plan.guardrail:g}"
    )


def _confidence(plan: GatePlan) -> str:
    return f"{100 * (1 - plan.level):.4g} %"


def false_pass_rate(twin: Compared, plan: GatePlan, rng: np.random.Generator, *, flips: int = FLIPS) -> float:
    """How often the rule would promote a policy over itself, by the noise seen in this very gate.

    Which of two streams of the same policy is called the challenger is arbitrary for each seed, so every way
    of choosing the signs is as likely as what was seen.
    """
    signs = rng.choice((-1.0, 1.0), size=(flips, len(twin.overall)))
    passes = bounds(signs * twin.overall, level=plan.level)[1] > plan.margin
    for values in twin.personas.values():
        passes &= bounds(signs * values, level=plan.level)[1] > -plan.guardrail
    return float(passes.mean())


def decide(
    plan: GatePlan,
    challenger: Compared,
    *,
    twin: Compared,
    chance: Compared,
    oracle: Compared | None,
    rng: np.random.Generator,
    off_policy: OffPolicy | None = None,
) -> Verdict:
    """The verdict on a challenger. `twin` is the champion on another random stream, `chance` picks at random.

    `oracle` knows the world and errs a little; it is None in a world where no policy can be better.
    """
    ruling, rate = rule(challenger, plan), false_pass_rate(twin, plan, rng)
    controls = tuple(_controls(plan, twin, chance, oracle, rate))
    broken = [control for control in controls if not control.held]
    outcome: Outcome = "void" if broken else "passed" if ruling.passed else "refused"
    why = ruling.reason if oracle is not None else _NOTHING_TO_WIN
    if broken:
        why = f"the control failed: {broken[0].sentence}; such a gate cannot tell better from worse"
    elif ruling.passed and off_policy is not None and off_policy.stance == "veto":
        outcome, why = "refused", f"it won in the simulation, but {off_policy.reason}"
    return Verdict(
        outcome=outcome,
        reason=f"{plan.challenger} against {plan.champion} on {plan.world}: {outcome}: {why}.",
        overall=ruling.overall,
        personas=ruling.personas,
        controls=controls,
        false_pass_rate=rate,
        off_policy=off_policy,
    )


_NOTHING_TO_WIN = "in this world no tip is better than another, so no policy can win"


def _controls(
    plan: GatePlan, twin: Compared, chance: Compared, oracle: Compared | None, rate: float
) -> list[Control]:
    stated = f"by its noise the rule would do so {100 * rate:.1f} % of the time"
    found = [
        _must_be_refused("the champion against itself", twin, plan, more=f"; {stated}"),
        _must_be_refused("picking at random", chance, plan),
    ]
    return found if oracle is None else [*found, _must_pass("a noisy oracle", oracle, plan)]


def _must_be_refused(name: str, compared: Compared, plan: GatePlan, *, more: str = "") -> Control:
    ruling = rule(compared, plan)
    said = "was let through" if ruling.passed else "was refused, as it must be"
    return Control(name=name, held=not ruling.passed, sentence=f"{name} {said}{more}", overall=ruling.overall)


def _must_pass(name: str, compared: Compared, plan: GatePlan) -> Control:
    ruling = rule(compared, plan)
    said = "passed, as it must" if ruling.passed else f"did not pass, because {ruling.reason}"
    return Control(name=name, held=ruling.passed, sentence=f"{name} {said}", overall=ruling.overall)
