"""`judge export`: blinded batches, stored in the ledger first and then written to one file or several."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput
from tipbench.judge.agreement import agreement, wide_gap
from tipbench.judge.attempts import closed_to, hidden_texts, real_candidates
from tipbench.judge.blocks import blocks_of, unseen_first, wanted_blocks
from tipbench.judge.candidates import candidate_key, normalised
from tipbench.judge.compose import Pool, anchors_shown, compose, compose_all
from tipbench.judge.filled_file import LARGEST_BYTES
from tipbench.judge.judge_file import file_text
from tipbench.judge.scoring import labels, slot_texts
from tipbench.judge.verdicts import judged
from tipbench.records import Batch, Judge
from tipbench.workflows.anchoring import anchors_of
from tipbench.workflows.applying import mark, read_judge_file
from tipbench.workflows.hints import ledger_options, suite_options
from tipbench.workflows.judge_replies import NothingLeft, closed, no_other_texts
from tipbench.workflows.judged import PEOPLE, judged_experiment, read_judged, suite_of
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.whole_files import check_free, write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tipbench.judge.blocks import Block
    from tipbench.records import JudgeKind, Purpose
    from tipbench.settings import Settings
    from tipbench.suite import Suite
    from tipbench.workflows.judged import Judged

# A batch that another judge took is left to them for this long.
_RESERVED_MS = 7 * 24 * 3600 * 1000
# Scores and notes must still fit into the file that `judge apply` reads.
_LARGEST_EXPORT = LARGEST_BYTES * 3 // 4


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to export: for whom, how much, and which candidates.

    `second` asks for what others have judged and this judge has not, to measure agreement; `adjudicate` for
    what judges were far apart on. `every` is all batches at once rather than the next one. A candidate in an
    open batch of this judge, or in one for anybody, is not handed out again. With `reopen` those batches come
    first, and it is no error if nothing is left: the same order may be given again and makes nothing twice.
    `even_if_open` hands out such candidates in new batches.
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
    even_if_open: bool = False

    @property
    def purpose(self) -> Purpose:
        return "adjudicate" if self.adjudicate else "second" if self.second else "judge"

    @property
    def options(self) -> list[str]:
        """The options of `judge export` that repeat this order, without --all and --out."""
        values = {
            "judge": self.judge,
            "kind": self.kind,
            "size": self.size,
            "tips-per-cell": self.tips_per_cell,
        }
        usual = {"judge": "", "kind": "human", "size": 60, "tips-per-cell": 0}
        flags = ("race", "second", "adjudicate", "new_rubric", "reopen")
        given = [(f"--{name}", str(value)) for name, value in values.items() if value != usual[name]]
        return [
            *(part for pair in given for part in pair),
            *(f"--{name.replace('_', '-')}" for name in flags if getattr(self, name)),
        ]

    @property
    def judged_by(self) -> Judge | None:
        return Judge(id=self.judge, kind=self.kind) if self.judge else None


@dataclass(frozen=True, kw_only=True)
class Written:
    """A batch and the file that holds it. `left` counts the candidates that the export did not hand out."""

    batch_id: str
    path: str
    items: int
    left: int = 0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The batches of an order: `held` are open, `new` are not stored yet. `left` is as in `Written`."""

    state: Judged
    held: tuple[Batch, ...]
    new: tuple[Batch, ...]
    left: int

    @property
    def batches(self) -> tuple[Batch, ...]:
        return (*self.held, *self.new)


