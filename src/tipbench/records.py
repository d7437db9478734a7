"""The nouns that cross stages, and the protocols stages ask for. Frozen; no I/O."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

How = Literal["strict", "fenced", "wrapped", "repaired", "lines", "none"]
Cut = Literal["prompt", "reply"]
EngineKind = Literal["ollama", "embedded"]
JudgeKind = Literal["human", "agent", "ai", "proxy"]
Role = Literal["real", "anchor", "foil"]
Purpose = Literal["judge", "second", "adjudicate", "auto"]
Because = Literal["winner", "recommended", "named"]
SizeSource = Literal["", "option", "tag"]
CellMark = Literal["first-call", "possibly-truncated", "schema-ignored", "digest-changed"]
CELL_MARKS: tuple[CellMark, ...] = ("first-call", "possibly-truncated", "schema-ignored", "digest-changed")

_PORT = re.compile(r":\d+(?= prompt )")

# After this many different submissions that the checks rejected, a batch is closed.
MOST_REJECTIONS = 3


def content_hash(value: object) -> str:
    """The SHA-256 of a value's canonical JSON: the same content gives the same hash on any machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as a host has it. The digest is its identity; the name is for display.

    `size_assumed` is empty if the host gives the size, else it names the source of `parameters`.
    """

    name: str
    digest: str
    parameters: int | None
    size_bytes: int
    family: str = ""
    quantization: str = ""
    context_length: int | None = None
    size_assumed: SizeSource = ""


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A model whose weights are in memory, as `/api/ps` tells it."""

    name: str
    digest: str
    size_bytes: int
    vram_bytes: int | None


# Sampling options by the short names that people see. Runs that differ in one of them are different variants.
SAMPLING_NAMES = {"temperature": "t", "num_ctx": "ctx", "num_predict": "predict", "think": "think"}
VARIANT_SEPARATOR = " · "


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The options that reach the model beside its messages; the seed is the cell's own."""

    temperature: float
    num_ctx: int
    num_predict: int
    think: bool = False

    def differs_from(self, other: Sampling) -> list[str]:
        """The options in which it differs, as people see them: `t=0.2`, `ctx=4096`."""
        return [self.shown(name) for name in SAMPLING_NAMES if getattr(self, name) != getattr(other, name)]

    def shown(self, name: str) -> str:
        value = getattr(self, name)
        text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
        return f"{SAMPLING_NAMES[name]}={text}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One (model, prompt version, scenario) and repeat. What determines its output is its key."""

    model: Model
    prompt_id: str
    prompt_hash: str
    scenario_id: str
    scenario_hash: str
    n_tips: int
    sampling: Sampling
    base_seed: int
    repeat: int

    @cached_property
    def key(self) -> str:
        return content_hash(
            {
                "model": self.model.digest,
                "prompt": self.prompt_hash,
                "scenario": self.scenario_hash,
                "n_tips": self.n_tips,
                "sampling": asdict(self.sampling),
                "seed": self.base_seed,
                "repeat": self.repeat,
            }
        )[:32]

    @cached_property
    def seed(self) -> int:
        """The sampling seed: derived from the key, in the 31 bits that every engine takes."""
        return int(self.key[:8], 16) & 0x7FFF_FFFF


@dataclass(frozen=True, kw_only=True)
class Message:
    role: Literal["system", "user"]
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """What one call sends. `format` is a JSON schema that the reply must follow, or None for free text.

    `context_length` is not sent: it is the most the model can hold, and bounds what `num_ctx` can mean.
    """

    model: str
    messages: Sequence[Message]
    sampling: Sampling
    seed: int
    format: Mapping[str, Any] | None = None
    context_length: int | None = None

    @property
    def room(self) -> int:
        """The tokens that fit: `num_ctx`, or the model's own context length if that is smaller."""
        return min(self.sampling.num_ctx, self.context_length or self.sampling.num_ctx)

    @property
    def characters(self) -> int:
        return sum(len(message.content) for message in self.messages)


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What came back. `latency_ms` leaves out the time a cold model took to load, which is `load_ms`.

    `cut` says that the text cannot be trusted to be whole: the prompt did not fit the context, or the
    reply hit its limit.
    """

    text: str
    thinking: str = ""
    cut: Cut | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float
    load_ms: float
    tokens_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The candidates found in a reply, and how they were found: the rung of the ladder that held."""

    candidates: tuple[str, ...]
    how: How
    format_ok: bool


