"""`judge auto`: the proxy's rules or a model score what they have not scored yet, as batches like any
other.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.judge.ai import Block as AiBlock
from tipbench.judge.ai import BlockScores, cut_block, first_question, prompt_hash
from tipbench.judge.answers import Answer
from tipbench.judge.blocks import wanted_blocks
from tipbench.judge.candidates import candidate_key
from tipbench.judge.compose import Pool, anchors_shown, compose_all
from tipbench.judge.proxy import NAME as PROXY
from tipbench.judge.proxy import proxy_scores
from tipbench.judge.verdicts import under
from tipbench.records import Item, Judge
from tipbench.workflows.ai_judges import Work, judge_blocks
from tipbench.workflows.anchoring import anchors_of
from tipbench.workflows.applying import apply_answers, mark, marked
from tipbench.workflows.exporting import blank_batch, new_batch_id
from tipbench.workflows.judged import judged_experiment, suite_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tipbench.errors import TipbenchError
    from tipbench.judge.blocks import Block
    from tipbench.records import Batch, Emit, Message
    from tipbench.settings import Settings
    from tipbench.suite import Suite
    from tipbench.workflows.judged import Judged

_PROXY_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """What a judge that is no person scored. `stopped` is why it ended early; what is counted is recorded.

    `unread` texts had no readable reply. Of `inconsistent` candidates the reason and the score named
    different levels, twice.
    """

    experiment: str
    judge: str
    judged: int
    unread: int
    pending: int
    inconsistent: int = 0
    stopped: TipbenchError | None = None


def judge_automatically(
    settings: Settings, spec: str, *, emit: Emit, base_url: str = "", same_family: bool = False
) -> Automatic:
    """Let `proxy`, `ollama:MODEL` or `openai:MODEL` score what it has not scored yet; NotFound for
    nothing left.
    """
    spec = _judge_id(spec)
    state = judged_experiment(settings)
    suite = suite_of(state, settings)
    if spec == PROXY:
        return _by_rules(state, suite)
    return _by_model(
        state,
        suite,
        spec=spec,
        settings=settings,
        emit=emit,
        base_url=base_url,
        same_family=same_family,
    )


@dataclass(frozen=True, kw_only=True)
class ShownPrompt:
    """A question as an AI judge receives it. `from_suite` says that the suite's `judge.md` made it."""

    hash: str
    from_suite: bool
    scenario_id: str
    messages: tuple[Message, ...]


def show_prompt(settings: Settings) -> ShownPrompt:
    """The first question of `judge auto` about this experiment. Sends nothing."""
    state = judged_experiment(settings)
    suite = suite_of(state, settings)
    blocks = _blocks(state, suite, done=set())
    if not blocks:
        raise NotFound(f"experiment {state.experiment!r} has no candidate to judge; collect some first")
    first = blocks[0]
    context = _contexts(suite)[first.scenario_id]
    items = tuple((candidate_key(first.scenario_id, text), text) for text in first.texts)
    part = cut_block(AiBlock(scenario_id=first.scenario_id, context=context, items=items))[0]
    asked = first_question(part, rubric=state.rubric, prompt=suite.judge_prompt)
    return ShownPrompt(
        hash=prompt_hash(suite.judge_prompt),
        from_suite=not suite.judge_prompt.is_built_in,
        scenario_id=first.scenario_id,
        messages=asked.messages,
    )


def _judge_id(spec: str) -> str:
    """The name that the judge's verdicts have: to Ollama, a model without a tag is its `latest`."""
    name = spec.strip()
    return name.removesuffix(":latest") if name.startswith("ollama:") else name


def _done(state: Judged, judge: Judge) -> set[str]:
    """The candidates that this judge has scored, with these weights and this prompt, under this rubric."""
    return {
        one.candidate
        for one in state.verdicts
        if one.rubric_hash == state.rubric.hash and _is_same(one.judge, judge)
    }