def export(
    settings: Settings, order: Order, *, out: str, force: bool = False, one_file: bool = False
) -> list[Written]:
    """Compose the next batch (or all), store it in the ledger, and write it to `out`.

    All batches go into one file if `out` ends with `.json` or `one_file` is set, else into a folder of that
    name. Raises NotFound if nothing is left to judge. An existing file is not overwritten unless `force`: a
    judge may have filled in half of it.
    """
    _check_order(order)
    path = Path(out)
    in_one = one_file or not order.every or out.lower().endswith(".json")
    if in_one and not order.reopen:
        check_free(path, force=force)
    taken = take_batches(settings, order)
    if in_one:
        paths = _write_one(path, taken, order, force=force)
    else:
        paths = _write_folder(path, taken, order, force=force or order.reopen)
    return [
        Written(batch_id=batch.batch_id, path=str(file), items=len(batch.items), left=taken.left)
        for batch, file in zip(taken.batches, paths, strict=True)
    ]


def _write_one(path: Path, taken: Taken, order: Order, *, force: bool) -> list[Path]:
    """Write all batches to one file. With `reopen` a file that holds them already stays as it is."""
    batches = taken.batches
    if not batches:
        return []
    kept = order.reopen and not force and not taken.new and _holds(path, batches)
    if not kept:
        check_free(path, force=force)
        text = batch_file(taken.state, *batches, judge=order.judged_by)
        _check_size(path, text)
        for batch in taken.new:
            keep_batch(taken.state, batch)
        _write(taken.state, path, text, batches, order)
    return [path] * len(batches)


def _write_folder(folder: Path, taken: Taken, order: Order, *, force: bool) -> list[Path]:
    """Write each batch to a file of its own, numbered in the order to judge them in."""
    paths = []
    for number, batch in enumerate(taken.batches, start=1):
        path = folder / f"{number:03d}-{batch.batch_id}.json"
        check_free(path, force=force)
        path = next(iter(sorted(folder.glob(f"*-{batch.batch_id}.json"))), path)
        if batch in taken.new:
            keep_batch(taken.state, batch)
        if not (order.reopen and path.exists()):
            _write(taken.state, path, batch_file(taken.state, batch, judge=order.judged_by), [batch], order)
        paths.append(path)
    return paths


def _holds(path: Path, batches: Sequence[Batch]) -> bool:
    """Whether a judge file holds these batches."""
    try:
        found = read_judge_file(str(path)).batch_ids
    except BadInput:
        return False
    return {batch.batch_id for batch in batches} <= set(found)


def _check_size(path: Path, text: str) -> None:
    """Refuse a file that `judge apply` could not read once it is filled in."""
    size = len(text.encode())
    if size > _LARGEST_EXPORT:
        raise BadInput(
            f"{path} would have {size // 1_000_000} MB, and `judge apply` reads at most "
            f"{LARGEST_BYTES // 1_000_000} MB; give --all --out a folder, a name without .json"
        )


def _write(state: Judged, path: Path, text: str, batches: Sequence[Batch], order: Order) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        one = len(batches) == 1
        again = ["--batch", batches[0].batch_id] if one else ["--all", *replace(order, reopen=True).options]
        raise BadInput(
            f"{path} cannot be written ({error.strerror}); the {'batch is' if one else 'batches are'} kept: "
            f"{state.command('judge', 'export', *again, '--out', 'FILE')}"
        ) from None


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
    check_free(Path(out), force=force)
    judge = Judge(id=batch.judge, kind=kind) if batch.judge else None
    _write(found, Path(out), batch_file(found, batch, judge=judge), [batch], Order())
    return Written(batch_id=batch_id, path=out, items=len(batch.items))


def judged_experiment_of(settings: Settings, batch_id: str) -> Judged:
    """The experiment that a batch belongs to, whichever the settings name."""
    ledger = synced_ledger(settings)
    experiment = ledger.batch(batch_id).experiment
    return read_judged(ledger, experiment, options=ledger_options(settings))


def batch_file(state: Judged, *batches: Batch, judge: Judge | None) -> str:
    return file_text(*batches, rubric_text=state.rubric.text, scales=state.rubric.scales, judge=judge)


