"""`judge auto`: the proxy's rules or a model score what they have not scored yet, as batches like any
other.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.judge.ai import Block as AiBlock
from tipbench.judge.answers import Answer
from tipbench.judge.blocks import wanted_blocks
from tipbench.judge.candidates import candidate_key
from tipbench.judge.compose import Pool, anchors_shown, compose_all
from tipbench.judge.proxy import NAME as PROXY
from tipbench.judge.proxy import proxy_scores
from tipbench.records import Batch, Item, Judge
from tipbench.workflows.ai_judges import judge_blocks
from tipbench.workflows.anchoring import anchors_of
from tipbench.workflows.applying import apply_answers
from tipbench.workflows.exporting import blank_batch, new_batch_id
from tipbench.workflows.judged import judged_experiment, suite_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.errors import TipbenchError
    from tipbench.judge.blocks import Block
    from tipbench.records import Emit, JudgeKind
    from tipbench.settings import Settings
    from tipbench.suite import Suite
    from tipbench.workflows.judged import Judged

_PROXY_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """What a judge that is no person scored. `stopped` is why it ended early; what is counted is recorded."""

    experiment: str
    judge: str
    judged: int
    unread: int
    pending: int
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
    kind: JudgeKind = "proxy" if spec == PROXY else "ai"
    blocks = _blocks(state, suite, judge_id=spec, kind=kind)
    if not blocks:
        raise NotFound(f"experiment {state.experiment!r} has nothing that {spec} has not judged")
    if kind == "proxy":
        return _by_rules(state, suite, blocks)
    return _by_model(
        state,
        suite,
        blocks,
        spec=spec,
        settings=settings,
        emit=emit,
        base_url=base_url,
        same_family=same_family,
    )


def _judge_id(spec: str) -> str:
    """The name that the judge's verdicts have: to Ollama, a model without a tag is its `latest`."""
    name = spec.strip()
    return name.removesuffix(":latest") if name.startswith("ollama:") else name


def _blocks(state: Judged, suite: Suite, *, judge_id: str, kind: JudgeKind) -> list[Block]:
    done = {
        one.candidate
        for one in state.verdicts
        if one.rubric_hash == state.rubric.hash and (one.judge.id, one.judge.kind) == (judge_id, kind)
    }
    scenarios = [scenario.id for scenario in suite.scenarios]
    return wanted_blocks(state.runs, scenarios=scenarios, tips_per_cell=state.tips_per_cell, done=done)


class _Recording:
    """Batches as they are filled: each is kept and committed when its scores are complete or nothing
    follows.
    """

    def __init__(self, state: Judged, batches: Sequence[Batch]) -> None:
        self.state = state
        self.judged = 0
        self._batch_of = {item.id: batch for batch in batches for item in batch.items}
        self._open: Batch | None = None
        self._judge: Judge | None = None
        self._scores: dict[str, Mapping[str, float]] = {}

    def keep(self, judge: Judge, scores: Mapping[str, Mapping[str, float]]) -> None:
        """Take the scores of some items of one batch; those of another batch end the one before."""
        batch = self._batch_of[next(iter(scores))]
        if self._open is not None and batch.batch_id != self._open.batch_id:
            self.finish()
        self._open, self._judge = batch, judge
        self._scores |= scores

    def finish(self) -> None:
        if self._open is None or self._judge is None:
            return
        batch, answers = self._open, {name: Answer(scores=given) for name, given in self._scores.items()}
        self.state.ledger.add_batch(batch)
        self.state = replace(self.state, batches=(*self.state.batches, batch))
        done = apply_answers(self.state, batch, self._judge, answers, lines={})
        self.state = done.state
        self.judged += sum(item.role == "real" and item.id in answers for item in batch.items)
        self._open, self._scores = None, {}


def _by_rules(state: Judged, suite: Suite, blocks: Sequence[Block]) -> Automatic:
    scales = [(scale.name, scale.low, scale.high) for scale in state.rubric.scales]
    pool = Pool(contexts=_contexts(suite), scales=state.rubric.scales)
    batches = list(_plain_batches(state, blocks, pool))
    recording = _Recording(state, batches)
    judge = Judge(id=PROXY, kind="proxy")
    for batch in batches:
        scores = {
            item.id: proxy_scores(item.text, suite.scenario(item.scenario_id).text, scales)
            for item in batch.items
        }
        recording.keep(judge, {name: dict(given) for name, given in scores.items()})
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
    blocks: Sequence[Block],
    *,
    spec: str,
    settings: Settings,
    emit: Emit,
    base_url: str,
    same_family: bool,
) -> Automatic:
    pool = Pool(contexts=_contexts(suite), scales=state.rubric.scales, anchors=anchors_of(suite))
    batches = list(
        compose_all(
            blocks,
            blank=blank_batch(state, purpose="auto", judge=spec),
            pool=pool,
            key=secrets.token_bytes(32),
            rng=secrets.SystemRandom(),
            new_id=new_batch_id,
            recent=anchors_shown(state.batches),
        )
    )
    recording = _Recording(state, batches)
    try:
        found = judge_blocks(
            spec,
            [one for batch in batches for one in _conversations(batch)],
            rubric=state.rubric,
            settings=settings,
            contestants=sorted({run.model for run in state.runs}),
            emit=emit,
            base_url=base_url,
            same_family=same_family,
            keep=recording.keep,
        )
    finally:
        recording.finish()
    return _result(recording, judge=spec, unread=len(found.unread), stopped=found.stopped)


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
        stopped=stopped,
    )
