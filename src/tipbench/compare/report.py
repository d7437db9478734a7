"""What a comparison found: the leaderboard, and beside it what was measured and who judged."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tipbench.records import VARIANT_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.compare.baseline import BaselineReport
    from tipbench.compare.leaderboard import Leaderboard
    from tipbench.compare.scores import Combination
    from tipbench.compare.self_check import SelfCheck


MIXED = "mixed"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One slot of a cell as a reader sees it: what was written, and what the judges made of it.

    `value` is what the slot counts, None while nobody has judged it. `problem` says why a reply could not
    be used: `truncated`, `prompt truncated` or `unreadable`. Without `text` the reply had nothing here.
    """

    scenario: str
    repeat: int
    slot: int
    text: str
    value: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    overlong: bool = False
    problem: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a combination was on one host: medians over the cells that it made there."""

    n_cells: int
    tokens_per_s: float | None = None
    latency_ms: float | None = None
    vram_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """A host that made cells, by the name that rows call it; several versions or addresses where it had them.

    What is empty was not recorded, or is not known to anybody but the host.
    """

    name: str
    n_cells: int
    kind: str = ""
    addresses: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    machine: str = ""
    hardware: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a combination beside its rank. Unknown is None, never zero.

    `n_failed` counts the cells without a usable reply: failed in the engine, unreadable or truncated.
    `scales` has the mean score of each scale over the judged candidates alone, `by_scenario` the value of
    each scenario.
    `sampling` has the options that the cells were generated with: temperature, num_ctx, num_predict, think.
    `by_host` has the speed on each host that made cells of it. Made on several, it has no one speed: its
    `tokens_per_s` and `latency_ms` are None.
    """

    prompt_id: str = ""
    sampling: Mapping[str, Any] | None = None
    parameters: int | None = None
    tokens_per_s: float | None = None
    latency_ms: float | None = None
    memory_bytes: float | None = None
    format_ok: float | None = None
    diversity: float | None = None
    n_failed: int = 0
    n_judged: int = 0
    scales: Mapping[str, float] = field(default_factory=dict)
    by_scenario: Mapping[str, float] = field(default_factory=dict)
    candidates: tuple[Shown, ...] = ()
    by_host: Mapping[str, Speed] = field(default_factory=dict)

    @property
    def host(self) -> str | None:
        """The host that made it, `mixed` for several, None where that is not known."""
        return MIXED if len(self.by_host) > 1 else next(iter(self.by_host), None)


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """The same verdicts under other weights: shows whether the winner changes, and is no result."""

    weights: Mapping[str, float]
    board: Leaderboard
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a reader is told. `first` comes before anything else: what the ranking must not be taken for.

    `ground` is the kind of judge that the ranking stands on, None where nothing is judged or the scores came
    from a file. `titles` has the scenarios by id, in order. `lowest` and `highest` bound the composite.
    Without `advise` nothing is picked out as what to ship: the scores are no ground for that. `hosts` made
    the cells; latencies are compared only within one.
    """

    title: str
    board: Leaderboard
    sentences: tuple[str, str]
    facts: Mapping[Combination, Facts]
    titles: Mapping[str, str]
    made_ms: int
    ground: str | None = None
    rubric_id: str = ""
    scales: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    advise: bool = True
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exploration: Exploration | None = None
    baseline: BaselineReport | None = None
    self_check: SelfCheck | None = None
    hosts: tuple[HostFacts, ...] = ()

    @property
    def headline(self) -> str:
        """The winner, or the row that leads without being one; empty while nothing is judged."""
        top = next((row for row in self.board.rows if row.mean is not None), None)
        if top is None:
            return ""
        word = "Winner" if self.board.winner else "Leading"
        return f"{word}: {top.model} × {top.prompt} (composite {top.mean:.1f})"

    @property
    def score_title(self) -> str:
        """The composite's name, with its range where the rubric is known: `composite (2–17)`."""
        if self.lowest is None or self.highest is None:
            return "composite"
        return f"composite ({self.lowest:g}–{self.highest:g})"

    @property
    def on_several_hosts(self) -> bool:
        """Whether a reader must be told of hosts at all: with one, any latency can be held against any."""
        return len(self.hosts) > 1

    def as_dict(self) -> dict[str, Any]:
        """The leaderboard's own names, and beside them what else is known; plain values for JSON."""
        board = self._board(self.board)
        return {
            "title": self.title,
            "made_ms": self.made_ms,
            "rubric": self.rubric_id,
            "ground": self.ground,
            "first": list(self.first),
            **board,
            "sentences": list(self.sentences),
            "notes": list(self.notes),
            "exploration": self.exploration and self._explored(self.exploration),
            "baseline": self.baseline and {**asdict(self.baseline), "passed": self.baseline.passed},
            "self_check": self.self_check and asdict(self.self_check),
            "hosts": [asdict(host) for host in self.hosts],
        }

    def _board(self, board: Leaderboard) -> dict[str, Any]:
        """A leaderboard in plain values. `prompt` is the prompt's own name; `label` tells variants apart."""
        plain = board.as_dict()
        plain["rows"] = [row | self._facts(row) | self._named(row) for row in plain["rows"]]
        for choice in ("winner", "recommended"):
            one = plain[choice]
            plain[choice] = self._named(one) if one and VARIANT_SEPARATOR in one["prompt"] else one
        return plain

    def _named(self, one: Mapping[str, Any]) -> dict[str, Any]:
        facts = self.facts.get((one["model"], one["prompt"]))  # type: ignore[call-overload]
        names = {"model": one["model"], "prompt": one["prompt"]}
        if facts is None or facts.sampling is None:
            return names
        label = VARIANT_SEPARATOR.join((one["model"], one["prompt"]))
        prompt = one["prompt"].partition(VARIANT_SEPARATOR)[0]
        return {**names, "prompt": prompt, "label": label, "sampling": dict(facts.sampling)}

    def _facts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        facts = self.facts.get((row["model"], row["prompt"]), Facts())  # type: ignore[call-overload]
        # left out before the rest is copied: there may be thousands
        plain = asdict(replace(facts, candidates=()))
        told = {
            name: value for name, value in plain.items() if name not in {"candidates", "by_host", "n_judged"}
        }
        return told | self._of_hosts(facts)

    def _of_hosts(self, facts: Facts) -> dict[str, Any]:
        if not self.on_several_hosts:
            return {}
        return {"host": facts.host, "by_host": {name: asdict(one) for name, one in facts.by_host.items()}}

    def _explored(self, exploration: Exploration) -> dict[str, Any]:
        return {
            "weights": dict(exploration.weights),
            "sentence": exploration.sentence,
            **self._board(exploration.board),
        }
