"""Policies side by side in a made-up world: `tipbench sim run`."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tipbench.bandit import policies as known_policies
from tipbench.bandit.draws import seed_of
from tipbench.errors import BadInput, LedgerUnreachable
from tipbench.ledger import Note, open_ledger
from tipbench.records import content_hash
from tipbench.settings import home
from tipbench.sim.draws import check_size, draw
from tipbench.sim.over_http import HttpService, agreement, simulate_over
from tipbench.sim.runner import simulate
from tipbench.sim.scenery import scenery
from tipbench.sim.world_file import load_world
from tipbench.workflows.sim_options import EXPERIMENT, SimOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tipbench.bandit.policy import Policy
    from tipbench.records import Emit
    from tipbench.settings import Settings
    from tipbench.sim.draws import Draws
    from tipbench.sim.intervals import Interval
    from tipbench.sim.trace import Curve, Trace

Decide: TypeAlias = "Callable[[Policy, Draws], Trace]"

SERVE_SEED = b"tipbench simulates"


@dataclass(frozen=True, kw_only=True)
class SimRow:
    """What came of one policy. Regret is per round; its interval is None on one seed."""

    policy: str
    version: str
    regret: float
    interval: Interval | None
    reward: float
    personas: dict[str, float]
    curve: Curve
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SimReport:
    """Every policy in the order asked for, and what should be known beside the numbers."""

    world: str
    world_hash: str
    title: str
    seeds: list[int]
    users: int
    rounds: int
    rows: list[SimRow]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_simulation(options: SimOptions, *, emit: Emit) -> SimReport:
    """All policies in the same world: the same users, contexts and reward coins for each."""
    policies = the_policies(options.policies)
    seed = serve_seed(options.serve_seed)
    world = load_world(options.world)
    check_size(world, seeds=options.seeds, users=options.users, rounds=options.rounds)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    draws = draw(scenery(world), seeds=seeds, users=options.users, rounds=options.rounds)
    rows: list[SimRow] = []
    notes: list[str] = []
    emit({"event": "to_simulate", "policies": [one.name for one in policies], "total": options.rounds})
    with _decider(options, seed, emit) as decide:
        for policy in policies:
            started = time.perf_counter()
            trace = decide(policy, draws)
            rows.append(_row(trace, time.perf_counter() - started))
            notes += trace.notes
            notes += _compared_with_process(trace, policy, options, seed)
    return SimReport(
        world=world.id,
        world_hash=world.hash,
        title=world.title,
        seeds=list(draws.seeds),
        users=options.users,
        rounds=options.rounds,
        rows=rows,
        notes=notes,
    )


def the_policies(names: Sequence[str]) -> list[Policy]:
    """The policies of these names, or a BadInput for the first that is not there or is named twice."""
    if not names:
        raise BadInput("--policies names nothing; give one or more names separated by commas")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"--policies: {', '.join(twice)} is named twice")
    return [known_policies.make(name) for name in names]


def serve_seed(text: str) -> bytes:
    """What a service explores by that was started with this text as TIPBENCH_SERVE_SEED; empty is the
    simulation's own.
    """
    return seed_of(text) if text else SERVE_SEED


@contextmanager
def _decider(options: SimOptions, seed: bytes, emit: Emit) -> Iterator[Decide]:
    """Who decides: the policy's own code here, or a service for as long as the connection is open."""
    if not options.url:
        yield lambda policy, draws: simulate(
            policy, draws, serve_seed=seed, tick=ticking(emit, policy.name, draws.shape[0])
        )
        return
    run = f"sim-{secrets.token_hex(4)}"
    with HttpService.at(options.url, token=options.token) as service:
        yield lambda policy, draws: simulate_over(
            service, policy, draws, run=run, tick=ticking(emit, policy.name, draws.shape[0])
        )


def ticking(emit: Emit, policy: str, rounds: int) -> Callable[[int], None]:
    """Tells of every tenth round, and of the last."""

    def tick(done: int) -> None:
        if done % 10 == 0 or done == rounds:
            emit({"event": "simulated", "policy": policy, "done": done, "total": rounds})

    return tick


def _compared_with_process(trace: Trace, policy: Policy, options: SimOptions, seed: bytes) -> list[str]:
    """What a run over HTTP should be compared with, where that is possible."""
    if not options.url:
        return []
    if not options.serve_seed:
        said = (
            f"{policy.name}: the service explores by a seed of its own, so its choices differ from those in "
            "process; start it with TIPBENCH_SERVE_SEED and give that as --serve-seed to compare them"
        )
        return [said]
    same = agreement(trace, simulate(policy, trace.draws, serve_seed=seed))
    hint = "" if same == 1 else "; was it started with this seed, and with this version of the policy?"
    return [f"{policy.name}: the service chose as in process in {100 * same:.4g} % of the decisions{hint}"]


def _row(trace: Trace, seconds: float) -> SimRow:
    return SimRow(
        policy=trace.policy,
        version=trace.version,
        regret=float(trace.by_seed().mean()),
        interval=trace.summary(),
        reward=float(trace.reward.mean()),
        personas={name: float(values.mean()) for name, values in trace.by_persona().items()},
        curve=trace.curve(),
        seconds=seconds,
    )


def record_simulation(report: SimReport, settings: Settings, *, emit: Emit) -> list[str]:
    """A run for each policy in the experiment `tip-sim-WORLD`, with its regret curve; the ids of the runs.

    A ledger that cannot be reached is told, and costs nothing but the record.
    """
    ledger = open_ledger(settings.mlflow_url, home=home(), host_header=settings.mlflow_host_header)
    try:
        return [ledger.note(f"{EXPERIMENT}{report.world}", _note(report, row)) for row in report.rows]
    except LedgerUnreachable as error:
        emit({"event": "notice", "message": f"not recorded: {error}"})
        return []


def _note(report: SimReport, row: SimRow) -> Note:
    now = time.time_ns() // 1_000_000
    about = {
        "policy": row.policy,
        "policy_version": row.version,
        "world": report.world,
        "world_hash": report.world_hash,
        "seeds": f"{report.seeds[0]}..{report.seeds[-1]}",
        "users": str(report.users),
        "rounds": str(report.rounds),
    }
    return Note(
        kind="simulation",
        key=content_hash([about, row.regret, now])[:32],
        name=f"{row.policy} on {report.world}",
        started_ms=now - int(1000 * row.seconds),
        ended_ms=now,
        params=about,
        metrics=_metrics(row),
        curves=curves_of(row.curve),
    )


def _metrics(row: SimRow) -> dict[str, float]:
    metrics = {"regret": row.regret, "reward": row.reward}
    metrics |= {f"regret_{name}": value for name, value in row.personas.items()}
    if row.interval is not None:
        metrics |= {"regret_low": row.interval.low, "regret_high": row.interval.high}
    return metrics


def curves_of(curve: Curve, prefix: str = "") -> dict[str, list[tuple[int, float]]]:
    """A regret curve and its band, if it has one, as MLflow draws them: the regret per round up to there."""
    means = [(end, mean) for end, mean, _, _ in curve]
    lows = [(end, low) for end, _, low, _ in curve if low is not None]
    highs = [(end, high) for end, _, _, high in curve if high is not None]
    found = {"regret_so_far": means, "regret_so_far_low": lows, "regret_so_far_high": highs}
    return {f"{prefix}{name}": points for name, points in found.items() if points}
