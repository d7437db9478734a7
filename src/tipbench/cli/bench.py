"""`collect` and `try`: generating cells."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli.options import settings_options
from tipbench.cli.progress import follow
from tipbench.cli.screen import count, err, heading, print_json, print_rows, say, tell, typed
from tipbench.engine.memory import readable
from tipbench.errors import Interrupted, LedgerUnreachable, Unavailable
from tipbench.settings import Settings
from tipbench.text import has_login, without_login
from tipbench.workflows.hints import ledger_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.records import Candidate, CellResult, Event
    from tipbench.workflows.collect import Summary
    from tipbench.workflows.estimate import Estimate

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
TRY_SETTINGS = (
    "n_tips", "temperature", "max_model_b", "ollama_url", "suite", "seed", "engine", "num_ctx", "num_predict",
    "keep_alive", "gguf", "assume_size", "pull", "evict", "wait", "timeout", "retries",
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
        typer.Option(
            "--dry-run",
            help="show the plan (cells, calls, minutes, memory, visible differences); generate nothing",
        ),
    ] = False,
    as_json: AsJson = False,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="append progress to FILE as JSON lines")
    ] = None,
) -> None:
    """Generate every cell (model × prompt × scenario) once, one model in memory, and record it in MLflow.

    Run the same command again after an interruption: it goes on where it stopped.

    Example: tipbench collect --models qwen2.5:0.5b,gemma3:1b --prompts v1 --experiment tip-bench-may
    """
    from tipbench.workflows.collect import collect
    from tipbench.workflows.estimate import estimate
    from tipbench.workflows.interrupt import end_process

    if dry_run:
        with follow(events=events, quiet=as_json) as emit:
            plan = estimate(settings, emit=emit)
        print_json(plan.as_json()) if as_json else _print_estimate(plan)
        return
    summaries: list[Event] = []

    def show_json() -> None:
        if as_json and summaries:
            print_json({name: value for name, value in summaries[-1].items() if name != "event"})

    try:
        with follow(events=events, quiet=as_json and not err().is_terminal) as emit:

            def listen(event: Event) -> None:
                if event["event"] == "summary":
                    summaries.append(event)
                emit(event)

            summary = collect(settings, emit=listen, command=_typed_again())
    except Interrupted as error:
        show_json()
        tell(f"tipbench: {error}")
        end_process(error.exit_code)
    except BaseException:
        show_json()  # what was done is told before why it ended
        raise
    show_json()
    if not as_json:
        _print_summary(summary, settings)
    _check_recorded(summary, settings)
    if summary.cells.failed:
        raise typer.Exit(1)


def _typed_again() -> str:
    """The command line of this process, without the logins in its addresses, and a line that names them."""
    addresses = {argument: without_login(argument) for argument in sys.argv[1:] if "://" in argument}
    command = typed(*(addresses.get(argument, argument) for argument in sys.argv[1:]))
    without = [shown.rpartition("=")[2] for given, shown in addresses.items() if has_login(given)]
    if not without:
        return command
    return f"{command}\nthe login of {' and '.join(without)} is left out above: type it again"


def _check_recorded(summary: Summary, settings: Settings) -> None:
    """Print why cells or marks still wait. Raises Unavailable if MLflow did not take them."""
    from tipbench.workflows.backlog import what_waits

    if not summary.unrecorded and not summary.unrecorded_marks:
        return
    cells = what_waits(summary.unrecorded, summary.unrecorded_marks)
    later = typed("sync", *ledger_options(settings))
    match summary.unrecorded_because:
        case "offline":
            tell(f"{cells} kept on this disk, as --offline asks; record them with: {later}")
        case "busy":
            tell(f"{cells} not recorded yet, another tipbench records them; see that it has: {later}")
        case "refused":
            raise Unavailable(f"{cells} kept on this disk, MLflow does not take them; once mended: {later}")
        case _:
            raise LedgerUnreachable(f"{cells} kept on this disk until the ledger can be reached: {later}")


def _print_summary(summary: Summary, settings: Settings) -> None:
    cells = summary.cells
    say(
        f"{summary.experiment}: {count(cells.done, 'cell')} generated, {cells.skipped} were there, "
        f"{cells.failed} failed, in {summary.wall_s:.0f} s",
        style="bold",
    )
    for model in summary.models:
        if model.loads:
            loads = f"{count(model.loads, 'load')} in {model.load_s:.1f} s"
            first = summary.marks.get(model.name, {}).get("first-call", 0)
            cold = f", {count(first, 'first call')} after a load" if first else ""
            say(f"  {model.name}: {loads}, peak {readable(model.peak_bytes)}{cold}")
    for fault in summary.faults:
        say(f"  {fault}", style="yellow")
    if summary.max_resident:
        say(f"  at most {count(summary.max_resident, 'model')} in memory at a time, as the host reported it")
    if not summary.unrecorded and (cells.done or cells.skipped):
        say(f"  recorded in {summary.ledger}")
        say(f"Next: {typed('experiments', summary.experiment, *ledger_options(settings))}")


def _print_estimate(plan: Estimate) -> None:
    rows = [
        (
            model.name,
            f"{(model.parameters or 0) / 1e6:,.0f}M",
            str(model.cells),
            f"{model.minutes:.1f}",
            readable(model.needs_bytes),
        )
        for model in plan.models
    ]
    numbers = ("parameters", "cells", "minutes", "memory")
    print_rows(("model", *numbers), rows, right=numbers)
    say(
        f"{plan.experiment}: {count(plan.cells, 'cell')} to generate in {count(plan.calls, 'call')}, "
        f"{plan.skipped} done before; about {plan.minutes:.1f} minutes ({plan.basis})"
    )
    say(f"memory: {readable(plan.peak_bytes)} at most, {readable(plan.free_bytes)} is free here")
    if plan.power is not None:
        say(str(plan.power))
    for long in plan.long_prompts:
        tell(f"prompt {long.prompt} {long}: {long.remedy}, or shorten the prompt")


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
    from tipbench.workflows.trial import try_cell

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
        "marks": list(result.marks),
        "error": result.error,
        "metrics": result.metrics,
    }


def _print_result(result: CellResult, *, show_prompt: bool) -> None:
    cell = result.cell
    heading(f"{cell.model.name} × {cell.prompt_id} × {cell.scenario_id}")
    for message in result.messages if show_prompt else ():
        say(message.role, style="dim")
        say(message.content)
    if result.completion is None or result.reading is None:
        tell(f"failed: {result.error}")
        return
    say("as it came", style="dim")
    say(result.completion.text)
    say(
        f"as it was read ({result.reading.how})"
        + (f", {result.completion.cut} cut" if result.completion.cut else "")
        + "".join(f", {mark}" for mark in result.marks),
        style="dim",
    )
    print_candidates(result.candidates)
    say(metrics_line(result.metrics), style="dim")


def print_candidates(candidates: Sequence[Candidate]) -> None:
    for number, candidate in enumerate(candidates, start=1):
        say(f"{number}. {candidate.text}" + ("  (overlong)" if candidate.overlong else ""))
    if not candidates:
        say("nothing could be read from it")


def metrics_line(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {round(value, 2):g}" for name, value in metrics.items())
