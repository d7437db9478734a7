"""`ship`: from the leaderboard to the app. What is shipped is what MLflow's alias says, and a file beside it.

The order is: everything is looked up and checked; a version is written to the ledger; the alias moves to it,
which is the one step that counts; the file on this disk follows. Broken off anywhere, what was shipped before
is shipped still, or the new one is and the file catches up (`tipbench ship --status`, or a service's start).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from tipbench.errors import (
    NotFound,
    PinConflict,
    StoreUnusable,
    TipbenchError,
    Unavailable,
)
from tipbench.judge.candidates import candidate_key
from tipbench.judge.scoring import is_overlong, slot_texts, slot_values
from tipbench.ledger.locks import file_lock
from tipbench.ledger.shipments import model_name
from tipbench.records import VARIANT_SEPARATOR, Shipped
from tipbench.settings import Settings, home
from tipbench.suite import load_suite, place_of
from tipbench.workflows.comparing import USUAL, report_on
from tipbench.workflows.facts import combinations
from tipbench.workflows.judged import judged_experiment, read_judged, suite_of
from tipbench.workflows.recording import the_ledger
from tipbench.workflows.remembered_suite import changed_scenarios, stored_suite, suites_at_hand
from tipbench.workflows.scenario_kinds import Kind, kind_of_scenario
from tipbench.workflows.serving_state import suite_switch
from tipbench.workflows.shipped_file import Before, Filed, read_filed, write_filed
from tipbench.workflows.shipping_choice import choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tipbench.compare.leaderboard import LeaderboardRow
    from tipbench.compare.recommendation import Preferences
    from tipbench.compare.report import Report
    from tipbench.records import JudgeKind, Ledger, Pin, Run, Sampling
    from tipbench.suite import Suite
    from tipbench.workflows.judged import Judged
    from tipbench.workflows.shipping_choice import Choice

_PATIENCE_S = 30.0
_MOST_TIPS = 20
_NO_FOLDER = (
    "The folder of its suite is gone or its texts have changed: judged tips are served, and no fresh ones "
    "are written. To have fresh ones, ship it again with --suite FOLDER."
)
_NO_TIPS = (
    "None of its tips was judged worth serving: there is none for the app until the engine has written some."
)


@dataclass(frozen=True, kw_only=True)
class History:
    """Every version that a suite has had, oldest first.

    `in_use` is the one in force, `before` are those that rolling back comes to, step by step. The ones that
    are neither were rolled back, or never came into force.
    """

    versions: tuple[Shipped, ...]
    in_use: int | None
    before: tuple[int, ...]


def ship(
    settings: Settings,
    *,
    experiment: str,
    recommended: bool = False,
    cell: str | None = None,
    insist: bool = False,
    preferences: Preferences = USUAL,
) -> Shipped:
    """Ship the combination that the experiment recommends, or the one that is named.

    CheckFailed where the recommendation is only a best guess and nobody chose, and where the ranking stands
    on a judge who is not trusted, unless a cell is named and insisted on. What is in force already is not
    shipped again.
    """
    state = judged_experiment(replace(settings, experiment=experiment))
    report = report_on(
        state,
        insist=insist,
        preferences=preferences,
        instead="with --cell MODEL/PROMPT to ship one all the same",
    )
    choice = choose(report, recommended=recommended, cell=cell, insist=insist, options=state.options)
    suite = suite_of(state, settings)
    runs = combinations(state.runs)[choice.row.combination]
    _check_prompt(suite, runs[0], experiment)
    new = _described(state, report, suite, runs, choice)
    kinds = _kinds(state, new, suite)
    if not any(kind.tips for kind in kinds):
        new = replace(new, cautions=(*new.cautions, _NO_TIPS))
    place = _remembered_place(state.pin, new) if suite.is_stored else place_of(suite)
    if not place:
        new = replace(new, cautions=(*new.cautions, _NO_FOLDER))
    with _alone(home()), suite_switch(_served_suite()) as use_state_of:
        now = _put_in_force(state.ledger, new)
        filed = Filed(shipped=now, suite=place, ledger=state.ledger.uri, kinds=kinds)
        write_filed(home(), replace(filed, before=_before(now)))
        use_state_of(now.suite_id)
    return now


def roll_back(settings: Settings) -> Shipped:
    """Put back in force what the shipped version replaced, and say which that is.

    NotFound where nothing is shipped, and where there was nothing before.
    """
    with _alone(home()), suite_switch(_served_suite()) as use_state_of:
        held = read_filed(home())
        suite_id = held.shipped.suite_id if held else _named(settings).id
        ledger = the_ledger(settings)
        now = ledger.shipped(suite_id)
        if now is None:
            raise NotFound(f"nothing is shipped for the suite {suite_id!r} at {ledger.uri}: nothing to undo")
        if held is not None and held.before and held.before[-1].until == now.version:
            earlier = _other_suite(ledger, settings, held)
            use_state_of(earlier.suite_id)
            return earlier
        earlier = _earlier(ledger, now)
        filed = _filed(ledger, earlier, settings, held)
        ledger.set_shipped(suite_id, earlier.version)
        write_filed(home(), filed)
        use_state_of(earlier.suite_id)
    return earlier


def _other_suite(ledger: Ledger, settings: Settings, held: Filed) -> Shipped:
    """Put back in force what was served of another suite before this one was shipped."""
    last = held.before[-1]
    earlier = _version(ledger, last.suite_id, last.version)
    filed = _filed(ledger, earlier, replace(settings, suite=last.suite or settings.suite), None)
    ledger.set_shipped(last.suite_id, earlier.version)
    write_filed(home(), replace(filed, before=held.before[:-1]))
    return earlier


def _served_suite() -> str | None:
    """Return the suite that this machine serves; None if there is none or the file is damaged."""
    try:
        held = read_filed(home())
    except StoreUnusable:
        return None
    return None if held is None else held.shipped.suite_id


def _before(now: Shipped) -> tuple[Before, ...]:
    """Which suites were served before this one, once it is shipped. A file that is damaged is replaced."""
    try:
        held = read_filed(home())
    except StoreUnusable:
        held = None
    if held is None or held.shipped.suite_id == now.suite_id:
        return held.before if held else ()
    was = held.shipped
    last = Before(suite_id=was.suite_id, suite=held.suite, version=was.version, until=now.version)
    return (*held.before, last)


def shipped(folder: Path | None = None) -> Shipped | None:
    """What this machine serves, by the file alone: the ledger may be away. None where nothing is shipped."""
    held = read_filed(folder or home())
    return held.shipped if held else None


def refreshed(settings: Settings, folder: Path | None = None) -> Filed | None:
    """The file as the ledger has it now: what was shipped from elsewhere, and tips judged since.

    A file that another ledger's shipping wrote is left alone.
    """
    folder = folder or home()
    with _alone(folder):
        held = read_filed(folder)
        ledger = the_ledger(settings)
        if held is not None and held.ledger != ledger.uri:
            return held
        now = ledger.shipped(held.shipped.suite_id if held else _named(settings).id)
        if now is None:
            return held
        found = _filed(ledger, now, settings, held)
        if found != held:
            write_filed(folder, found)
        return found


def history(settings: Settings) -> History:
    """What was shipped for the suite so far, from the ledger."""
    held = read_filed(home())
    suite_id = held.shipped.suite_id if held else _named(settings).id
    ledger = the_ledger(settings)
    versions, now = ledger.shipments(suite_id), ledger.shipped(suite_id)
    return History(
        versions=tuple(versions), in_use=now.version if now else None, before=_chain(versions, now)
    )


def _chain(versions: Sequence[Shipped], now: Shipped | None) -> tuple[int, ...]:
    known = {one.version: one for one in versions}
    chain: list[int] = []
    while now is not None and now.replaces in known and now.replaces not in chain:
        chain.append(now.replaces)
        now = known[now.replaces]
    return tuple(chain)


def _check_prompt(suite: Suite, run: Run, experiment: str) -> None:
    if suite.prompt(run.prompt_id).hash != run.prompt_hash:
        raise PinConflict(
            f"the prompt {run.prompt_id!r} of {suite.path} is not the one that experiment {experiment!r} was "
            "collected with; restore its text, or collect and judge it as a new version"
        )


def _described(state: Judged, report: Report, suite: Suite, runs: Sequence[Run], choice: Choice) -> Shipped:
    sampling, n_tips, mixed = _usual_options(state, runs)
    run, row = runs[0], choice.row
    return Shipped(
        suite_id=suite.id,
        suite_hash=suite.hash,
        experiment=state.experiment,
        model=run.model,
        digest=run.digest,
        prompt_id=run.prompt_id,
        prompt_hash=run.prompt_hash,
        n_tips=n_tips,
        sampling=sampling,
        ground=cast("JudgeKind | None", report.ground),
        because=choice.because,
        mean=row.mean,
        low=row.low,
        high=row.high,
        cautions=(*report.first, *choice.cautions, *mixed),
        shipped_ms=time.time_ns() // 1_000_000,
        label=_label(row, run),
    )


def _label(row: LeaderboardRow, run: Run) -> str:
    """The row's name in the leaderboard; empty where that is the model and the prompt alone."""
    plain = row.combination == (run.model, run.prompt_id)
    return "" if plain else VARIANT_SEPARATOR.join(row.combination)