def _check_order(order: Order) -> None:
    if order.second and not order.judge:
        raise BadInput("--second is for what a judge has not judged yet: say who, with --judge NAME")
    if order.kind != "human" and not order.judge:
        raise BadInput(f"--kind {order.kind} says what the judge is: say who, with --judge NAME")
    if order.second and order.adjudicate:
        raise BadInput("--second and --adjudicate ask for different candidates; choose one")


def take_batches(settings: Settings, order: Order) -> Taken:
    """The batches of an order. Raises NothingLeft if there is none, unless the order is to `reopen`."""
    state = judged_experiment(settings)
    suite = suite_of(state, settings, new_rubric=order.new_rubric)
    # verdicts under the earlier rubric are kept, and no longer count
    state = replace(state, rubric=suite.rubric)
    held = _held(state, suite, order) if order.reopen else []
    blocks = _blocks(state, suite, order, out=_out(state, order) | _candidates(held))
    if not blocks and not order.reopen:
        _adopt_rubric(state)
        raise _nothing_left(state, suite, order, options=suite_options(settings))
    left = _keys(blocks) | _candidates(held)
    held = held if order.every else held[:1]
    new = _new_batches(state, suite, blocks, order) if blocks and (order.every or not held) else []
    return Taken(state=state, held=tuple(held), new=tuple(new), left=len(left - _candidates([*held, *new])))


def _new_batches(state: Judged, suite: Suite, blocks: list[Block], order: Order) -> list[Batch]:
    """New batches for the judge, with no hidden text of a closed batch of that judge.

    Candidates that the judge saw in a closed batch come last: among them the new hidden texts stand out. The
    list ends where the suite has no other texts to check a batch with; BatchClosed if that is the first one.
    """
    closed_batches = closed_to(state.ledger.rejected_batches(), order.judge)
    here = [one for one in closed_batches if one.experiment == state.experiment]
    replaced = {one.replaces for one in state.batches}
    to_replace = [one for one in here if one.batch_id not in replaced and one.purpose == order.purpose]
    withheld = hidden_texts(closed_batches)
    found: list[Batch] = []
    for batch in _batches(state, suite, unseen_first(blocks, real_candidates(here)), order, withheld):
        if closed_batches and not _is_checked(batch, suite, withheld, anyway=not here):
            if found:
                break
            raise no_other_texts((here or closed_batches)[-1].batch_id, options=state.options)
        found.append(replace(batch, replaces=to_replace.pop(0).batch_id) if to_replace else batch)
    return found


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
    """The open batches of such an order that nobody has applied any part of, and that hold something wanted.

    They come in the order to judge them in, which nothing in a batch tells.
    """
    blocks = enumerate(_blocks(state, suite, order, out=_taken_by_others(state, order)))
    places = {key: at for at, block in blocks for key in _keys([block])}
    first = {}
    for batch in _own(state, order):
        found = [places[key] for key in _candidates([batch]) & places.keys()]
        if found and not batch.applications:
            first[batch.batch_id] = min(found)
    return sorted((one for one in state.batches if one.batch_id in first), key=lambda b: first[b.batch_id])


def _keys(blocks: Iterable[Block]) -> set[str]:
    return {candidate_key(block.scenario_id, text) for block in blocks for text in block.texts}


def _candidates(batches: Iterable[Batch]) -> set[str]:
    return {item.candidate for batch in batches for item in batch.items if item.candidate}


def _blocks(state: Judged, suite: Suite, order: Order, *, out: set[str]) -> list[Block]:
    """What is to be judged, without the candidates that are `out`."""
    if order.adjudicate:
        return blocks_of(_texts(state, _disputed(state) - out))
    if order.second:
        return blocks_of(_texts(state, _seen_by_others(state, order) - out))
    gone = _planned(state, order).unwanted
    names = labels(state.runs)
    return wanted_blocks(
        state.runs,
        scenarios=[scenario.id for scenario in suite.scenarios],
        tips_per_cell=order.tips_per_cell,
        raced_out=[one for one, name in names.items() if name in gone],
        done=_done(state) | out,
    )


