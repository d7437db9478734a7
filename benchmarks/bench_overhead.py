"""What tipbench adds to the calls themselves: `collect` against a bare loop that makes the very same calls.

Both talk to a stand-in that answers after 20 ms, each in a process of its own, in turns. A model takes
seconds a cell, so this is tipbench's share at its largest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from measures import Measure
from processes import HERE, ROOT, TIPBENCH, Watch, clean_env, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from measures import Options
    from processes import Used

LATENCY_S = 0.02
MODELS = ("alpha:1b", "beta:1b", "gamma:1b", "delta:1b")
PROMPTS = ("v1", "v2-mentor", "v3-few-shot")
FEW, MANY = 8, 250
DURABLE_BAR, MEMORY_BAR_MB = 1.3, 300
_PERSONAS = ("maya", "jonas", "priya", "carl")


@dataclass(frozen=True, kw_only=True)
class Round:
    """One collection and the bare loop behind it. Times are in seconds."""

    durable_s: float
    durable_from_start_s: float
    recorded_s: float
    bare_s: float
    bare_from_start_s: float
    bare_cpu_s: float
    cpu_s: float
    writer_cpu_s: float
    peak_mb: float
    collector_mb: float
    writer_mb: float
    together_mb: float
    bare_mb: float
    host: dict[str, Any]


def bench_overhead(options: Options) -> list[Measure]:
    suite = write_suite(options.work / "suite")
    found = []
    for scenarios, rounds in ((FEW, 3),) if options.quick else ((FEW, 5), (MANY, 1)):
        for parallel in (1, 4):
            folder = options.work / f"{scenarios}x{parallel}"
            each = [_round(folder / str(n), suite, scenarios, parallel) for n in range(rounds)]
            cells = scenarios * len(MODELS) * len(PROMPTS)
            found += _measures(f"{cells} cells, parallel {parallel}:", each)
    return found


def write_suite(folder: Path) -> Path:
    """The suite `tip` with scenarios of the same shape added, 250 in all."""
    folder.mkdir(parents=True)
    (folder / "suite.yaml").write_text("id: overhead\nextends: tip\n")
    (folder / "scenarios.yaml").write_text("scenarios:\n" + "".join(map(_scenario, range(MANY - FEW))))
    return folder


def _scenario(n: int) -> str:
    return (
        f"  - id: made-{n}\n    persona: {_PERSONAS[n % 4]}\n    when: Tuesday, {n % 24:02}:15, day {n}\n"
        f"    energy: awake, cup number {n}\n"
        f"    tasks: [answer letter {n}, tidy shelf {n + 1}, call number {n + 2}]\n"
    )


def _round(folder: Path, suite: Path, scenarios: int, parallel: int) -> Round:
    env = clean_env(folder)
    run([*TIPBENCH, "experiments"], env=env)  # makes the tables of the embedded store, once for good
    watch = Watch()
    with standing_in(folder / "collected.json") as url:
        ours = run(_collect(url, suite, scenarios, parallel, folder / "events"), env=env, watch=watch)
    host = json.loads((folder / "collected.json").read_text())
    bodies = folder / "bodies"
    bodies.write_text("".join(f"{json.dumps(body)}\n" for body in host.pop("chats")))
    with standing_in(folder / "bare.json") as url:
        bare = run([sys.executable, str(HERE / "bare_loop.py"), url, str(bodies), str(parallel)], env=env)
    return _compared(ours, watch, folder / "events", bare, host)


@contextmanager
def standing_in(seen: Path, *, latency_s: float = LATENCY_S) -> Iterator[str]:
    """The address of a host that answers every call after so long; `seen` is written in the end."""
    command = [sys.executable, str(HERE / "stand_in_host.py"), str(seen), str(latency_s), *MODELS]
    env = clean_env(seen.parent, modules=ROOT / "tests")
    host = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None  # noqa: S101 - it was asked for
    try:
        yield host.stdout.readline().strip()
    finally:
        host.communicate(timeout=60)


def _collect(url: str, suite: Path, scenarios: int, parallel: int, events: Path) -> list[str]:
    return [
        *TIPBENCH, "collect", "--engine", "ollama", "--ollama-url", url, "--suite", str(suite),
        "--models", ",".join(MODELS), "--prompts", ",".join(PROMPTS), "--n-scenarios", str(scenarios),
        "--parallel", str(parallel), "--experiment", "overhead", "--diversity", "--json",
        "--events", str(events),
    ]  # fmt: skip


def _compared(ours: Used, watch: Watch, events: Path, bare: Used, host: dict[str, Any]) -> Round:
    told = [json.loads(line) for line in events.read_text().splitlines()]
    first = next(_moment(event) for event in told if event["event"] == "model_start")
    last = max(_moment(event) for event in told if event["event"] == "cell")
    loop = json.loads(bare.out)
    collector, writer = watch.seen[watch.root], watch.child("--follow")
    return Round(
        durable_s=last - first,
        durable_from_start_s=last - ours.started,
        recorded_s=next(_moment(e) for e in told if e["event"] == "summary") - first,
        bare_s=loop["wall_s"],
        bare_from_start_s=loop["started"] + loop["wall_s"] - bare.started,
        bare_cpu_s=bare.cpu_s,
        cpu_s=ours.cpu_s - writer.cpu_s,
        writer_cpu_s=writer.cpu_s,
        peak_mb=ours.peak_bytes / 1e6,
        collector_mb=collector.peak_bytes / 1e6,
        writer_mb=writer.peak_bytes / 1e6,
        together_mb=watch.peak_together / 1e6,
        bare_mb=bare.peak_bytes / 1e6,
        host=host,
    )


def _moment(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


def _measures(name: str, rounds: list[Round]) -> list[Measure]:
    def middle(value: str) -> float:
        return median(float(getattr(each, value)) for each in rounds)

    def ratio(ours: str, bare: str) -> float:
        return median(float(getattr(each, ours)) / float(getattr(each, bare)) for each in rounds)

    def most(what: str) -> float:
        return max(float(each.host[what]) for each in rounds)

    def row(what: str, value: float, unit: str = "", bar: float | None = None) -> Measure:
        return Measure(what=f"{name} {what}", value=value, unit=unit, bar=bar)

    return [
        row("model switches", most("switches"), bar=3),
        row("models in flight", most("most_models_in_flight"), bar=1),
        row("models resident", most("most_resident"), bar=1),
        row("bare loop, first call to last reply", middle("bare_s"), "s"),
        row("first model to last cell durable", middle("durable_s"), "s"),
        row("… ÷ bare loop", ratio("durable_s", "bare_s"), "×", DURABLE_BAR),
        row("process start to last cell durable", middle("durable_from_start_s"), "s"),
        row("… ÷ bare loop from its process start", ratio("durable_from_start_s", "bare_from_start_s"), "×"),
        row("first model to all recorded in MLflow", middle("recorded_s"), "s"),
        row("CPU of the collector", middle("cpu_s"), "s"),
        row("CPU of its writer", middle("writer_cpu_s"), "s"),
        row("CPU of the bare loop", middle("bare_cpu_s"), "s"),
        row("peak memory, the larger process", middle("peak_mb"), "MB", MEMORY_BAR_MB),
        row("peak memory, collector", middle("collector_mb"), "MB"),
        row("peak memory, writer", middle("writer_mb"), "MB"),
        row("peak memory, both together", middle("together_mb"), "MB"),
        row("peak memory, bare loop", middle("bare_mb"), "MB"),
    ]
