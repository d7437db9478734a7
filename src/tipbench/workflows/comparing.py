"""`compare`: what was judged, ranked, with everything a reader must know before believing it."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tipbench.compare.baseline import compare_to_baseline
from tipbench.compare.leaderboard import rank
from tipbench.compare.recommendation import Preferences
from tipbench.compare.report import Exploration, Facts, Report
from tipbench.compare.scores import Combination
from tipbench.compare.scores_file import read_scores, read_warning
from tipbench.compare.self_check import self_check
from tipbench.compare.wording import sentences
from tipbench.errors import BadInput, CheckFailed, TipbenchError
from tipbench.judge.agreement import ENOUGH, TOLERABLE, word_for
from tipbench.judge.scoring import cell_rows, labels, reply_problem, slot_values, weighted
from tipbench.judge.verdicts import counting_judges, under
from tipbench.settings import Settings
from tipbench.workflows.assisting import assisted_means
from tipbench.workflows.facts import (
    bounds_around,
    bounds_of,
    clusters_of,
    combinations,
    facts_of,
    titles_of,
)
from tipbench.workflows.judged import judged_experiment, nothing_thrown_away, suite_of
from tipbench.workflows.places import (
    comparable,
    costs,
    host_notes,
    hosts_of,
    mark_notes,
    slow_notes,
    too_slow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.compare.baseline import BaselineReport
    from tipbench.compare.leaderboard import Leaderboard
    from tipbench.compare.scores import Row
    from tipbench.compare.self_check import SelfCheck
    from tipbench.judge.agreement import Comparison
    from tipbench.judge.scoring import Rubric as Scoring
    from tipbench.judge.scoring import Variant
    from tipbench.records import Batch, Judge, JudgeKind
    from tipbench.workflows.judged import Judged

_LARGEST_FILE = 200_000_000
_ALL_TOO_SLOW = (
    "Every combination is slower than --max-latency-ms allows, so nothing is ranked.",
    "Allow more, or collect faster models.",
)
USUAL = Preferences()
SEE_IT = "to see it all the same"
NOT_CHECKED = (
    "Judge drift not checked: no batch held anchors, so nothing shows whether the judge stayed the same."
)


def compare(
    settings: Settings,
    *,
    ground: str | None = None,
    insist: bool = False,
    weights: Mapping[str, float] | None = None,
    max_latency_ms: float | None = None,
    preferences: Preferences = USUAL,
    baseline: str | None = None,
    margin: float = 0.5,
    check_self: bool = False,
) -> Report:
    """The report on the settings' experiment, against another one where a baseline is named."""
    return report_on(
        judged_experiment(settings),
        ground=ground,
        insist=insist,
        weights=weights,
        max_latency_ms=max_latency_ms,
        preferences=preferences,
        before=None if baseline is None else judged_experiment(replace(settings, experiment=baseline)),
        margin=margin,
        check_self=check_self,
    )


def report_on(
    state: Judged,
    *,
    ground: str | None = None,
    insist: bool = False,
    weights: Mapping[str, float] | None = None,
    max_latency_ms: float | None = None,
    preferences: Preferences = USUAL,
    before: Judged | None = None,
    margin: float = 0.5,
    check_self: bool = False,
    instead: str = SEE_IT,
) -> Report:
    """The report on an experiment. CheckFailed where only a judge that is not trusted has judged it.

    `insist` ranks by such a judge all the same: the report's first line says so, and it recommends nothing.
    `instead` is what the refusal says of insisting.
    """
    with nothing_thrown_away():
        kind = _kind(state, ground)
        caution = _caution(state, kind, insist=insist, instead=instead)
        report = _report(
            state, kind, preferences, asked=ground, caution=caution, max_latency_ms=max_latency_ms
        )
        if weights:
            report = replace(report, exploration=_explored(state, kind, report, weights, preferences))
        if check_self:
            report = _with_self_check(report, _self_check(state, kind))
        if before is None:
            return report
        found = _against(state, kind, before, ground, insist=insist, margin=margin)
        return replace(report, baseline=found)


def _kind(state: Judged, asked: str | None) -> JudgeKind | None:
    """The kind of judge that the ranking stands on; None where nobody of that kind has judged anything."""
    kind = state.ground(asked)
    return kind if kind and _judges(state, kind) else None


