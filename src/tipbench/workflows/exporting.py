"""`judge export`: blinded batches, kept in the ledger first and then written as files."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, NotFound
from tipbench.judge.agreement import agreement, wide_gap
from tipbench.judge.attempts import closed_to, hidden_texts, real_candidates
from tipbench.judge.blocks import blocks_of, unseen_first, wanted_blocks
from tipbench.judge.candidates import candidate_key, normalised
from tipbench.judge.compose import Pool, anchors_shown, compose, compose_all
from tipbench.judge.judge_file import file_text
from tipbench.judge.scoring import labels, slot_texts
from tipbench.judge.verdicts import judged
from tipbench.records import Batch, Judge
from tipbench.workflows.anchoring import anchors_of
from tipbench.workflows.applying import mark
from tipbench.workflows.judge_replies import closed, no_other_texts
from tipbench.workflows.judged import PEOPLE, judged_experiment, read_judged, suite_of
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.whole_files import check_free, write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tipbench.judge.blocks import Block
    from tipbench.records import JudgeKind, Purpose
    from tipbench.settings import Settings
    from tipbench.suite import Suite
    from tipbench.workflows.judged import Judged

# A batch that another judge took is left to them for this long.
_RESERVED_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to export: for whom, how much, and which candidates.

    `second` asks for what others have judged and this judge has not, to measure agreement; `adjudicate` for
    what judges were far apart on. `every` is all batches at once rather than the next one. With `reopen`
    those that were exported before and not brought back come first, and nothing left is no error: so the same
    order may be given again and makes nothing twice.
    """

    judge: str = ""
    kind: JudgeKind = "human"
    size: int = 60
    race: bool = False
    tips_per_cell: int = 0
    second: bool = False
    adjudicate: bool = False
    every: bool = False
    new_rubric: bool = False
    reopen: bool = False

    @property
    def purpose(self) -> Purpose:
        return "adjudicate" if self.adjudicate else "second" if self.second else "judge"

    @property
    def judged_by(self) -> Judge | None:
        return Judge(id=self.judge, kind=self.kind) if self.judge else None


@dataclass(frozen=True, kw_only=True)
class Written:
    """A batch and the file that it was written to."""

    batch_id: str
    path: str
    items: int


def export(settings: Settings, order: Order, *, out: str, force: bool = False) -> list[Written]:
    """Compose the next batch (or all), keep it in the ledger, and write it to `out` (or into that folder).

    NotFound where nothing is left to judge. A file that is there is not overwritten unless `force`: somebody
    may have been judging in it.
    """
    _check_order(order)
    place = _Place(out, folder=order.every, force=force or order.reopen)
    written = []
    for state, batch in take_batches(settings, order):
        path = place.next(batch)
        if not any(one is batch for one in state.batches):
            keep_batch(state, batch)
        if not (order.reopen and path.exists()):
            place.write(path, batch_file(state, batch, order.judged_by), batch)
        written.append(Written(batch_id=batch.batch_id, path=str(path), items=len(batch.items)))
    return written


def keep_batch(state: Judged, batch: Batch) -> None:
    """Put the batch in the ledger; the experiment goes over to its rubric first, where that is a new one."""
    _adopt_rubric(state)
    state.ledger.add_batch(batch)


def _adopt_rubric(state: Judged) -> None:
    """Pin the experiment to the rubric it is judged under now; its runs then show what that one says."""
    rubric = state.rubric
    pin = state.ledger.pinned(state.experiment) if state.pin.rubric_hash != rubric.hash else state.pin
    if pin is None or pin.rubric_hash == rubric.hash:
        return
    state.ledger.change_rubric(
        state.experiment, rubric_id=rubric.id, rubric_hash=rubric.hash, rubric_text=rubric.text
    )
    mark(state)


def export_again(
    settings: Settings, batch_id: str, *, kind: JudgeKind = "human", out: str, force: bool = False
) -> Written:
    """Write the file of a batch that was exported before, as empty as it was then."""
    found = judged_experiment_of(settings, batch_id)
    batch = next(one for one in found.batches if one.batch_id == batch_id)
    if batch.rubric_hash != found.rubric.hash:
        raise BadInput(
            f"batch {batch_id} was made under another text of the rubric {batch.rubric_id!r} and cannot be "
            "applied any more; export a new one"
        )
    if batch.is_closed:
        raise closed(batch_id)
    place = _Place(out, folder=False, force=force)
    judge = Judge(id=batch.judge, kind=kind) if batch.judge else None
    place.write(Path(out), batch_file(found, batch, judge), batch)
    return Written(batch_id=batch_id, path=out, items=len(batch.items))


def judged_experiment_of(settings: Settings, batch_id: str) -> Judged:
    """The experiment that a batch belongs to, whichever the settings name."""
    ledger = synced_ledger(settings)
    return read_judged(ledger, ledger.batch(batch_id).experiment)


def batch_file(state: Judged, batch: Batch, judge: Judge | None) -> str:
    return file_text(batch, rubric_text=state.rubric.text, scales=state.rubric.scales, judge=judge)


