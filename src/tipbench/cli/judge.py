"""`judge`: blinded batches out, verdicts in, and how far both can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from tipbench.cli import anchors
from tipbench.cli.bench import AsJson
from tipbench.cli.calibrations import number, print_assisted, print_calibration
from tipbench.cli.options import settings_options
from tipbench.cli.progress import follow
from tipbench.cli.screen import count, heading, print_json, print_rows, say, tell, typed
from tipbench.errors import BadInput, CheckFailed
from tipbench.settings import Settings
from tipbench.workflows.hints import ledger_options, suite_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.judge.filled_file import JudgeFile
    from tipbench.workflows.applying import Applied
    from tipbench.workflows.exporting import Order, Written
    from tipbench.workflows.judge_status import JudgeState, JudgeStatus, RejectedBatch

LEDGER = ("experiment", "mlflow_url", "mlflow_host_header")
AUTO = (
    *LEDGER, "suite", "ollama_url", "max_model_b", "engine", "gguf", "assume_size", "keep_alive", "pull",
    "evict", "wait", "timeout", "retries", "unload_timeout",
)  # fmt: skip

app = typer.Typer()
app.add_typer(anchors.app, name="anchors")


@app.callback(invoke_without_command=True)
@settings_options(*LEDGER, "suite", of_experiment=True)
def judge_command(
    *,
    ctx: typer.Context,
    settings: Settings,
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="FILE", help="short for: judge export --all --out FILE"),
    ] = None,
    apply: Annotated[
        str | None, typer.Option("--apply", metavar="FILE", help="short for: judge apply FILE")
    ] = None,
) -> None:
    """Judge candidates blind: export a batch, score it, apply it; or let an agent or a model do it."""
    typed_here = [param.opts[0] for param in ctx.command.params if _is_typed(ctx, param.name)]
    if ctx.invoked_subcommand is not None:
        _check_alone(typed_here, ctx.invoked_subcommand)
        return
    if export is not None and apply is not None:
        raise BadInput(
            "--export and --apply exclude each other: export first, fill in the file, then apply it"
        )
    if export is not None:
        from tipbench.workflows.exporting import Order

        _export(settings, Order(every=True), out=export, one_file=True)
    elif apply is not None:
        _apply(settings, [apply], experiment=settings.experiment if "--experiment" in typed_here else None)
    else:
        commands = ", ".join(getattr(ctx.command, "commands", {}))
        raise BadInput(
            f"judge needs a command: {commands}; or --export FILE or --apply FILE; see "
            f"`{typed('judge', '--help')}`"
        )


def _check_alone(options: Sequence[str], subcommand: str) -> None:
    """Refuse options before a subcommand: they would have no effect."""
    if {"--export", "--apply"} & {*options}:
        shorts = next(option for option in options if option in {"--export", "--apply"})
        raise BadInput(
            f"{shorts} cannot be combined with the subcommand {subcommand!r}; leave one of them out"
        )
    if options:
        raise BadInput(f"put {options[0]} behind {subcommand!r}: tipbench judge {subcommand} {options[0]} …")


def _is_typed(ctx: typer.Context, name: str | None) -> bool:
    """Whether an option was typed, and is not a default or from the environment."""
    source = ctx.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


class Kind(str, Enum):
    """Who fills in a batch."""

    human = "human"
    agent = "agent"


Force = Annotated[bool, typer.Option("--force", help="overwrite an existing file")]
Size = Annotated[int, typer.Option("--size", min=3, max=60, help="items in a batch, checks included")]
TipsPerCell = Annotated[
    int, typer.Option("--tips-per-cell", min=0, help="judge only the first so many of each cell; 0 is all")
]
Race = Annotated[bool, typer.Option("--race", help="leave out combinations that are clearly behind the best")]
JudgeName = Annotated[
    str, typer.Option("--judge", metavar="NAME", help="for whom: the batch then comes back from nobody else")
]


@app.command("export")
@settings_options(*LEDGER, "suite", experiment_argument=True, of_experiment=True)
def export_command(
    *,
    settings: Settings,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="FILE",
            help="the file to write; with --all and a name without .json: a folder, one file for each batch",
        ),
    ] = "batch.json",
    judge: JudgeName = "",
    kind: Annotated[Kind, typer.Option("--kind", help="what the judge is")] = Kind.human,
    size: Size = 60,
    tips_per_cell: TipsPerCell = 0,
    race: Race = False,
    every: Annotated[
        bool, typer.Option("--all", help="all candidates that are left, not only the next batch")
    ] = False,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="hand out open batches again; make new ones only for candidates that are in none",
        ),
    ] = False,
    second: Annotated[
        bool,
        typer.Option("--second", help="what others have judged and --judge has not, to measure agreement"),
    ] = False,
    adjudicate: Annotated[
        bool,
        typer.Option(
            "--adjudicate",
            help="what judges were far apart on (2 points of a 1-5 scale); these verdicts replace theirs",
        ),
    ] = False,
    again: Annotated[
        str, typer.Option("--batch", metavar="ID", help="write the file of this batch once more, empty")
    ] = "",
    new_rubric: Annotated[
        bool,
        typer.Option(
            "--new-rubric", help="judge anew under the suite's present rubric; earlier verdicts stop counting"
        ),
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the next blinded batch, or with --all everything that is left, with hidden checks in each batch.

    Fill in the `judge` fields of the file (its first lines say how), or let an agent do it, then apply it.
    Batches go slot by slot through all scenarios, so that stopping anywhere leaves a fair comparison.

    Example: tipbench judge export --experiment tip-bench-may --all --out candidates.json --judge anna
    """
    from tipbench.workflows.exporting import Order, export_again

    if again:
        written = [export_again(settings, again, kind=kind.value, out=out, force=force)]
        _print_written(written, settings, Order(), as_json=as_json)
        return
    order = Order(
        judge=judge.strip(),
        kind=kind.value,
        size=size,
        race=race,
        tips_per_cell=tips_per_cell,
        second=second,
        adjudicate=adjudicate,
        every=every,
        new_rubric=new_rubric,
        reopen=reopen,
    )
    _export(settings, order, out=out, force=force, as_json=as_json)


