"""The shape of a cell as an MLflow run: its params, tags, metrics and texts, and back again."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from tipbench.errors import BadInput, NotFound
from tipbench.ledger import chunks
from tipbench.ledger.codec import candidates_from_json, candidates_to_json
from tipbench.records import Run, Sampling, content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import CellResult, Cut, How, Mark, Message, RubricText

KEY = "tipbench.cell"
KIND = "tipbench.kind"
ERROR = "tipbench.error"
STARTED = "tipbench.started_ms"
PENDING = "judge_pending"
RUBRIC_ID = "tipbench.rubric_id"
RUBRIC_HASH = "tipbench.rubric_hash"
CELL_MARKS = "tipbench.marks"
SIZE_ASSUMED = "tipbench.size_assumed"
OVERLONG_BY = "tipbench.overlong_by"
CANDIDATES = "candidates.json"
PROMPT = "prompt.txt"
RAW = "raw.txt"
RUBRIC = "rubric.md"
THINKING = "thinking.txt"

_LISTED = "`tipbench experiments NAME` lists the runs of an experiment"
_LONGEST_ERROR = 2000
_LONGEST_NAME = 250
_LONGEST_HARDWARE = 1000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run as MLflow has it: plain values, no MLflow class."""

    run_id: str
    experiment_id: str
    status: str
    artifact_uri: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def is_complete(self) -> bool:
        """A run that is RUNNING (or KILLED) was left half-written."""
        return self.status in {"FINISHED", "FAILED"}


def run_id_start(typed: str) -> str:
    """What a person typed as a run's id, a part of it or a cell's key, as it is looked for."""
    text = typed.strip().lower()
    if not re.fullmatch(r"[0-9a-z]{6,64}", text):
        raise NotFound(f"{typed!r} is not a run's id; give at least its first 6 characters ({_LISTED})")
    return text


def not_one_run(typed: str, found: Sequence[str], *, uri: str) -> NotFound:
    """The refusal of what names no run, or more than one."""
    if not found:
        return NotFound(f"there is no run {typed!r} at {uri}; {_LISTED}")
    some = ", ".join(found[:3])
    return NotFound(f"{len(found)} runs begin with {typed!r} ({some}, …); give more of the id")


def artifact_tag(name: str) -> str:
    return f"artifact:{name}"


def run_name(result: CellResult) -> str:
    cell = result.cell
    repeat = f" #{cell.repeat}" if cell.repeat else ""
    return chunks.storable(f"{cell.model.name} {cell.prompt_id} {cell.scenario_id}{repeat}")[:_LONGEST_NAME]


def params_of(result: CellResult) -> dict[str, str]:
    """All that determines the output, and the words it will be judged under; what is unknown is left out."""
    cell = result.cell
    params = {
        "model": cell.model.name,
        "model_digest": cell.model.digest,
        "model_parameters": cell.model.parameters,
        "model_family": cell.model.family,
        "model_quantization": cell.model.quantization,
        "prompt_id": cell.prompt_id,
        "prompt_hash": cell.prompt_hash,
        "scenario_id": cell.scenario_id,
        "scenario_hash": cell.scenario_hash,
        "suite_id": result.suite_id,
        "rubric_id": result.rubric_id,
        "rubric_hash": result.rubric_hash,
        "n_tips": cell.n_tips,
        "temperature": cell.sampling.temperature,
        "num_ctx": cell.sampling.num_ctx,
        "num_predict": cell.sampling.num_predict,
        "think": str(cell.sampling.think).lower(),
        "base_seed": cell.base_seed,
        "seed": cell.seed,
        "repeat": cell.repeat,
    }
    return {name: chunks.storable(str(value)) for name, value in params.items() if value not in (None, "")}


