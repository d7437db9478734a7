"""`collect` and `try`: generating cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.options import settings_options
from tipbench.cli.progress import follow
from tipbench.cli.screen import command, err, out, print_json
from tipbench.engine.memory import readable
from tipbench.settings import Settings
from tipbench.workflows.collect import collect
from tipbench.workflows.estimate import estimate
from tipbench.workflows.trial import try_cell

if TYPE_CHECKING:
    from tipbench.records import CellResult, Event
    from tipbench.workflows.collect import Summary
    from tipbench.workflows.estimate import Estimate

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
TRY_SETTINGS = (
    "n_tips", "temperature", "max_model_b", "ollama_url", "suite", "seed", "engine", "num_ctx", "num_predict",
    "keep_alive", "gguf", "evict", "wait", "timeout", "retries",
)  # fmt: skip


def add_to(app: typer.Typer) -> None:
    app.command("collect")(collect_command)
    app.command("try")(try_command)


@settings_options()
def collect_command(
    *,
    settings: Settings,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="show the plan (cells, calls, minutes, memory); generate nothing"),
    ] = False,
    as_json: AsJson = False,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="append progress to FILE as JSON lines")
    ] = None,
) -> None:
    """Generate every cell (model × prompt × scenario) once, one model in memory, and record it in MLflow.

    Run the same command again after an interruption: it goes on where it stopped.

    Example: `tipbench collect --models qwen2.5:0.5b,gemma3:1b --prompts v1 --experiment tip-bench-may`
    """
    if dry_run:
        with follow(events=events, quiet=as_json) as emit:
            plan = estimate(settings, emit=emit)
        print_json(plan.as_json()) if as_json else _print_estimate(plan)
        return
    summaries: list[Event] = []
    try:
        with follow(events=events, quiet=as_json and not err().is_terminal) as emit:

            def listen(event: Event) -> None:
                if event["event"] == "summary":
                    summaries.append(event)
                emit(event)

            summary = collect(settings, emit=listen)
    finally:
        # Also after an interruption or a host that went away: what was done is told before why it ended.
        if as_json and summaries:
            print_json({name: value for name, value in summaries[-1].items() if name != "event"})
    if not as_json:
        _print_summary(summary)
    if summary.cells.failed:
        raise typer.Exit(1)


def _print_summary(summary: Summary) -> None:
    cells = summary.cells
    out().print(
        f"[bold]{summary.experiment}[/]: {cells.done} cells generated, {cells.skipped} were there, "
        f"{cells.failed} failed, in {summary.wall_s:.0f} s"
    )
    for model in summary.models:
        out().print(
            f"  {model.name}: {model.loads} loads in {model.load_s:.1f} s, peak {readable(model.peak_bytes)}"
        )
    out().print(f"  at most {summary.max_resident} model in memory at a time, as the host reported it")
    if summary.unrecorded:
        err().print(f"{summary.unrecorded} cells wait on this disk for the ledger: run `tipbench sync`")
    elif cells.done or cells.skipped:
        out().print(f"  recorded in {summary.ledger}", soft_wrap=True)
        out().print(f"Next: {command()} experiments {summary.experiment}", soft_wrap=True)


def _print_estimate(plan: Estimate) -> None:
    from rich.table import Table

    table = Table("model", "parameters", "cells", "minutes", "memory", title=f"{plan.experiment}: the plan")
    for model in plan.models:
        size = f"{(model.parameters or 0) / 1e9:.2f}B"
        table.add_row(model.name, size, str(model.cells), f"{model.minutes:.1f}", readable(model.needs_bytes))
    out().print(table)
    out().print(
        f"{plan.cells} cells to generate in {plan.calls} calls, {plan.skipped} done before; "
        f"about {plan.minutes:.0f} minutes ({plan.basis})"
    )
    out().print(f"memory: {readable(plan.peak_bytes)} at most, {readable(plan.free_bytes)} is free here")


@settings_options(*TRY_SETTINGS)
def try_command(
    *,
    settings: Settings,
    model: Annotated[str, typer.Option("--model", help="the model to ask")],
    prompt: Annotated[str, typer.Option("--prompt", help="the prompt version")],
    scenario: Annotated[
        str, typer.Option("--scenario", help="the scenario; the suite's first one if absent")
    ] = "",
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="print the prompt as it is sent")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Generate one cell and show it; records nothing. For writing prompts: the model stays loaded a while."""
    with follow(events=None, quiet=as_json) as emit:
        result = try_cell(settings, model=model, prompt=prompt, scenario=scenario, emit=emit)
    if as_json:
        print_json(_as_json(result))
    else:
        _print_result(result, show_prompt=show_prompt)
    if result.error is not None:
        raise typer.Exit(1)


def _as_json(result: CellResult) -> dict[str, object]:
    completion = result.completion
    return {
        "model": result.cell.model.name,
        "prompt": result.cell.prompt_id,
        "scenario": result.cell.scenario_id,
        "key": result.cell.key,
        "seed": result.cell.seed,
        "messages": [{"role": message.role, "content": message.content} for message in result.messages],
        "raw": completion.text if completion else None,
        "candidates": [{"text": c.text, "overlong": c.overlong} for c in result.candidates],
        "how": result.reading.how if result.reading else None,
        "cut": completion.cut if completion else None,
        "error": result.error,
        "metrics": result.metrics,
    }


def _print_result(result: CellResult, *, show_prompt: bool) -> None:
    cell = result.cell
    out().rule(f"{cell.model.name} × {cell.prompt_id} × {cell.scenario_id}")
    if show_prompt:
        for message in result.messages:
            out().print(f"[dim]{message.role}[/]")
            out().print(message.content, markup=False)
    if result.error is not None:
        err().print(f"failed: {result.error}", markup=False)
        return
    if result.completion is not None:
        out().print("[dim]as it came[/]")
        out().print(result.completion.text, markup=False)
    out().print(f"[dim]as it was read ({result.reading.how if result.reading else 'none'})[/]")
    for number, candidate in enumerate(result.candidates, start=1):
        out().print(
            f"{number}. {candidate.text}" + ("  (overlong)" if candidate.overlong else ""), markup=False
        )
    out().print("  ".join(f"{name} {value:.4g}" for name, value in result.metrics.items()), style="dim")