def _planned(state: Judged, order: Order) -> Judged:
    """The experiment as it will be once this order has been taken."""
    return replace(state, batches=(*state.batches, _blank(state, order)))


def _done(state: Judged) -> set[str]:
    """What need not be judged by people any more: an AI judge or the proxy does not spare it."""
    return judged(state.verdicts, rubric_hash=state.rubric.hash, kinds=PEOPLE)


def _out(state: Judged, order: Order) -> set[str]:
    """The candidates that are in open batches, and so are not handed out again."""
    if order.even_if_open:
        return _taken_by_others(state, order)
    found = _taken_by_others(state, order)
    for batch in _own(state, order):
        if not (order.reopen and batch.applications):
            found |= _candidates([batch]) - {verdict.candidate for verdict in batch.verdicts}
    return found


def _own(state: Judged, order: Order) -> list[Batch]:
    """The batches that such an order has made before, for this judge or for anybody."""
    return [batch for batch in _alike(state, order) if batch.judge in {"", order.judge}]


def _taken_by_others(state: Judged, order: Order) -> set[str]:
    """What is in a batch that another judge got lately and has not brought back."""
    since = time.time_ns() // 1_000_000 - _RESERVED_MS
    theirs = [
        batch
        for batch in _alike(state, order)
        if batch.judge not in {"", order.judge} and batch.created_ms > since and not batch.applications
    ]
    # a second judge judges what others judge too
    return set() if order.second else _candidates(theirs)


def _alike(state: Judged, order: Order) -> list[Batch]:
    """The batches of the order's purpose under the rubric that counts, without those that are closed."""
    wanted = (order.purpose, state.rubric.hash)
    return [
        batch
        for batch in state.batches
        if (batch.purpose, batch.rubric_hash) == wanted and not batch.is_closed
    ]


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


def _nothing_left(state: Judged, suite: Suite, order: Order, *, options: Sequence[str]) -> NothingLeft:
    """The error for an order without candidates. `options` name the suite in a command."""
    where = f"experiment {state.experiment!r}"
    others = _taken_by_others(state, order)
    open_ones = _keys(_blocks(state, suite, order, out=others))
    if open_ones and not order.even_if_open:
        every = ["--all"] if order.every else []
        again = [*every, "--out", "open.json", *replace(order, reopen=True).options, *options]
        return NothingLeft(
            f"{where} has nothing left to hand out: {len(open_ones)} candidates are in open batches",
            f" (`{state.command('judge', 'status')}` lists them); apply their files, or hand them out again "
            f"with --reopen: `{state.command('judge', 'export', *again)}`",
        )
    if order.adjudicate:
        return NothingLeft(
            f"{where} has nothing to adjudicate: no two judges are {_far_apart(state)} on any scale"
        )
    if order.second:
        return NothingLeft(f"{where} has nothing that others have judged and {order.judge!r} has not")
    if not any(run.status == "done" for run in state.runs):
        return NothingLeft(f"{where} has no cells to judge yet; collect some first")
    why, see = _but(state, order)
    return NothingLeft(f"{where} has nothing left {why}", f"; see `{state.command(*see)}`" if see else "")


def _far_apart(state: Judged) -> str:
    gaps = sorted({wide_gap(scale) for scale in state.rubric.scales})
    return f"{' or '.join(f'{gap:g}' for gap in gaps)} or more points apart"


def _but(state: Judged, order: Order) -> tuple[str, tuple[str, ...]]:
    """Why nothing is left, and the command that shows more, if any."""
    if order.race and _planned(state, order).is_settled:
        return "to race for: one variant is left, and simulated judgements of the rest keep it first", ()
    if _taken_by_others(state, order):
        return "but what other judges were given and have not brought back", ("judge", "status")
    if order.tips_per_cell:
        return f"to judge among the first {order.tips_per_cell} of each cell", ()
    return "to judge", ("compare",)