def compare_scores(path: str, *, accept_loss: float | None = None, check_self: bool = False) -> Report:
    """The report on anybody's scores: a CSV file, `-` for standard input. Needs no ledger.

    A leaderboard that `compare` wrote keeps its warning, and recommends nothing if it did not before.
    """
    text = _text_of(path)
    rows, (warning, advise) = read_scores(text, path=path), read_warning(text, path=path)
    board = _advised(rank(rows, accept_loss=accept_loss), advise=advise)
    values: dict[Combination, dict[str, list[float]]] = {}
    for model, prompt, scenario, value in rows:
        of_cell = values.setdefault(Combination(model, prompt), {})
        if value is not None:
            of_cell.setdefault(scenario, []).append(value)
    facts = {cell: Facts(by_scenario={s: fmean(v) for s, v in by.items()}) for cell, by in values.items()}
    report = Report(
        title=Path(path).name if path != "-" else "standard input",
        board=board,
        sentences=sentences(board, advise=advise),
        facts=facts,
        titles={scenario: scenario for _, _, scenario, _ in rows},
        made_ms=_now_ms(),
        advise=advise,
        first=(warning,) if warning else (),
    )
    return _with_self_check(report, self_check(values)) if check_self else report


def _self_check(state: Judged, kind: JudgeKind | None) -> SelfCheck:
    """The A/A test on the judged candidates of the experiment, with those of all repeats together."""
    scores, overlong = state.scores(kind), state.overlong(kind)
    values: dict[Combination, dict[str, list[float]]] = {}
    for name, runs in combinations(state.runs).items():
        for run in runs:
            slots = slot_values(
                run, scores, rubric=state.rubric, overlong=overlong, tips_per_cell=state.tips_per_cell
            )
            of_cell = values.setdefault(name, {}).setdefault(run.scenario_id, [])
            of_cell += [value for value in slots if value is not None]
    rows = [(*name, one, value) for name, by in values.items() for one, some in by.items() for value in some]
    return self_check(values, clusters=clusters_of(state)[0], bounds=bounds_around(state, rows))


def _with_self_check(report: Report, found: SelfCheck) -> Report:
    return replace(report, self_check=found, notes=(str(found), *report.notes))


def _text_of(path: str) -> str:
    try:
        raw = _bytes_of(path)
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); give a CSV file, or - for standard input"
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text; save it as CSV in UTF-8") from None


def _bytes_of(path: str) -> bytes:
    with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
        size = os.fstat(file.fileno()).st_size
        raw = file.read(_LARGEST_FILE + 1) if size <= _LARGEST_FILE else b""
    if max(size, len(raw)) > _LARGEST_FILE:
        raise BadInput(f"{path} is larger than {_LARGEST_FILE // 1_000_000} MB; rank a part of it")
    return raw


def _report(
    state: Judged,
    kind: JudgeKind | None,
    preferences: Preferences,
    *,
    asked: str | None,
    caution: tuple[str, ...],
    max_latency_ms: float | None,
) -> Report:
    groups = combinations(state.runs)
    slow, hosts = too_slow(groups, max_latency_ms), hosts_of(state.runs)
    fast = {name: some for name, some in groups.items() if name not in slow}
    rows = [row for row in _rows(state, kind, state.rubric) if row[:2] not in slow]
    facts = facts_of(state, fast, state.scores(kind), rows, overlong=state.overlong(kind))
    clusters, called = clusters_of(state)
    ranked = _ranked(state, rows, preferences, clusters)
    board = _counted(_advised(ranked, advise=not caution), facts)
    lowest, highest = bounds_of(state)
    return Report(
        title=state.experiment,
        board=board,
        sentences=sentences(board, advise=not caution, groups=called) if fast or not slow else _ALL_TOO_SLOW,
        facts=facts,
        titles=titles_of(state),
        made_ms=_now_ms(),
        ground=kind,
        rubric_id=state.rubric.id,
        scales=tuple(scale.name for scale in state.rubric.scales),
        lowest=lowest,
        highest=highest,
        advise=not caution,
        first=(*caution, *_nobody(kind, asked), *_drift_lines(state, kind)),
        notes=(
            *_notes(state, kind),
            *_cluster_notes(board, called),
            *_ai_notes(state, kind),
            *mark_notes(groups),
            *host_notes(groups, hosts),
            *slow_notes(slow, max_latency_ms, several=len(hosts) > 1),
        ),
        hosts=hosts,
    )


