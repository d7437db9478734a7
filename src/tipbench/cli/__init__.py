"""The command line: every command parses, makes one workflow call and prints what came of it."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tipbench.cli import (
    airflow,
    bandit,
    bench,
    compare,
    demo,
    doctor,
    engine,
    judge,
    ledger,
    promote,
    serve,
    ship,
    sim,
    suite,
    token,
)
from tipbench.cli.screen import say, with_program, written
from tipbench.cli.usage import usage_sentence
from tipbench.errors import BadInput, Interrupted, TipbenchError
from tipbench.settings import home
from tipbench.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Typer does not export the class of all usage errors.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
# One line: the help wraps it, and keeps every break that is in it.
EXIT_CODES = (
    "Exit codes: 0 done; 1 some cells failed; 2 bad input; 3 an engine or ledger that is needed "
    "cannot be reached or is busy; 4 a check ran and said no; 5 a check could not be made; 130 interrupted."
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - what Typer calls it with
    if value:
        say(version("tipbench"))
        raise typer.Exit


class _Context(typer.Context):
    """Typer prints help by itself; where that cannot be written, the command ends as with its results.

    A usage error has the context of its command: Typer leaves out the context for a missing value.
    """

    @contextmanager
    def scope(self, cleanup: bool = True) -> Iterator[Any]:  # noqa: FBT001 - as Typer calls it
        try:
            with super().scope(cleanup) as ctx:
                yield ctx
        except UsageError as error:
            error.ctx = getattr(error, "ctx", None) or self  # type: ignore[attr-defined]
            raise

    def get_help(self) -> str:
        text, asked = "", bool(self.get_parameter_source("help"))
        with written(), suppress(SystemExit):  # which Rich raises where nobody reads any more
            text = super().get_help()  # empty, where Rich has printed it
            if asked:
                typer.echo(text)
        if asked:
            raise typer.Exit  # before Typer prints the same, outside of `written`
        return text


class _Commands(TyperGroup):
    """Every command; `airflow` is listed only for people who have one."""

    def __init__(self, **parts: Any) -> None:  # noqa: ANN401 - whatever Typer makes a group of
        super().__init__(**parts)
        _print_help_of(self)

    def main(self, *args: Any, **parts: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command. A usage error is raised as a BadInput, in one sentence."""
        ends_here = parts.get("standalone_mode", True)
        try:
            code = super().main(*args, **{**parts, "standalone_mode": False})
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
                sys.exit(BadInput.exit_code)
            raise BadInput(usage_sentence(error)) from None
        except typer.Abort:
            raise Interrupted("interrupted") from None
        if not ends_here:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer does not export its type
        names = super().list_commands(ctx)
        return [name for name in names if name != "airflow" or os.environ.get("TIPBENCH_AIRFLOW_URL")]


def _print_help_of(command: Any) -> None:  # noqa: ANN401 - as above
    command.context_class = _Context
    for one in getattr(command, "commands", {}).values():
        _print_help_of(one)


def _print_home(value: bool) -> None:  # noqa: FBT001 - as above
    if value:
        say(str(home().absolute()))
        raise typer.Exit


app = typer.Typer(
    name="tipbench",
    cls=_Commands,
    help="Which small local model and which prompt should I ship? An answer with proof, on your own machine.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit"),
    ] = False,
    _home: Annotated[
        bool,
        typer.Option(
            "--home",
            callback=_print_home,
            is_eager=True,
            help="print the folder of tipbench's state and exit",
        ),
    ] = False,
) -> None:
    pass


bench.add_to(app)
compare.add_to(app)
ship.add_to(app)
ledger.add_to(app)
doctor.add_to(app)
demo.add_to(app)
serve.add_to(app)
sim.add_to(app)
promote.add_to(app)
app.add_typer(judge.app, name="judge")
app.add_typer(suite.app, name="suite")
app.add_typer(engine.app, name="engine")
app.add_typer(token.app, name="token")
app.add_typer(bandit.app, name="bandit")
app.add_typer(airflow.app, name="airflow")


def main() -> NoReturn:
    """Run the command; a foreseen error is one sentence on standard error and its own exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # what a terminal's character set lacks is written out rather than fatal
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        app()
    except TipbenchError as error:
        print(visible(f"tipbench: {with_program(str(error))}"), file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    sys.exit(0)


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted("interrupted")
