"""The service in a process of its own: what a page, a stroke and a watcher cost, and what pages weigh.

Times are those of a warm service, as a client on the same machine sees them; beside them is the CPU time that
the service took, which other work disturbs less.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import httpx  # noqa: TID253 - what is measured here is not this process
import psutil

from bench_overhead import MODELS, PROMPTS, standing_in, write_suite
from measures import Measure
from processes import HERE, ROOT, TIPBENCH, clean_env, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measures import Options

PAGE_BAR_MS, STROKE_BAR_MS, WEIGHT_BAR_KB = 150, 50, 150
WATCHERS, WATCHERS_BAR = 50, 0.05
EXPERIMENT = "judged"
# A small model on a good machine: a cell in half a second.
CELL_S = 0.5
_LINKED = re.compile(r"""(?:src|href)="(/static/[^"]+)"|from "(\./[^"]+)";|@import "([^"]+)\"""")
_ENDED = {"done", "failed", "cancelled", "interrupted"}


@dataclass(frozen=True, kw_only=True)
class Site:
    """A service that runs, somebody who may do everything, and the service's process."""

    client: httpx.Client
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path).raise_for_status()


def bench_service(options: Options) -> list[Measure]:
    scenarios = 25 if options.quick else 250
    suite = write_suite(options.work / "suite")
    env = clean_env(options.work / "home", modules=ROOT / "tests")
    home = [str(HERE / "service_home.py"), EXPERIMENT, str(suite), str(scenarios)]
    run([sys.executable, *home], env=env)
    return measured(env, str(suite), quick=options.quick)


def measured(env: dict[str, str], suite: str, *, quick: bool) -> list[Measure]:
    with serving(env, suite) as site:
        return [*_board(site), *_strokes(site), *_watching(site, seconds=3 if quick else 10), *_weights(site)]


@contextmanager
def serving(env: dict[str, str], suite: str) -> Iterator[Site]:
    """`tipbench serve` on a home that has no token yet, beside a host whose cells take a while."""
    with standing_in(Path(env["TMPDIR"]) / "seen.json", latency_s=CELL_S) as ollama:
        command = [*TIPBENCH, "serve", "--port", "0", "--suite", suite]
        command += ["--engine", "ollama", "--ollama-url", ollama]
        service = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert service.stdout is not None  # noqa: S101 - it was asked for
        try:
            _, token, told = (service.stdout.readline().strip() for _ in range(3))
            headers = {"Authorization": f"Bearer {token}"}
            url = told.rpartition(" ")[2]
            with httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as client:
                yield Site(client=client, process=psutil.Process(service.pid))
        finally:
            service.terminate()
            service.wait(timeout=30)


def _timed(site: Site, what: str, ask: Callable[[int], object], *, times: int, bar: float) -> list[Measure]:
    """The middle and the worst of so many, once the service has seen three of them."""
    for number in range(3):
        ask(number)
    took, cpu = [], site.cpu_s()
    for number in range(times):
        started = time.perf_counter()
        ask(number)
        took.append(1000 * (time.perf_counter() - started))
    each = 1000 * (site.cpu_s() - cpu) / times
    return [
        Measure(what=f"{what}, median of {times}", value=median(took), unit="ms", bar=bar),
        Measure(what="… the slowest", value=max(took), unit="ms"),
        Measure(what="… CPU of the service", value=each, unit="ms"),
    ]


def _board(site: Site) -> list[Measure]:
    runs = site.get(f"/api/bench/runs/{EXPERIMENT}").json()["total"]
    started = time.perf_counter()
    site.get(f"/experiments/{EXPERIMENT}")
    first = Measure(what="… the first time", value=1000 * (time.perf_counter() - started), unit="ms")
    asked = _timed(
        site,
        f"leaderboard page of {runs} runs",
        lambda _: site.get(f"/experiments/{EXPERIMENT}"),
        times=30,
        bar=PAGE_BAR_MS,
    )
    return [*asked, first]


def _strokes(site: Site) -> list[Measure]:
    started = time.perf_counter()
    batch = site.get(f"/api/judge/{EXPERIMENT}/batch").json()
    taken = Measure(what="taking a new batch", value=1000 * (time.perf_counter() - started), unit="ms")
    items = [item["id"] for item in batch["items"]]

    def stroke(number: int) -> None:
        path = f"/api/judge/batches/{batch['batch']}/items/{items[number % len(items)]}"
        given = {"relevance": 4, "actionability": 1 + number % 5, "tone": None}
        site.client.put(path, json=given).raise_for_status()

    return [*_timed(site, "judging stroke", stroke, times=100, bar=STROKE_BAR_MS), taken]


