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
from tipbench.judge.ai import SEED, TURNS, entry_tokens, fit_blocks, prompt_hash, refuse_kin, sitting
from tipbench.records import Cell, ChatRequest, Judge, Sampling, content_hash
from tipbench.suite.judge_prompt import BUILT_IN
from tipbench.workflows.engines import find_models, hold_engine, open_engine
from tipbench.workflows.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.openai_chat import OpenAIServer
    from tipbench.engine.runner import Attempt
    from tipbench.judge.ai import Ask, Block, BlockScores
    from tipbench.records import Emit, Model
    from tipbench.settings import Settings
    from tipbench.suite.judge_prompt import JudgePrompt
    from tipbench.suite.rubric import Rubric
    from tipbench.workflows.engines import Engine

    Scores = Mapping[str, Mapping[str, float]]
    Keep = Callable[[Judge, BlockScores], None]

_CONTEXT_STEP = 1024
_LEAST_CONTEXT = 2048
# Where no pace was measured: a token costs one pass over the weights at the memory speed of a modest box, a
# token of the question a tenth of that, and an entry is half as long as it may be. A server behind an address
# takes 20 ms for a token.
_GUESSED_BYTES_PER_S = 10e9
_GUESSED_QUESTION_SHARE = 0.1
_GUESSED_SHARE_OF_ENTRY = 0.5
_GUESSED_SERVER_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Work:
    """The blocks for one judge. `seconds_each` is its measured pace for a text, None if it is unknown."""

    blocks: Sequence[Block]
    seconds_each: float | None = None


@dataclass(frozen=True, kw_only=True)
class AutoJudged:
    """What a model judged. Scores are by item id; `unread` are the items whose replies could not be read.

    `inconsistent` are the items whose reasons named another level than their scores. `stopped` is why it
    ended early (Ctrl-C, a host that went away); what is here was judged before that, and items that are in
    none of the three were not sent.
    """

    judge: Judge
    scores: Scores
    unread: tuple[str, ...]
    inconsistent: tuple[str, ...] = ()
    stopped: TipbenchError | None = None


def judge_blocks(
    spec: str,
    blocks: Iterable[Block] | Callable[[Judge], Work],
    *,
    rubric: Rubric,
    settings: Settings,
    contestants: Iterable[str],
    emit: Emit,
    base_url: str = "",
    same_family: bool = False,
    keep: Keep | None = None,
    prompt: JudgePrompt = BUILT_IN,
) -> AutoJudged:
    """Let the model of `spec` (`ollama:MODEL` or `openai:MODEL`) score the blocks.

    `blocks` may be a function that receives the judge: its weights are known only once the host is reached.
    `contestants` are the models that wrote them: a judge of their family is refused unless `same_family`.
    `keep` is called after every block with its scores, so that they can be made durable. Raises
    where nothing was judged at all; what stopped a judge half way is handed back beside its scores.
    """
    kind, model = _parsed(spec)
    if kind == "ollama" and base_url:
        raise BadSetting("base_url", "is for openai:MODEL; an Ollama host is chosen with --ollama-url")
    if not same_family:
        refuse_kin(model, contestants)
    source = blocks if callable(blocks) else _the_same(list(blocks))
    session = _Session(source, rubric=rubric, prompt=prompt, keep=keep, emit=emit)
    stopped: TipbenchError | None = None
    try:
        if kind == "ollama":
            _on_a_host(session, replace(settings, models=(model,), parallel=1), emit=emit)
        else:
            run_interruptible(_behind_an_address(session, model, settings, base_url=base_url, emit=emit))
    except TipbenchError as error:
        if not (session.scores or session.inconsistent):
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


def _the_same(blocks: Sequence[Block]) -> Callable[[Judge], Work]:
    return lambda _judge: Work(blocks=blocks)