@dataclass(frozen=True, kw_only=True)
class Candidate:
    text: str
    overlong: bool


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a cell was generated: which engine, at which address, in which version.

    `machine` and `hardware` are known only of an engine on the machine that the cell was asked for from: an
    address such as `localhost` names another machine everywhere, any other address says itself which it is.
    """

    kind: EngineKind
    url: str
    version: str
    machine: str = ""
    hardware: str = ""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """All there is to know of one cell once the engine is done with it; `error` is None for a success.

    `memory_bytes` is the most that the host was seen to hold for the model so far, `vram_share` how much of
    the model was in the memory of its graphics cards. `marks` name what a reader of the numbers must know.
    """

    cell: Cell
    suite_id: str
    rubric_id: str
    rubric_hash: str
    host: Host
    messages: tuple[Message, ...]
    started_ms: int
    ended_ms: int
    completion: Completion | None = None
    reading: Reading | None = None
    candidates: tuple[Candidate, ...] = ()
    diversity: float | None = None
    memory_bytes: int | None = None
    vram_share: float | None = None
    marks: tuple[str, ...] = ()
    error: str | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers a run is recorded with; what is not known is left out, never written as zero."""
        if self.completion is None or self.reading is None:
            return {}
        known = {
            "latency_ms": self.completion.latency_ms,
            "load_ms": self.completion.load_ms,
            "prompt_tokens": self.completion.prompt_tokens,
            "cached_tokens": self.completion.cached_tokens,
            "output_tokens": self.completion.output_tokens,
            "tokens_per_s": self.completion.tokens_per_s,
            "n_candidates": len(self.candidates),
            "format_ok": int(self.reading.format_ok),
            "overlong": _share([candidate.overlong for candidate in self.candidates]),
            "diversity": self.diversity,
            "memory_bytes": self.memory_bytes,
        }
        return {name: float(value) for name, value in known.items() if value is not None}


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


@dataclass(frozen=True, kw_only=True)
class SuitePlace:
    """Where a suite was when its cells were collected, and its hash then.

    `place` is the name of a built-in suite or an absolute folder.
    """

    place: str
    hash: str


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What an experiment was begun with: ids and the hashes of the texts they stood for.

    `places` are the suite's, the newest first; an experiment of an earlier version has none. `templates` has
    the prompts' texts on their way to the prompt registry, `suites` the texts of whole suites by their
    SHA-256 on their way to the ledger; a pin read back is without both.
    """

    suite_id: str
    rubric_id: str
    rubric_hash: str
    rubric_text: str
    prompts: Mapping[str, str]
    scenarios: Mapping[str, str]
    templates: Mapping[str, str] = field(default_factory=dict, compare=False)
    places: tuple[SuitePlace, ...] = ()
    suites: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, kw_only=True)
class RubricText:
    """A rubric as it is stored: its id, its whole text, and the hash of the text."""

    id: str
    hash: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell as the ledger holds it, without its long texts (see `RunTexts`).

    `rubric_id` and `rubric_hash` name the rubric under which the run's scores count: the one it was generated
    for, until the experiment is judged under a new one. `host` is the address of its engine. What was not
    recorded of where it ran is empty, or None. `marks` has names of `CELL_MARKS`; `size_assumed` is empty if
    the host gave the number of parameters. `overlong_by` names who set the metric `overlong`: `code`, or
    judges by the number of the candidate.
    """

    run_id: str
    experiment: str
    key: str
    status: Literal["done", "failed"]
    model: str
    digest: str
    parameters: int | None
    prompt_id: str
    prompt_hash: str
    scenario_id: str
    scenario_hash: str
    repeat: int
    n_tips: int
    suite_id: str
    rubric_id: str
    rubric_hash: str
    host: str
    host_kind: str
    host_version: str
    machine: str
    hardware: str
    vram_share: float | None
    how: How
    cut: Cut | None
    error: str | None
    judge_pending: bool
    started_ms: int
    metrics: Mapping[str, float]
    candidates: tuple[Candidate, ...]
    sampling: Sampling | None = None
    marks: tuple[str, ...] = ()
    size_assumed: str = ""
    overlong_by: str = "code"

    @property
    def variant(self) -> tuple[str, str, Sampling | None]:
        """What makes runs belong to one row of the leaderboard: model, prompt and sampling options."""
        return self.digest, self.prompt_hash, self.sampling


