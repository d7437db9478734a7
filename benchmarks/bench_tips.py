"""Tips over HTTP: what a request costs the service beyond an echo of the same body on the same stack.

CPU time is the service's own, as the kernel counts it; the load comes from another process. Every answer that
is counted is on disk.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec  # noqa: TID253 - what is measured here is not how quickly this process starts
import numpy as np  # noqa: TID253 - as above
import psutil

from measures import Measure
from processes import HERE, ROOT, TIPBENCH, clean_env
from tipbench.bandit import draws
from tipbench.bandit.asked import ScoreReply, ScoreRequest
from tipbench.bandit.deciding import Open, Question, choices
from tipbench.bandit.features import vectors
from tipbench.bandit.line_up import Served
from tipbench.bandit.policies import make
from tipbench.bandit.profiles import Profile
from tipbench.errors import TipbenchError
from tips_load import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from measures import Options
    from tipbench.bandit.deciding import Choice

K, D, USERS, IN_FLIGHT = 10, 12, 2000, 32
OVER_ECHO_BAR_US = 150
P99_BAR_MS, STALL_BAR_MS = 20, 100
REWARDS_BAR = 3000
STEPS_BAR_US = 25
BAD_SHADOWS = ("sleeps", "spins", "raises", "allocates")
BESIDE_BAR = 1.2
PROBE_PER_S = 20
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - whatever is there is gone after the measurement


@dataclass(frozen=True, kw_only=True)
class Load:
    """What `tips_load.py` saw, and what it cost the server."""

    count: int
    wall_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    replies: list[Any]

    @property
    def per_s(self) -> float:
        return self.count / self.wall_s


def bench_tips(options: Options) -> list[Measure]:
    count = 4000 if options.quick else 10_000
    rounds = 1 if options.quick else 16  # many short ones: this is to be seen in a machine's good moments
    seconds = 20 if options.quick else 300
    # So many must have come before keys are put in their places as fast as new ones come.
    settled = 500 if options.quick else 50_000
    echoes, scores, texts = [], [], []
    with _serving(options.work) as service, _echoing(options.work) as echo:
        for server, many in ((service, settled), (echo, 500)):
            _load(options, server, "/score/egreedy/v2", _repeated("before"), count=many)
        for turn in range(rounds):
            echoes.append(_load(options, echo, "/score/egreedy/v2", _scores(count, features=True, turn=turn)))
            scores.append(
                _load(options, service, "/score/egreedy/v2", _scores(count, features=True, turn=turn))
            )
            texts.append(
                _load(options, service, "/score/hybrid", _scores(count // 2, features=False, turn=turn))
            )
        decisions = [reply["decision_id"] for reply in scores[-1].replies]
        rewards = _load(options, service, "/reward", _rewards(decisions), in_flight=128)
        peak = min(load.per_s for load in scores)
        half, quiet, disk_ms = _at_half(options, service, echo, rate=peak / 2, seconds=seconds)
    echo_us, score_us = (min(load.cpu_us for load in loads) for loads in (echoes, scores))
    return [
        *_steps(),
        Measure(what="an echo of the same body, CPU", value=echo_us, unit="µs"),
        Measure(what=f"a decision with features (K={K}, D={D}), durable, CPU", value=score_us, unit="µs"),
        Measure(what="… beyond the echo", value=score_us - echo_us, unit="µs", bar=OVER_ECHO_BAR_US),
        Measure(what="… as a ratio to the echo", value=score_us / echo_us, unit="×"),
        Measure(
            what="a decision with texts by hybrid, durable, CPU",
            value=min(load.cpu_us for load in texts),
            unit="µs",
        ),
        Measure(what=f"decisions a second, {IN_FLIGHT} in flight", value=peak, unit="/s"),
        Measure(what="rewards acknowledged a second", value=rewards.per_s, unit="/s"),
        Measure(what="… the bar over that", value=REWARDS_BAR / rewards.per_s, unit="×", bar=1.0),
        Measure(what=f"p99 at half of the peak, {seconds} s", value=half.p99_ms, unit="ms", bar=P99_BAR_MS),
        Measure(what="… the median", value=half.p50_ms, unit="ms"),
        Measure(what="… the longest", value=half.worst_ms, unit="ms", bar=STALL_BAR_MS),
        Measure(
            what=f"… the longest of an echo at {PROBE_PER_S}/s beside it", value=quiet.worst_ms, unit="ms"
        ),
        Measure(
            what=f"… the longest the disk took for 4 kB at {PROBE_PER_S}/s beside it",
            value=disk_ms,
            unit="ms",
        ),
        *_without_a_disk(options, rate=peak / 2, seconds=seconds),
        *_beside_shadows(options),
    ]


def _at_half(
    options: Options, service: Server, echo: Server, *, rate: float, seconds: int
) -> tuple[Load, Load, float]:
    """The service under half of its load; beside it a few echoes, and a file that a page is written to and
    synced: what those wait for is the machine's.
    """
    bodies = _repeated("half")
    path, count, probes = "/score/egreedy/v2", int(rate * seconds), PROBE_PER_S * seconds
    with ThreadPoolExecutor() as pool:
        probe = pool.submit(_load, options, echo, path, bodies[:500], count=probes, rate=PROBE_PER_S)
        disk = pool.submit(_disk_ms, options.work / "probe", seconds=seconds)
        half = _load(options, service, path, bodies, count=count, rate=rate)
        return half, probe.result(), disk.result()


def _repeated(name: str) -> list[dict[str, Any]]:
    """Few enough to be no load on the disk themselves: what is written to it must be the service's."""
    return [{**body, "request_id": f"{name}-{MARK.decode()}"} for body in _scores(20_000, features=True)]