def _usual_options(state: Judged, runs: Sequence[Run]) -> tuple[Sampling, int, tuple[str, ...]]:
    """The options that most cells were generated with, and a word where others were with others."""
    options = [(run.sampling, run.n_tips) for run in reversed(runs) if run.sampling is not None]
    if not options:
        raise NotFound(
            f"the sampling options of experiment {state.experiment!r} were not recorded; collect it again"
        )
    counts = Counter(options)
    (sampling, n_tips), count = counts.most_common(1)[0]
    if len(counts) == 1:
        return sampling, n_tips, ()
    mixed = (
        f"Its cells were generated with {len(counts)} different sets of options; shipped are those of "
        f"{count} of {len(options)} cells, while the score is over all."
    )
    return sampling, n_tips, (mixed,)


def _put_in_force(ledger: Ledger, new: Shipped) -> Shipped:
    held = ledger.shipped(new.suite_id)
    if held is not None and _content(held) == _content(new):
        return held
    made = ledger.add_shipment(replace(new, replaces=held.version if held else None))
    if ledger.shipped(new.suite_id) != held:
        raise Unavailable(
            f"somebody else shipped {model_name(new.suite_id)!r} at {ledger.uri} at the same moment; see "
            "`tipbench ship --status`, then run the same command again"
        )
    ledger.set_shipped(new.suite_id, made.version)
    return made


