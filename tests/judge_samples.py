"""A run, a rubric of one scale, judges of every kind, and verdicts they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tipbench.judge.candidates import candidate_key
from tipbench.records import Candidate, Judge, Run, Verdict
from tipbench.suite.rubric import Scale

QUALITY = Scale(name="quality", low=1, high=5)
HUMAN = Judge(id="ann", kind="human")
OTHER = Judge(id="bob", kind="human")
AGENT = Judge(id="claude", kind="agent", model="claude")
AI = Judge(id="ollama:judge", kind="ai", model="judge")
PROXY = Judge(id="proxy", kind="proxy")


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A rubric whose composite is `quality + 2*format_ok - overlong`; two characters are overlong."""

    scales: tuple[Scale, ...] = (QUALITY,)
    failure: float = 1.0

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float:
        return scores["quality"] + 2 * flags["format_ok"] - flags["overlong"]

    def is_overlong(self, text: str) -> bool:
        return len(text) > 1


RUBRIC = Sum()
RUN = Run(
    run_id="r1",
    experiment="x",
    key="k",
    status="done",
    model="qwen",
    digest="sha256:aaaabbbbcccc",
    parameters=500_000_000,
    prompt_id="v1",
    prompt_hash="1111",
    scenario_id="s1",
    scenario_hash="h1",
    repeat=0,
    n_tips=3,
    suite_id="tip",
    rubric_id="tip-v1",
    rubric_hash="rh",
    host="h",
    host_kind="ollama",
    host_version="0.9",
    machine="",
    hardware="",
    vram_share=None,
    how="strict",
    cut=None,
    error=None,
    judge_pending=True,
    started_ms=0,
    metrics={"format_ok": 1.0},
    candidates=(Candidate(text="a", overlong=False), Candidate(text="bb", overlong=True)),
)


def run_of(*texts: str, scenario: str = "s1", run_id: str = "r1", n_tips: int = 3) -> Run:
    """The run with other texts in its slots."""
    candidates = tuple(Candidate(text=text, overlong=RUBRIC.is_overlong(text)) for text in texts)
    return replace(RUN, run_id=run_id, scenario_id=scenario, n_tips=n_tips, candidates=candidates)


def key(text: str, scenario: str = "s1") -> str:
    return candidate_key(scenario, text)


def quality(scenario: str = "s1", /, **scores: float) -> dict[str, dict[str, float]]:
    """Scores by candidate key: `quality(a=4)` gives the text `a` a 4."""
    return {key(text, scenario): {"quality": score} for text, score in scores.items()}


def verdict(
    candidate: str,
    scores: float | Mapping[str, float],
    judge: Judge = HUMAN,
    *,
    at: int = 0,
    rubric: str = "rh",
    adjudicated: bool = False,
) -> Verdict:
    """A verdict; a number is the score for quality."""
    return Verdict(
        candidate=candidate,
        scores=scores if isinstance(scores, Mapping) else {"quality": scores},
        judge=judge,
        at_ms=at,
        rubric_hash=rubric,
        batch_id="b",
        adjudicated=adjudicated,
    )
