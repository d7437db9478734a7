"""`collect`: every cell of the grid generated once, one model in memory, nothing lost."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tipbench.compare.diversity import lexical_diversity
from tipbench.compare.figures import count
from tipbench.engine.json_schema import can_begin, follows_schema
from tipbench.engine.lock import is_loopback
from tipbench.engine.ollama import full_name
from tipbench.engine.reading import read_reply
from tipbench.engine.residency import Residency
from tipbench.engine.runner import Call, ModelWork, Runner
from tipbench.engine.truncation import PromptSize, cut_prompts
from tipbench.errors import BadSetting, EngineFailure, Interrupted
from tipbench.ledger.spool import place_checked
from tipbench.plan import Grid, Plan, plan_cells
from tipbench.records import Candidate, CellResult, ChatRequest, Pin, SuitePlace
from tipbench.settings import Settings
from tipbench.suite import load_suite, place_of, render, stored_text
from tipbench.text import hide_logins, without_login
from tipbench.workflows.engines import check_parallel, find_models, hold_engine, open_engine
from tipbench.workflows.hints import experiment_command, ledger_options
from tipbench.workflows.interrupt import handling_signals, ignore_signals, in_background, run_interruptible
from tipbench.workflows.recording import Because, Recorder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.engine.residency import ModelTally
    from tipbench.engine.runner import Attempt
    from tipbench.ledger.spool import UncheckedCell
    from tipbench.records import Cell, CellMark, Completion, Emit, Host, Message, Model, Reading, Sampling
    from tipbench.suite import Prompt, Suite
    from tipbench.workflows.engines import Engine


@dataclass(frozen=True, kw_only=True)
class CellCounts:
    """`planned` is the whole grid; it is done + skipped + failed once a run has come to its end."""

    planned: int
    done: int
    skipped: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    name: str
    digest: str
    parameters: int | None
    loads: int
    load_s: float
    peak_bytes: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of a collection.

    `unrecorded` cells, and `unrecorded_marks` on recorded cells, are safe in the spool. `marks` has the
    number of marked cells by model and mark. `faults` has a sentence for each fault that made marks.
    """

    experiment: str
    cells: CellCounts
    models: tuple[ModelSummary, ...]
    model_loads: int
    max_resident: int
    calls: int
    wall_s: float
    engine: str
    ledger: str
    unrecorded: int
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    unrecorded_because: Because = ""
    unrecorded_marks: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def collect(settings: Settings, *, emit: Emit, command: str = "") -> Summary:
    """Generate what is missing of the grid, and record it.

    `emit` is told of every step. Interrupted or failed half way, everything generated so far is kept and
    the same call goes on from there; `command` is that call as a person types it.
    """
    check_parallel(settings)
    grid = make_grid(settings)
    if settings.parallel > 1 or settings.prompt_cache:
        speed = "several requests in flight" if settings.parallel > 1 else "the prompt cache"
        emit({"event": "notice", "message": f"with {speed} the same seed may give another text"})
    with Recorder.open(settings, emit=emit) as recorder:
        return _Job(settings=settings, grid=grid, recorder=recorder, emit=emit, command=command).run()


def make_grid(settings: Settings) -> Grid:
    """The suite's prompts and scenarios that the settings name."""
    suite = load_suite(settings.suite)
    if settings.n_scenarios > len(suite.scenarios):
        raise BadSetting(
            "n_scenarios",
            f"{settings.n_scenarios} is more than the {len(suite.scenarios)} scenarios of the suite "
            f"{suite.id!r}; give at most {len(suite.scenarios)}, or 0 for all of them",
        )
    return Grid(
        suite=suite,
        prompts=_chosen_prompts(suite, settings.prompts),
        scenarios=suite.scenarios[: settings.n_scenarios or None],
        n_tips=settings.n_tips,
        temperature=settings.temperature,
        num_ctx=settings.num_ctx,
        num_predict=settings.num_predict,
        seed=settings.seed,
        repeats=settings.repeats,
    )


def _chosen_prompts(suite: Suite, names: Sequence[str]) -> list[Prompt]:
    """The defaults are those of the suite `tip`: a suite that lacks them has defaults of its own."""
    have = {prompt.id for prompt in suite.prompts}
    if tuple(names) == Settings.prompts and not have.issuperset(names):
        names = suite.default_prompts
    return [suite.prompt(name) for name in names]


