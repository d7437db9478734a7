"""`promote`: which policy serves, and what takes its place."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.screen import heading, print_json, print_rows, say
from tipbench.errors import BadInput
from tipbench.settings import Settings

if TYPE_CHECKING:
    from tipbench.bandit.canary import Finding
    from tipbench.workflows.promoting import Promotion


def add_to(root: typer.Typer) -> None:
    root.command("promote")(promote_command)


def promote_command(
    *,
    policy: Annotated[str, typer.Argument(help="the policy to promote")] = "",
    gate: Annotated[str, typer.Option("--gate", metavar="GATE_ID", help="the gate that it has won")] = "",
    canary: Annotated[
        float, typer.Option("--canary", help="the share of users who get it while it is watched")
    ] = 0.1,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="go back to what the active policy replaced")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="which policy serves, and how the canary stands")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Promote a policy that has won its gate: first for a share of the users, then for all.

    A running service notices within a second. While it is a canary, reward, dismissals, slow decisions and
    failures are compared with those of the policy that serves everybody else; it is rolled back by itself
    when it is shown to be worse, and completed when it is shown not to be. Exits 4 when it is refused.

    Example: tipbench promote egreedy-v2 --gate 0123456789abcdef
    """
    from tipbench.workflows import promoting
    from tipbench.workflows.tokens import os_user

    _check_asked(policy, gate, rollback=rollback, status=status)
    settings = Settings.of({})
    if rollback:
        promoting.roll_back(settings, by=os_user())
    elif policy:
        promoting.promote(settings, policy, gate, by=os_user(), canary=canary)
    found = promoting.status(settings)
    if as_json:
        print_json(found.as_dict())
    else:
        _print_status(found)


def _check_asked(policy: str, gate: str, *, rollback: bool, status: bool) -> None:
    if [bool(policy), rollback, status].count(True) != 1:
        raise BadInput("name a policy to promote, or give --rollback or --status: one of them")
    if bool(policy) is not bool(gate):
        raise BadInput("a policy is promoted through a gate that it has won: promote POLICY --gate GATE_ID")


def _print_status(found: Promotion) -> None:
    active = found.active
    if active.on_trial:
        rest = f"{active.replaced} serves the others"
        say(f"{active.policy} is a canary for {100 * active.share:.4g} % of the users; {rest}")
    else:
        say(f"{active.policy} serves everybody")
    if found.canary is not None:
        say(f"{found.canary.ruling}: {found.canary.reason}")
        rows = [_finding(one) for one in found.canary.findings]
        print_rows(("metric", "new", "old", "difference", "interval", "margin"), rows)
    if found.history:
        heading("what was done")
        steps = [
            (_moment(one.ms), one.what, one.policy, one.against, one.by, one.gate, one.reason)
            for one in found.history
        ]
        print_rows(("when", "what", "policy", "against", "by", "gate", "because"), steps)


def _finding(one: Finding) -> tuple[str, ...]:
    means = [
        "–" if seen.mean is None else f"{seen.mean:.4f} ({seen.count}, {seen.users} users)"
        for seen in (one.new, one.old)
    ]
    if one.difference is None or one.low is None or one.high is None:
        return one.metric, *means, "–", "–", f"{one.margin:g}"
    return (
        one.metric,
        *means,
        f"{one.difference:+.4f}",
        f"{one.low:+.4f} to {one.high:+.4f}",
        f"{one.margin:g}",
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
