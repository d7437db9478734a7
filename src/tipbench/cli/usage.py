"""Usage errors in one sentence, like every other error: what is wrong, where, and what to type instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tipbench.cli.screen import typed
from tipbench.text import plain_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHOICE = re.compile(r"(?:Value error, )?'(?P<given>.*)' is not one of (?P<choices>.+?)\.?", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.DOTALL)
_VALUE = re.compile(r"Option '(.*?)' (requires|does not take)")
_NEAR = 0.7  # how much of two names is equal: `modle` is near `models`, `nope` is not near `home`


def usage_sentence(error: Any) -> str:  # noqa: ANN401 - Typer does not export the type of its usage errors
    """Return one sentence for a usage error of Typer. It ends with a suggestion, or with where to look."""
    command: list[str] = []
    ctx = error.ctx
    while ctx and ctx.parent:
        command.insert(0, ctx.info_name)
        ctx = ctx.parent
    sentence = _sentence(error, command)
    return sentence if sentence.endswith("?") else f"{sentence}; see `{typed(*command, '--help')}`"


def _sentence(error: Any, command: list[str]) -> str:  # noqa: ANN401 - as above
    kind, message = type(error).__name__, str(error.message)
    if kind == "NoSuchOption":
        return f"there is no option {error.option_name}{_suggested(error.option_name, _options(error.ctx))}"
    if kind == "MissingParameter":
        return f"{_name_of(error)} is missing"
    if kind == "BadParameter":
        return f"{_name_of(error)}{_problem(error)}"
    is_of_group = error.ctx is not None and hasattr(error.ctx.command, "list_commands")
    commands = error.ctx.command.list_commands(error.ctx) if is_of_group else ()
    extra, value = _EXTRA.match(message), _VALUE.match(message)
    if extra:
        return f"unexpected argument: {extra[1]}"
    if value:
        return f"{value[1]} {'needs a' if value[2] == 'requires' else 'takes no'} value"
    return _command_sentence(message, command, commands)


def _options(ctx: Any) -> list[str]:  # noqa: ANN401 - as above
    """Every option of the command, `--help` and the second name of a flag included."""
    params = ctx.command.get_params(ctx) if ctx else []
    return [
        name
        for param in params
        if param.param_type_name == "option" and not param.hidden
        for name in (*param.opts, *param.secondary_opts)
    ]


def _command_sentence(message: str, command: list[str], commands: Iterable[str]) -> str:
    unknown = _COMMAND.match(message)
    if unknown:
        name = " ".join([*command, unknown[1]])
        return f"there is no command '{name}'{_suggested(unknown[1], commands)}"
    if message.startswith("Missing command"):
        return f"{' '.join(command) or 'tipbench'} needs a command: {', '.join(commands)}"
    return message.rstrip(".")


def _name_of(error: Any) -> str:  # noqa: ANN401 - as above
    """The option as it is typed, or the argument as the help names it."""
    if error.param is None:
        return "an argument"
    if error.param.param_type_name == "option":
        return str(max(error.param.opts, key=len))
    return str(error.param.metavar or error.param.name.upper())


def _problem(error: Any) -> str:  # noqa: ANN401 - as above
    message = str(error.message)
    choice = _CHOICE.fullmatch(message)
    if choice:
        choices = _QUOTED.findall(choice["choices"]) or choice["choices"].split(", ")
        return (
            f": '{choice['given']}' is not one of {', '.join(choices)}{_suggested(choice['given'], choices)}"
        )
    problem = plain_problem(message)
    return f" {problem}" if problem.startswith(("must ", "has ")) else f": {problem}"


def _suggested(given: str, known: Iterable[str]) -> str:
    """Return the suggestion of a near name. The dashes before the names of options do not count."""
    from tipbench.suite.problems import did_you_mean

    full_names = {name.lstrip("-"): name for name in known}
    near = did_you_mean(given.lstrip("-"), full_names, cutoff=_NEAR)
    return _QUOTED.sub(lambda name: f"'{full_names[name[1]]}'", near)
