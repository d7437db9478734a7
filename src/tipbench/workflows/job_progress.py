"""How far a job is, folded from its events: cells, speed and memory by model, and what went wrong.

Of a simulation the policies are what models are of a collection, and rounds what cells are.

A job that was resumed has told of its plan more than once. What a model had done before counts as done; what
had failed is tried again, so it counts as open.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.records import Event

ModelState = Literal["waiting", "loading", "running", "done", "failed"]
_NOTICES = 100


@dataclass(frozen=True, kw_only=True)
class ModelProgress:
    """One model. `bytes` is what the host last said that it takes in memory."""

    name: str
    state: ModelState
    done: int
    failed: int
    total: int
    tokens_per_s: float | None
    bytes: int | None
    error: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a job stands. `skipped` cells were there before it began; `unread` texts count as judged.

    `last_event` is the id of the newest event in it, for those who go on watching from here.
    """

    planned: int | None
    skipped: int
    done: int
    failed: int
    models: tuple[ModelProgress, ...]
    resident: tuple[str, ...]
    resident_bytes: int
    recording_left: int
    judged: int
    to_judge: int | None
    unread: int
    notices: tuple[str, ...]
    last_at: str
    summary: Mapping[str, Any] | None
    last_event: int = 0


@dataclass(kw_only=True)
class _Model:
    name: str
    state: ModelState = "waiting"
    done: int = 0
    failed: int = 0
    total: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    bytes: int | None = None
    error: str = ""

    def seen(self, *, ended: bool) -> ModelProgress:
        return ModelProgress(
            name=self.name,
            state="waiting" if ended and self.state in {"loading", "running"} else self.state,
            done=self.done,
            failed=self.failed,
            total=self.total,
            tokens_per_s=self.tokens / self.seconds if self.seconds else None,
            bytes=self.bytes,
            error=self.error,
        )


class Fold:
    """Takes a job's events one by one; `progress` is what they come to so far."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}
        self._planned: int | None = None
        self._resident: tuple[str, ...] = ()
        self._resident_bytes = 0
        self._recording_left = 0
        self._judged = 0
        self._to_judge: int | None = None
        self._unread = 0
        self._notices: deque[str] = deque(maxlen=_NOTICES)
        self._last_at = ""
        self._summary: Mapping[str, Any] | None = None

    def add(self, event: Event) -> None:
        """Take one in. An event that is not known, or lacks what it should have, changes nothing else."""
        self._last_at = str(event.get("at", self._last_at))
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            with suppress(TypeError, ValueError, AttributeError, OverflowError):
                handler(event)

    def progress(self, *, ended: bool) -> Progress:
        """Where the job stands. Of one that has `ended`, nothing is in memory, whatever was told last."""
        models = tuple(model.seen(ended=ended) for model in self._models.values())
        return Progress(
            planned=self._planned,
            skipped=max(0, (self._planned or 0) - sum(model.total for model in models)),
            done=sum(model.done for model in models),
            failed=sum(model.failed for model in models),
            models=models,
            resident=() if ended else self._resident,
            resident_bytes=0 if ended else self._resident_bytes,
            recording_left=self._recording_left,
            judged=self._judged,
            to_judge=self._to_judge,
            unread=self._unread,
            notices=tuple(self._notices),
            last_at=self._last_at,
            summary=self._summary,
        )

    def _model(self, event: Event) -> _Model:
        name = str(event.get("model", "?"))
        return self._models.setdefault(name, _Model(name=name))

    def _on_plan(self, event: Event) -> None:
        left = {str(name): int(cells) for name, cells in event.get("models", {}).items()}
        self._planned, self._summary = int(event.get("planned", 0)), None
        for name in left:
            self._models.setdefault(name, _Model(name=name))
        for name, model in self._models.items():
            model.failed, model.error = 0, ""
            model.total = model.done + left.get(name, 0)
            model.state = "waiting" if name in left else "done"

    def _on_model_start(self, event: Event) -> None:
        self._model(event).state = "loading"

    def _on_model_loaded(self, event: Event) -> None:
        model = self._model(event)
        model.state, model.bytes = "running", event.get("bytes")
        self._resident, self._resident_bytes = (model.name,), int(event.get("bytes") or 0)

    def _on_resident(self, event: Event) -> None:
        self._resident = tuple(map(str, event.get("models", ())))
        self._resident_bytes = int(event.get("bytes") or 0)
        if len(self._resident) == 1 and self._resident[0] in self._models:
            self._models[self._resident[0]].bytes = self._resident_bytes

    def _on_model_unloaded(self, event: Event) -> None:
        model = self._model(event)
        if model.state != "failed":
            model.state = "done" if model.done + model.failed >= model.total else "waiting"
        self._resident, self._resident_bytes = (), 0

    def _on_model_failed(self, event: Event) -> None:
        model = self._model(event)
        model.state, model.error = "failed", str(event.get("error", ""))
        self._notices.append(f"{model.name}: {model.error}; its cells are recorded as failed")

    def _on_cell(self, event: Event) -> None:
        model = self._model(event)
        if event.get("status") == "done":
            model.done += 1
        else:
            model.failed += 1
            where = f"{model.name} × {event.get('prompt')} × {event.get('scenario')}"
            self._notices.append(f"{where} failed: {event.get('error')}")
        tokens, rate = event.get("output_tokens"), event.get("tokens_per_s")
        if tokens and rate:
            model.tokens += tokens
            model.seconds += tokens / rate

    def _on_to_simulate(self, event: Event) -> None:
        """A simulation is begun, or begun anew: what was simulated before is not gone on with."""
        total = int(event.get("total", 0))
        self._models = {name: _Model(name=name, total=total) for name in map(str, event.get("policies", ()))}
        self._summary = None

    def _on_simulated(self, event: Event) -> None:
        name = str(event.get("policy", "?"))
        model = self._models.setdefault(name, _Model(name=name))
        model.done, model.total = int(event.get("done", 0)), int(event.get("total", 0))
        model.state = "done" if model.done >= model.total else "running"

    def _on_judged(self, event: Event) -> None:
        self._judged, self._unread = int(event.get("done", 0)), int(event.get("unread", 0))
        self._to_judge = int(event.get("total", 0))

    def _on_recording(self, event: Event) -> None:
        self._recording_left = int(event.get("left", 0))

    def _on_notice(self, event: Event) -> None:
        self._notices.append(str(event.get("message", "")))

    def _on_retry(self, event: Event) -> None:
        again = f"trying again in {event.get('pause_s')} s"
        self._notices.append(f"{event.get('what')}: {event.get('error')}; {again}")

    def _on_evict(self, event: Event) -> None:
        left_over = ", left over from an earlier run" if event.get("ours") else ""
        self._notices.append(f"unloading {event.get('model')}{left_over}")

    def _on_dag_run(self, event: Event) -> None:
        """All of a run on Airflow as it is now: what it comes to so far."""
        self._summary = {name: value for name, value in event.items() if name not in {"event", "at"}}

    def _on_summary(self, event: Event) -> None:
        self._summary = {name: value for name, value in event.items() if name not in {"event", "at"}}
        self._recording_left = int(event.get("unrecorded", 0))
        self._notices.extend(str(fault) for fault in event.get("faults", ()))