def _export(
    settings: Settings,
    order: Order,
    *,
    out: str,
    one_file: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    from tipbench.workflows.exporting import export

    written = export(settings, order, out=out, force=force, one_file=one_file)
    _print_written(written, settings, order, as_json=as_json)


def _typed_for(settings: Settings, *words: str) -> str:
    """A command about the settings' experiment, as a person types it here."""
    return typed(*words, "--experiment", settings.experiment, *ledger_options(settings))


def _print_written(written: Sequence[Written], settings: Settings, order: Order, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in written])
        return
    if not written:
        say(f"nothing is left to judge in experiment {settings.experiment!r}")
        return
    paths = list(dict.fromkeys(one.path for one in written))
    if len(paths) == 1 and len(written) > 1:
        items = count(sum(one.items for one in written), "item")
        say(f"{paths[0]}: {len(written)} batches, {items}")
    else:
        for one in written:
            say(f"{one.path}: batch {one.batch_id}, {count(one.items, 'item')}")
    if len(paths) == 1:
        say(f"Next: fill it in, then {typed('judge', 'apply', paths[0], *ledger_options(settings))}")
    if written[0].left:
        options = ["--all", "--out", "rest.json", *order.options, *suite_options(settings)]
        rest = _typed_for(settings, "judge", "export", *options)
        left = written[0].left
        say(f"{count(left, 'candidate')} {'is' if left == 1 else 'are'} left: {rest}")


