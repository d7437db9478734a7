"""Results and pins to record, as a collection would make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.records import (
    Candidate,
    Cell,
    CellResult,
    Completion,
    Host,
    Message,
    Model,
    Pin,
    Reading,
    Sampling,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TIPS = ("Take a walk before the meeting.", "Write the first line now — the rest follows ✍️.")


def sample_pin(
    *, prompts: Sequence[str] = ("v1",), scenarios: Sequence[str] = ("s0",), rubric: str = "Be useful. ☕\n"
) -> Pin:
    return Pin(
        suite_id="tip",
        rubric_id="tip-v1",
        rubric_hash="r" * 64,
        rubric_text=rubric,
        prompts={name: f"hash of {name}" for name in prompts},
        scenarios={name: f"hash of {name}" for name in scenarios},
    )


def sample_cell(n: int = 0, *, name: str = "tiny:1b") -> Cell:
    return Cell(
        model=Model(name=name, digest="d" * 64, parameters=1_000_000, size_bytes=2_000_000, family="tiny"),
        prompt_id="v1",
        prompt_hash="p" * 64,
        scenario_id=f"s{n}",
        scenario_hash=f"{n:064x}",
        n_tips=2,
        sampling=Sampling(temperature=0.7, num_ctx=2048, num_predict=256),
        base_seed=0,
        repeat=0,
    )


def sample_result(
    n: int = 0,
    *,
    error: str | None = None,
    tips: Sequence[str] = TIPS,
    text: str = '["a", "b"]',
    thinking: str = "",
    name: str = "tiny:1b",
    started_ms: int | None = None,
) -> CellResult:
    started = 1_000_000 + n if started_ms is None else started_ms
    base = {
        "cell": sample_cell(n, name=name),
        "suite_id": "tip",
        "rubric_id": "tip-v1",
        "rubric_hash": "r" * 64,
        "host": Host(kind="ollama", url="http://localhost:11434", version="0.9"),
        "messages": (
            Message(role="system", content="You help."),
            Message(role="user", content=f"Scene {n}\r\n"),
        ),
        "started_ms": started,
        "ended_ms": started + 500,
    }
    if error is not None:
        return CellResult(**base, error=error)  # type: ignore[arg-type]
    return CellResult(
        **base,  # type: ignore[arg-type]
        completion=Completion(
            text=text,
            thinking=thinking,
            prompt_tokens=120,
            output_tokens=40,
            latency_ms=480.5,
            load_ms=0.0,
            tokens_per_s=83.25,
        ),
        reading=Reading(candidates=tuple(tips), how="strict", format_ok=True),
        candidates=tuple(Candidate(text=tip, overlong=len(tip) > 40) for tip in tips),
        diversity=0.75,
    )