def _rows(
    state: Judged,
    kind: JudgeKind | None,
    rubric: Scoring,
    names: Mapping[Variant, tuple[str, str]] | None = None,
) -> list[Row]:
    """What is ranked. Until something is judged, replies that failed are not scored either.

    A combination that fails always would else stand first, alone with a score.
    """
    rows = cell_rows(
        state.runs,
        state.scores(kind),
        rubric=rubric,
        overlong=state.overlong(kind),
        tips_per_cell=state.tips_per_cell,
        names=names,
    )
    return rows if kind else [row for row in rows if row[3] is None]


def _ranked(
    state: Judged,
    rows: Sequence[Row],
    preferences: Preferences,
    clusters: Mapping[str, str],
    scoring: Scoring | None = None,
) -> Leaderboard:
    groups = combinations(state.runs)
    return rank(
        rows,
        cost=costs(groups, preferences.cost),
        host=comparable(groups),
        accept_loss=preferences.accept_loss,
        clusters=clusters,
        bounds=bounds_around(state, rows, scoring),
    )


def _cluster_notes(board: Leaderboard, called: str) -> list[str]:
    """What intervals mean where scenarios share people."""
    if board.n_clusters is None:
        return []
    note = (
        f"The {board.n_scenarios} scenarios are of {board.n_clusters} {called}: intervals of means hold for "
    )
    return [f"{note}other scenarios of these {called}, not for other {called}."]


def _advised(board: Leaderboard, *, advise: bool) -> Leaderboard:
    """The leaderboard, without a recommendation unless `advise`."""
    return board if advise else replace(board, recommended=None, recommended_because=None)


def _counted(board: Leaderboard, facts: Mapping[Combination, Facts]) -> Leaderboard:
    """The board with `n_judged` as people count: candidates with scores, without the failed slots."""
    rows = tuple(replace(row, n_judged=facts[row.combination].n_judged) for row in board.rows)
    return replace(board, rows=rows, n_judged=sum(row.n_judged for row in rows))


def _caution(
    state: Judged, kind: JudgeKind | None, *, insist: bool, instead: str = SEE_IT
) -> tuple[str, ...]:
    """What is said before all else of a ranking by a judge who is no person and no agent with a batch."""
    if kind not in {"ai", "proxy"}:
        return ()
    judges = counting_judges(state.verdicts, rubric_hash=state.rubric.hash, kind=kind)
    found = [state.calibration(judge) for judge in judges]
    if kind == "ai" and all(one.passes for one in found):
        return ()
    who = ", ".join(dict.fromkeys(one.judge for one in found))
    why = _why_not_trusted(kind, found)
    if not insist:
        raise CheckFailed(
            f"the ranking of experiment {state.experiment!r} would stand on {who} alone, and {why}: that is "
            f"no ground for it; let a person or an agent judge ({state.command('judge', 'export')}), or pass "
            f"--insist {instead}"
        )
    if kind == "proxy":
        return ("Scores come from simple word rules (the proxy judge). Do not ship on them.",)
    return (f"Ranked by {who} alone, with --insist: {why}.",)


def _why_not_trusted(kind: JudgeKind, found: Sequence[Comparison]) -> str:
    if kind == "proxy":
        return "the proxy is rules about words, which know nothing of meaning"
    worst = min((one for one in found if not one.passes), key=lambda one: one.n)
    if not worst.n:
        return "nobody has compared it with people, under its weights and prompt"
    if worst.n < ENOUGH:
        return f"people have judged only {worst.n} of its candidates too, where {ENOUGH} are needed"
    alphas = [one.alpha for one in worst.scales.values() if one.alpha is not None]
    low = f" (lowest alpha {min(alphas):.2f}, {TOLERABLE} is needed)" if alphas else ""
    return f"on the {worst.n} candidates that people judged too it does not agree with them well enough{low}"


def _judges(state: Judged, kind: JudgeKind) -> list[Judge]:
    """The judges of a kind whose verdicts count, by name."""
    found = {
        one.judge.id: one.judge for one in under(state.verdicts, state.rubric.hash) if one.judge.kind == kind
    }
    return [found[name] for name in sorted(found)]


def _nobody(kind: JudgeKind | None, asked: str | None) -> tuple[str, ...]:
    return (f"Nobody of kind {asked} has judged anything.",) if asked and kind is None else ()


