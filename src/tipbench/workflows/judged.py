"""What is known of an experiment's judging: its rubric, its runs, its batches, and what follows from them."""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tipbench.compare.race import is_settled, raced_out
from tipbench.errors import BadInput, PinConflict
from tipbench.judge.agreement import compare_kinds
from tipbench.judge.scoring import cell_rows, labels
from tipbench.judge.verdicts import (
    KINDS,
    choose_ground,
    counted,
    judged,
    marks,
    overlong_flags,
    pending,
)
from tipbench.records import RubricText
from tipbench.settings import Settings
from tipbench.suite import SHIPPED, load_suite
from tipbench.suite.rubric_file import rubric_from_text
from tipbench.workflows.browse import pin_of
from tipbench.workflows.facts import bounds_around, clusters_of
from tipbench.workflows.hints import experiment_command, ledger_options
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.remembered_suite import (
    changed_scenarios,
    remembered_suite,
    stored_suite,
    unchanged_suite,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tipbench.judge.agreement import Comparison
    from tipbench.judge.verdicts import OverlongFlag
    from tipbench.records import Batch, Judge, JudgeKind, Ledger, Mark, Pin, Run, Verdict
    from tipbench.suite import Rubric, Suite

# Those whose word a race may rest on, who are measured against each other, and whom machines are measured by.
PEOPLE: tuple[JudgeKind, ...] = ("human", "agent")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One experiment, as the ledger holds it. Nothing here asks the ledger again.

    `options` are those that name the ledger in a command.
    """

    ledger: Ledger
    experiment: str
    pin: Pin
    rubric: Rubric
    runs: tuple[Run, ...]
    batches: tuple[Batch, ...]
    options: tuple[str, ...] = ()

    def command(self, *words: str) -> str:
        """Return a command about this experiment, as a person types it."""
        return experiment_command(*words, experiment=self.experiment, options=self.options)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All of them, also those under an earlier rubric, which no longer count."""
        return tuple(verdict for batch in self.batches for verdict in batch.verdicts)

    @cached_property
    def _plan(self) -> Batch | None:
        """The newest batch that says how much judging is wanted."""
        return next((batch for batch in reversed(self.batches) if batch.purpose == "judge"), None)

    @property
    def tips_per_cell(self) -> int:
        return self._plan.tips_per_cell if self._plan else 0

    @property
    def is_raced(self) -> bool:
        return self._plan is not None and self._plan.race

    def ground(self, asked: str | None = None) -> JudgeKind | None:
        return choose_ground(self.verdicts, self.rubric.hash, asked)

    def scores(self, ground: JudgeKind | None) -> Mapping[str, Mapping[str, float]]:
        """By candidate, what counts on this ground."""
        if ground is None:
            return {}
        if ground not in self._pooled:
            self._pooled[ground] = counted(self.verdicts, rubric_hash=self.rubric.hash, kind=ground)
        return self._pooled[ground]

    @cached_property
    def _pooled(self) -> dict[JudgeKind, Mapping[str, Mapping[str, float]]]:
        return {}

    def overlong_flags(self, ground: JudgeKind | None) -> Mapping[str, OverlongFlag]:
        """By candidate, the `overlong` flags that judges set on this ground, with their names."""
        if ground is None:
            return {}
        if ground not in self._flags:
            self._flags[ground] = overlong_flags(self.verdicts, rubric_hash=self.rubric.hash, kind=ground)
        return self._flags[ground]

    @cached_property
    def _flags(self) -> dict[JudgeKind, Mapping[str, OverlongFlag]]:
        return {}

    def overlong(self, ground: JudgeKind | None) -> dict[str, bool]:
        """By candidate, the `overlong` flags that judges set on this ground."""
        return {key: flag.value for key, flag in self.overlong_flags(ground).items()}

    def calibration(self, judge: Judge) -> Comparison:
        """An AI judge or the proxy against people, with its present weights and prompt, under this rubric."""
        return compare_kinds(
            self.verdicts,
            judge.id,
            rubric_hash=self.rubric.hash,
            scales=self.rubric.scales,
            kinds=[judge.kind],
            version=judge.version,
            texts=self._texts,
        )

    @cached_property
    def _texts(self) -> dict[str, str]:
        """By candidate, the text as it was in a batch."""
        return {item.candidate: item.text for batch in self.batches for item in batch.items if item.candidate}

    def rows(self, ground: JudgeKind | None) -> list[tuple[str, str, str, float | None]]:
        return cell_rows(
            self.runs,
            self.scores(ground),
            rubric=self.rubric,
            overlong=self.overlong(ground),
            tips_per_cell=self.tips_per_cell,
        )

    @cached_property
    def suite_at_hand(self) -> Suite | None:
        """The suite with the texts that the experiment is pinned to; None where it cannot be found."""
        if self.pin.places:
            return unchanged_suite(self.pin) or stored_suite(
                self.ledger, self.experiment, self.pin, self.rubric
            )
        return load_suite(self.pin.suite_id) if self.pin.suite_id in SHIPPED else None

    @cached_property
    def out_of_the_race(self) -> frozenset[tuple[str, str]]:
        """The combinations that can no longer win, by name; none where the experiment is not raced."""
        return frozenset(raced_out(self._race, **self._scale)) if self.is_raced else frozenset()

    @cached_property
    def _race(self) -> list[tuple[str, str, str, float | None]]:
        """What a race is read from: nothing while a model or the proxy alone has judged."""
        ground = self.ground()
        return self.rows(ground) if ground in PEOPLE else []

    @cached_property
    def is_settled(self) -> bool:
        """Whether one combination is left in the race and the remaining judgements would hardly change it."""
        return is_settled(self._race, **self._scale)

    @property
    def _scale(self) -> dict[str, Any]:
        """What tests of differences need beside the scores."""
        return (
            {"clusters": clusters_of(self)[0], "bounds": bounds_around(self, self._race)}
            if self._race
            else {}
        )

    @cached_property
    def unwanted(self) -> frozenset[tuple[str, str]]:
        """The combinations that a race asks nothing more of: once it is decided, the winner neither."""
        everyone = frozenset(labels(self.runs).values())
        return everyone if self.is_raced and self.is_settled else self.out_of_the_race

    @property
    def deciding(self) -> tuple[JudgeKind, ...]:
        """Whose verdict makes a candidate judged: once people judge, theirs alone, until then anybody's."""
        return PEOPLE if self.ground() in PEOPLE else KINDS

    def waiting(self, kinds: Collection[JudgeKind] = ()) -> dict[str, list[str]]:
        """By run id, the candidates still wanted that nobody of these kinds, or of those deciding, judged."""
        return pending(
            self.runs,
            judged(self.verdicts, rubric_hash=self.rubric.hash, kinds=kinds or self.deciding),
            tips_per_cell=self.tips_per_cell,
            raced_out=self.unwanted,
        )

    def marks(self) -> dict[str, Mark]:
        """What every run should be marked with; only those that are marked otherwise now."""
        every = marks(
            self.runs,
            self.scores(self.ground()),
            rubric=self.rubric,
            waiting=self.waiting(),
            overlong=self.overlong_flags(self.ground()),
            tips_per_cell=self.tips_per_cell,
        )
        now = {run.run_id: run for run in self.runs}
        whole = {run_id: self._whole(now[run_id], mark) for run_id, mark in every.items()}
        return {run_id: mark for run_id, mark in whole.items() if _differs(now[run_id], mark)}

    def _whole(self, run: Run, mark: Mark) -> Mark:
        """The mark with all that changes in the run; with the rubric, where the run shows another one."""
        mark = self._without_the_rest(run, mark)
        return mark if run.rubric_hash == self.rubric.hash else replace(mark, rubric=self._rubric_text)

    @cached_property
    def _rubric_text(self) -> RubricText:
        return RubricText(id=self.rubric.id, hash=self.rubric.hash, text=self.rubric.text)

    def _without_the_rest(self, run: Run, mark: Mark) -> Mark:
        """The mark that also takes back what earlier verdicts said and these do not, as NaN."""
        gone = (self._derived & run.metrics.keys()) - mark.metrics.keys()
        return replace(mark, metrics={**mark.metrics, **dict.fromkeys(gone, math.nan)}) if gone else mark

    @cached_property
    def _derived(self) -> frozenset[str]:
        """The names of all numbers that verdicts have ever given a run, under whichever rubric."""
        scales = {name for verdict in self.verdicts for name in verdict.scores}
        return frozenset(scales | {"composite", "n_judged"})


def scored_items(state: Judged, batch_id: str, judge_id: str) -> set[str]:
    """The ids of a batch's items that a judge of this name has scored, in this batch or in another one."""
    batch = next(one for one in state.batches if one.batch_id == batch_id)
    adjudicates = batch.purpose == "adjudicate"
    candidates = {
        one.candidate
        for one in state.verdicts
        if one.judge.id == judge_id
        and one.rubric_hash == batch.rubric_hash
        and one.adjudicated == adjudicates
    }
    hidden = {name for one in batch.applications if one.judge.id == judge_id for name in one.hidden}
    return {item.id for item in batch.items if item.candidate in candidates or item.id in hidden}


def is_open(state: Judged, batch: Batch, judge_id: str) -> bool:
    """Whether this judge can still submit the batch: not closed, and an item of it has no scores."""
    if batch.is_closed or batch.rubric_hash != state.rubric.hash:
        return False
    return not batch.applications or len(scored_items(state, batch.batch_id, judge_id)) < len(batch.items)


def as_judge_sees(state: Judged, judge_id: str) -> Judged:
    """The experiment without what this judge has submitted of batches that are not complete.

    A count of judged candidates that moves with each submitted item would tell hidden items from real ones.
    """
    return replace(state, batches=tuple(_without_parts(state, one, judge_id) for one in state.batches))


def _without_parts(state: Judged, batch: Batch, judge_id: str) -> Batch:
    others = tuple(one for one in batch.applications if one.judge.id != judge_id)
    if batch.judge not in {"", judge_id} or others == batch.applications:
        return batch
    return replace(batch, applications=others) if is_open(state, batch, judge_id) else batch


def _differs(run: Run, mark: Mark) -> bool:
    if run.judge_pending != mark.judge_pending or mark.rubric is not None:
        return True
    if mark.overlong_by not in {None, run.overlong_by}:
        return True
    if mark.metrics == {"n_judged": 0} and "n_judged" not in run.metrics:
        return False  # never judged, and nothing to say about it
    return any(run.metrics.get(name) != value for name, value in mark.metrics.items())


@contextmanager
def nothing_thrown_away() -> Iterator[None]:
    """Pause the search for garbage while much is made and all of it kept: it would take as long again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def judged_experiment(settings: Settings) -> Judged:
    """What is known of the settings' experiment; NotFound where there is none of that name."""
    return read_judged(synced_ledger(settings), settings.experiment, options=ledger_options(settings))


def read_judged(ledger: Ledger, experiment: str, *, options: Sequence[str] = ()) -> Judged:
    """Read an experiment. `options` name the ledger in commands that messages print."""
    pin = pin_of(ledger, experiment)
    with nothing_thrown_away():
        return Judged(
            ledger=ledger,
            experiment=experiment,
            pin=pin,
            rubric=rubric_from_text(pin.rubric_text, name=f"the rubric of experiment {experiment!r}"),
            runs=tuple(ledger.runs(experiment)),
            batches=tuple(ledger.batches(experiment)),
            options=tuple(options),
        )


def suite_of(state: Judged, settings: Settings, *, new_rubric: bool = False) -> Suite:
    """The suite that the experiment was collected with, its texts as they were then.

    The folder that the settings name must be that suite, unchanged. Where they name none, the experiment
    remembers its suite; an experiment of an earlier version does not, and only a built-in suite is found.
    """
    if not settings.suite and state.pin.places:
        return remembered_suite(
            state.ledger, state.experiment, state.pin, state.rubric, new_rubric=new_rubric
        )
    return _named_suite(state, settings.suite, new_rubric=new_rubric)


def _named_suite(state: Judged, name: str, *, new_rubric: bool) -> Suite:
    wanted = state.pin.suite_id
    suite = load_suite(name or Settings.suite)
    if suite.id != wanted and wanted in SHIPPED:
        suite = load_suite(wanted)
    if suite.id != wanted and not name:
        raise BadInput(
            f"experiment {state.experiment!r} was collected with the suite {wanted!r} and does not remember "
            "its folder; give the folder with --suite"
        )
    if suite.id != wanted:
        raise BadInput(
            f"experiment {state.experiment!r} was collected with the suite {wanted!r}, and --suite is "
            f"{suite.id!r}; give the folder of {wanted!r} with --suite"
        )
    changed = changed_scenarios(suite, state.pin)
    if changed:
        way_out = "leave out --suite" if state.pin.places else "collect under a new experiment"
        raise PinConflict(
            f"experiment {state.experiment!r}: the scenario {changed[0]!r} of {suite.path} is not the one "
            f"that was collected; restore its text, or {way_out}"
        )
    if suite.rubric.hash != state.pin.rubric_hash and not new_rubric:
        raise PinConflict(
            f"experiment {state.experiment!r}: the rubric at {suite.rubric.path} is not the one that it "
            f"is pinned to ({state.pin.rubric_id}); restore its text, or begin judging anew under it with "
            "--new-rubric"
        )
    return suite