class _Session:
    """One judge's way through the blocks, and its scores so far."""

    def __init__(
        self,
        source: Callable[[Judge], Work],
        *,
        rubric: Rubric,
        prompt: JudgePrompt,
        keep: Keep | None,
        emit: Emit,
    ) -> None:
        self.blocks: Sequence[Block] = ()
        self.rubric = rubric
        self.prompt = prompt
        self.scores: dict[str, Mapping[str, float]] = {}
        self.unread: list[str] = []
        self.inconsistent: list[str] = []
        self.judge: Judge | None = None
        self._source = source
        self._keep = keep
        self._emit = emit
        self._total = 0

    def begin(self, judge: Judge, *, room: int | None, guessed_token_s: float, parallel: int = 1) -> int:
        """Take the judge's blocks, cut them to its context and announce the time that they take.

        Returns the tokens that a block takes at most.
        """
        self.judge = judge
        work = self._source(judge)
        self.blocks, needs = fit_blocks(
            work.blocks, rubric=self.rubric, model=judge.id, room=room, prompt=self.prompt
        )
        self._total = sum(len(block.items) for block in self.blocks)
        if self.blocks:
            guess = self._guessed_seconds(needs, guessed_token_s) / parallel
            seconds = guess if work.seconds_each is None else work.seconds_each * self._total
            self._emit({"event": "notice", "message": self._estimate(seconds, guessed=seconds == guess)})
        return needs

    def _guessed_seconds(self, needs: int, token_s: float) -> float:
        written = self._total * entry_tokens(self.rubric.scales) * _GUESSED_SHARE_OF_ENTRY
        return TURNS * token_s * (written + len(self.blocks) * needs * _GUESSED_QUESTION_SHARE)

    def _estimate(self, seconds: float, *, guessed: bool) -> str:
        assert self.judge is not None  # noqa: S101 - `begin` comes first
        minutes = "less than a minute" if seconds < 60 else f"about {_counted(round(seconds / 60), 'minute')}"
        basis = "a rough guess" if guessed else "at the pace of its earlier blocks"
        texts, blocks = _counted(self._total, "text"), _counted(len(self.blocks), "block")
        return f"{self.judge.id}: {minutes} for {texts} in {blocks}, each scored in two orders ({basis})"

    def hear(self, block: Block) -> Generator[Ask, str | None, None]:
        """The conversation about one block; at its end its scores are kept and counted."""
        assert self.judge is not None  # noqa: S101 - `begin` comes first
        found = yield from sitting(block, rubric=self.rubric, prompt=self.prompt)
        if self._keep is not None and (found.scores or found.inconsistent):
            self._keep(self.judge, found)
        self.scores |= found.scores
        self.inconsistent += found.inconsistent
        counted = {*found.scores, *found.inconsistent}
        self.unread += [item_id for item_id, _ in block.items if item_id not in counted]
        left_out = len(self.unread) + len(self.inconsistent)
        done = len(self.scores) + left_out
        self._emit({"event": "judged", "done": done, "total": self._total, "unread": left_out})

    def result(self, stopped: TipbenchError | None) -> AutoJudged:
        assert self.judge is not None  # noqa: S101 - `begin` comes first
        return AutoJudged(
            judge=self.judge,
            scores=dict(self.scores),
            unread=tuple(self.unread),
            inconsistent=tuple(self.inconsistent),
            stopped=stopped,
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _identity(kind: str, model: str, which: str, prompt: JudgePrompt) -> Judge:
    """Another digest, another address or another prompt is another judge, even under the same name."""
    return Judge(id=f"{kind}:{model}", kind="ai", model=f"{model}@{which} prompt {prompt_hash(prompt)}")


def _on_a_host(session: _Session, settings: Settings, *, emit: Emit) -> None:
    with open_engine(settings, emit=emit) as engine, hold_engine(engine, settings, emit=emit) as lock:
        sitting_on = _OnAHost(session, settings=settings, engine=engine, emit=emit)
        run_interruptible(sitting_on.run(lock))
    if sitting_on.problem and not (session.scores or session.inconsistent):
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
            judge = _identity("ollama", name, model.digest[:8], self._session.prompt)
            token_s = max(model.size_bytes, 1) / _GUESSED_BYTES_PER_S
            needs = self._session.begin(judge, room=room, guessed_token_s=token_s)
            num_ctx = settings.num_ctx or _rounded(needs, room)
            calls = self._calls(model, num_ctx)
            work = ModelWork(
                model=model, num_ctx=num_ctx, size=TURNS * len(self._session.blocks), calls=calls
            )
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
            prompt_hash=prompt_hash(self._session.prompt),
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
        judge = _identity("openai", model, server.name, session.prompt)
        session.begin(judge, room=None, guessed_token_s=_GUESSED_SERVER_S, parallel=settings.parallel)
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