def _drift_lines(state: Judged, kind: JudgeKind | None) -> tuple[str, ...]:
    if kind is None or kind == "proxy":
        return ()
    applied = [
        (batch, one)
        for batch in state.batches
        for one in batch.applications
        if one.judge.kind == kind and batch.rubric_hash == state.rubric.hash
    ]
    every = {batch.batch_id for batch, _ in applied}
    checked = {batch.batch_id for batch, one in applied if one.drift_z is not None}
    if not checked:
        return (NOT_CHECKED,)
    lines = []
    if len(checked) < len(every):
        unchecked = f"{len(every - checked)} of {len(every)} batches"
        lines.append(f"Judge drift not checked in {unchecked}: no anchor was judged there.")
    lines += _provisional([batch for batch, _ in applied], n_checked=len(checked))
    accepted = sum(one.drift_accepted for _, one in applied)
    if accepted:
        seen = state.command("judge", "status")
        lines.append(f"Drift was accepted in {_count(accepted, 'application')}: see `{seen}`.")
    return tuple(lines)


def _provisional(applied: Sequence[Batch], *, n_checked: int) -> list[str]:
    """Whether the references behind the drift check are by people: until then it is provisional."""
    anchors = {batch.batch_id: [item for item in batch.items if item.role == "anchor"] for batch in applied}
    unsure = sum(any(not item.by_people for item in some) for some in anchors.values())
    if not unsure:
        return []
    if unsure >= n_checked:
        return ["The drift check is provisional: no person has judged the anchors yet."]
    return [f"The drift check is provisional in {unsure} batches: no person had judged their anchors then."]


def _ai_notes(state: Judged, kind: JudgeKind | None) -> list[str]:
    """The agreement of AI judges with people where it matters, and the means that both make together."""
    notes = []
    if kind == "ai":
        for judge in counting_judges(state.verdicts, rubric_hash=state.rubric.hash, kind=kind):
            found = state.calibration(judge)
            if found.least_alpha is not None:
                least = f"Krippendorff's alpha {found.least_alpha:.2f} on the scale where they agree least"
                notes.append(
                    f"{judge.id} against {found.people}s on {_count(found.n, 'candidate')}: {least} "
                    f"({word_for(found.least_alpha)})."
                )
    helped = assisted_means(state, kind)
    if helped:
        narrower = [100 * (1 - one.assisted.ratio) for one in helped]
        notes.append(
            f"{helped[0].judge} scored all candidates and agrees with people well enough: with its scores "
            f"the intervals are up to {max(narrower):.0f} % narrower (`{state.command('judge', 'status')}`)."
        )
    return notes


def _notes(state: Judged, kind: JudgeKind | None) -> list[str]:
    notes = []
    if kind is not None:
        who = ", ".join(judge.id for judge in _judges(state, kind))
        notes.append(f"Judged by {who} ({kind}), under the rubric {state.rubric.id}.")
    counting = under(state.verdicts, state.rubric.hash)
    others = {one.judge.kind for one in counting} - {kind}
    for other in sorted(others):
        several = len({one.candidate for one in counting if one.judge.kind == other})
        apart = f"also judged by kind {other}, which is never averaged with {kind}"
        how = apart if kind else f"judged by kind {other}"
        notes.append(f"{_count(several, 'candidate')} {how} (--ground {other} ranks by those).")
    old = len(state.verdicts) - len(counting)
    if old:
        notes.append(f"{_count(old, 'verdict')} under an earlier rubric: kept, not counted.")
    if state.tips_per_cell:
        first = (
            f"first {state.tips_per_cell} candidates count"
            if state.tips_per_cell > 1
            else "first candidate counts"
        )
        notes.append(f"Of each cell only the {first}.")
    if state.out_of_the_race:
        names = ", ".join(str(Combination(*name)) for name in sorted(state.out_of_the_race))
        notes.append(f"Raced out, so judged less than the others: {names}.")
    notes += _unusable(state)
    failed = sum(run.status == "failed" for run in state.runs)
    if failed:
        notes.append(f"{_count(failed, 'cell')} failed in the engine: missing, not scored.")
    return notes


