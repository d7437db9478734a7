"""`token`: who may ask the service for what."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.screen import print_json, print_rows, say, tell, typed

app = typer.Typer(help="Tokens for the service: make one, see which there are, take one away.")


class TokenRole(str, Enum):
    """What a token is good for."""

    admin = "admin"
    judge = "judge"
    service = "service"


class JudgeKind(str, Enum):
    """What a judge is."""

    human = "human"
    agent = "agent"


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Option("--name", help="whose token it is; a judge's verdicts carry the name")],
    role: Annotated[
        TokenRole,
        typer.Option("--role", help="admin may do everything, judge only judge, service only ask for tips"),
    ],
    kind: Annotated[
        JudgeKind, typer.Option("--kind", help="agent for a judge that is a program: its verdicts say so")
    ] = JudgeKind.human,
) -> None:
    """Make a token and show it, this once: only its hash is kept. It stands alone on the last line.

    Names that differ only in case, width or spaces count as the same name, and a name has letters of one
    script. Letters of one script that look alike are not detected, such as l and I, or rn and m.

    Example: TOKEN=$(tipbench token create --role judge --name anna | tail -1)
    """
    from tipbench.workflows.tokens import create_token, open_store, os_user

    with open_store() as store:
        plain = create_token(store, name=name, role=role.value, kind=kind.value, by=os_user())
    tell(
        f"a token for {name.strip()!r}, role {role.value}; it cannot be shown again. To take it away: "
        f"{typed('token', 'revoke', name.strip())}"
    )
    say(plain)


@app.command("list")
def list_(
    *,
    every: Annotated[bool, typer.Option("--all", help="those too that were revoked")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which tokens there are: whose, how each begins, when it was made and last used."""
    from tipbench.workflows.tokens import open_store

    with open_store() as store:
        tokens = store.tokens.list(revoked=every)
    if as_json:
        print_json([asdict(token) for token in tokens])
        return
    if not tokens:
        say(f"no tokens yet; make one: {typed('token', 'create', '--role', 'judge', '--name', 'NAME')}")
        return
    rows = [
        (
            token.name,
            token.role,
            f"{token.prefix}…",
            _when(token.created_ms),
            _when(token.last_used_ms, none="never"),
            *([_when(token.revoked_ms, none="")] if every else []),
        )
        for token in tokens
    ]
    print_rows(("name", "role", "begins", "made", "last used", *(["revoked"] if every else [])), rows)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="the name that the token was made with")]) -> None:
    """Take a token away, at once: whoever is logged in with it is logged out. Its name is then free."""
    from tipbench.workflows.tokens import open_store, os_user, revoke_token

    with open_store() as store:
        token = revoke_token(store, name, by=os_user())
    say(f"the token of {token.name!r} ({token.prefix}…, role {token.role}) is revoked")


def _when(moment_ms: int | None, *, none: str = "") -> str:
    if moment_ms is None:
        return none
    return datetime.fromtimestamp(moment_ms / 1000, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")