def _is_same(one: Judge, other: Judge) -> bool:
    return (one.id, one.kind, one.version) == (other.id, other.kind, other.version)


def _blocks(state: Judged, suite: Suite, *, done: Collection[str]) -> list[Block]:
    scenarios = [scenario.id for scenario in suite.scenarios]
    return wanted_blocks(state.runs, scenarios=scenarios, tips_per_cell=state.tips_per_cell, done=done)


def _nothing_left(state: Judged, spec: str) -> NotFound:
    """Nothing is left. The runs are marked, in case the process was killed before it did so."""
    mark(state)
    return NotFound(f"experiment {state.experiment!r} has nothing that {spec} has not judged")


class _Recording:
    """Records each block as soon as its scores are there, so that a kill loses no other block."""

    def __init__(self, state: Judged) -> None:
        self.state = state
        self.judged = 0
        self.inconsistent = 0
        self.batches: tuple[Batch, ...] = ()
        self._open = ""

    def keep(self, judge: Judge, found: BlockScores) -> None:
        """Record the scores of some items of one batch. The first of them record the batch itself."""
        batch = self._batch_of(next(iter([*found.scores, *found.inconsistent])))
        if batch.batch_id != self._open:
            self.finish()
        self._open = batch.batch_id
        answers = {
            item_id: Answer(scores=scores, readings=found.readings.get(item_id, ()))
            for item_id, scores in found.scores.items()
        }
        done = apply_answers(
            self.state, batch, judge, answers, lines={}, mark_runs=False, inconsistent=found.inconsistent
        )
        self.state = done.state
        real = {item.id for item in batch.items if item.role == "real"}
        self.judged += len(real & answers.keys())
        self.inconsistent += len(real & {*found.inconsistent})

    def _batch_of(self, item_id: str) -> Batch:
        """The batch of an item, with what was applied to it so far. A new batch is stored first."""
        batch = next(one for one in self.batches if any(item.id == item_id for item in one.items))
        known = next((one for one in self.state.batches if one.batch_id == batch.batch_id), None)
        if known is not None:
            return known
        self.state.ledger.add_batch(batch)
        self.state = replace(self.state, batches=(*self.state.batches, batch))
        return batch

    def finish(self) -> None:
        """Mark the runs by the scores that are recorded."""
        if self._open:
            self.state = marked(self.state)
        self._open = ""


def _by_rules(state: Judged, suite: Suite) -> Automatic:
    judge = Judge(id=PROXY, kind="proxy")
    blocks = _blocks(state, suite, done=_done(state, judge))
    if not blocks:
        raise _nothing_left(state, PROXY)
    scales = [(scale.name, scale.low, scale.high) for scale in state.rubric.scales]
    pool = Pool(contexts=_contexts(suite), scales=state.rubric.scales)
    recording = _Recording(state)
    recording.batches = tuple(_plain_batches(state, blocks, pool))
    for batch in recording.batches:
        scores = {
            item.id: proxy_scores(item.text, suite.scenario(item.scenario_id).text, scales)
            for item in batch.items
        }
        recording.keep(judge, BlockScores(scores=scores, readings={}))
    recording.finish()
    return _result(recording, judge=PROXY, unread=0)


def _plain_batches(state: Judged, blocks: Sequence[Block], pool: Pool) -> list[Batch]:
    """Batches without anything hidden, for rules that cannot drift."""
    items = [_item(block.scenario_id, text) for block in blocks for text in block.texts]
    contexts = pool.contexts
    found = []
    for at in range(0, len(items), _PROXY_BATCH):
        some = tuple(items[at : at + _PROXY_BATCH])
        shown = {item.scenario_id: contexts[item.scenario_id] for item in some}
        found.append(replace(blank_batch(state, purpose="auto", judge=PROXY), items=some, contexts=shown))
    return found


def _item(scenario_id: str, text: str) -> Item:
    key = candidate_key(scenario_id, text)
    return Item(id=key, role="real", scenario_id=scenario_id, text=text, candidate=key)