def pin_of(grid: Grid) -> Pin:
    """What the experiment is held to: the texts behind the ids that this grid uses."""
    suite, rubric = grid.suite, grid.suite.rubric
    text = stored_text(suite)
    return Pin(
        suite_id=grid.suite.id,
        rubric_id=rubric.id,
        rubric_hash=rubric.hash,
        rubric_text=rubric.text,
        prompts={prompt.id: prompt.hash for prompt in grid.prompts},
        scenarios={scenario.id: scenario.hash for scenario in grid.scenarios},
        templates={prompt.id: prompt.text for prompt in grid.prompts},
        places=(SuitePlace(place=place_of(suite), hash=suite.hash),),
        suites={sha256(text.encode()).hexdigest(): text},
    )


class _Job:
    """One collection under way: the plan, the counts, and what turns an attempt into a durable result."""

    def __init__(
        self, *, settings: Settings, grid: Grid, recorder: Recorder, emit: Emit, command: str
    ) -> None:
        self._settings = settings
        self._grid = grid
        self._recorder = recorder
        self._emit = emit
        self._command = command
        self._engine: Engine | None = None
        self._plan: Plan | None = None
        self._residency: Residency | None = None
        self._runner: Runner | None = None
        self._started = time.perf_counter()
        self._done = 0
        self._failed = 0
        self._sizes: dict[str, dict[str, PromptSize]] = {}
        self._marks: dict[str, Counter[str]] = {}
        self._removed: set[str] = set()
        self._replaced_since: set[str] = set()

    def run(self) -> Summary:
        """Generate, then record. A run that was interrupted records nothing more; any other one does."""
        with handling_signals(self._last_words):
            return self._run()

    def _run(self) -> Summary:
        try:
            try:
                self._hold_and_generate()
            except Interrupted:
                raise
            except Exception:
                self._record()
                raise
            self._record()
        except Interrupted:
            self._recorder.stop()
            ignore_signals()  # the process ends soon, with these words
            self._emit_summary()
            raise Interrupted(self._interruption()) from None
        except Exception:
            self._emit_summary()
            raise
        return self._emit_summary()

    def _hold_and_generate(self) -> None:
        """Generate all cells. The host is free again for others as soon as the last model is unloaded."""
        settings, emit = self._settings, self._emit
        try:
            with open_engine(settings, emit=emit) as self._engine:
                run_interruptible(in_background(self._recorder.check))
                with hold_engine(self._engine, settings, emit=emit) as lock:
                    run_interruptible(self._generate(self._engine, lock))
        finally:
            self._mark_cut_prompts()

    def _record(self) -> None:
        if self._plan is not None:
            run_interruptible(in_background(self._recorder.finish))

    def _last_words(self) -> None:
        """The end of a second Ctrl-C, past the progress bars, which have hidden the cursor of a terminal."""
        self._recorder.stop_at_once()
        cursor = "\r\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
        with suppress(OSError):
            os.write(2, f"{cursor}tipbench: {hide_logins(self._interruption())}\n".encode())

    def _interruption(self) -> str:
        """What is stored, how many cells wait, what is still loaded, and how to go on."""
        cells, waiting = self._summary().cells, self._recorder.left()
        stored = "before the first cell was generated"
        if self._plan is not None:
            failed = f", {cells.failed} more as failed" if cells.failed else ""
            stored = f"{cells.done + cells.skipped} of {count(cells.planned, 'cell')} stored{failed}"
        wait = "1 cell waits" if waiting == 1 else f"{waiting} cells wait"
        lines = [f"interrupted: {stored}; {wait} to be recorded in MLflow ({self._settings.experiment})"]
        left = self._residency.still_loaded if self._residency and self._engine else ""
        if left and self._residency and self._engine:
            how = "may still be loading" if self._residency.still_loading else "is still loaded"
            where = without_login(self._engine.url)
            lines.append(f"{left} {how} on {where}; the next `tipbench collect` waits until it is gone")
        lines.append("run the same command to go on" + (f": {self._command}" if self._command else ""))
        return "\n".join(lines)

    def _emit_summary(self) -> Summary:
        summary = self._summary()
        if self._plan is not None:
            self._emit({"event": "summary", **summary.as_json()})
        return summary

    async def _generate(self, engine: Engine, lock: HostLock) -> None:
        settings = self._settings
        async with engine.host(timeout_s=settings.timeout) as host:
            models = await find_models(host, settings, emit=self._emit)
            done = await in_background(lambda: self._recorder.begin(pin_of(self._grid)))
            self._plan = plan_cells(self._grid, models=models, done=done)
            self._announce(self._plan)
            self._sizes = self._stored_sizes(self._plan)
            self._check_earlier_digests(self._plan, host)
            if self._plan.cells:
                self._recorder.start()
            self._residency = Residency(
                host,
                lock=lock,
                models=models,
                evict=settings.evict,
                check_memory=is_loopback(host.host.url),
                gone_within_s=settings.unload_timeout,
                emit=self._emit,
            )
            self._runner = Runner(
                host,
                residency=self._residency,
                parallel=settings.parallel,
                keep_alive=settings.keep_alive,
                retries=settings.retries,
                finish=lambda attempt: self._finish(attempt, host.host),
                emit=self._emit,
                after_model=lambda model: self._check_digest(model, host),
            )
            await self._runner.run([self._work(model, cells) for model, cells in self._plan.by_model()])

    def _announce(self, plan: Plan) -> None:
        others = _other_options(plan.cells, self._recorder.used_options)
        if others:
            name, where = self._settings.experiment, ledger_options(self._settings)
            rows = experiment_command("compare", experiment=name, options=where)
            message = (
                f"this experiment has cells with other sampling options ({', '.join(others)}): `{rows}` "
                "shows them as separate rows"
            )
            self._emit({"event": "notice", "message": message})
        cells = {model.name: len(cells) for model, cells in plan.by_model()}
        planned = len(plan.cells) + plan.skipped
        self._emit({"event": "plan", "planned": planned, "skipped": plan.skipped, "models": cells})

    def _work(self, model: Model, cells: Sequence[Cell]) -> ModelWork:
        calls = (Call(cell=cell, request=cell_request(self._grid, cell)) for cell in cells)
        return ModelWork(model=model, num_ctx=cells[0].sampling.num_ctx, size=len(cells), calls=calls)

    async def _finish(self, attempt: Attempt, host: Host) -> None:
        """Make it durable, then count it: in this order, so that what is counted is never lost."""
        result = finished(self._grid, attempt, host=host, diversity=self._settings.diversity)
        result = self._measured(result)
        if self._settings.parallel == 1:
            self._recorder.put(result)
        else:
            # The disk is waited for in a thread, while the other requests in flight go on.
            await asyncio.to_thread(self._recorder.put, result)
        if result.error is None:
            self._done += 1
            self._remember(result)
        else:
            self._failed += 1
        self._emit(_cell_event(result))

    def _remember(self, result: CellResult) -> None:
        """Keep what `_mark_cut_prompts` needs of a new cell, and count its marks."""
        name, marks = result.cell.model.name, result.marks
        tokens = result.completion.prompt_tokens if result.completion else None
        size = None if "possibly-truncated" in marks else PromptSize.of(result.messages, tokens)
        if size is not None:
            self._sizes.setdefault(name, {})[result.cell.key] = size
        self._marks.setdefault(name, Counter()).update(marks)

    def _stored_sizes(self, plan: Plan) -> dict[str, dict[str, PromptSize]]:
        """The prompts of stored cells of the grid, by model; without those that are known to be cut."""
        texts: dict[tuple[str, str], Sequence[Message]] = {}
        found: dict[str, dict[str, PromptSize]] = {}
        for cell in plan.done:
            tokens = self._recorder.prompt_tokens.get(cell.key)
            if not tokens:
                continue
            text = (cell.prompt_id, cell.scenario_id)
            if text not in texts:
                texts[text] = cell_request(self._grid, cell).messages
            size = PromptSize.of(texts[text], tokens)
            if size is not None:
                found.setdefault(cell.model.name, {})[cell.key] = size
        return found

    def _mark_cut_prompts(self) -> None:
        """Mark the prompts that the host possibly cut, as all stored cells of a model together show them.

        This needs no network, so an interrupted run does it as well.
        """
        for name, sizes in self._sizes.items():
            self._mark(name, sorted(cut_prompts(sizes)), "possibly-truncated")

    def _check_earlier_digests(self, plan: Plan, host: OllamaHost) -> None:
        """Compare the models, as the host has them now, with the cells of runs that could not do so.

        These runs were interrupted. If the model has cells left to generate, the check after them decides.
        """
        unchecked = self._recorder.unchecked()
        if not unchecked:
            return
        for model in dict.fromkeys(cell.model for cell in (*plan.cells, *plan.done)):
            mine = [cell for cell in unchecked if _is_of(cell, model, host)]
            other = [cell.key for cell in mine if cell.digest != model.digest]
            if other:
                self._replaced_since.add(model.name)
                self._mark(model.name, other, "digest-changed")
            left = any(cell.model == model for cell in plan.cells)
            same = [cell.key for cell in mine if cell.digest == model.digest and not left]
            self._recorder.checked([*other, *same])

    async def _check_digest(self, model: Model, host: OllamaHost) -> None:
        """Mark the cells since the last check if the host has other weights under the model's name now."""
        try:
            now = await host.digest(model.name)
        except EngineFailure as failure:
            unknown = f"{model.name}: its digest could not be read again ({failure}); it may have changed"
            self._emit({"event": "notice", "message": unknown})
            return
        if now is None:
            self._removed.add(model.name)
        await asyncio.to_thread(self._settle_digest, model, host, changed=now != model.digest)

    def _settle_digest(self, model: Model, host: OllamaHost, *, changed: bool) -> None:
        keys = [
            cell.key
            for cell in self._recorder.unchecked()
            if _is_of(cell, model, host) and cell.digest == model.digest
        ]
        if changed:
            self._mark(model.name, keys, "digest-changed")
        self._recorder.checked(keys)

    def _mark(self, name: str, keys: Sequence[str], mark: CellMark) -> None:
        """Add a mark to stored cells of a model. Some are recorded already."""
        if keys:
            self._recorder.mark({key: [mark] for key in keys})
            self._marks.setdefault(name, Counter())[mark] += len(keys)

    def _measured(self, result: CellResult) -> CellResult:
        """With the most that the host said the model takes, and where; None where it said nothing."""
        digest = result.cell.model.digest
        tally = self._residency.tally.models.get(digest) if self._residency else None
        if tally is None:
            return result
        return replace(result, memory_bytes=tally.peak_bytes or None, vram_share=tally.vram_share)

    def _summary(self) -> Summary:
        plan = self._plan or Plan(cells=())
        tallies = list(self._residency.tally.models.values()) if self._residency else []
        return Summary(
            experiment=self._settings.experiment,
            cells=CellCounts(
                planned=len(plan.cells) + plan.skipped,
                done=self._done,
                skipped=plan.skipped,
                failed=self._failed,
            ),
            models=tuple(_model_summary(tally) for tally in tallies),
            model_loads=sum(tally.loads for tally in tallies),
            max_resident=self._residency.tally.max_resident if self._residency else 0,
            calls=self._runner.calls if self._runner else 0,
            wall_s=round(time.perf_counter() - self._started, 3),
            engine=self._engine.kind if self._engine else "",
            ledger=self._recorder.ledger_uri,
            unrecorded=self._recorder.left(),
            marks={name: dict(sorted(marks.items())) for name, marks in self._marks.items() if marks},
            faults=tuple(
                _fault(name, mark, number, happened=self._happened(name))
                for name, marks in self._marks.items()
                for mark, number in sorted(marks.items())
                if mark != "first-call"
            ),
            unrecorded_because=self._recorder.because,
            unrecorded_marks=self._recorder.marks_left(),
        )

    def _happened(self, name: str) -> str:
        """What happened to a model whose cells have the mark `digest-changed`."""
        if name in self._removed:
            return "was removed from the host while its cells were generated"
        if name in self._replaced_since:
            return "was replaced on the host since an interrupted collection"
        return "was replaced on the host while its cells were generated"