@app.command("apply")
@settings_options("mlflow_url", "mlflow_host_header", "suite", of_experiment=True)
def apply_command(
    *,
    settings: Settings,
    files: Annotated[list[str], typer.Argument(help="judge files")],
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", metavar="TEXT", help="refuse a file of another experiment"),
    ] = None,
    rejudge: Annotated[
        bool,
        typer.Option("--rejudge", help="add scores that differ from the judge's earlier ones; both are kept"),
    ] = False,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="take in a batch whose anchors show drift, and mark it so")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record the scores of filled-in judge files, once the hidden items speak for them.

    A mistake refuses a whole file. A batch whose hidden items speak against it is rejected alone: the message
    names it, the other batches of the file are recorded, and the exit code is 4. `judge status` shows the
    numbers. After three rejections the batch is closed, and the next export hides other texts. A file may be
    applied half filled in, and again later. The same file twice changes nothing.
    """
    _apply(
        settings,
        files,
        experiment=experiment,
        rejudge=rejudge,
        accept_drift=accept_drift,
        as_json=as_json,
    )


def _apply(
    settings: Settings,
    paths: Sequence[str],
    *,
    experiment: str | None,
    rejudge: bool = False,
    accept_drift: bool = False,
    as_json: bool = False,
) -> None:
    from tipbench.workflows.anchoring import apply_anchors, is_calibration
    from tipbench.workflows.applying import BatchesRejected, apply_read, read_judge_file
    from tipbench.workflows.recording import synced_ledger

    files = [read_judge_file(path) for path in paths]
    if experiment is not None:
        _check_experiment(settings, files, experiment)
    rejected: list[CheckFailed] = []
    done: list[Applied] = []
    for file in files:
        if is_calibration(file):
            grown = apply_anchors(settings, file)
            tell(f"{file.path}: {count(grown.added, 'anchor')} calibrated, kept in {grown.path}")
            continue
        applied: Applied | None = None
        try:
            applied = apply_read(
                synced_ledger(settings),
                file,
                rejudge=rejudge,
                accept_drift=accept_drift,
                options=ledger_options(settings),
            )
        except CheckFailed as error:
            rejected.append(error)
            if len(files) > 1:
                tell(f"{file.path}: {error}")
            applied = error.applied if isinstance(error, BatchesRejected) else None
        done += _printed(applied, as_json=as_json)
    if as_json and (done or len(files) > 1):
        print_json([_applied_json(one) for one in done])
    elif done and not rejected:
        _say_next(done[-1], settings)
    if rejected:
        several = CheckFailed(f"{len(rejected)} of {count(len(files), 'file')} rejected")
        raise several if len(files) > 1 else rejected[0]


def _printed(applied: Applied | None, *, as_json: bool) -> list[Applied]:
    if applied is None:
        return []
    if not as_json:
        _print_applied(applied)
    return [applied]


def _check_experiment(settings: Settings, files: Sequence[JudgeFile], experiment: str) -> None:
    """Refuse files of another experiment before anything of any file is recorded."""
    from tipbench.workflows.anchoring import is_calibration
    from tipbench.workflows.applying import check_experiment
    from tipbench.workflows.recording import synced_ledger

    ledger = synced_ledger(settings)
    for file in files:
        if is_calibration(file):
            raise BadInput(
                f"{file.path} holds anchors, which belong to no experiment; leave out --experiment"
            )
        check_experiment(ledger, file, experiment)


def _print_applied(applied: Applied) -> None:
    say(applied.sentence, style="bold")
    warned = [one for one in applied.parts if one.checked.state == "warn"]
    for one in warned:
        say(f"  batch {one.batch_id}: {one.checked.reason}")
    if not warned:
        say(f"  {applied.checked.reason}")


def _applied_json(applied: Applied) -> dict[str, object]:
    return {
        "batch": applied.batch_id,
        "batches": applied.batch_ids,
        "experiment": applied.experiment,
        "judge": applied.judge,
        "new": applied.new,
        "changed": applied.changed,
        "unchanged": applied.unchanged,
        "skipped": applied.skipped,
        "cells_pending": applied.pending,
        "drift": asdict(applied.checked),
    }


def _say_next(applied: Applied, settings: Settings) -> None:
    where = ledger_options(settings)
    if applied.pending:
        more = typed("judge", "export", "--experiment", applied.experiment, *where)
        say(f"{count(applied.pending, 'cell')} still waiting for a judge: {more}")
    say(f"Next: {typed('compare', '--experiment', applied.experiment, *where)}")


@app.command("release")
@settings_options("mlflow_url", "mlflow_host_header")
def release_command(
    *,
    settings: Settings,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="the id that `judge status` shows")],
) -> None:
    """Let a judge submit a batch again that was closed after three rejections.

    Example: tipbench judge release b3f9a1c2d4e5
    """
    from tipbench.workflows.recording import synced_ledger
    from tipbench.workflows.releasing import release_batch

    where = ledger_options(settings)
    released = release_batch(synced_ledger(settings), batch, by="command line", options=where)
    say(f"batch {released.batch_id} of {released.experiment} can be submitted again")


@app.command("status")
@settings_options(*LEDGER, experiment_argument=True)
def status_command(*, settings: Settings, as_json: AsJson = False) -> None:
    """Show what is judged and what is pending, each judge's drift, how far judges agree, and what is left
    to do.
    """
    from tipbench.workflows.judge_status import judge_status

    found = judge_status(settings)
    if as_json:
        print_json(asdict(found))
    else:
        _print_status(found, settings)


def _print_status(found: JudgeState, settings: Settings) -> None:
    from tipbench.workflows.judge_status import PROVISIONAL

    say(
        f"{found.experiment}: {found.judged} of {count(found.wanted, 'candidate')} judged under "
        f"{found.rubric_id}, "
        f"{found.pending} pending in {count(found.cells_pending, 'cell')}",
        style="bold",
    )
    _print_left(found, settings)
    if found.settled:
        say("  settled: one variant is left in the race, and simulated judgements of the rest keep it first")
    if found.raced_out:
        say(f"  raced out: {', '.join(found.raced_out)}")
    if found.old_verdicts:
        say(f"  {count(found.old_verdicts, 'verdict')} under an earlier rubric: kept, not counted")
    for note in (*found.notes, *found.ai_notes):
        anchors_export = _typed_for(settings, "judge", "anchors", "export")
        say(f"  {note} Judge them: {anchors_export}" if note == PROVISIONAL else f"  {note}")
    if found.judges:
        _print_judges(found, settings)
    if found.open_batches:
        _print_open(found)
    if found.rejected_batches:
        _print_rejected(found, settings)
    if not found.judges and found.pending:
        say(f"Next: {typed('judge', 'export', '--experiment', found.experiment, *ledger_options(settings))}")


def _print_left(found: JudgeState, settings: Settings) -> None:
    """Print what is left in texts: a judge scores equal candidates of a scenario once."""
    if found.pending:
        texts = count(found.left_to_people, "different text")
        minutes = count(found.minutes_left, "minute")
        say(f"  {texts} to score, about {minutes} left, at {found.seconds_each:.0f} s each")
    elif found.wanted:
        say("  everything that is wanted is judged")
    if found.machine_only > 0:
        alone = count(found.machine_only, "different text")
        export = _typed_for(settings, "judge", "export")
        say(f"  {alone} judged by a model or the proxy alone; hand them to people: {export}")


def _print_judges(found: JudgeState, settings: Settings) -> None:
    heading("judges")
    rows = [
        (
            one.judge.id,
            one.judge.kind,
            str(one.verdicts),
            str(one.batches),
            "–" if one.severity is None else f"{one.severity:+.1f}",
            str(one.objections),
            _drift_word(one),
        )
        for one in found.judges
    ]
    numbers = ("texts", "batches", "severity", "overlong set")
    print_rows(("judge", "kind", *numbers, "drift"), rows, right=numbers)
    for one in found.judges:
        _print_chart(one)
        print_calibration(one)
    print_assisted(found)
    _print_agreement(found, settings)


def _drift_word(one: JudgeStatus) -> str:
    if not one.chart:
        return "not checked"
    last = one.chart[-1]
    accepted = f", accepted in {count(one.drift_accepted, 'application')}" if one.drift_accepted else ""
    return f"z {last.z:+.1f}, moving average {last.ewma:+.2f} (limit {last.limit:.2f}){accepted}"


def _print_chart(one: JudgeStatus) -> None:
    """The judge's last batches: a bar to the left is too strict, to the right too generous."""
    if len(one.chart) < 2:
        return
    say(f"{one.judge.id}: drift by batch, moving average within ± limit is fine", style="dim")
    for point in one.chart[-12:]:
        mark = "!" if point.beyond else "accepted" if point.accepted else ""
        say(
            f"  {point.batch_id}  {_bar(point.ewma, point.limit)}  {point.ewma:+.2f} ± {point.limit:.2f} "
            f"{mark}"
        )