def _watching(site: Site, *, seconds: float) -> list[Measure]:
    """In turns nobody and many, so that what disturbs one disturbs the other."""
    job = _started(site)
    try:
        rounds = [asyncio.run(_watched(site, job, many, seconds)) for many in (0, WATCHERS) * 2]
    finally:
        site.client.post(f"/api/jobs/{job}/cancel")
        _until(lambda: site.get(f"/api/jobs/{job}").json()["state"] in _ENDED)
    alone, watched = (median(cpu for cpu, _ in rounds[start::2]) for start in (0, 1))
    events = rounds[-1][1] / WATCHERS / seconds
    return [
        Measure(what="service with a job running, nobody watching, CPU in a second", value=alone, unit="s"),
        Measure(what=f"… more with {WATCHERS} watchers", value=watched - alone, unit="s", bar=WATCHERS_BAR),
        Measure(what="… events in a second, to each of them", value=events, unit=""),
    ]


def _started(site: Site) -> str:
    asked = {"models": MODELS[:1], "prompts": PROMPTS, "n_scenarios": 250, "experiment": "watched"}
    job: str = site.client.post("/api/bench/run", json=asked).raise_for_status().json()["job_id"]
    _until(lambda: site.get(f"/api/jobs/{job}").json()["progress"]["done"] > 0)
    return job


def _until(holds: Callable[[], bool], *, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("the job did not come so far")
        time.sleep(0.3)


async def _watched(site: Site, job: str, many: int, seconds: float) -> tuple[float, int]:
    """CPU seconds of the service in a second, and how many events came to all watchers together."""
    came = [0]
    after = site.get(f"/api/jobs/{job}").json()["progress"]["last_event"]
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=site.client.base_url,
        headers=site.client.headers,
        timeout=120,
        limits=limits,
        trust_env=False,
    ) as client:
        path = f"/api/jobs/{job}/events?after={after}"
        watchers = [asyncio.create_task(_watch(client, path, came)) for _ in range(many)]
        await asyncio.sleep(2)
        before, cpu = came[0], site.cpu_s()
        await asyncio.sleep(seconds)
        used, seen = (site.cpu_s() - cpu) / seconds, came[0] - before
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return used, seen


async def _watch(client: httpx.AsyncClient, path: str, came: list[int]) -> None:
    async with client.stream("GET", path) as stream:
        async for line in stream.aiter_lines():
            came[0] += line.startswith("data:")


def _weights(site: Site) -> list[Measure]:
    """Every page with all that it loads, as it is sent; nothing is compressed."""
    job = site.get("/api/jobs").json()[0]["job_id"]
    run_id = site.get(f"/api/bench/runs/{EXPERIMENT}").json()["runs"][0]["run_id"]
    pages = {
        "experiments": "/experiments",
        "experiment": f"/experiments/{EXPERIMENT}",
        "cell": f"/experiments/{EXPERIMENT}/runs/{run_id}",
        "jobs": "/jobs",
        "job": f"/jobs/{job}",
        "judge, the list": "/judge",
        "judge": f"/judge/{EXPERIMENT}",
        "judge, the result": f"/judge/{EXPERIMENT}/result",
        "health": "/system",
        "tokens": "/tokens",
        "audit": "/audit",
    }
    weights = {name: _weight(site.client, path) for name, path in pages.items()}
    with httpx.Client(base_url=site.client.base_url, trust_env=False) as nobody:
        weights["login"] = _weight(nobody, "/login")
    return [
        Measure(what=f"weight of the page: {name}", value=weight, unit="KB", bar=WEIGHT_BAR_KB)
        for name, weight in weights.items()
    ]


def _weight(client: httpx.Client, path: str) -> float:
    loaded: dict[str, int] = {}
    waiting = [path]
    while waiting:
        address = waiting.pop()
        if address not in loaded:
            answer = client.get(address).raise_for_status()
            loaded[address] = len(answer.content)
            found: list[tuple[Any, ...]] = _LINKED.findall(answer.text)
            waiting += [urljoin(address, one) for groups in found for one in groups if one]
    return sum(loaded.values()) / 1000
