"""Reports as a comparison would make them, from seeded scores: usual ones and very odd ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tipbench.compare.leaderboard import rank
from tipbench.compare.report import Facts, HostFacts, Report, Shown, Speed
from tipbench.compare.scores import Combination
from tipbench.compare.wording import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

SCALES = ("relevance", "actionability", "tone")
MODELS = {"gemma3:1b": 1.0, "llama3.2:3b": 3.2, "qwen2.5:0.5b": 0.5, "smollm2:135m": 0.135}
PROMPTS = ("v1", "v2-mentor", "v4-structured")
MADE_MS = 1_760_000_000_000
TIP = (
    "Keep the thirty messages closed until the slides are done at half past ten, then answer the three that "
    "wait for you and let the rest lie until after lunch; put your phone in the other room."
)
WORDS = TIP.split()
NASTY = (
    '<script>alert("x")</script>',
    "a | b `c` *d* [e](f)\nsecond line",
    "שלום עולם: זוהי עצה קצרה",
    "👩🏽\u200d💻 emoji \u202e reversed \x00\x07 \ud800 half",
    "=HYPERLINK('x')",
    "\"quoted\" & 'single' </style></svg></details>",
)


def sample_report(
    *,
    models: Sequence[str] = tuple(MODELS),
    prompts: Sequence[str] = PROMPTS,
    n_scenarios: int = 8,
    n_tips: int = 3,
    seed: int = 1,
    **changes: Any,  # noqa: ANN401 - any field of a report
) -> Report:
    """Every model with every prompt on every scenario; a combination's place in the list makes it worse."""
    rng = random.Random(seed)  # noqa: S311 - a sample, no secret
    scenarios = {
        f"s{at + 1:02}": f"{WORDS[at % len(WORDS)].title()}, Monday 0{at % 10}:30"
        for at in range(n_scenarios)
    }
    facts = {
        Combination(model, prompt): _facts(rng, model, scenarios, n_tips, worse=0.5 * number + 0.2 * at)
        for number, model in enumerate(models)
        for at, prompt in enumerate(prompts)
    }
    return _report(facts, scenarios, **changes)


def report_of_hosts() -> Report:
    """Rows of two hosts, one with a very long name, and a model that both made."""
    report = sample_report()
    short, long = "gpu-1:11434", f"{'worker-' * 12}a.example:11434"
    made = {
        "gemma3:1b": (short,),
        "llama3.2:3b": (long,),
        "qwen2.5:0.5b": (short, long),
        "smollm2:135m": (long,),
    }
    facts = {name: _on(one, made[name.model]) for name, one in report.facts.items()}
    hosts = tuple(HostFacts(name=name, n_cells=8) for name in (short, long))
    return replace(report, facts=facts, hosts=hosts)


def _on(facts: Facts, hosts: Sequence[str]) -> Facts:
    speed = Speed(n_cells=8, tokens_per_s=facts.tokens_per_s, latency_ms=facts.latency_ms)
    known = facts if len(hosts) == 1 else replace(facts, tokens_per_s=None, latency_ms=None)
    return replace(known, by_host=dict.fromkeys(hosts, speed))


def nasty_report() -> Report:
    """Names and texts that would break a page, a table or a spreadsheet that trusts them."""
    models = [*NASTY, "very-long-name-" * 20]
    report = sample_report(models=models, prompts=("v1", "-2|\n"), n_scenarios=2)
    facts = {name: replace(one, candidates=_nasty(one.candidates)) for name, one in report.facts.items()}
    said = ("<b>First</b> | line\n# not a heading", "- second `sentence`")
    titles = dict(zip(report.titles, NASTY, strict=False))
    return replace(
        report, facts=facts, titles=titles, title=NASTY[0], sentences=said, notes=NASTY, first=NASTY
    )


def _nasty(candidates: Sequence[Shown]) -> tuple[Shown, ...]:
    return tuple(
        replace(one, text=NASTY[at % len(NASTY)] * (at % 3 + 1), notes=(NASTY[(at + 1) % len(NASTY)],))
        for at, one in enumerate(candidates)
    )


def _report(facts: dict[Combination, Facts], scenarios: dict[str, str], **changes: Any) -> Report:  # noqa: ANN401
    values = [
        (model, prompt, one.scenario, one.value)
        for (model, prompt), own in facts.items()
        for one in own.candidates
    ]
    board = rank(values, cost={name: (own.parameters, own.latency_ms) for name, own in facts.items()})
    plain = Report(
        title="tips-may",
        board=board,
        sentences=sentences(board),
        facts=facts,
        titles=scenarios,
        made_ms=MADE_MS,
        ground="human",
        rubric_id="tip-v1",
        scales=SCALES,
        lowest=2.0,
        highest=17.0,
    )
    return replace(plain, **changes)


def _facts(rng: random.Random, model: str, scenarios: dict[str, str], n_tips: int, *, worse: float) -> Facts:
    shown = tuple(
        _shown(rng, scenario, slot, worse + 0.8 * (at % 4))
        for at, scenario in enumerate(scenarios)
        for slot in range(n_tips)
    )
    size = MODELS.get(model, 2.0)
    by_scenario = {
        scenario: _mean([one.value for one in shown if one.scenario == scenario and one.value is not None])
        for scenario in scenarios
    }
    return Facts(
        parameters=int(size * 1e9),
        tokens_per_s=90 / size,
        latency_ms=300 + 900 * size + 200 * rng.random(),
        memory_bytes=size * 1.1e9,
        format_ok=0.9,
        diversity=0.8,
        scales={name: _mean([one.scores[name] for one in shown if one.scores]) for name in SCALES},
        by_scenario=by_scenario,
        candidates=shown,
    )


def _shown(rng: random.Random, scenario: str, slot: int, worse: float) -> Shown:
    if rng.random() < 0.04:
        return Shown(scenario=scenario, repeat=0, slot=slot, text="", value=3.0)
    scores = {name: float(min(5, max(1, round(rng.gauss(4.4 - worse / 2, 0.9))))) for name in SCALES}
    text = " ".join(rng.sample(WORDS, rng.randint(9, 30)))
    overlong = len(text) > 160
    notes = ("Says what to do, not when.",) if rng.random() < 0.1 else ()
    value = sum(scores.values()) + 2 - overlong
    return Shown(
        scenario=scenario,
        repeat=0,
        slot=slot,
        text=text,
        value=value,
        scores=scores,
        overlong=overlong,
        notes=notes,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