def _bar(value: float, limit: float, *, half: int = 12) -> str:
    """`[      |###   ]`: the bracket is the limit; what goes beyond it is drawn beyond it."""
    reach = min(round(abs(value) / limit * half), half + 3) if limit else 0
    left, right = (reach, 0) if value < 0 else (0, reach)
    return f"{'█' * left:>{half + 3}}│{'█' * right:<{half + 3}}"


def _print_agreement(found: JudgeState, settings: Settings) -> None:
    agreed = found.agreement
    if not agreed.n_items:
        second = _typed_for(settings, "judge", "export", "--second", "--judge", "NAME")
        say(f"agreement: nothing is judged by two judges yet ({second})", style="dim")
        return
    alphas = ", ".join(f"{name} {number(alpha)}" for name, alpha in agreed.alpha.items())
    few = "" if agreed.enough else "; at least 60 are needed to lean on it"
    word = f" ({agreed.word})" if agreed.word else ""
    say(f"agreement (Krippendorff's alpha) on {count(agreed.n_items, 'text')}: {alphas}{word}{few}")
    if agreed.gaps:
        disputed = len({gap.candidate for gap in agreed.gaps})
        adjudicate = _typed_for(settings, "judge", "export", "--adjudicate")
        say(f"{count(disputed, 'text')} to adjudicate: {adjudicate}")