@dataclass(frozen=True, kw_only=True)
class RunTexts:
    """A run's long texts: the prompt as sent, the reply as it came, the candidates as JSON, the rubric."""

    prompt: str
    raw: str
    candidates: str
    rubric: str = ""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Who judged. Verdicts of different kinds are never averaged with each other.

    An `agent` takes batches as a person does, an `ai` is a model that `judge auto` asks, `proxy` is rules.
    """

    id: str
    kind: JudgeKind
    model: str = ""

    @property
    def version(self) -> str:
        """The weights and the prompt of an AI judge: `gpt-x@localhost prompt 1a2b3c4d`.

        A calibration belongs to one version. The port of a server is left out: a restart may change it.
        """
        return _PORT.sub("", self.model)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One judge's scores for one candidate under one rubric. A changed mind is another verdict.

    `candidate` is the key of a text within its scenario (`judge.candidates.candidate_key`), so the same text
    from two cells is judged once. Scores are whole numbers unless a judge's several readings were averaged.
    `readings` has an AI judge's scores in two orders, first those where the text stood nearer to the top. It
    is empty for other judges, for a text that was sent alone, and in verdicts of earlier versions.
    """

    candidate: str
    scores: Mapping[str, float]
    judge: Judge
    at_ms: int
    rubric_hash: str
    batch_id: str
    overlong: bool | None = None
    note: str = ""
    drift_z: float | None = None
    adjudicated: bool = False
    readings: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Item:
    """What is behind one blinded id of a batch; the judge sees the id, the scenario and the text alone.

    `candidate` is empty for a hidden item. `reference` has an anchor's agreed scores, of which there are
    `n_references`, given by people where `by_people`.
    """

    id: str
    role: Role
    scenario_id: str
    text: str
    candidate: str = ""
    anchor_id: str = ""
    reference: Mapping[str, float] = field(default_factory=dict)
    n_references: int = 0
    by_people: bool = False