def _content(one: Shipped) -> Shipped:
    """A shipping without its time, its place in the history and its name, which other variants may change."""
    return replace(one, shipped_ms=0, version=0, replaces=None, label="")


def _earlier(ledger: Ledger, now: Shipped) -> Shipped:
    if now.replaces is None:
        raise NotFound(
            f"version {now.version} ({now.combination}) is the first that was shipped for the suite "
            f"{now.suite_id!r} at {ledger.uri}: there is nothing before it to go back to"
        )
    return _version(ledger, now.suite_id, now.replaces)


def _version(ledger: Ledger, suite_id: str, version: int) -> Shipped:
    found = [one for one in ledger.shipments(suite_id) if one.version == version]
    if not found:
        raise NotFound(
            f"version {version} of {model_name(suite_id)!r}, which was shipped before, is not at "
            f"{ledger.uri} any more; ship what you want with `tipbench ship --experiment NAME`"
        )
    return found[0]


def _named(settings: Settings) -> Suite:
    return load_suite(settings.suite or Settings.suite)


def _remembered_place(pin: Pin, now: Shipped) -> str:
    """The remembered place whose texts can still generate what was shipped; empty where there is none."""
    for suite in suites_at_hand(pin):
        prompts = {one.id: one.hash for one in suite.prompts}
        if prompts.get(now.prompt_id) == now.prompt_hash and not changed_scenarios(suite, pin):
            return place_of(suite)
    return ""