def _other_options(cells: Sequence[Cell], used: Collection[tuple[str, Sampling]]) -> list[str]:
    """Return the options of cells in the experiment that differ from those of the planned cells."""
    planned = {(cell.prompt_hash, cell.sampling) for cell in cells}
    found = {
        name
        for prompt, sampling in used
        for other_prompt, other in planned
        for name in sampling.differs_from(other)
        if prompt == other_prompt or name.startswith("t=")
    }
    return sorted(found)


def _fault(model: str, mark: str, number: int, *, happened: str) -> str:
    """One sentence about all cells of a model that have a mark."""
    if mark == "possibly-truncated":
        prompts = f"{count(number, 'prompt')} {'was' if number == 1 else 'were'} possibly truncated"
        return f"{model}: {prompts} by the host; raise num_ctx in the suite, or shorten the prompts"
    if mark == "schema-ignored":
        replies = "1 reply does" if number == 1 else f"{number} replies do"
        return f"{model}: the host ignored the schema: {replies} not follow it, so format_ok is 0"
    return (
        f"{model} {happened}: {count(number, 'cell')} "
        f"{'has' if number == 1 else 'have'} the mark {mark}; collect again into a new experiment"
    )


def _model_summary(tally: ModelTally) -> ModelSummary:
    return ModelSummary(
        name=tally.model.name,
        digest=tally.model.digest,
        parameters=tally.model.parameters,
        loads=tally.loads,
        load_s=round(tally.load_s, 3),
        peak_bytes=tally.peak_bytes,
    )


