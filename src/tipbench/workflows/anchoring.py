"""`judge anchors`: the bank of texts with known scores, made larger from verdicts and calibrated by people.

What ships or stands in a suite's folder is read only. What is added on this machine is kept in tipbench's
home, one file for each text of a rubric, and goes before it.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, NotFound, Unavailable
from tipbench.judge.arrange import arranged
from tipbench.judge.candidates import candidate_key
from tipbench.judge.compose import blind_id
from tipbench.judge.filled_file import check_file
from tipbench.judge.judge_file import file_text
from tipbench.judge.scoring import slot_texts
from tipbench.judge.verdicts import latest
from tipbench.private import make_folder
from tipbench.records import Batch, Item, Judge, content_hash
from tipbench.settings import Settings, home
from tipbench.suite import (
    SHIPPED,
    Anchor,
    Reference,
    load_suite,
    merge_banks,
    normalised,
    read_anchor_bank,
    write_anchor_bank,
)
from tipbench.suite.rubric_file import rubric_from_text
from tipbench.workflows.judged import PEOPLE, judged_experiment, suite_of
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.remembered_suite import remembered_suite
from tipbench.workflows.whole_files import check_free, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.judge.filled_file import JudgeFile
    from tipbench.records import Verdict
    from tipbench.suite import Suite

PREFIX = "anchors-"
_AGREED = 1  # judges are one point apart at most, on every scale


def bank_path(suite: Suite) -> Path:
    return home() / "anchors" / f"{suite.id}-{suite.rubric.id}-{suite.rubric.hash[:8]}.yaml"


def anchors_of(suite: Suite) -> tuple[Anchor, ...]:
    """The suite's anchors with what was added on this machine."""
    return merge_banks(suite.anchors, _own_bank(suite))


def _own_bank(suite: Suite) -> tuple[Anchor, ...]:
    path = bank_path(suite)
    if not path.exists():
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}); mend it, or move it away to begin anew") from None
    return read_anchor_bank(text, path=path, rubric=suite.rubric, scenarios=suite.scenarios)


def _keep(suite: Suite, more: Sequence[Anchor]) -> Path:
    path = bank_path(suite)
    text = write_anchor_bank(merge_banks(_own_bank(suite), more), rubric=suite.rubric)
    try:
        make_folder(path.parent)
        write_whole(path, text)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}); nothing was added") from None
    return path


@dataclass(frozen=True, kw_only=True)
class Bank:
    """A suite's anchors, and where those of this machine are kept."""

    suite_id: str
    rubric_id: str
    anchors: tuple[Anchor, ...]
    path: Path

    @property
    def by_people(self) -> int:
        return sum(anchor.by_people for anchor in self.anchors)


def _suite(settings: Settings, experiment: str = "") -> Suite:
    """The suite of an experiment, or the one that the settings name."""
    if experiment:
        return suite_of(judged_experiment(replace(settings, experiment=experiment)), settings)
    return load_suite(settings.suite or Settings.suite)


def list_anchors(settings: Settings, *, experiment: str = "") -> Bank:
    suite = _suite(settings, experiment)
    return Bank(
        suite_id=suite.id, rubric_id=suite.rubric.id, anchors=anchors_of(suite), path=bank_path(suite)
    )


@dataclass(frozen=True, kw_only=True)
class Grown:
    """What was added to a bank."""

    added: int
    path: Path


def add_anchors(settings: Settings, *, per_scenario: int = 4) -> Grown:
    """Take candidates that at least two people or agents have judged alike into the bank of their suite.

    Of each scenario at most `per_scenario`, spread over the range of their scores.
    """
    state = judged_experiment(settings)
    suite = suite_of(state, settings)
    known = {(anchor.scenario_id, normalised(anchor.text)) for anchor in anchors_of(suite)}
    agreed = _agreed(latest(state.verdicts, rubric_hash=state.rubric.hash))
    found: dict[str, list[Anchor]] = {}
    for run in state.runs:
        for text in slot_texts(run):
            key, place = candidate_key(run.scenario_id, text), (run.scenario_id, normalised(text))
            if key in agreed and place not in known:
                known.add(place)
                found.setdefault(run.scenario_id, []).append(_anchor(run.scenario_id, text, key, agreed[key]))
    more = [anchor for some in found.values() for anchor in _spread(some, per_scenario)]
    if not more:
        raise NotFound(
            f"experiment {state.experiment!r} has no candidate that two judges scored alike and that is "
            "not an anchor yet; let a second judge score some: "
            f"{state.command('judge', 'export', '--second', '--judge', 'NAME')}"
        )
    return Grown(added=len(more), path=_keep(suite, more))


def _agreed(by_candidate: Mapping[str, Mapping[Judge, Verdict]]) -> dict[str, list[Verdict]]:
    people = {
        key: [one for judge, one in by.items() if judge.kind in PEOPLE] for key, by in by_candidate.items()
    }
    return {key: some for key, some in people.items() if len(some) > 1 and _alike(some)}


def _alike(several: Sequence[Verdict]) -> bool:
    return all(
        max(one.scores[name] for one in several) - min(one.scores[name] for one in several) <= _AGREED
        for name in several[0].scores
    )


