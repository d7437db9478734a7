"""`judge auto` with a model as the judge: on the person's own host, or behind an OpenAI-compatible address.

On a host it keeps the same rules as a collection: the host's lock, one model in memory, nothing above the
size limit, the model unloaded at the end.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tipbench.engine.lock import is_loopback
from tipbench.engine.openai_chat import DEFAULT_URL, open_server
from tipbench.engine.residency import Residency
from tipbench.engine.runner import Call, ModelWork, Runner
from tipbench.errors import BadSetting, TipbenchError, Unavailable
from tipbench.judge.ai import SEED, fit_blocks, prompt_hash, refuse_kin, sitting
from tipbench.records import Cell, ChatRequest, Judge, Sampling, content_hash
from tipbench.workflows.engines import find_models, hold_engine, open_engine
from tipbench.workflows.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.openai_chat import OpenAIServer
    from tipbench.engine.runner import Attempt
    from tipbench.judge.ai import Ask, Block
    from tipbench.records import Emit, Model
    from tipbench.settings import Settings
    from tipbench.suite.rubric import Rubric
    from tipbench.workflows.engines import Engine

    Scores = Mapping[str, Mapping[str, float]]
    Keep = Callable[[Judge, Scores], None]

_CONTEXT_STEP = 1024
_LEAST_CONTEXT = 2048


@dataclass(frozen=True, kw_only=True)
class AutoJudged:
    """What a model judged. Scores are by item id; `unread` are the items whose replies could not be read.

    `stopped` is why it ended early (Ctrl-C, a host that went away); what is here was judged before that, and
    items that are in neither were not asked for.
    """

    judge: Judge
    scores: Scores
    unread: tuple[str, ...]
    stopped: TipbenchError | None = None


def judge_blocks(
    spec: str,
    blocks: Iterable[Block],
    *,
    rubric: Rubric,
    settings: Settings,
    contestants: Iterable[str],
    emit: Emit,
    base_url: str = "",
    same_family: bool = False,
    keep: Keep | None = None,
) -> AutoJudged:
    """Let the model of `spec` (`ollama:MODEL` or `openai:MODEL`) score the blocks.

    `contestants` are the models that wrote them: a judge of their family is refused unless `same_family`.
    `keep` is called after every block with the scores it brought, so that they can be made durable. Raises
    where nothing was judged at all; what stopped a judge half way is handed back beside its scores.
    """
    kind, model = _parsed(spec)
    if kind == "ollama" and base_url:
        raise BadSetting("base_url", "is for openai:MODEL; an Ollama host is chosen with --ollama-url")
    if not same_family:
        refuse_kin(model, contestants)
    session = _Session(list(blocks), rubric=rubric, keep=keep, emit=emit)
    stopped: TipbenchError | None = None
    try:
        if kind == "ollama":
            _on_a_host(session, replace(settings, models=(model,), parallel=1), emit=emit)
        else:
            run_interruptible(_behind_an_address(session, model, settings, base_url=base_url, emit=emit))
    except TipbenchError as error:
        if not session.scores:
            raise
        stopped = error
    return session.result(stopped)


def _parsed(spec: str) -> tuple[Literal["ollama", "openai"], str]:
    kind, _, model = spec.strip().partition(":")
    if kind == "ollama" and model:
        return "ollama", model.removesuffix(":latest")
    if kind == "openai" and model:
        return "openai", model
    raise BadSetting("judge", f"{spec!r} is neither proxy, nor ollama:MODEL, nor openai:MODEL")


class _Session:
    """One judge's way through the blocks, and what it brought so far."""

    def __init__(self, blocks: Sequence[Block], *, rubric: Rubric, keep: Keep | None, emit: Emit) -> None:
        self.blocks = blocks
        self.rubric = rubric
        self.scores: dict[str, Mapping[str, float]] = {}
        self.unread: list[str] = []
        self.judge: Judge | None = None
        self._keep = keep
        self._emit = emit
        self._total = sum(len(block.items) for block in blocks)

    def begin(self, judge: Judge, *, room: int | None) -> int:
        """Name the judge and cut the blocks to its context; the tokens that a block takes at most."""
        self.judge = judge
        self.blocks, needs = fit_blocks(self.blocks, rubric=self.rubric, model=judge.id, room=room)
        return needs

    def hear(self, block: Block) -> Generator[Ask, str | None, None]:
        """The conversation about one block; at its end its scores are kept and counted."""
        scores = yield from sitting(block, rubric=self.rubric)
        if scores and self._keep is not None:
            assert self.judge is not None  # noqa: S101 - `begin` comes first
            self._keep(self.judge, scores)
        self.scores |= scores
        self.unread += [item_id for item_id, _ in block.items if item_id not in scores]
        done = len(self.scores) + len(self.unread)
        self._emit({"event": "judged", "done": done, "total": self._total, "unread": len(self.unread)})

    def result(self, stopped: TipbenchError | None) -> AutoJudged:
        assert self.judge is not None  # noqa: S101 - `begin` comes first
        return AutoJudged(
            judge=self.judge, scores=dict(self.scores), unread=tuple(self.unread), stopped=stopped
        )


def _identity(kind: str, model: str, which: str) -> Judge:
    """Another digest, another address or another prompt is another judge, even under the same name."""
    return Judge(id=f"{kind}:{model}", kind="ai", model=f"{model}@{which} prompt {prompt_hash()}")