def cell_request(grid: Grid, cell: Cell) -> ChatRequest:
    """The call that generates a cell: the rendered prompt, and a schema where the prompt declares one."""
    prompt = grid.suite.prompt(cell.prompt_id)
    scenario = grid.suite.scenario(cell.scenario_id)
    reply = grid.suite.reply
    return ChatRequest(
        model=cell.model.name,
        messages=render(prompt, scenario, n_tips=cell.n_tips, reply=reply),
        sampling=cell.sampling,
        seed=cell.seed,
        format=prompt.schema(reply, n_tips=cell.n_tips),
        context_length=cell.model.context_length,
    )


def finished(grid: Grid, attempt: Attempt, *, host: Host, diversity: bool) -> CellResult:
    """All there is to know of a cell, from how its call ended."""
    rubric = grid.suite.rubric
    ignored = _ignored_schema(attempt)
    result = CellResult(
        cell=attempt.cell,
        suite_id=grid.suite.id,
        rubric_id=rubric.id,
        rubric_hash=rubric.hash,
        host=host,
        messages=tuple(attempt.request.messages),
        started_ms=attempt.started_ms,
        ended_ms=attempt.ended_ms,
        marks=_marks(attempt, schema_ignored=ignored),
        error=_reason(grid, attempt),
    )
    if attempt.completion is None:
        return result
    reading = _read(grid, attempt.cell, attempt.completion)
    if ignored:
        reading = replace(reading, format_ok=False)
    context = grid.suite.scenario(attempt.cell.scenario_id).text
    return replace(
        result,
        completion=attempt.completion,
        reading=reading,
        candidates=tuple(Candidate(text=t, overlong=rubric.is_overlong(t)) for t in reading.candidates),
        diversity=lexical_diversity(reading.candidates, context=context) if diversity else None,
    )