def _anchor(scenario_id: str, text: str, key: str, verdicts: Sequence[Verdict]) -> Anchor:
    references = tuple(
        Reference(judge=one.judge.id, kind=one.judge.kind, scores=dict(one.scores)) for one in verdicts
    )
    return Anchor(id=f"{scenario_id}-{key[:8]}", scenario_id=scenario_id, text=text, references=references)


def _spread(anchors: Sequence[Anchor], most: int) -> list[Anchor]:
    """At most so many, from the lowest to the highest in even steps."""
    ordered = sorted(anchors, key=lambda anchor: (sum(anchor.reference.values()), anchor.id))
    if len(ordered) <= most:
        return ordered
    return [ordered[round(n * (len(ordered) - 1) / max(most - 1, 1))] for n in range(most)]


def export_anchors(
    settings: Settings, *, judge: str, out: str, force: bool = False, experiment: str = ""
) -> int:
    """Write a judge file with every anchor of a suite, for a person to say what they are worth."""
    suite = _suite(settings, experiment)
    batch = calibration_batch(suite)
    if not batch.items:
        raise NotFound(
            f"the suite {suite.id!r} has no anchors; add some: tipbench judge anchors add --experiment X"
        )
    path = Path(out)
    check_free(path, force=force)
    who = Judge(id=judge, kind="human") if judge else None
    text = file_text(batch, rubric_text=suite.rubric.text, scales=suite.rubric.scales, judge=who)
    try:
        write_whole(path, text)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); give another --out") from None
    return len(batch.items)


def calibration_batch(suite: Suite) -> Batch:
    """All anchors as a batch, the same each time it is made from the same bank."""
    bank = sorted(anchors_of(suite), key=lambda anchor: anchor.id)
    named = content_hash([suite.rubric.hash, [(one.id, one.text) for one in bank]])
    items = [
        Item(
            id=blind_id(named.encode(), batch_id=PREFIX, scenario_id=one.scenario_id, text=one.text),
            role="anchor",
            scenario_id=one.scenario_id,
            text=one.text,
            anchor_id=one.id,
        )
        for one in bank
    ]
    return Batch(
        batch_id=f"{PREFIX}{named[:12]}",
        experiment="",
        created_ms=0,
        purpose="judge",
        judge="",
        rubric_id=suite.rubric.id,
        rubric_hash=suite.rubric.hash,
        items=tuple(_in_order(items, named)),
        contexts={
            one.id: one.described for one in suite.scenarios if any(i.scenario_id == one.id for i in items)
        },
    )


def _in_order(items: Sequence[Item], named: str) -> list[Item]:
    return arranged(items, rng=random.Random(named)) if items else []  # noqa: S311 - the same each time


def is_calibration(file: JudgeFile) -> bool:
    """Whether a judge's file holds a bank's anchors rather than batches of an experiment."""
    return file.batch_ids[0].startswith(PREFIX)


def _suites(settings: Settings) -> Iterator[Suite]:
    """The suite that the settings name; without one the built-in suites, then those of all experiments."""
    if settings.suite:
        yield load_suite(settings.suite)
        return
    yield from map(load_suite, SHIPPED)
    with suppress(Unavailable):  # the built-in suites need no ledger
        yield from _of_experiments(settings)


def _of_experiments(settings: Settings) -> Iterator[Suite]:
    ledger = synced_ledger(settings)
    for entry in ledger.experiments():
        pin = ledger.pinned(entry.name)
        if pin is not None and pin.places:
            rubric = rubric_from_text(pin.rubric_text, name=f"the rubric of experiment {entry.name!r}")
            with suppress(BadInput):
                yield remembered_suite(ledger, entry.name, pin, rubric)


def apply_anchors(settings: Settings, filled: JudgeFile) -> Grown:
    """Store the scores of a filled-in anchor file. Scores by people replace all others.

    Suites with the same anchors under the same rubric each get the scores.
    """
    same = {
        one.id: one for one in _suites(settings) if filled.batch_ids == (calibration_batch(one).batch_id,)
    }
    if not same:
        raise BadInput(
            f"{filled.path} holds the anchors of another suite, or of a bank that has changed since; give "
            "the suite with --suite, or export them again: tipbench judge anchors export"
        )
    grown = [_calibrated(suite, filled) for suite in same.values()]
    return grown[0]


def _calibrated(suite: Suite, filled: JudgeFile) -> Grown:
    batch = calibration_batch(suite)
    judged = check_file(filled, batch, rubric_text=suite.rubric.text, scales=suite.rubric.scales)
    by_id = {item.id: item for item in batch.items}
    known = {anchor.id: anchor for anchor in anchors_of(suite)}
    more = [
        replace(
            known[by_id[entry.item_id].anchor_id],
            references=(
                Reference(judge=judged.judge.id, kind=judged.judge.kind, scores=dict(entry.answer.scores)),
            ),
        )
        for entry in judged.entries
        if entry.answer.scores is not None
    ]
    if not more:
        raise BadInput(f"{filled.path} has no scores yet; fill in its judge fields")
    return Grown(added=len(more), path=_keep(suite, more))