def _check_order(order: Order) -> None:
    if order.second and not order.judge:
        raise BadInput("--second is for what a judge has not judged yet: say who, with --judge NAME")
    if order.kind != "human" and not order.judge:
        raise BadInput(f"--kind {order.kind} says what the judge is: say who, with --judge NAME")
    if order.second and order.adjudicate:
        raise BadInput("--second and --adjudicate ask for different candidates; choose one")
    if order.reopen and (order.second or order.adjudicate or not order.every):
        raise BadInput("--reopen goes with --all, and with neither --second nor --adjudicate")


def take_batches(settings: Settings, order: Order) -> Iterator[tuple[Judged, Batch]]:
    """The batches of an order, each with the experiment it is for; they are not in the ledger yet."""
    state = judged_experiment(settings)
    suite = suite_of(state, settings, new_rubric=order.new_rubric)
    # verdicts under the earlier rubric are kept, and no longer count
    state = replace(state, rubric=suite.rubric)
    held = _held(state, suite, order) if order.reopen else []
    yield from ((state, batch) for batch in held)
    blocks = _blocks(state, suite, order, held)
    if not blocks and order.reopen:
        return
    if not blocks:
        _adopt_rubric(state)
        raise NotFound(_nothing_left(state, order))
    yield from ((state, batch) for batch in _new_batches(state, suite, blocks, order))


def _new_batches(state: Judged, suite: Suite, blocks: list[Block], order: Order) -> Iterator[Batch]:
    """New batches for the judge, with no hidden text of a closed batch of that judge.

    Candidates that the judge saw in a closed batch come last: among them the new hidden texts stand out.
    """
    closed_batches = closed_to(state.ledger.rejected_batches(), order.judge)
    here = [one for one in closed_batches if one.experiment == state.experiment]
    replaced = {one.replaces for one in state.batches}
    to_replace = [one for one in here if one.batch_id not in replaced and one.purpose == order.purpose]
    withheld = hidden_texts(closed_batches)
    for batch in _batches(state, suite, unseen_first(blocks, real_candidates(here)), order, withheld):
        if closed_batches and not _is_checked(batch, suite, withheld, anyway=not here):
            raise no_other_texts((here or closed_batches)[-1].batch_id)
        yield replace(batch, replaces=to_replace.pop(0).batch_id) if to_replace else batch


def _is_checked(batch: Batch, suite: Suite, withheld: Collection[str], *, anyway: bool) -> bool:
    """Whether a new batch has anchors, or lacks them for another reason than that they are withheld.

    A suite that has no anchors at all has no others either, unless the judge's closed batch is of another
    experiment (`anyway`).
    """
    if any(item.role == "anchor" for item in batch.items):
        return True
    anchors = anchors_of(suite)
    kept = [one for one in anchors if normalised(one.text) not in withheld]
    if not kept:
        return anyway and not anchors
    return not any(one.scenario_id in batch.contexts and one not in kept for one in anchors)


def _held(state: Judged, suite: Suite, order: Order) -> list[Batch]:
    """The batches of such an order that are out, came back in no part, and hold something wanted.

    They come in the order to judge them in, which nothing in a batch tells.
    """
    blocks = enumerate(_blocks(state, suite, order))
    places = {candidate_key(block.scenario_id, text): at for at, block in blocks for text in block.texts}
    first = {}
    for batch in state.batches:
        mine = (batch.purpose, batch.judge, batch.rubric_hash) == ("judge", order.judge, state.rubric.hash)
        found = [places[key] for key in _candidates([batch]) & places.keys()]
        if mine and found and not batch.applications and not batch.is_closed:
            first[batch.batch_id] = min(found)
    return sorted((one for one in state.batches if one.batch_id in first), key=lambda b: first[b.batch_id])


def _candidates(batches: Iterable[Batch]) -> set[str]:
    return {item.candidate for batch in batches for item in batch.items if item.candidate}


def _blocks(state: Judged, suite: Suite, order: Order, held: Iterable[Batch] = ()) -> list[Block]:
    if order.adjudicate:
        return blocks_of(_texts(state, _disputed(state)))
    if order.second:
        return blocks_of(_texts(state, _seen_by_others(state, order)))
    gone = _planned(state, order).unwanted
    names = labels(state.runs)
    return wanted_blocks(
        state.runs,
        scenarios=[scenario.id for scenario in suite.scenarios],
        tips_per_cell=order.tips_per_cell,
        raced_out=[one for one, name in names.items() if name in gone],
        done=_done(state) | _taken_by_others(state, order) | _candidates(held),
    )


def _planned(state: Judged, order: Order) -> Judged:
    """The experiment as it will be once this order has been taken."""
    return replace(state, batches=(*state.batches, _blank(state, order)))


def _done(state: Judged) -> set[str]:
    """What need not be judged by people any more: an AI judge or the proxy does not spare it."""
    return judged(state.verdicts, rubric_hash=state.rubric.hash, kinds=PEOPLE)