def _by_model(
    state: Judged,
    suite: Suite,
    *,
    spec: str,
    settings: Settings,
    emit: Emit,
    base_url: str,
    same_family: bool,
) -> Automatic:
    recording = _Recording(state)

    def work(judge: Judge) -> Work:
        recording.batches = tuple(_composed(state, suite, judge))
        _announce_repeats(state, judge, recording.batches, emit)
        blocks = [one for batch in recording.batches for one in _conversations(batch)]
        return Work(blocks=blocks, seconds_each=_pace(state.batches, judge))

    if not _blocks(state, suite, done=set()):
        raise _nothing_left(state, spec)
    try:
        found = judge_blocks(
            spec,
            work,
            rubric=state.rubric,
            settings=settings,
            contestants=sorted({run.model for run in state.runs}),
            emit=emit,
            base_url=base_url,
            same_family=same_family,
            keep=recording.keep,
            prompt=suite.judge_prompt,
        )
    finally:
        recording.finish()
    if not recording.batches:
        raise _nothing_left(state, spec)
    return _result(recording, judge=spec, unread=len(found.unread), stopped=found.stopped)


def _composed(state: Judged, suite: Suite, judge: Judge) -> Iterator[Batch]:
    """Batches of all that the judge has not scored with these weights and this prompt."""
    return compose_all(
        _blocks(state, suite, done=_done(state, judge)),
        blank=blank_batch(state, purpose="auto", judge=judge.id),
        pool=Pool(contexts=_contexts(suite), scales=state.rubric.scales, anchors=anchors_of(suite)),
        key=secrets.token_bytes(32),
        rng=secrets.SystemRandom(),
        new_id=new_batch_id,
        recent=anchors_shown(state.batches),
    )


def _announce_repeats(state: Judged, judge: Judge, batches: Sequence[Batch], emit: Emit) -> None:
    """Name the candidates that the judge scored before with other weights or another prompt."""
    before = {
        one.candidate
        for one in under(state.verdicts, state.rubric.hash)
        if (one.judge.id, one.judge.kind) == (judge.id, judge.kind)
    }
    again = before & {item.candidate for batch in batches for item in batch.items}
    if again:
        what = f"{len(again)} candidate{'' if len(again) == 1 else 's'}"
        message = (
            f"{judge.id} has other weights or another prompt than before: {what} that it scored then are "
            "scored again"
        )
        emit({"event": "notice", "message": message})


def _pace(batches: Sequence[Batch], judge: Judge) -> float | None:
    """Seconds for a text in earlier blocks of this judge: from the times between blocks of one batch."""
    seconds, texts = 0.0, 0
    for batch in batches:
        own = [one for one in batch.applications if _is_same(one.judge, judge)]
        own.sort(key=lambda one: one.at_ms)
        for before, one in pairwise(own):
            seconds += (one.at_ms - before.at_ms) / 1000
            texts += len(one.verdicts) + len(one.hidden) + len(one.inconsistent)
    return seconds / texts if texts else None


def _conversations(batch: Batch) -> list[AiBlock]:
    """A batch's items by scenario, each scenario in a conversation of its own."""
    by_scenario: dict[str, list[tuple[str, str]]] = {}
    for item in batch.items:
        by_scenario.setdefault(item.scenario_id, []).append((item.id, item.text))
    return [
        AiBlock(scenario_id=name, context=batch.contexts[name], items=tuple(items))
        for name, items in by_scenario.items()
    ]


def _contexts(suite: Suite) -> dict[str, str]:
    return {scenario.id: scenario.described for scenario in suite.scenarios}


def _result(
    recording: _Recording, *, judge: str, unread: int, stopped: TipbenchError | None = None
) -> Automatic:
    return Automatic(
        experiment=recording.state.experiment,
        judge=judge,
        judged=recording.judged,
        unread=unread,
        pending=len(recording.state.waiting()),
        inconsistent=recording.inconsistent,
        stopped=stopped,
    )