@dataclass(frozen=True, kw_only=True)
class Application:
    """One filled-in file, or a part of one, as it was accepted: either all of it is in the ledger or none.

    `hidden` has the scores for anchors and foils by item id: no verdicts, but what drift is read from.
    `remarks` has the judge's `overlong` and `note` on them, where there are any.
    `shift` is the mean deviation from the anchors' references, `drift_z` the same in standard errors.
    `inconsistent` has the ids of the items without scores because the reasons and scores of an AI judge named
    different levels, twice.
    """

    application_id: str
    judge: Judge
    at_ms: int
    verdicts: tuple[Verdict, ...]
    hidden: Mapping[str, Mapping[str, float]]
    drift_z: float | None = None
    shift: float | None = None
    drift_accepted: bool = False
    remarks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    inconsistent: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A submission that the drift check or the attention check rejected. Only an admin reads the numbers.

    `rejection_id` is a hash of the batch and the submitted scores: the same scores again are the same
    rejection.
    """

    rejection_id: str
    judge: Judge
    at_ms: int
    reason: str
    drift_z: float | None = None
    shift: float | None = None
    foils_failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Release:
    """An admin's permission to submit a closed batch again. The rejections in `forgiven` no longer count."""

    at_ms: int
    by: str
    forgiven: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Blinded items for one judge, in the order of the file; its run in the ledger holds all of this.

    `judge` is for whom it was made, empty for whoever takes it. `contexts` has each scenario as the judge
    reads it. `tips_per_cell` (0 is all) and `race` say how much judging the experiment wants. `replaces` is
    the id of the closed batch in whose place this one was made.
    """

    batch_id: str
    experiment: str
    created_ms: int
    purpose: Purpose
    judge: str
    rubric_id: str
    rubric_hash: str
    items: tuple[Item, ...]
    contexts: Mapping[str, str]
    tips_per_cell: int = 0
    race: bool = False
    applications: tuple[Application, ...] = ()
    replaces: str = ""
    rejections: tuple[Rejection, ...] = ()
    releases: tuple[Release, ...] = ()

    @property
    def counted_rejections(self) -> tuple[Rejection, ...]:
        """The rejections that no release has forgiven."""
        forgiven = {one for release in self.releases for one in release.forgiven}
        return tuple(one for one in self.rejections if one.rejection_id not in forgiven)

    @property
    def is_closed(self) -> bool:
        """Whether the batch takes no submission, because too many were rejected."""
        return len(self.counted_rejections) >= MOST_REJECTIONS

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict for applied in self.applications for verdict in applied.verdicts)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What verdicts made of a run: numbers derived from them, and whether it still waits for a judge.

    `rubric` is set where the numbers count under another rubric than the one that the run shows.
    `overlong_by` names who set the metric `overlong`; None leaves the run's as it is.
    """

    metrics: Mapping[str, float]
    judge_pending: bool
    rubric: RubricText | None = None
    overlong_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExperimentSummary:
    """An experiment in numbers of cells. `failed` cells failed in the engine and have no reply.

    `judged` counts candidates with scores.
    """

    name: str
    experiment_id: str
    suite_id: str
    rubric_id: str
    done: int
    failed: int
    pending: int
    newest_ms: int | None
    url: str | None = None
    judged: int = 0


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A model with a prompt, as it was shipped for a suite, and what it was chosen by.

    `version` is the ledger's number for it, 0 until it has one; `replaces` is the version in force before it.
    `cautions` is what the ranking said of itself: it was shipped knowing that. `label` is the name in the
    leaderboard where that has more than the model and the prompt (`gemma3:1b · v1 · t=0.2`), else empty; a
    record of an earlier version has none.
    """

    suite_id: str
    suite_hash: str
    experiment: str
    model: str
    digest: str
    prompt_id: str
    prompt_hash: str
    n_tips: int
    sampling: Sampling
    ground: JudgeKind | None
    because: Because
    mean: float | None
    low: float | None
    high: float | None
    cautions: tuple[str, ...] = ()
    shipped_ms: int = 0
    version: int = 0
    replaces: int | None = None
    label: str = ""

    @property
    def combination(self) -> str:
        """The name in messages, with the sampling option that tells the variant apart."""
        return self.label or f"{self.model} with {self.prompt_id}"

    @property
    def names(self) -> tuple[str, str]:
        """The names of the model and of the prompt as the leaderboard shows them."""
        model, _, prompt = self.label.partition(VARIANT_SEPARATOR)
        return (model, prompt) if self.label else (self.model, self.prompt_id)


class Ledger(Protocol):
    """Where cells are recorded. Every ledger passes the same conformance suite."""

    @property
    def uri(self) -> str: ...

    def pin(self, experiment: str, pin: Pin) -> Pin:
        """Pin the experiment, made if absent, or add new ids to its pin; a changed text is a PinConflict."""

    def pinned(self, experiment: str) -> Pin | None:
        """The experiment's pin, None where there is no such experiment."""

    def suite_texts(self, experiment: str) -> list[str]:
        """The texts of the suites that came with its pins, the newest first (see `suite.stored`)."""

    def record(self, experiment: str, results: Sequence[CellResult]) -> None:
        """Record each result once: a key that is there as done stays, one that failed is taken over."""

    def runs(self, experiment: str) -> list[Run]:
        """All cells of an experiment, one per key, oldest first."""

    def add_marks(self, experiment: str, marks: Mapping[str, Sequence[str]]) -> set[str]:
        """Add marks to recorded cells, by cell key. Returns the keys that have no run."""

    def run(self, run_id: str) -> tuple[Run, RunTexts]: ...

    def experiments(self) -> list[ExperimentSummary]: ...

    def change_rubric(self, experiment: str, *, rubric_id: str, rubric_hash: str, rubric_text: str) -> Pin:
        """Pin the experiment to another rubric; verdicts under the old one stay and no longer count."""

    def add_batch(self, batch: Batch) -> None:
        """Keep a new batch, without its applications, as a run of its experiment."""

    def batches(self, experiment: str) -> list[Batch]:
        """All batches of an experiment with what was committed to each, oldest first."""

    def batch(self, batch_id: str) -> Batch:
        """A batch by its id, in whichever experiment it is; NotFound where there is none."""

    def commit(self, batch: Batch, application: Application) -> None:
        """Add an application to its batch, all or nothing: one last tag makes it count."""

    def reject(self, batch: Batch, rejection: Rejection) -> None:
        """Record a rejected submission of a batch; one with the same id that is there stays."""

    def release(self, batch: Batch, release: Release) -> None:
        """Record that an admin lets a closed batch be submitted again."""

    def rejected_batches(self) -> list[Batch]:
        """The batches of all experiments that have a rejection, oldest first."""

    def revision(self, experiment: str) -> str:
        """A word that changes whenever anything of the experiment does; empty while somebody is writing."""

    def mark(self, experiment: str, marks: Mapping[str, Mark]) -> None:
        """Write what was derived from verdicts to runs, by run id. It can be derived anew at any time."""

    def add_shipment(self, shipped: Shipped) -> Shipped:
        """Keep it as a new version, which it comes back with. It is not in force until `set_shipped`."""

    def set_shipped(self, suite_id: str, version: int) -> None:
        """Put a version in force, in one step; NotFound where there is no such version."""

    def shipped(self, suite_id: str) -> Shipped | None:
        """The version in force for a suite, None where there is none."""

    def shipments(self, suite_id: str) -> list[Shipped]:
        """Every version of a suite, oldest first, in force or not."""


Event = Mapping[str, Any]
Emit = Callable[[Event], None]