def _on_a_host(session: _Session, settings: Settings, *, emit: Emit) -> None:
    with open_engine(settings, emit=emit) as engine, hold_engine(engine, settings, emit=emit) as lock:
        sitting_on = _OnAHost(session, settings=settings, engine=engine, emit=emit)
        run_interruptible(sitting_on.run(lock))
    if sitting_on.problem and not session.scores:
        raise Unavailable(f"{settings.models[0]} judged nothing: {sitting_on.problem}")


class _OnAHost:
    """The model loaded once, asked one question after the other, then unloaded."""

    def __init__(self, session: _Session, *, settings: Settings, engine: Engine, emit: Emit) -> None:
        self._session = session
        self._settings = settings
        self._engine = engine
        self._emit = emit
        self._reply: str | None = None
        self.problem = ""

    async def run(self, lock: HostLock) -> None:
        settings = self._settings
        async with self._engine.host(timeout_s=settings.timeout) as host:
            (model,) = await find_models(host, settings, emit=self._emit)
            name = settings.models[0]
            room = settings.num_ctx or model.context_length
            needs = self._session.begin(_identity("ollama", name, model.digest[:8]), room=room)
            num_ctx = settings.num_ctx or _rounded(needs, room)
            calls = self._calls(model, num_ctx)
            work = ModelWork(model=model, num_ctx=num_ctx, size=2 * len(self._session.blocks), calls=calls)
            await self._runner(host, lock, model).run([work] if self._session.blocks else [])

    def _runner(self, host: OllamaHost, lock: HostLock, model: Model) -> Runner:
        settings = self._settings
        residency = Residency(
            host,
            lock=lock,
            models=[model],
            evict=settings.evict,
            check_memory=is_loopback(host.host.url),
            gone_within_s=settings.unload_timeout,
            emit=self._emit,
        )
        return Runner(
            host,
            residency=residency,
            parallel=1,
            keep_alive=settings.keep_alive,
            retries=settings.retries,
            finish=self._finish,
            emit=self._emit,
        )

    def _calls(self, model: Model, num_ctx: int) -> Iterator[Call]:
        """Questions as the conversation asks for them: each one is made from the reply to the last."""
        for block in self._session.blocks:
            talk = self._session.hear(block)
            self._reply = None
            with suppress(StopIteration):
                while True:
                    yield self._call(block, talk.send(self._reply), model=model, num_ctx=num_ctx)

    def _call(self, block: Block, ask: Ask, *, model: Model, num_ctx: int) -> Call:
        sampling = Sampling(temperature=0.0, num_ctx=num_ctx, num_predict=ask.num_predict)
        cell = Cell(
            model=model,
            prompt_id="judging",
            prompt_hash=prompt_hash(),
            scenario_id=block.scenario_id,
            scenario_hash=content_hash(block.context),
            n_tips=len(ask.order),
            sampling=sampling,
            base_seed=SEED,
            repeat=ask.turn,
        )
        request = ChatRequest(
            model=model.name,
            messages=ask.messages,
            sampling=sampling,
            seed=SEED,
            format=ask.format,
            context_length=model.context_length,
        )
        return Call(cell=cell, request=request)

    async def _finish(self, attempt: Attempt) -> None:
        """Keep the reply for the next question. A question that did not fit was not understood."""
        done = attempt.completion
        cut = attempt.too_long is not None or (done is not None and done.cut == "prompt")
        self._reply = None if done is None or cut else done.text
        problem = "the rubric and the texts did not fit its context" if cut else attempt.error or ""
        if problem and problem != self.problem:
            name = self._settings.models[0]
            self._emit({"event": "notice", "message": f"{name}: {problem}; these texts stay unjudged"})
        self.problem = problem or self.problem


def _rounded(needs: int, room: int | None) -> int:
    """One context length for all blocks, since another one would make the host load the model anew."""
    steps = -(-needs // _CONTEXT_STEP) * _CONTEXT_STEP
    return min(max(steps, _LEAST_CONTEXT), room or max(steps, _LEAST_CONTEXT))


async def _behind_an_address(
    session: _Session, model: str, settings: Settings, *, base_url: str, emit: Emit
) -> None:
    url = base_url or os.environ.get("OPENAI_BASE_URL", "") or DEFAULT_URL
    key = os.environ.get("OPENAI_API_KEY", "")
    async with open_server(
        url, key=key, timeout_s=settings.timeout, retries=settings.retries, emit=emit
    ) as server:
        session.begin(_identity("openai", model, server.name), room=None)
        blocks = iter(session.blocks)
        await _together([_ask_server(session, server, model, blocks) for _ in range(settings.parallel)])


async def _ask_server(session: _Session, server: OpenAIServer, model: str, blocks: Iterator[Block]) -> None:
    """Take block after block until none is left; others may be taking from the same ones."""
    for block in blocks:
        talk = session.hear(block)
        reply: str | None = None
        with suppress(StopIteration):
            while True:
                ask = talk.send(reply)
                reply = await server.chat(model, ask.messages, schema=ask.loose_format, seed=SEED)


async def _together(workers: Sequence[Any]) -> None:
    """Run them all; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(worker) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