def _without_a_disk(options: Options, *, rate: float, seconds: int) -> list[Measure]:
    """The same load with the state in memory, where the system has a folder there: the waits are all ours."""
    if not IN_MEMORY.is_dir():
        return []
    with TemporaryDirectory(dir=IN_MEMORY) as home, _serving(Path(home)) as service:
        path, bodies = "/score/egreedy/v2", _repeated("half")
        _load(options, service, path, bodies[:500])
        load = _load(options, service, path, bodies, count=int(rate * seconds), rate=rate)
    return [
        Measure(what="… p99 with nothing on a disk", value=load.p99_ms, unit="ms"),
        Measure(what="… the longest then", value=load.worst_ms, unit="ms"),
    ]


def _disk_ms(file: Path, *, seconds: int) -> float:
    longest = 0.0
    _write_down(file, bytes(4096))
    with file.open("r+b", buffering=0) as probe:
        for _ in range(PROBE_PER_S * seconds):
            time.sleep(1 / PROBE_PER_S)
            begun = time.perf_counter()
            probe.seek(0)
            probe.write(bytes(4096))
            os.fdatasync(probe.fileno())
            longest = max(longest, time.perf_counter() - begun)
    return longest * 1000


def _write_down(file: Path, data: bytes) -> None:
    """And have it on the disk: what is written later would wait behind it."""
    with file.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _beside_shadows(options: Options) -> list[Measure]:
    """What shadows that hang, raise and eat memory do to a reply: the same load in turn, with and without.

    One request after the other: several at once wait for each other, so as to go to the disk together, and
    that would be most of what is measured.
    """
    shadows = {name: {"policy": f"misbehaving_policies:{name}", "enabled": True} for name in BAD_SHADOWS}
    said = {"TIPBENCH_SHADOW_POLICIES": json.dumps(shadows)}
    alone: list[Load] = []
    beside: list[Load] = []
    with _serving(options.work / "alone") as one, _serving(options.work / "beside", said) as other:
        for turn in range(3 if options.quick else 9):
            bodies = _scores(2000, features=False, turn=100 + turn)
            for server, loads in ((one, alone), (other, beside)):
                loads.append(_load(options, server, "/recommend", bodies, in_flight=1))
    return [
        Measure(
            what=f"a reply beside shadows that fail over one without, {which} of {len(alone)} turns",
            value=best([one.p50_ms for one in beside]) / best([one.p50_ms for one in alone]),
            unit="×",
            bar=BESIDE_BAR,
        )
        for which, best in (("median", statistics.median), ("least", min))
    ]


def _steps() -> list[Measure]:
    """Decoding, deciding and encoding alone, in this process, as the service does it: decisions that are in
    flight together are weighed together, and one that has no company by itself. Texts have no bar.
    """
    return [
        Measure(
            what=f"decode, decide ({name}, {form}, {together} together), encode, CPU",
            value=_step_us(name, features=form == "features", together=together),
            unit="µs",
            bar=STEPS_BAR_US if form == "features" else None,
        )
        for form in ("features", "texts")
        for name in ("egreedy-v2", "hybrid")
        for together in (IN_FLIGHT, 1)
    ]