def _filed(ledger: Ledger, now: Shipped, settings: Settings, held: Filed | None) -> Filed:
    """The file for a version that the ledger has; without its suite or its experiment it holds less."""
    place = _place(now.suite_id, settings, held)
    try:
        state = read_judged(ledger, now.experiment)
    except NotFound:
        suite = load_suite(place) if place else None
        kinds = tuple(kind_of_scenario(scenario) for scenario in suite.scenarios) if suite else ()
    else:
        place = place or _remembered_place(state.pin, now)
        suite = (
            load_suite(place) if place else stored_suite(ledger, state.experiment, state.pin, state.rubric)
        )
        kinds = _kinds(state, now, suite)
    before = held.before if held else ()
    return Filed(shipped=now, suite=place, ledger=ledger.uri, kinds=kinds, before=before)


def _place(suite_id: str, settings: Settings, held: Filed | None) -> str:
    """Where the suite is, as far as this machine knows; empty where it does not."""
    given = (held.suite if held else "", settings.suite, suite_id)
    for name in dict.fromkeys(one for one in given if one):
        try:
            suite = load_suite(name)
        except (TipbenchError, OSError):
            continue
        if suite.id == suite_id:
            return place_of(suite)
    return ""


def _kinds(state: Judged, now: Shipped, suite: Suite | None) -> tuple[Kind, ...]:
    """Every scenario of the suite with the tips that may be served for it."""
    tips = _judged_tips(state, now)
    if suite is None:
        return tuple(Kind(id=scenario, tips=tuple(texts)) for scenario, texts in tips.items())
    return tuple(kind_of_scenario(one, tips=tips.get(one.id, ())) for one in suite.scenarios)


def _judged_tips(state: Judged, now: Shipped) -> dict[str, list[str]]:
    """By scenario what the shipped combination wrote and judges liked, the best first.

    Left out is what nobody judged, what is overlong, and what is worth no more than a failure.
    """
    rubric = state.rubric
    scores, flags = state.scores(now.ground), state.overlong(now.ground)
    worth: dict[str, dict[str, tuple[float, str]]] = {}
    for run in state.runs:
        if (run.digest, run.prompt_hash) != (now.digest, now.prompt_hash):
            continue
        if run.sampling not in (None, now.sampling):  # a row of its own, with scores of its own
            continue
        of_scenario = worth.setdefault(run.scenario_id, {})
        values = slot_values(run, scores, rubric=rubric, overlong=flags)
        for text, value in zip(slot_texts(run), values, strict=False):
            overlong = is_overlong(run, text, rubric=rubric, overlong=flags)
            if value is not None and value > rubric.failure and not overlong:
                of_scenario.setdefault(candidate_key(run.scenario_id, text), (value, text))
    return {name: _best(found.values()) for name, found in worth.items()}


def _best(found: Iterable[tuple[float, str]]) -> list[str]:
    ordered = sorted(found, key=lambda one: -one[0])
    return [text for _, text in ordered[:_MOST_TIPS]]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One shipping at a time in a home; another one is waited for."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(file_lock(folder / "ship.lock", patience_s=_PATIENCE_S))
        except OSError as error:
            raise StoreUnusable(
                f"{folder / 'ship.lock'} cannot be made ({error.strerror}); make room or rights there"
            ) from None
        if not held:
            raise Unavailable(f"another `tipbench ship` is under way in {folder}; wait for it to end")
        yield
