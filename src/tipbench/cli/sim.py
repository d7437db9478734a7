"""`sim` and `ope`: policies in a made-up world, the gate, and what the log says."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.options import settings_options
from tipbench.cli.progress import events_file, plain_bars
from tipbench.cli.screen import count, err, print_json, print_rows, say, tell
from tipbench.errors import CheckFailed
from tipbench.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.records import Emit, Event
    from tipbench.sim.intervals import Interval
    from tipbench.sim.ope import OffPolicy
    from tipbench.workflows.gating import Gated
    from tipbench.workflows.simulating import SimReport

app = typer.Typer(help="Try policies in a made-up world, and hold the gate that a challenger must win.")

_Seeds = Annotated[int, typer.Option("--seeds", help="worlds drawn; intervals are over these")]
_Users = Annotated[int, typer.Option("--users", help="people in each world")]
_Rounds = Annotated[int, typer.Option("--rounds", help="tips shown to each person")]
_Events = Annotated[
    str | None, typer.Option("--events", metavar="FILE", help="append progress to FILE as JSON lines")
]
_World = Annotated[str, typer.Option("--world", help="tip, drift, null, or the path of a world's file")]


def add_to(root: typer.Typer) -> None:
    root.add_typer(app, name="sim")
    root.command("ope")(ope)


@app.command("run")
@settings_options("mlflow_url", "mlflow_host_header")
def run(
    *,
    settings: Settings,
    policies: Annotated[
        str,
        typer.Option("--policies", metavar="NAME,…", help="policies by name, or as package.module:factory"),
    ] = "egreedy,egreedy-v2,linucb,hybrid",
    world: _World = "tip",
    seeds: _Seeds = 20,
    first_seed: Annotated[int, typer.Option("--first-seed", min=0, help="the seed of the first world")] = 0,
    users: _Users = 40,
    rounds: _Rounds = 300,
    url: Annotated[
        str, typer.Option("--url", help="let the policies of a live service decide, over HTTP")
    ] = "",
    token: Annotated[
        str, typer.Option("--token", envvar="TIPBENCH_TOKEN", help="with --url: a service token")
    ] = "",
    serve_seed: Annotated[
        str,
        typer.Option(
            "--serve-seed",
            metavar="TEXT",
            help="explore as a service with this TIPBENCH_SERVE_SEED does; with --url: compare with it",
        ),
    ] = "",
    record: Annotated[bool, typer.Option("--record/--no-record", help="keep the curves in MLflow")] = True,
    as_json: AsJson = False,
    events: _Events = None,
) -> None:
    """Run policies in the same made-up world and compare their regret.

    Regret is what the best candidate could be expected to earn, less the one that was shown. The world is
    synthetic: it shows what a policy can learn, not what people will do.

    Example: tipbench sim run --policies egreedy,hybrid --seeds 10 --world drift
    """
    _one_thread()
    from tipbench.workflows.sim_options import SimOptions
    from tipbench.workflows.simulating import record_simulation, run_simulation

    options = SimOptions(
        policies=tuple(name.strip() for name in policies.split(",") if name.strip()),
        world=world,
        seeds=seeds,
        first_seed=first_seed,
        users=users,
        rounds=rounds,
        url=url,
        token=token,
        serve_seed=serve_seed,
    )
    with _following(events) as emit:
        report = run_simulation(options, emit=emit)
        runs = record_simulation(report, settings, emit=emit) if record else []
    if as_json:
        print_json({**report.as_dict(), "runs": runs})
        return
    _print_report(report)


@app.command("gate")
@settings_options("mlflow_url", "mlflow_host_header")
def gate(
    *,
    settings: Settings,
    challenger: Annotated[str, typer.Option("--challenger", help="the policy that wants to be promoted")],
    champion: Annotated[str, typer.Option("--champion", help="the policy it must beat")] = "egreedy",
    world: _World = "tip",
    margin: Annotated[
        float, typer.Option("--margin", help="by how much its regret per round must be lower, at least")
    ] = 0.0,
    guardrail: Annotated[
        float, typer.Option("--guardrail", help="by how much it may be worse for any one persona, at most")
    ] = 0.02,
    seeds: _Seeds = 20,
    users: _Users = 40,
    rounds: _Rounds = 300,
    record: Annotated[
        bool, typer.Option("--record", help="decide: on fresh seeds, kept for good; else it is a rehearsal")
    ] = False,
    as_json: AsJson = False,
    events: _Events = None,
) -> None:
    """Hold the gate: exits 0 when the challenger passed, 4 when it was refused or the gate is void.

    Three controls run inside every gate: the champion against itself and picking at random must be refused, a
    noisy oracle must pass. Every recorded gate against the same champion makes the next one stricter.

    Example: tipbench sim gate --challenger egreedy-v2 --champion egreedy --record
    """
    _one_thread()
    from tipbench.workflows.gating import hold_gate
    from tipbench.workflows.sim_options import GateOptions

    options = GateOptions(
        challenger=challenger,
        champion=champion,
        world=world,
        margin=margin,
        guardrail=guardrail,
        seeds=seeds,
        users=users,
        rounds=rounds,
        record=record,
    )
    with _following(events) as emit:
        gated = hold_gate(options, settings, emit=emit)
    if as_json:
        print_json(gated.as_dict())
    else:
        _print_gate(gated)
    if not gated.verdict.passed:
        raise CheckFailed(gated.verdict.reason)


def ope(
    *,
    challenger: Annotated[str, typer.Option("--challenger", help="the policy to judge by the log")],
    since: Annotated[
        str, typer.Option("--since", help="only what was served since: 24h, 7d, 2w, or a date (2026-05-31)")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Estimate from the logged decisions what another policy would have earned.

    The policy learns from the older half of the log, is frozen, and is judged by the newer half. With too
    small an effective sample the log says nothing. Exits 4 when the log speaks against the policy.

    Example: tipbench ope --challenger egreedy-v2 --since 7d
    """
    _one_thread()
    from tipbench.workflows.off_policy import ask_log

    found = ask_log(challenger, since=since)
    if as_json:
        print_json(found.as_dict())
    else:
        say(f"{found.stance}: {found.reason}.")
        _print_off_policy(found)
    if found.stance == "veto":
        raise CheckFailed(f"{challenger}: {found.reason}")