def _step_us(name: str, *, features: bool, together: int) -> float:
    served, profile = Served.of(make(name)), Profile()
    bodies = [json.dumps(body).encode() for body in _scores(10 * IN_FLIGHT, features=features)]
    groups = [bodies[place : place + together] for place in range(0, len(bodies), together)]
    decode, encode = msgspec.json.Decoder(ScoreRequest).decode, msgspec.json.Encoder().encode
    first = vectors(served.policy.features, decode(bodies[0]), profile).x[0]
    memory = served.policy.learn(served.fresh, first, np.asarray(1.0))

    def opened(body: bytes) -> Open:
        request = decode(body)
        u = draws.uniform(b"seed", request.request_id or "")
        question = Question(served, request, request.request_id or "", "d" * 32, u)
        return Open(question, profile, memory, vectors(served.policy.features, request, profile))

    def all_of(group: list[bytes]) -> list[bytes]:
        asked = [opened(body) for body in group]
        return [encode(_reply(one, choice)) for one, choice in zip(asked, choices(asked), strict=True)]

    took = []
    for _ in range(50):  # short ones, as above
        begun = time.process_time()
        for group in groups:
            all_of(group)
        took.append((time.process_time() - begun) / len(bodies) * 1e6)
    return min(took)


def _reply(one: Open, choice: Choice | TipbenchError) -> ScoreReply:
    if isinstance(choice, TipbenchError):
        raise choice
    ids = [candidate.id for candidate in one.question.request.candidates]
    return ScoreReply(
        decision_id=one.question.decision_id,
        tip_id=ids[choice.chosen],
        scores=dict(zip(ids, choice.scores, strict=True)),
        propensities=dict(zip(ids, choice.propensities, strict=True)),
        policy=one.question.served.name,
        policy_version=one.question.served.version,
        feature_version=one.question.served.policy.features,
        explored=choice.explored,
        absent=list(one.features.absent),
    )


def _scores(count: int, *, features: bool, turn: int = 0) -> list[dict[str, Any]]:
    chance = random.Random(count + turn)  # noqa: S311 - no secret
    kinds = ("focus", "break", "planning", "movement", "people")
    return [
        {
            "user_id": f"user-{chance.randrange(USERS)}",
            "request_id": f"{turn}-{features}-{number}",
            "context": {
                "hour": chance.randrange(24),
                "weekday": 2,
                "open_tasks": ["write the report", "call Ann"],
            },
            "candidates": [
                {"id": f"tip-{place}", "kind": kinds[place % 5]}
                | (
                    {"features": [round(chance.uniform(-1, 1), 4) for _ in range(D)]}
                    if features
                    else {"text": f"Write {place + 2} lines of the report, then take {place} minutes off"}
                )
                for place in range(K)
            ],
        }
        for number in range(count)
    ]


def _rewards(decisions: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"decision_id": one, "reward_id": f"r-{one}", "event": "completed" if place % 3 else "dismissed"}
        for place, one in enumerate(decisions)
    ]


@dataclass(frozen=True, kw_only=True)
class Server:
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


def _load(
    options: Options,
    server: Server,
    path: str,
    bodies: Sequence[Mapping[str, Any]],
    *,
    count: int = 0,
    in_flight: int = IN_FLIGHT,
    rate: float = 0.0,
) -> Load:
    """Send the bodies from another process, each once or until there are so many, and see what that cost the
    server.
    """
    count = count or len(bodies)
    file = options.work / f"bodies-{server.port}.jsonl"
    _write_down(file, b"".join(json.dumps(body).encode() + b"\n" for body in bodies))
    before = server.cpu_s()
    command = [
        sys.executable,
        str(HERE / "tips_load.py"),
        str(server.port),
        path,
        str(file),
        str(count),
        str(in_flight),
        str(rate),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    cpu_s = server.cpu_s() - before
    return Load(cpu_us=cpu_s / count * 1e6, count=count, **json.loads(done.stdout))


@contextmanager
def _serving(work: Path, said: Mapping[str, str] | None = None) -> Iterator[Server]:
    """The service; what is `said` by the environment may name the policies of the tests."""
    command = [*TIPBENCH, "serve", "--only", "tips", "--port", "0"]
    with _server(command, {**clean_env(work / "home", modules=ROOT / "tests"), **(said or {})}) as server:
        yield server


@contextmanager
def _echoing(work: Path) -> Iterator[Server]:
    with _server([sys.executable, str(HERE / "echo_server.py")], clean_env(work / "echo")) as server:
        yield server


@contextmanager
def _server(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Server]:
    """A server that says where it is on a line of its own."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = next(line for line in child.stdout or () if "http://" in line)
            yield Server(port=int(line.strip().rpartition(":")[2]), process=psutil.Process(child.pid))
        finally:
            child.terminate()
