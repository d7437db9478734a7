"""Usage errors have the form of all other messages: one sentence, exit code 2, and a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer

from command import here, tipbench
from tipbench.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("colect",), "there is no command 'colect'; did you mean 'collect'?"),
        (("judge", "exprt"), "there is no command 'judge exprt'; did you mean 'export'?"),
        (("collect", "--model", "x"), "there is no option --model; did you mean '--models'?"),
        (("compare", "--format", "htm"), "did you mean 'html'?"),
        (("compare", "--format", "pdf"), "--format: 'pdf' is not one of table, json, csv, md, html; see `"),
        (("compare", "--max-latency-ms", "abc"), "--max-latency-ms must be a number; see `"),
        (("compare", "--margin", "nan"), "--margin must be at least 0; see `"),
        (("serve", "--port", "abc"), "--port must be a whole number; see `"),
        (("serve", "--port", "65536"), "--port must be at most 65535; see `"),
        (("engine", "serve", "--port", "-1"), "--port must be at least 0; see `"),
        (("engine", "serve", "--threads", "-1"), "--threads must be at least 0; see `"),
        (("judge", "export", "--size", "1"), "--size must be at least 3; see `"),
        (("judge", "export", "--size", "61"), "--size must be at most 60; see `"),
        (("judge", "export", "--size", ""), "--size must be a whole number; see `"),
        (("judge", "export", "--size", "3.5"), "--size must be a whole number; see `"),
        (("judge", "export", "--size", "9" * 5000), "--size has too many digits; see `"),
        (("airflow", "run", "--every", "nan"), "--every must be at most 3600; see `"),
        (("collect", "--timeout", "inf"), "--timeout: inf is not a finite number"),
        (("collect", "--n-tips", ""), "--n-tips: '' is not a number"),
        (("ship", "--cell"), "--cell needs a value; see `"),
        (("collect", "--json=1"), "--json takes no value; see `"),
        (("collect", "--dryrun"), "there is no option --dryrun; did you mean '--dry-run'?"),
        (("sim", "run", "--no-recrd"), "there is no option --no-recrd; did you mean '--no-record'?"),
        (("judge", "--size", "3"), "there is no option --size; see `"),
        (("show",), "RUN is missing; see `"),
        (("show", "a", "b"), "unexpected argument: b; see `"),
        (("token", "create"), "--name is missing; see `"),
        (("--bogus",), "there is no option --bogus; see `"),
        (("--nope",), "there is no option --nope; see `"),
        (("--verbose",), "there is no option --verbose; see `"),
        (("--hepl",), "there is no option --hepl; did you mean '--help'?"),
        (("--",), "tipbench needs a command: collect, "),
        (("suite",), "suite needs a command: new, import, check, list; see `"),
        (("judge", "anchors"), "judge anchors needs a command: list, add, export; see `"),
        (("bandit",), "bandit needs a command: "),
        (("token",), "token needs a command: "),
    ],
)
def test_a_usage_error_is_one_sentence(typed: tuple[str, ...], sentence: str) -> None:
    """It names the mistake and what to type or where to look; there is no box and no usage block."""
    ran = here(*typed)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1
    for odd in ("Value error", "Usage:", "╭", "Traceback", " should ", "Input"):
        assert odd not in ran.err


def commands_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - Typer does not export its type
    """The command, and every command below it, with the words that name it."""
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, (*path, name))


COMMANDS = dict(commands_of(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_refuses_in_the_same_form(path: tuple[str, ...]) -> None:
    """An unknown option, a missing value, a wrong value and an extra argument name the command's own help."""
    command = COMMANDS[path]
    options = [one for one in command.params if one.param_type_name == "option"]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    cases: list[tuple[tuple[str, ...], str]] = [(("--nope",), "there is no option --nope; see `")]
    for option in options:
        name, kind = max(option.opts, key=len), str(option.type_descriptor.annotation)
        if option.is_flag:
            cases.append(((f"{name}=x",), f"{name} takes no value; see `"))
            continue
        cases.append(((name,), f"{name} needs a value; see `"))
        if "int" in kind or "float" in kind:
            number = "a whole number" if "int" in kind else "a number"
            cases += [((name, wrong), f"{name} must be {number}; see `") for wrong in ("", "abc")]
    required = [max(one.opts, key=len) for one in options if one.required]
    given = [word for name in required for word in (name, "judge")] + ["x"] * len(arguments)
    if hasattr(command, "commands"):
        cases.append((("nope-nope",), "there is no command '"))
    elif all(one.nargs == 1 for one in arguments):
        cases.append(((*given, "y"), "unexpected argument: y; see `"))
    if required or (arguments and arguments[0].required):
        cases.append(((), " is missing; see `"))
    for typed, sentence in cases:
        ran = here(*path, *typed)
        assert (ran.code, ran.out) == (2, ""), typed
        assert sentence in ran.err, (typed, ran.err)
        assert " ".join(("tipbench", *path, "--help`")) in ran.err, ran.err


def test_the_real_command_prints_the_sentence_once() -> None:
    """Standard error has one line that begins with the program's name."""
    ran = tipbench("colect")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "tipbench: there is no command 'colect'; did you mean 'collect'?\n"


def test_without_arguments_the_help_is_printed() -> None:
    """The help is what a newcomer needs; the exit code is that of a usage error."""
    ran = tipbench()
    assert ran.code == 2
    assert "Usage: " in ran.out
    assert "collect" in ran.out


def test_help_and_version_succeed() -> None:
    """Exit code 0 for both, in the root and in a command."""
    assert [here(*typed).code for typed in (("--help",), ("judge", "--help"), ("--version",))] == [0, 0, 0]


def test_hints_name_the_command_as_it_is_typed_here() -> None:
    """A command in a message is written like the one that was run, so that it can be copied."""
    ran = tipbench("show")
    assert "-m tipbench show --help`" in ran.err