def _taken_by_others(state: Judged, order: Order) -> set[str]:
    """What is in a batch that somebody else was given lately and has not brought back."""
    since = time.time_ns() // 1_000_000 - _RESERVED_MS
    theirs = [
        batch
        for batch in state.batches
        if batch.judge
        and batch.judge != order.judge
        and batch.created_ms > since
        and not (batch.applications or batch.is_closed)
    ]
    return _candidates(theirs)


def _disputed(state: Judged) -> set[str]:
    found = agreement(state.verdicts, rubric_hash=state.rubric.hash, scales=state.rubric.scales, kinds=PEOPLE)
    return {gap.candidate for gap in found.gaps}


def _seen_by_others(state: Judged, order: Order) -> set[str]:
    mine, others = set[str](), set[str]()
    for verdict in state.verdicts:
        if verdict.rubric_hash == state.rubric.hash and verdict.judge.kind in PEOPLE:
            (mine if verdict.judge.id == order.judge else others).add(verdict.candidate)
    return others - mine


def _texts(state: Judged, keys: set[str]) -> Iterable[tuple[str, str]]:
    """The texts behind these keys, with their scenarios, in the order of the runs."""
    for run in state.runs:
        for text in slot_texts(run):
            if candidate_key(run.scenario_id, text) in keys:
                yield run.scenario_id, text


def _batches(
    state: Judged, suite: Suite, blocks: list[Block], order: Order, withheld: frozenset[str]
) -> Iterator[Batch]:
    pool = Pool(
        contexts={scenario.id: scenario.described for scenario in suite.scenarios},
        scales=state.rubric.scales,
        anchors=anchors_of(suite),
        candidates=[(run.scenario_id, text) for run in state.runs for text in slot_texts(run)],
        withheld=withheld,
    )
    key, rng, recent = secrets.token_bytes(32), secrets.SystemRandom(), anchors_shown(state.batches)
    blank = _blank(state, order)
    if order.every:
        yield from compose_all(
            blocks,
            blank=blank,
            pool=pool,
            key=key,
            rng=rng,
            new_id=new_batch_id,
            size=order.size,
            recent=recent,
        )
        return
    batch = compose(blocks, blank=blank, pool=pool, key=key, rng=rng, size=order.size, recent=recent)
    if batch is not None:
        yield batch


def _blank(state: Judged, order: Order) -> Batch:
    named = blank_batch(state, purpose=order.purpose, judge=order.judge)
    return replace(named, tips_per_cell=order.tips_per_cell, race=order.race)


def blank_batch(state: Judged, *, purpose: Purpose, judge: str) -> Batch:
    """A new batch of an experiment, with nothing in it."""
    return Batch(
        batch_id=new_batch_id(),
        experiment=state.experiment,
        created_ms=time.time_ns() // 1_000_000,
        purpose=purpose,
        judge=judge,
        rubric_id=state.rubric.id,
        rubric_hash=state.rubric.hash,
        items=(),
        contexts={},
    )


def new_batch_id() -> str:
    return f"b{secrets.token_hex(6)}"


def _nothing_left(state: Judged, order: Order) -> str:
    where = f"experiment {state.experiment!r}"
    if order.adjudicate:
        return f"{where} has nothing to adjudicate: no two judges are {_far_apart(state)} on any scale"
    if order.second:
        return f"{where} has nothing that others have judged and {order.judge!r} has not"
    if not any(run.status == "done" for run in state.runs):
        return f"{where} has no cells to judge yet; collect some first"
    return f"{where} has nothing left {_but(state, order)}"


def _far_apart(state: Judged) -> str:
    gaps = sorted({wide_gap(scale) for scale in state.rubric.scales})
    return f"{' or '.join(f'{gap:g}' for gap in gaps)} or more points apart"


def _but(state: Judged, order: Order) -> str:
    if order.race and _planned(state, order).is_settled:
        return "to race for: judging further cannot change the winner"
    if _taken_by_others(state, order):
        return "but what other judges were given and have not brought back; see `tipbench judge status`"
    if order.tips_per_cell:
        return f"to judge among the first {order.tips_per_cell} of each cell"
    return f"to judge; see `tipbench compare --experiment {state.experiment}`"


class _Place:
    """Where batch files go: one file, or a folder of them, numbered in the order to judge them in."""

    def __init__(self, out: str, *, folder: bool, force: bool) -> None:
        self._out = Path(out)
        self._folder = folder
        self._force = force
        self._given = 0
        if not folder:
            check_free(self._out, force=force)

    def next(self, batch: Batch) -> Path:
        if not self._folder:
            return self._out
        self._given += 1
        path = self._out / f"{self._given:03d}-{batch.batch_id}.json"
        check_free(path, force=self._force)
        return next(iter(sorted(self._out.glob(f"*-{batch.batch_id}.json"))), path)

    def write(self, path: Path, text: str, batch: Batch) -> None:
        try:
            write_whole(path, text)
        except OSError as error:
            raise BadInput(
                f"{path} cannot be written ({error.strerror}); the batch is kept: "
                f"tipbench judge export --batch {batch.batch_id} --out FILE"
            ) from None