def _one_thread() -> None:
    """Arrays here are many and small: threads of the linear algebra would only wait for each other."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def _following(events: str | None) -> Iterator[Emit]:
    """Progress on standard error, and in the file of `--events` where one is given."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(_bars()) if err().is_terminal else _line]
        if events is not None:
            listeners.append(stack.enter_context(events_file(events)))

        def emit(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield emit


@contextmanager
def _bars() -> Iterator[Emit]:
    """A bar for each policy."""
    with plain_bars() as progress:
        tasks = {}

        def show(event: Event) -> None:
            if event["event"] == "notice":
                tell(event["message"])
            elif event["event"] == "simulated":
                if event["policy"] not in tasks:
                    tasks[event["policy"]] = progress.add_task(event["policy"], total=event["total"])
                progress.update(tasks[event["policy"]], completed=event["done"])

        yield show


def _line(event: Event) -> None:
    """A line when a policy is done."""
    if event["event"] == "notice":
        tell(event["message"])
    elif event["event"] == "simulated" and event["done"] == event["total"]:
        tell(f"{event['policy']}: {count(event['total'], 'round')} done")


def _print_report(report: SimReport) -> None:
    say(
        f"{report.world} ({report.title}): {count(len(report.seeds), 'seed')}, "
        f"{count(report.users, 'user')}, {count(report.rounds, 'round')}; "
        "regret per round, with its 95 % interval over seeds"
    )
    personas = list(report.rows[0].personas)
    rows = [
        (
            row.policy,
            f"{row.regret:.4f}",
            _bounds(row.interval) if row.interval else "–",
            f"{row.reward:.3f}",
            *(f"{row.personas[name]:.4f}" for name in personas),
        )
        for row in report.rows
    ]
    print_rows(
        ("policy", "regret", "interval", "reward", *personas), rows, right=("regret", "reward", *personas)
    )
    for note in report.notes:
        tell(note)


def _print_gate(gated: Gated) -> None:
    plan, verdict = gated.plan, gated.verdict
    say(verdict.reason, style="bold")
    kind = f"gate {gated.gate_id}, number {plan.number}" if gated.gate_id else "rehearsal; --record decides"
    size = f"{count(plan.n, 'seed')} × {count(plan.users, 'user')} × {count(plan.rounds, 'round')}"
    say(f"{kind}; {size}; intervals of {100 * (1 - plan.level):.4g} %")
    rows = [_gain("all", verdict.overall, f"> {plan.margin:g}")]
    rows += [_gain(name, each, f"> -{plan.guardrail:g}") for name, each in verdict.personas.items()]
    print_rows(("regret lower by", "mean", "interval", "needed"), rows, right=("mean",))
    for control in verdict.controls:
        say(f"{'ok  ' if control.held else 'FAIL'} {control.sentence} ({control.overall})")
    if verdict.off_policy is not None:
        say(f"the log: {verdict.off_policy.stance}: {verdict.off_policy.reason}")
        _print_off_policy(verdict.off_policy)


def _gain(name: str, each: Interval, needed: str) -> tuple[str, str, str, str]:
    return name, f"{each.mean:.4f}", _bounds(each), needed


def _bounds(each: Interval) -> str:
    """As a dash where nothing can be said."""
    return f"{each.low:.4f} to {each.high:.4f}" if math.isfinite(each.high - each.low) else "–"


def _print_off_policy(found: OffPolicy) -> None:
    if found.logged is None:
        return
    rows = [
        (name, f"{each.mean:.4f}", _bounds(each))
        for name, each in (
            ("as served", found.logged),
            ("SNIPS", found.snips),
            ("doubly robust", found.doubly_robust),
            ("gain", found.gain),
        )
        if each is not None
    ]
    print_rows(("mean reward", "estimate", "95 % interval"), rows, right=("estimate",))
    by = f"{count(found.n, 'decision')} of {count(found.users, 'user')}"
    say(f"{by}, effective sample size {found.effective:.0f}")