def tags_of(result: CellResult) -> dict[str, str]:
    """Identity, where it ran, how it was read, whether it waits for a judge, and the candidates."""
    tags = {
        KEY: result.cell.key,
        KIND: "cell",
        STARTED: str(result.started_ms),
        PENDING: str(_can_be_judged(result)).lower(),
        "tipbench.host.url": result.host.url,
        "tipbench.host.kind": result.host.kind,
        "tipbench.host.version": result.host.version,
        "tipbench.host.machine": result.host.machine[:_LONGEST_NAME],
        "tipbench.host.hardware": result.host.hardware[:_LONGEST_HARDWARE],
        "tipbench.host.vram_share": "" if result.vram_share is None else f"{result.vram_share:.4g}",
        "tipbench.how": result.reading.how if result.reading else "none",
        "tipbench.cut": (result.completion.cut if result.completion else None) or "",
        CELL_MARKS: marks_text(result.marks),
        SIZE_ASSUMED: result.cell.model.size_assumed,
        ERROR: (result.error or "")[:_LONGEST_ERROR],
    }
    kept = {name: chunks.storable(value) for name, value in tags.items() if value}
    return kept | text_tags({CANDIDATES: texts_of(result)[CANDIDATES]})


def marks_text(marks: Iterable[str]) -> str:
    """The value of the tag: each mark once, in alphabetical order."""
    return ",".join(sorted(set(marks)))


