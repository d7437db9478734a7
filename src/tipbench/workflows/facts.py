"""What is known of each combination beside its rank: what it wrote, what judges gave it, how fast it was."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from tipbench.compare.report import Facts, Shown
from tipbench.compare.scores import Combination
from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import BY_CODE, is_overlong, labels, reply_problem, slot_texts, slot_values
from tipbench.judge.verdicts import under
from tipbench.suite.suite import DEFAULT_CLUSTER
from tipbench.workflows.places import memory_of, one_speed, speeds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.compare.scores import Row
    from tipbench.judge.scoring import Rubric as Scoring
    from tipbench.records import Run
    from tipbench.suite import Rubric
    from tipbench.workflows.judged import Judged

    Scores = Mapping[str, Mapping[str, float]]
    Flags = Mapping[str, bool]


def combinations(runs: Iterable[Run]) -> dict[Combination, list[Run]]:
    """The runs of each combination, by the names that people are shown."""
    runs = list(runs)
    names = labels(runs)
    groups: dict[Combination, list[Run]] = {}
    for run in runs:
        groups.setdefault(Combination(*names[run.variant]), []).append(run)
    return groups


def facts_of(
    state: Judged,
    groups: Mapping[Combination, Sequence[Run]],
    scores: Scores,
    rows: Sequence[Row],
    *,
    overlong: Flags = BY_CODE,
) -> dict[Combination, Facts]:
    """The facts on each combination. `rows` are those that were ranked, `scores` those that counted.

    `overlong` has the flags that judges set, by candidate.
    """
    notes = _judges_notes(state)
    values: dict[Combination, dict[str, float]] = {}
    for model, prompt, scenario, value in rows:
        if value is not None:
            values.setdefault(Combination(model, prompt), {})[scenario] = value
    return {
        name: _facts(state, runs, scores, notes, values.get(name, {}), overlong=overlong)
        for name, runs in groups.items()
    }


def _facts(
    state: Judged,
    runs: Sequence[Run],
    scores: Scores,
    notes: Mapping[str, tuple[str, ...]],
    by_scenario: Mapping[str, float],
    *,
    overlong: Flags,
) -> Facts:
    shown = tuple(one for run in runs for one in _shown(state, run, scores, overlong, notes))
    counting = state.tips_per_cell or len(shown)
    given = [one for one in shown if one.scores and one.slot < counting]
    speeds = speeds_of(runs)
    sampling = runs[0].sampling
    return Facts(
        prompt_id=runs[0].prompt_id,
        sampling=None if sampling is None else asdict(sampling),
        parameters=runs[0].parameters,
        tokens_per_s=one_speed(speeds).tokens_per_s,
        latency_ms=one_speed(speeds).latency_ms,
        memory_bytes=memory_of(runs),
        format_ok=_mean(runs, "format_ok"),
        diversity=_mean(runs, "diversity"),
        n_failed=sum(run.status == "failed" or bool(reply_problem(run)) for run in runs),
        n_judged=len(given),
        scales={s.name: _scale_mean(given, s.name) for s in state.rubric.scales} if given else {},
        by_scenario=by_scenario,
        candidates=shown,
        by_host=speeds,
    )


def _scale_mean(given: Sequence[Shown], name: str) -> float:
    """The mean over scenarios, like the composite's: a scenario with more candidates counts no more."""
    by_scenario: dict[str, list[float]] = {}
    for one in given:
        by_scenario.setdefault(one.scenario, []).append(one.scores[name])
    return fmean(fmean(values) for values in by_scenario.values())


def _shown(
    state: Judged, run: Run, scores: Scores, overlong: Flags, notes: Mapping[str, tuple[str, ...]]
) -> list[Shown]:
    problem = reply_problem(run)
    texts = [one.text for one in run.candidates[: run.n_tips]] if problem else slot_texts(run)
    keys = [candidate_key(run.scenario_id, text) for text in texts]
    scores = {} if problem else scores
    shown = []
    for slot, value in enumerate(slot_values(run, scores, rubric=state.rubric, overlong=overlong)):
        held = slot < len(texts)
        shown.append(
            Shown(
                scenario=run.scenario_id,
                repeat=run.repeat,
                slot=slot,
                text=texts[slot] if held else "",
                value=value,
                scores=scores.get(keys[slot], {}) if held else {},
                overlong=held and is_overlong(run, texts[slot], rubric=state.rubric, overlong=overlong),
                problem=problem,
                notes=notes.get(keys[slot], ()) if held else (),
            )
        )
    return shown


def _judges_notes(state: Judged) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in under(state.verdicts, state.rubric.hash):
        if one.note:
            found[one.candidate] = (*found.get(one.candidate, ()), f"{one.judge.id}: {one.note}")
    return found


def titles_of(state: Judged) -> dict[str, str]:
    """Scenarios by id, in the suite's order where its texts are known, with the titles that judges saw."""
    seen = {one: text.split("\n", 1)[0] for batch in state.batches for one, text in batch.contexts.items()}
    ids = list(dict.fromkeys(run.scenario_id for run in state.runs))
    suite = state.suite_at_hand
    if suite is not None:
        known = {one.id: one.title for one in suite.scenarios}
        ids.sort(key=lambda one: list(known).index(one) if one in known else len(known))
        seen |= known
    return {one: seen.get(one, one) for one in ids}


def clusters_of(state: Judged) -> tuple[dict[str, str], str]:
    """The cluster of each scenario, and what clusters are called; empty where the suite cannot be found."""
    suite = state.suite_at_hand
    if suite is None:
        return {}, "clusters"
    return suite.clusters, "people" if suite.cluster == DEFAULT_CLUSTER else "clusters"


def bounds_of(state: Judged, scoring: Scoring | None = None) -> tuple[float, float]:
    """The lowest and the highest that a slot can be worth."""
    return rubric_range(state.rubric, scoring)


def bounds_around(state: Judged, rows: Iterable[Row], scoring: Scoring | None = None) -> tuple[float, float]:
    """The bounds with all these rows inside: a formula may have extremes between the ends of its scales."""
    low, high = bounds_of(state, scoring)
    values = [value for *_, value in rows if value is not None]
    return (min(low, *values), max(high, *values)) if values else (low, high)


def rubric_range(rubric: Rubric, scoring: Scoring | None = None) -> tuple[float, float]:
    """The lowest and the highest composite at the ends of all scales and flags."""
    score, failure = (scoring or rubric).score, (scoring or rubric).failure
    scales = [scale.name for scale in rubric.scales]
    flags = [flag.name for flag in rubric.flags]
    ends = [
        score(dict(zip(scales, levels, strict=True)), dict(zip(flags, chosen, strict=True)))
        for levels in product(*((scale.low, scale.high) for scale in rubric.scales))
        for chosen in product((False, True), repeat=len(flags))
    ]
    return min(*ends, failure), max(*ends, failure)


def _mean(runs: Sequence[Run], metric: str) -> float | None:
    known = [run.metrics[metric] for run in runs if metric in run.metrics]
    return fmean(known) if known else None
