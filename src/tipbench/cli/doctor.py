"""`doctor`: what is there, what is missing, what to type."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tipbench.cli.bench import AsJson
from tipbench.cli.options import settings_options
from tipbench.cli.screen import out, print_json, say, written
from tipbench.errors import CheckFailed
from tipbench.settings import Settings

if TYPE_CHECKING:
    import typer

    from tipbench.workflows.doctor import Finding

_MARKS = {"ok": ("ok  ", "green"), "warn": ("look", "yellow"), "bad": ("bad ", "red")}


def add_to(app: typer.Typer) -> None:
    app.command("doctor")(doctor_command)


@settings_options("models", "ollama_url", "mlflow_url", "mlflow_host_header", "max_model_b")
def doctor_command(*, settings: Settings, as_json: AsJson = False) -> None:
    """Look at what a collection needs and say what to type. Exits 4 where nothing can be run."""
    from tipbench.workflows.doctor import examine

    findings = examine(settings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _print(finding)
    bad = [finding.name for finding in findings if finding.state == "bad"]
    if bad:
        raise CheckFailed(f"not ready: {', '.join(bad)}")


def _print(finding: Finding) -> None:
    from rich.text import Text

    mark, style = _MARKS[finding.state]
    with written():
        out().print(Text.assemble((mark, style), f" {finding.name:16} {finding.detail}"), soft_wrap=True)
    if finding.fix:
        say(f"{'':22}→ {finding.fix}", style="bold")