def _print_open(found: JudgeState) -> None:
    heading("batches out")
    rows = [
        (one.batch_id, one.judge or "anybody", f"{one.judged} of {one.items}", _day(one.created_ms))
        for one in found.open_batches
    ]
    print_rows(("batch", "for", "items judged", "since"), rows)


def _print_rejected(found: JudgeState, settings: Settings) -> None:
    heading("batches rejected")
    for one in found.rejected_batches:
        say(f"{one.batch_id} for {one.judge or 'anybody'}: {_standing(one, settings)}")
        for rejection in one.rejections:
            forgiven = " (forgiven)" if rejection.forgiven else ""
            say(f"  {_day(rejection.at_ms)} {rejection.judge}{forgiven}: {rejection.reason}")


def _standing(one: RejectedBatch, settings: Settings) -> str:
    if one.replaced_by:
        return f"closed, replaced by {one.replaced_by}, which hides other texts"
    if one.closed:
        release = typed("judge", "release", one.batch_id, *ledger_options(settings))
        return (
            "closed; the judge's next batch replaces it if the suite has other anchors, or release it: "
            f"{release}"
        )
    return "released, can be submitted" if one.released else "can be submitted again"


def _day(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


@app.command("auto")
@settings_options(*AUTO, of_experiment=True)
def auto_command(
    *,
    settings: Settings,
    judge: Annotated[str, typer.Option("--judge", help="proxy, ollama:MODEL or openai:MODEL")] = "",
    base_url: Annotated[
        str,
        typer.Option(
            "--base-url",
            envvar="OPENAI_BASE_URL",
            help="where openai:MODEL is served; the key is taken from OPENAI_API_KEY",
        ),
    ] = "",
    same_family: Annotated[
        bool, typer.Option("--same-family", help="allow a judge of a contestant's family")
    ] = False,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="print the first question to a model, and send nothing")
    ] = False,
    as_json: AsJson = False,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="append progress to FILE as JSON lines")
    ] = None,
) -> None:
    """Let a model, or the proxy's rules, score what it has not scored yet.

    Its verdicts are never averaged with people's, and it ranks alone only where it is known to agree with
    people. A model runs after the collection, alone in memory. Each block of texts is recorded as soon as it
    is scored: the same command continues after an interrupt or a kill. A file judge.md in the suite's folder
    replaces the prompt.
    """
    from tipbench.workflows.auto_judging import judge_automatically

    if show_prompt:
        _show_prompt(settings, judge, as_json=as_json)
        return
    if not judge.strip():
        raise BadInput(
            "judge auto needs a judge: --judge proxy, --judge ollama:MODEL or --judge openai:MODEL"
        )
    with follow(events=events, quiet=as_json) as emit:
        found = judge_automatically(settings, judge, emit=emit, base_url=base_url, same_family=same_family)
    if as_json:
        print_json({name: value for name, value in asdict(found).items() if name != "stopped"})
    else:
        unread = f", {found.unread} could not be read from its replies" if found.unread else ""
        differ = (
            f", {found.inconsistent} left out because reason and score named different levels"
            if found.inconsistent
            else ""
        )
        say(f"{found.experiment}: {count(found.judged, 'candidate')} judged by {found.judge}{unread}{differ}")
        say(f"Next: {typed('judge', 'status', '--experiment', found.experiment, *ledger_options(settings))}")
    if found.stopped is not None:
        raise found.stopped


