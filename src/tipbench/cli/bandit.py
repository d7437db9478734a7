"""`bandit`: what the policies have learned and logged."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.bench import AsJson
from tipbench.cli.progress import counting
from tipbench.cli.screen import count, heading, print_json, print_rows, say, tell, written

if TYPE_CHECKING:
    from tipbench.bandit.standing import PolicyStanding, Standing

app = typer.Typer(
    help="What the policies that serve tips have learned and logged: statistics, export, upkeep.",
)


class Form(str, Enum):
    """How the log is written out."""

    jsonl = "jsonl"
    csv = "csv"


@app.command("stats")
def stats_command(
    *,
    user: Annotated[str | None, typer.Option("--user", help="this user's alone, with their weights")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how the policies stand: decisions, rewards, exploration, weights, and how shadows agree."""
    import msgspec

    from tipbench.workflows.serving_state import stats

    found = stats(user_id=user)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    _print_standing(found)


def _print_standing(found: Standing) -> None:
    titles = ("policy", "features", "decisions", "explored", "rewards", "mean reward")
    print_rows(titles, [_row(one) for one in found.policies], right=titles[2:])
    for one in found.policies:
        mean = f"mean weights of {count(one.weights_of, 'user')}"
        own = mean if found.user_id is None else f"weights of {found.user_id}"
        for whose, weights in ((own, one.weights), ("weights that all users share", one.pooled_weights)):
            if weights is not None:
                heading(f"{one.policy}: {whose}")
                print_rows(("feature", "weight"), [(name, f"{w:+.4f}") for name, w in weights.items()])
    if found.shadows:
        heading("shadows")
        rows = [
            (
                one.signal,
                str(one.decisions),
                _percent(one.agreement),
                "–" if one.dropped is None else str(one.dropped),
            )
            for one in found.shadows
        ]
        print_rows(("signal", "decisions", "agreement", "dropped"), rows)


def _row(one: PolicyStanding) -> tuple[str, ...]:
    mean = "–" if one.mean_reward is None else f"{one.mean_reward:.3f}"
    return (
        one.policy,
        one.feature_version,
        str(one.decisions),
        _percent(one.exploration_share),
        str(one.rewards),
        mean,
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


@app.command("export")
def export_command(
    *,
    out: Annotated[str, typer.Option("--out", help="the file to write; - is standard output")] = "-",
    form: Annotated[
        Form, typer.Option("--format", help="jsonl holds every candidate; csv the tip shown")
    ] = Form.jsonl,
    policy: Annotated[str, typer.Option("--policy", help="the decisions of this policy alone")] = "",
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing file")] = False,
) -> None:
    """Write every logged decision with its probability and reward, in the names of the Open Bandit Pipeline.

    A decision of which nothing was heard has no reward, which is not 0.
    """
    from tipbench.workflows.serving_state import export

    with written():
        many = export(out=out, form=form.value, policy=policy, force=force)
        tell(f"{count(many, 'decision')} written")


@app.command("migrate")
def migrate_command(
    *,
    source: Annotated[str, typer.Option("--from", help="the policy whose state is copied")] = "egreedy",
    target: Annotated[str, typer.Option("--to", help="the policy that it is copied into")] = "egreedy-v2",
    replace: Annotated[
        bool, typer.Option("--replace", help="also for users from whom the other has learned already")
    ] = False,
) -> None:
    """Copy what a policy has learned into one with more features; every weight stays as it is.

    The service may go on meanwhile. A user who has state there already keeps it.
    """
    from tipbench.workflows.serving_state import migrate

    done = migrate(source, target, replace=replace)
    say(f"{source} → {target}: {count(done.copied, 'user')} copied, {done.kept} had state there and kept it")


@app.command("compact")
def compact_command(
    *,
    keep_days: Annotated[float, typer.Option("--keep-days", help="entries of these last days are kept")] = 90,
) -> None:
    """Drop old entries of the log and give their space back; what was learned from them stays.

    The service may go on meanwhile: it is done in little pieces, with a rest after each. A reward for a
    decision that was dropped is not found any more.
    """
    from tipbench.workflows.serving_state import compact

    with counting("dropping") as far:
        gone = compact(keep_days=keep_days, tell=far)
    say(f"entries of the log that were dropped: {gone}")