def _is_of(cell: UncheckedCell, model: Model, host: OllamaHost) -> bool:
    """Whether the cell was generated under this model's name on this host, with whatever weights."""
    return cell.host == place_checked(host.host) and full_name(cell.model) == full_name(model.name)


def _reason(grid: Grid, attempt: Attempt) -> str | None:
    """Why the cell failed. A prompt that does not fit needs another remedy for each limit."""
    failure = attempt.too_long
    if failure is None:
        return attempt.error
    remedy = "raise num_ctx in the suite" + (", or pass a larger --num-ctx" if grid.num_ctx else "")
    if failure.by_model:
        remedy = "shorten the prompt, or leave this model out"
    not_sent = "" if attempt.sent else " (not sent: this prompt is not shorter than one that was refused)"
    return f"{failure}: {remedy}{not_sent}"


def _marks(attempt: Attempt, *, schema_ignored: bool) -> tuple[CellMark, ...]:
    """What one reply shows by itself; see `_Job._mark_cut_prompts` for the rest."""
    cut = attempt.completion is not None and attempt.completion.cut == "prompt"
    marks: dict[CellMark, bool] = {
        "first-call": attempt.first_call,
        "possibly-truncated": cut,
        "schema-ignored": schema_ignored,
    }
    return tuple(mark for mark, holds in marks.items() if holds)


def _ignored_schema(attempt: Attempt) -> bool:
    """Whether a reply breaks the schema of its request. A cut reply is judged by its beginning alone."""
    schema, completion = attempt.request.format, attempt.completion
    if schema is None or completion is None:
        return False
    if completion.cut is not None:
        return not can_begin(completion.text, schema)
    return not follows_schema(completion.text, schema)


def _read(grid: Grid, cell: Cell, completion: Completion) -> Reading:
    prompt = grid.suite.prompt(cell.prompt_id)
    return read_reply(
        completion.text,
        kind=grid.suite.reply.kind,
        n=cell.n_tips,
        fenced_ok=prompt.allow_fence,
        cut=completion.cut is not None,
        asked=prompt.asked,
    )


def _cell_event(result: CellResult) -> dict[str, Any]:
    cell = result.cell
    return {
        "event": "cell",
        "key": cell.key,
        "model": cell.model.name,
        "prompt": cell.prompt_id,
        "scenario": cell.scenario_id,
        "repeat": cell.repeat,
        "status": "done" if result.error is None else "failed",
        "error": result.error,
        "how": result.reading.how if result.reading else None,
        "cut": result.completion.cut if result.completion else None,
        "marks": list(result.marks),
        **result.metrics,
    }
