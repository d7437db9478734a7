"""The gate from end to end: plan, simulate, controls, verdict, record. `tipbench sim gate`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tipbench.bandit import policies
from tipbench.errors import LedgerUnreachable
from tipbench.ledger import Note, open_ledger
from tipbench.settings import home
from tipbench.sim.draws import check_size, draw
from tipbench.sim.gate import GatePlan, decide
from tipbench.sim.intervals import finite
from tipbench.sim.oracle import noisy_oracle
from tipbench.sim.runner import simulate
from tipbench.sim.scenery import scenery
from tipbench.sim.trace import compared
from tipbench.sim.world_file import load_world
from tipbench.workflows import gate_files
from tipbench.workflows.off_policy import estimate_from_log
from tipbench.workflows.sim_options import EXPERIMENT, GateOptions
from tipbench.workflows.simulating import SERVE_SEED, curves_of, ticking

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.bandit.policy import Policy
    from tipbench.records import Emit
    from tipbench.settings import Settings
    from tipbench.sim.draws import Draws
    from tipbench.sim.gate import Verdict
    from tipbench.sim.ope import OffPolicy
    from tipbench.sim.trace import Trace
    from tipbench.sim.world import World

_OTHER_STREAM = b"tipbench simulates otherwise"
_FLIP_SEED = 20_260


@dataclass(frozen=True, kw_only=True)
class Gated:
    """A gate that was held. `gate_id` is None for a rehearsal, which can promote nothing."""

    gate_id: str | None
    plan: GatePlan
    verdict: Verdict
    challenger: Trace = field(repr=False)
    champion: Trace = field(repr=False)
    record: dict[str, Any] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {"gate": self.gate_id, **self.record}


def gates_folder() -> Path:
    return gate_files.the_folder()


def hold_gate(options: GateOptions, settings: Settings, *, emit: Emit) -> Gated:
    """Whether the challenger may take the champion's place.

    With `record` the plan is kept before anything is simulated and the decision is made on seeds that were
    never used; without it the gate is a rehearsal on seeds that no recorded gate uses.
    """
    started = time.time_ns() // 1_000_000
    challenger, champion = policies.make(options.challenger), policies.make(options.champion)
    world = load_world(options.world)
    check_size(world, seeds=options.seeds, users=options.users, rounds=options.rounds)
    plan = _plan(options, challenger, champion, world)
    # The log is read before the plan is kept: a log that cannot be read must not use up a gate.
    off_policy = estimate_from_log(challenger)
    if options.record:
        plan = gate_files.register(plan, gates_folder())
    draws = draw(scenery(world), seeds=plan.seeds, users=plan.users, rounds=plan.rounds)
    verdict, traces = _held(plan, draws, (challenger, champion), off_policy=off_policy, emit=emit)
    record = _record(plan, verdict, traces, started)
    gate_id = gate_files.keep(record, gates_folder()) if options.record else None
    gated = Gated(
        gate_id=gate_id,
        plan=plan,
        verdict=verdict,
        challenger=traces[0],
        champion=traces[1],
        record=record,
    )
    if gate_id is not None:
        _tell_ledger(gated, gate_id, started, settings, emit)
    return gated


def _plan(options: GateOptions, challenger: Policy, champion: Policy, world: World) -> GatePlan:
    return GatePlan(
        challenger=options.challenger,
        challenger_version=policies.version(challenger),
        champion=options.champion,
        champion_version=policies.version(champion),
        world=world.id,
        world_hash=world.hash,
        number=0,
        n=options.seeds,
        users=options.users,
        rounds=options.rounds,
        margin=options.margin,
        guardrail=options.guardrail,
    )


def _held(
    plan: GatePlan,
    draws: Draws,
    pair: tuple[Policy, Policy],
    *,
    off_policy: OffPolicy | None,
    emit: Emit,
) -> tuple[Verdict, tuple[Trace, Trace]]:
    import numpy as np

    challenger, champion = pair

    def run(name: str, policy: Policy, stream: bytes = SERVE_SEED) -> Trace:
        return simulate(policy, draws, serve_seed=stream, tick=ticking(emit, name, plan.rounds))

    twins = f"{plan.champion} again"
    names = [plan.champion, plan.challenger, twins, "random"]
    emit({"event": "to_simulate", "policies": list(dict.fromkeys(names)), "total": plan.rounds})
    old, new = run(plan.champion, champion), run(plan.challenger, challenger)
    twin = run(twins, champion, _OTHER_STREAM)
    chance = run("random", policies.make("random"))
    verdict = decide(
        plan,
        compared(plan.challenger, new, old),
        twin=compared("twin", twin, old),
        chance=compared("random", chance, old),
        oracle=None if draws.is_null else compared("oracle", noisy_oracle(draws), old),
        rng=np.random.default_rng([_FLIP_SEED, plan.number]),
        off_policy=off_policy,
    )
    return verdict, (new, old)


def _record(plan: GatePlan, verdict: Verdict, traces: tuple[Trace, Trace], started_ms: int) -> dict[str, Any]:
    """All there is to know of a gate, as JSON holds it."""
    record = {
        "form": 1,
        "held_ms": started_ms,
        "tipbench": version("tipbench"),
        "numpy": version("numpy"),
        "outcome": verdict.outcome,
        "passed": verdict.passed,
        "rehearsal": plan.number == 0,
        "plan": {**asdict(plan), "level": plan.level, "seeds": list(plan.seeds)},
        "verdict": asdict(verdict),
        "regret": {
            "challenger": float(traces[0].by_seed().mean()),
            "champion": float(traces[1].by_seed().mean()),
        },
        "curves": {"challenger": traces[0].curve(), "champion": traces[1].curve()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(finite(record)))
    return plain


def _tell_ledger(gated: Gated, gate_id: str, started_ms: int, settings: Settings, emit: Emit) -> None:
    """Also in MLflow. The gate is kept on this disk already, so a ledger that is away costs no gate."""
    plan, verdict = gated.plan, gated.verdict
    note = Note(
        kind="gate",
        key=gate_id,
        name=f"gate {plan.number}: {plan.challenger} against {plan.champion}",
        started_ms=started_ms,
        ended_ms=time.time_ns() // 1_000_000,
        params={name: str(value) for name, value in asdict(plan).items()},
        metrics={
            "gain": verdict.overall.mean,
            "gain_low": verdict.overall.low,
            "gain_high": verdict.overall.high,
            "false_pass_rate": verdict.false_pass_rate,
            "passed": float(verdict.passed),
        },
        curves={
            **curves_of(gated.challenger.curve(), "challenger_"),
            **curves_of(gated.champion.curve(), "champion_"),
        },
        tags={"tipbench.gate": gate_id, "tipbench.outcome": verdict.outcome},
        texts={"gate.json": json.dumps(gated.record, ensure_ascii=False, indent=1)},
    )
    ledger = open_ledger(settings.mlflow_url, home=home(), host_header=settings.mlflow_host_header)
    try:
        ledger.note(f"{EXPERIMENT}{plan.world}", note)
    except LedgerUnreachable as error:
        emit({"event": "notice", "message": f"kept on this disk, but not recorded in MLflow: {error}"})