def marks_from_tags(tags: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(mark for mark in tags.get(CELL_MARKS, "").split(",") if mark)


def _can_be_judged(result: CellResult) -> bool:
    """Whether there is anything in a result for a judge: a reply that failed as a whole has nothing."""
    if result.error is not None or result.completion is None or result.completion.cut is not None:
        return False
    return bool(result.candidates) and result.reading is not None and result.reading.how != "none"


def metrics_of(result: CellResult) -> dict[str, float]:
    """Only numbers: MLflow turns infinity into a huge one."""
    return {name: value for name, value in result.metrics.items() if math.isfinite(value)}


def texts_of(result: CellResult) -> dict[str, str]:
    """The long texts by the name of their artifact; thinking is kept where there was any."""
    candidates = tuple(replace(each, text=chunks.storable(each.text)) for each in result.candidates)
    texts = {
        CANDIDATES: candidates_to_json(candidates),
        PROMPT: prompt_text(result.messages),
        RAW: result.completion.text if result.completion else "",
        THINKING: result.completion.thinking if result.completion else "",
    }
    if not texts[THINKING]:
        del texts[THINKING]
    return {name: chunks.storable(text) for name, text in texts.items()}


def prompt_text(messages: Sequence[Message]) -> str:
    """The messages as sent, each under its role."""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def rubric_tags(rubric: RubricText) -> dict[str, str]:
    """The tags of a run whose scores count under another rubric than the one in its params."""
    return {RUBRIC_ID: chunks.storable(rubric.id), RUBRIC_HASH: rubric.hash}


def rubric_texts(rubric: RubricText, held: str | None) -> dict[str, str]:
    """The texts to store in a run that goes over to `rubric`. `held` is the `rubric.md` it has now.

    The earlier text stays beside the new one, named by the beginning of its hash.
    """
    text = chunks.storable(rubric.text)
    earlier = {} if held in (None, "", text) else {f"rubric-{content_hash(held)[:12]}.md": str(held)}
    return earlier | {RUBRIC: text}


def text_tags(texts: Mapping[str, str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for name, text in texts.items():
        tags |= chunks.to_tags(artifact_tag(name), text)
    return tags


def text_from_tags(row: Row, name: str) -> str | None:
    return chunks.from_tags(artifact_tag(name), row.tags)


def settled(results: Iterable[CellResult]) -> list[CellResult]:
    """One result per key: a success before any failure, else the latest."""
    best: dict[str, CellResult] = {}
    for result in results:
        held = best.get(result.cell.key)
        if held is None or held.error is not None:
            best[result.cell.key] = result
    return list(best.values())


def run_of(row: Row, *, experiment: str, candidates: str) -> Run:
    """The run behind a row. `candidates` is the text of its candidates.json."""
    try:
        found = candidates_from_json(candidates)
        return Run(**_identity(row), **_outcome(row), experiment=experiment, candidates=found)
    except (KeyError, ValueError, TypeError):
        raise BadInput(
            f"run {row.run_id} of experiment {experiment!r} lacks what tipbench wrote there; "
            "delete that run in MLflow and collect again"
        ) from None


def _identity(row: Row) -> dict[str, Any]:
    params = row.params
    return {
        "run_id": row.run_id,
        "key": row.tags[KEY],
        "model": params["model"],
        "digest": params["model_digest"],
        "parameters": int(params["model_parameters"]) if "model_parameters" in params else None,
        "prompt_id": params["prompt_id"],
        "prompt_hash": params["prompt_hash"],
        "scenario_id": params["scenario_id"],
        "scenario_hash": params["scenario_hash"],
        "repeat": int(params["repeat"]),
        "n_tips": int(params["n_tips"]),
        "sampling": _sampling_of(row),
        "suite_id": params["suite_id"],
        "rubric_id": row.tags.get(RUBRIC_ID, params["rubric_id"]),
        "rubric_hash": row.tags.get(RUBRIC_HASH, params["rubric_hash"]),
    }


def _sampling_of(row: Row) -> Sampling | None:
    """The options that a run was generated with; None where they were not recorded."""
    params = row.params
    if "temperature" not in params:
        return None
    try:
        return Sampling(
            temperature=float(params["temperature"]),
            num_ctx=int(params["num_ctx"]),
            num_predict=int(params["num_predict"]),
            think=params["think"] == "true",
        )
    except (KeyError, ValueError):
        raise BadInput(
            f"run {row.run_id} lacks the sampling options that tipbench wrote there; "
            "delete that run in MLflow and collect again"
        ) from None


def _outcome(row: Row) -> dict[str, Any]:
    tags = row.tags
    failed = row.status == "FAILED"
    return {
        "status": "failed" if failed else "done",
        "host": tags.get("tipbench.host.url", ""),
        "host_kind": tags.get("tipbench.host.kind", ""),
        "host_version": tags.get("tipbench.host.version", ""),
        "machine": tags.get("tipbench.host.machine", ""),
        "hardware": tags.get("tipbench.host.hardware", ""),
        "vram_share": _share(tags.get("tipbench.host.vram_share", "")),
        "how": cast("How", tags.get("tipbench.how", "none")),
        "cut": cast("Cut | None", tags.get("tipbench.cut")),
        "error": tags.get(ERROR, "no reason was recorded") if failed else None,
        "judge_pending": tags.get(PENDING) == "true",
        "overlong_by": tags.get(OVERLONG_BY, "code"),
        "started_ms": int(tags[STARTED]),
        "marks": marks_from_tags(tags),
        "size_assumed": tags.get(SIZE_ASSUMED, ""),
        "metrics": {name: value for name, value in row.metrics.items() if math.isfinite(value)},
    }


def _share(text: str) -> float | None:
    """A part of a whole; None where none was written, or something else by somebody else."""
    try:
        return share if 0 <= (share := float(text)) <= 1 else None
    except ValueError:
        return None


def mark_numbers(mark: Mark) -> dict[str, float]:
    """What of a mark is written. NaN is: MLflow cannot take a number away, but can hold that it is none."""
    return {name: float(value) for name, value in mark.metrics.items() if not math.isinf(value)}


def mark_tags(mark: Mark) -> dict[str, str]:
    """What is written of a mark beside its numbers."""
    tags = {PENDING: str(mark.judge_pending).lower()}
    return tags if mark.overlong_by is None else tags | {OVERLONG_BY: mark.overlong_by}


def marked(run: Run, mark: Mark) -> Run:
    """The run once it is marked; a number that is not known any more is gone."""
    numbers = {**run.metrics, **mark_numbers(mark)}
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    by = run.overlong_by if mark.overlong_by is None else mark.overlong_by
    now = replace(run, metrics=known, judge_pending=mark.judge_pending, overlong_by=by)
    return (
        now if mark.rubric is None else replace(now, rubric_id=mark.rubric.id, rubric_hash=mark.rubric.hash)
    )


def with_marks(run: Run, marks: Iterable[str]) -> Run:
    """The run with more marks."""
    return replace(run, marks=tuple(sorted({*run.marks, *marks})))


def one_per_key(runs: Iterable[Run]) -> list[Run]:
    """Oldest first. Of several with one key a done one counts before a failed one, then the oldest."""
    best: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: (run.status != "done", run.started_ms, run.run_id)):
        best.setdefault(run.key, run)
    return sorted(best.values(), key=lambda run: (run.started_ms, run.run_id))