def _show_prompt(settings: Settings, judge: str, *, as_json: bool) -> None:
    """Print the messages to standard output as in a judge.md, and their origin to standard error."""
    from tipbench.judge.proxy import NAME
    from tipbench.workflows.auto_judging import show_prompt

    if judge.strip() == NAME:
        raise BadInput(f"--judge {NAME} has no prompt: it is rules about words; leave out --judge")
    found = show_prompt(settings)
    if as_json:
        print_json(asdict(found))
        return
    whose = "from the suite's judge.md" if found.from_suite else "built in"
    tell(f"Prompt {found.hash} ({whose}), filled in for the scenario {found.scenario_id!r}:")
    for message in found.messages:
        say(f"# {message.role.title()}\n\n{message.content}\n")


@app.command("mcp")
@settings_options(*LEDGER, "suite", of_experiment=True)
def mcp_command(
    *,
    settings: Settings,
    judge: Annotated[
        str, typer.Option("--judge", metavar="NAME", help="the agent's name as a judge")
    ] = "agent",
    model: Annotated[
        str, typer.Option("--model", help="the model behind the agent, kept with its verdicts")
    ] = "",
    size: Size = 60,
    tips_per_cell: TipsPerCell = 0,
    race: Race = False,
) -> None:
    """Serve the judging of an experiment to an agent over MCP, on standard input and output.

    For Claude Code: claude mcp add tipbench -- tipbench judge mcp --experiment tip-bench-may
    """
    from tipbench.records import Judge
    from tipbench.workflows.desk import JudgesDesk
    from tipbench.workflows.exporting import Order
    from tipbench.workflows.judged import judged_experiment, suite_of
    from tipbench.workflows.mcp_server import serve_mcp

    suite_of(judged_experiment(settings), settings)  # a wrong --suite ends the command, not a tool call
    name = judge.strip() or "agent"
    order = Order(judge=name, kind="agent", size=size, tips_per_cell=tips_per_cell, race=race)
    serve_mcp(JudgesDesk(settings=settings, judge=Judge(id=name, kind="agent", model=model), order=order))


@app.command("rebuild")
@settings_options(*LEDGER)
def rebuild_command(*, settings: Settings) -> None:
    """Derive anew what cells show of their verdicts: scores, composite, n_judged, judge_pending."""
    from tipbench.workflows.applying import rebuild

    say(f"{settings.experiment}: {count(rebuild(settings), 'cell')} brought up to date")
