"""Usage errors in one sentence, like every other error: what is wrong, where, and what to type instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tipbench.cli.screen import typed

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHOICE = re.compile(r"(?:Value error, )?'(?P<given>.*)' is not one of (?P<choices>.+?)\.?", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.DOTALL)
_VALUE = re.compile(r"Option '(.*?)' requires")
_TYPES = (
    ("valid integer", "takes a whole number"),
    ("valid number", "takes a number"),
    ("valid float", "takes a number"),
    ("valid boolean", "takes true or false"),
)


def usage_sentence(error: Any) -> str:  # noqa: ANN401 - Typer does not export the type of its usage errors
    """Return one sentence for a usage error of Typer. It ends with a suggestion, or with where to look."""
    ctx = error.ctx
    command = ctx.command_path.split()[1:] if ctx else []
    command = command[command.index("tipbench") + 1 :] if "tipbench" in command else command
    sentence = _sentence(error, command)
    return sentence if sentence.endswith("?") else f"{sentence}; see `{typed(*command, '--help')}`"


def _sentence(error: Any, command: list[str]) -> str:  # noqa: ANN401 - as above
    kind, message = type(error).__name__, str(error.message)
    if kind == "NoSuchOption":
        options = [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
        return f"there is no option {error.option_name}{_suggested(error.option_name, options)}"
    if kind == "MissingParameter":
        return f"{_name_of(error)} is missing"
    if kind == "BadParameter":
        return f"{_name_of(error)}: {_problem(error)}"
    commands = getattr(error.ctx.command, "commands", {}) if error.ctx else {}
    extra, needs = _EXTRA.match(message), _VALUE.match(message)
    if extra or needs:
        return f"unexpected argument: {extra[1]}" if extra else f"{needs[1]} needs a value"  # type: ignore[index]
    return _command_sentence(message, command, commands)


def _command_sentence(message: str, command: list[str], commands: Iterable[str]) -> str:
    unknown = _COMMAND.match(message)
    if unknown:
        name = " ".join([*command, unknown[1]])
        return f"there is no command '{name}'{_suggested(unknown[1], commands)}"
    if message.startswith("Missing command"):
        return f"{' '.join(command)} needs a command: {', '.join(commands)}"
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
        return f"'{choice['given']}' is not one of {', '.join(choices)}{_suggested(choice['given'], choices)}"
    for words, sentence in _TYPES:
        if words in message:
            return sentence
    return message.removeprefix("Value error, ").rstrip(".")


def _suggested(given: str, known: Iterable[str]) -> str:
    from tipbench.suite.problems import did_you_mean

    return did_you_mean(given, known)
