"""`ship`: from the leaderboard to the app, and back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.options import AcceptLoss, Cost, CostOption, settings_options
from tipbench.cli.screen import print_json, print_rows, say, tell, typed
from tipbench.errors import BadInput
from tipbench.settings import Settings
from tipbench.workflows.hints import ledger_options

if TYPE_CHECKING:
    from tipbench.records import Shipped
    from tipbench.workflows.shipping import History


def add_to(app: typer.Typer) -> None:
    app.command("ship")(ship_command)


@settings_options("mlflow_url", "mlflow_host_header", "suite", of_experiment=True)
def ship_command(
    *,
    settings: Settings,
    experiment: Annotated[
        str | None, typer.Option("--experiment", metavar="NAME", help="ship a variant of this experiment")
    ] = None,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="ship the one that `compare` recommends, also a best guess")
    ] = False,
    cell: Annotated[
        str | None,
        typer.Option("--cell", metavar="MODEL/PROMPT", help="ship this combination, whatever its place"),
    ] = None,
    insist: Annotated[
        bool,
        typer.Option(
            "--insist", help="with --cell: ship it although no judge that can be trusted has judged it"
        ),
    ] = False,
    accept_loss: AcceptLoss = None,
    cost: CostOption = Cost.parameters,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="go back to what was shipped before; may be repeated")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="show what is shipped (as without any option)")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="show all that was shipped so far")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a benched (model, prompt) the one that the app's tips come from.

    Ships the variant that `compare` recommends: the cheapest that is close enough to the best. If that is
    only a best guess, it exits 4 and lists the variants that are tied for first: choose with --recommended
    or --cell. It is recorded in MLflow as a version of the registered model tipbench-SUITE, under the alias
    `shipped`; a running `tipbench serve` takes it up by itself.

    Example: tipbench ship --experiment tip-bench-may --recommended
    """
    from tipbench.compare.recommendation import Preferences
    from tipbench.workflows import shipping

    chooses = recommended or cell is not None or insist or accept_loss is not None
    _check(
        experiment,
        chooses=chooses or cost is not Cost.parameters,
        cell=cell,
        insist=insist,
        others=(rollback, status, history),
    )
    if history:
        _print_history(shipping.history(settings), as_json=as_json)
    elif rollback:
        _print_rolled_back(shipping.roll_back(settings), settings, as_json=as_json)
    elif experiment is None:
        _print_status(settings, as_json=as_json)
    else:
        before = _served_now()
        done = shipping.ship(
            settings,
            experiment=experiment,
            recommended=recommended,
            cell=cell,
            insist=insist,
            preferences=Preferences(accept_loss=accept_loss, cost=cost.value),
        )
        _print_shipped(done, before, settings, as_json=as_json)


def _served_now() -> Shipped | None:
    """Return what this machine serves; None if nothing is shipped or the file is damaged."""
    from tipbench.errors import StoreUnusable
    from tipbench.workflows.shipping import shipped

    try:
        return shipped()
    except StoreUnusable:
        return None


def _check(
    experiment: str | None, *, chooses: bool, cell: str | None, insist: bool, others: tuple[bool, ...]
) -> None:
    if experiment == "":
        raise BadInput("--experiment is empty; give the name of an experiment")
    if cell == "":
        raise BadInput("--cell is empty; give MODEL/PROMPT, such as qwen2.5:0.5b/v1")
    if sum(others) + (experiment is not None) > 1:
        raise BadInput("--experiment, --rollback, --status and --history exclude each other; give one")
    if experiment is None and chooses:
        raise BadInput(
            "--recommended, --cell, --insist, --accept-loss and --cost choose a variant of an --experiment; "
            "name it"
        )
    if insist and cell is None:
        raise BadInput("--insist is for a combination that you name with --cell")


def _print_shipped(done: Shipped, before: Shipped | None, settings: Settings, *, as_json: bool) -> None:
    replaced = _replaced(done, before)
    for line in done.cautions:
        tell(line)
    if as_json:
        if replaced:
            tell(replaced)
        print_json(asdict(done))
        return
    say(f"shipped {_line(done)}", style="bold")
    if replaced:
        say(f"  {replaced}")
    say(f"Next: {typed('serve')}   (its tips come from this now)")
    say(f"      {typed('ship', '--rollback', *ledger_options(settings))}   (undo it)")


def _replaced(done: Shipped, before: Shipped | None) -> str:
    """Return a line about what this machine served before, of any suite; empty if that is unchanged."""
    if before is None:
        return "" if done.replaces is None else f"replaces version {done.replaces}"
    same = (before.suite_id, before.version) == (done.suite_id, done.version)
    return "" if same else f"replaces {_line(before)}"


def _print_rolled_back(done: Shipped, settings: Settings, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
        return
    say(f"back to {_line(done)}", style="bold")
    say(f"Next: {typed('ship', '--history', *ledger_options(settings))}")


def _print_status(settings: Settings, *, as_json: bool) -> None:
    """What this machine serves, brought up to date with the ledger where that can be reached."""
    from tipbench.errors import LedgerUnreachable
    from tipbench.workflows.shipping import refreshed, shipped

    try:
        filed = refreshed(settings)
        held = filed.shipped if filed else None
    except LedgerUnreachable as error:
        held = shipped()
        tell(f"{error}; this is what this machine serves meanwhile")
    if as_json:
        print_json(asdict(held) if held else None)
    elif held is None:
        say("nothing is shipped yet", style="bold")
        say(f"Next: {typed('ship', '--experiment', 'NAME', *ledger_options(settings))}")
    else:
        say(_line(held), style="bold")
        say(f"  shipped {_when(held)} ({held.because}), of experiment {held.experiment}")
        for line in held.cautions:
            tell(line)


def _line(one: Shipped) -> str:
    from tipbench.ledger.shipments import model_name

    return f"{one.combination}, {_score(one)}: version {one.version} of {model_name(one.suite_id)}"


def _score(one: Shipped) -> str:
    if one.mean is None:
        return "not judged"
    interval = "" if one.low is None or one.high is None else f" ({one.low:.2f} to {one.high:.2f})"
    return f"{one.mean:.2f}{interval}"


def _print_history(found: History, *, as_json: bool) -> None:
    states = {one.version: _state(found, one.version) for one in found.versions}
    if as_json:
        print_json([{**asdict(one), "state": states[one.version]} for one in found.versions])
        return
    if not found.versions:
        say("nothing is shipped yet", style="bold")
        return
    rows = [
        (
            str(one.version),
            states[one.version],
            *one.names,
            _score(one),
            one.because,
            one.experiment,
            _when(one),
        )
        for one in found.versions
    ]
    titles = ("version", "state", "model", "prompt", "score", "because", "experiment", "shipped")
    print_rows(titles, rows, right=("version",))


def _state(found: History, version: int) -> str:
    if version == found.in_use:
        return "shipped"
    return "before" if version in found.before else "not in use"


def _when(one: Shipped) -> str:
    moment = datetime.fromtimestamp(one.shipped_ms / 1000, timezone.utc)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