def _unusable(state: Judged) -> list[str]:
    """How many replies could not be used, why, and the value that the rubric gives them."""
    replies = [run for run in state.runs if run.status == "done"]
    counts = Counter(problem for run in replies if (problem := reply_problem(run)))
    if not counts:
        return []
    named = {"prompt truncated": "with a truncated prompt"}
    kinds = [one for one in ("unreadable", "truncated", "prompt truncated") if counts[one]]
    why = ", ".join(f"{counts[one]} {named.get(one, one)}" for one in kinds)
    rubric = state.rubric
    flags = {flag.name: False for flag in rubric.flags}
    lowest = rubric.score({scale.name: scale.low for scale in rubric.scales}, flags)
    value = f"{rubric.failure:g} {'point' if rubric.failure == 1 else 'points'}"
    counted = f"as the lowest score on every scale: {value}" if rubric.failure == lowest else value
    used = f"{counts.total()} of {_count(len(replies), 'reply', 'replies')} could not be used"
    return [f"{used}: {why}. {'It' if counts.total() == 1 else 'Each'} counts {counted}."]


def _explored(
    state: Judged,
    kind: JudgeKind | None,
    report: Report,
    weights: Mapping[str, float],
    preferences: Preferences,
) -> Exploration:
    ranked = {row.combination for row in report.board.rows}
    rubric = weighted(state.rubric, weights)
    rows = [row for row in _rows(state, kind, rubric) if row[:2] in ranked]
    found = _ranked(state, rows, preferences, clusters_of(state)[0], rubric)
    board = _counted(_advised(found, advise=report.advise), report.facts)
    return Exploration(weights=dict(weights), board=board, sentence=_change(report.board, board))


def _change(board: Leaderboard, other: Leaderboard) -> str:
    """One sentence on whether the answer hangs on the weights."""
    if not other.rows or other.rows[0].mean is None:
        return "Nothing is ranked, so other weights change nothing."
    if (other.winner, other.recommended) == (board.winner, board.recommended):
        return f"With these weights nothing changes: {_answer(other)}."
    return f"With these weights {_answer(other)}; as the rubric weighs, {_answer(board)}."


def _answer(board: Leaderboard) -> str:
    if board.winner:
        return f"the winner is {board.winner}"
    advice = f" and {board.recommended} is recommended" if board.recommended else ""
    return f"there is no single winner{advice}"


def _against(
    state: Judged, kind: JudgeKind | None, before: Judged, ground: str | None, *, insist: bool, margin: float
) -> BaselineReport:
    if before.rubric.hash != state.rubric.hash:
        raise BadInput(
            f"{before.experiment!r} was judged under {before.rubric.id} ({before.rubric.hash[:8]}) and "
            f"{state.experiment!r} under {state.rubric.id} ({state.rubric.hash[:8]}): their scores cannot "
            f"be compared; give a --baseline judged under the same rubric{_judge_anew(state, before)}"
        )
    then = _kind(before, ground)
    _caution(before, then, insist=insist)
    if kind and then and then != kind:
        raise BadInput(
            f"{state.experiment!r} is judged by kind {kind} and {before.experiment!r} by kind {then}; "
            "their scores cannot be compared: choose one with --ground"
        )
    names = labels([*state.runs, *before.runs])
    now, earlier = _rows(state, kind, state.rubric, names), _rows(before, then, before.rubric, names)
    return compare_to_baseline(now, earlier, margin=margin)


def _judge_anew(state: Judged, before: Judged) -> str:
    """How to bring two experiments under one rubric: judge anew what its suite has a newer rubric for.

    Empty where the suites as they are now have no rubric in common.
    """
    now, then = _present_rubric(state), _present_rubric(before)
    if then == state.rubric.hash:
        older = [before]
    elif now == before.rubric.hash:
        older = [state]
    else:
        older = [before, state] if now is not None and now == then else []
    exports = [["--out", f"anew-{n}.json"] if len(older) > 1 else [] for n in range(1, len(older) + 1)]
    commands = [
        f"`{one.command('judge', 'export', '--new-rubric', *out)}`"
        for one, out in zip(older, exports, strict=True)
    ]
    names = " and ".join(repr(one.experiment) for one in older)
    return f", or judge {names} anew: {' and '.join(commands)}" if older else ""


def _present_rubric(state: Judged) -> str | None:
    """The hash of the rubric that the experiment's suite has now; None where its folder is gone."""
    try:
        return suite_of(state, Settings(suite=""), new_rubric=True).rubric.hash
    except (TipbenchError, OSError):
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _count(number: int, noun: str, several: str = "") -> str:
    return f"{number} {noun if number == 1 else several or noun + 's'}"
