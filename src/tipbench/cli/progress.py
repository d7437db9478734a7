"""Progress of long work: a bar per model, or one, on a terminal, plain lines or nothing elsewhere."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.cli.screen import count, err, tell
from tipbench.engine.memory import readable
from tipbench.errors import BadInput
from tipbench.text import visible_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from tipbench.records import Emit, Event


_LINE_EVERY_S = 15.0


@contextmanager
def follow(*, events: str | None, quiet: bool) -> Iterator[Emit]:
    """A listener for a workflow's events: the screen, and the file of `--events` where one is given.

    Quiet, it tells of what went otherwise than planned and of nothing else.
    """
    with ExitStack() as stack:
        listeners: list[Emit] = []
        if events is not None:
            listeners.append(stack.enter_context(events_file(events)))
        if quiet:
            listeners.append(_notices)
        else:
            listeners.append(stack.enter_context(_bars()) if err().is_terminal else _Lines())

        def emit(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield emit


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Somebody to tell how many of how many are done: a bar on a terminal, and elsewhere nothing."""
    if not err().is_terminal:
        yield lambda _done, _of: None
        return
    with plain_bars() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def plain_bars() -> Progress:
    """Return bars for tasks whose names are texts from outside. Rich's own columns would read markup."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err(), transient=True)


@contextmanager
def events_file(path: str) -> Iterator[Emit]:
    """Each event as one JSON line with its time, written at once so that a reader can follow."""
    try:
        file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise BadInput(f"--events: {path} cannot be written ({error.strerror})") from None

    broken = False

    def write(event: Event) -> None:
        nonlocal broken
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        try:
            if not broken:
                file.write(visible_json(json.dumps({"at": at, **event}, ensure_ascii=False)) + "\n")
        except OSError as error:
            broken = True
            tell(
                f"--events: {path} cannot be written any more ({error.strerror}); the work goes on without it"
            )

    try:
        yield write
    finally:
        with suppress(OSError):
            file.close()


def _sentence(event: Event) -> str | None:
    """What is worth a line whether or not there is a bar."""
    return _of_a_task(event) if event["event"] == "task" else _of_a_cell(event)


def _of_a_task(event: Event) -> str:
    again = f", try {event['tries']}" if event["tries"] > 1 else ""
    return f"{event['name']}: {str(event['state']).replace('_', ' ')}{again}"


def _of_a_cell(event: Event) -> str | None:
    match event["event"]:
        case "notice":
            return str(event["message"])
        case "evict":
            return f"unloading {event['model']}" + (
                ", left over from an earlier run" if event["ours"] else ""
            )
        case "retry":
            return f"{event['what']}: {event['error']}; trying again in {event['pause_s']} s"
        case "model_failed":
            return f"{event['model']}: {event['error']}; its cells are recorded as failed"
        case "cell" if event["status"] == "failed":
            return f"{event['model']} × {event['prompt']} × {event['scenario']} failed: {event['error']}"
    return None


def _notices(event: Event) -> None:
    sentence = _sentence(event)
    if sentence:
        tell(sentence)


class _Lines:
    """Plain lines for a log. While cells are generated, one line every 15 s with an estimate."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._started = self._last = 0.0

    def __call__(self, event: Event) -> None:
        if event["event"] == "plan":
            self._total = event["planned"] - event["skipped"]
        sentence = _sentence(event) or _plain(event) or self._progress(event)
        if sentence:
            tell(sentence)

    def _progress(self, event: Event) -> str | None:
        now = time.monotonic()
        if event["event"] == "model_start" and not self._started:
            self._started = self._last = now
        if event["event"] != "cell":
            return None
        self._done += 1
        if now - self._last < _LINE_EVERY_S or self._done >= self._total:
            return None
        self._last = now
        left_s = (now - self._started) / self._done * (self._total - self._done)
        return f"{self._done} of {self._total} cells generated, about {_rounded(left_s)} left"


def _rounded(seconds: float) -> str:
    return f"{max(5, 5 * round(seconds / 5))} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _plain(event: Event) -> str | None:
    match event["event"]:
        case "plan":
            return f"{count(event['planned'], 'cell')}, {event['skipped']} done before"
        case "model_loaded":
            return f"{event['model']}: loaded in {event['load_s']:.1f} s, {readable(event['bytes'])}"
        case "model_unloaded":
            return f"{event['model']}: done and unloaded"
        case "recording":
            return f"recording: {count(event['left'], 'cell')} left"
        case "judged":
            return f"judged {event['done']} of {event['total']}"
    return None


@contextmanager
def _bars() -> Iterator[Emit]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err()) as progress:
        yield _Bars(progress)


class _Bars:
    """One bar per model; a bar's speed is the mean over its cells, since single cells jump about."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._tokens: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        sentence = _sentence(event)
        if sentence:
            self._progress.console.print(sentence, soft_wrap=True)
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _task(self, name: str, total: int | None, **fields: Any) -> TaskID:  # noqa: ANN401 - Rich's own signature
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, speed="", **fields)
        return self._tasks[name]

    def _on_plan(self, event: Event) -> None:
        for model, cells in event["models"].items():
            self._task(model, cells, start=False)

    def _on_model_start(self, event: Event) -> None:
        self._progress.update(self._task(event["model"], event["cells"]), speed="loading")

    def _on_model_loaded(self, event: Event) -> None:
        task = self._task(event["model"], None)
        self._progress.start_task(task)
        self._progress.update(task, speed=readable(event["bytes"]))

    def _on_cell(self, event: Event) -> None:
        name = event["model"]
        if event.get("tokens_per_s") and event.get("output_tokens"):
            self._tokens[name] = self._tokens.get(name, 0) + event["output_tokens"]
            self._seconds[name] = self._seconds.get(name, 0) + event["output_tokens"] / event["tokens_per_s"]
        speed = f"{self._tokens[name] / self._seconds[name]:.0f} tok/s" if self._seconds.get(name) else ""
        self._progress.update(self._task(name, None), advance=1, speed=speed)

    def _on_pull(self, event: Event) -> None:
        task = self._task(f"pulling {event['model']}", event["total"] or None)
        self._progress.update(
            task, completed=event["completed"], total=event["total"] or None, speed=event["status"]
        )

    def _on_recording(self, event: Event) -> None:
        task = self._task("recording", event["total"])
        self._progress.update(task, completed=event["total"] - event["left"])

    def _on_judged(self, event: Event) -> None:
        unread = f"{event['unread']} unread" if event["unread"] else ""
        self._progress.update(self._task("judging", event["total"]), completed=event["done"], speed=unread)

    def _on_dag_run(self, event: Event) -> None:
        done = sum(task["state"] in {"success", "skipped"} for task in event["tasks"])
        task = self._task("tasks", len(event["tasks"]))
        self._progress.update(task, total=len(event["tasks"]), completed=done, speed=event["state"])

    def _on_summary(self, event: Event) -> None:
        if "recording" in self._tasks and not event["unrecorded"]:
            task = self._progress.tasks[self._tasks["recording"]]
            self._progress.update(task.id, completed=task.total)
