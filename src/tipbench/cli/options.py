"""Command-line options derived from the settings table: help, defaults and checks stand in one place."""

from __future__ import annotations

import functools
import inspect
import math
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tipbench.errors import BadInput
from tipbench.settings import Settings, default_of, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field


def _checked_points(points: float | None) -> float | None:
    if points is not None and not (math.isfinite(points) and points >= 0):
        raise BadInput("--accept-loss must be a number of points, 0 or more, such as 0.75")
    return points


AcceptLoss = Annotated[
    float | None,
    typer.Option(
        "--accept-loss",
        metavar="POINTS",
        callback=_checked_points,
        help="how much worse than the best a recommended variant may be (default: 5 % of the scale)",
    ),
]


class Cost(str, Enum):
    """What makes a variant cheap."""

    parameters = "parameters"
    seconds = "seconds"
    memory = "memory"


CostOption = Annotated[
    Cost,
    typer.Option("--cost", help="what makes a variant cheap; seconds and memory only within one host"),
]

_OF_EXPERIMENT = "the suite, built-in or a folder (default: the one that the experiment was collected with)"
_ARGUMENT = "experiment_argument"
_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", tuple: "NAME,…"}


def settings_options(
    *names: str, experiment_argument: bool = False, of_experiment: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings (all, without names); it is called with `settings`.

    With `experiment_argument` the experiment may also be given as an argument. With `of_experiment` the
    setting `suite` is empty unless the option is given: the experiment remembers it.
    """
    rows = [row for row in table() if not names or row.name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"
        ]

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:  # noqa: ANN401 - each option has its own type
            chosen = {row.name: _joined(values.pop(row.name)) for row in rows}
            if experiment_argument:
                chosen["experiment"] = _one_experiment(values.pop(_ARGUMENT), chosen["experiment"])
            settings = Settings.of(chosen)
            if of_experiment and chosen["suite"] is None:
                settings = replace(settings, suite="")
            command(settings=settings, **values)

        parameters = [_parameter(row, of_experiment=of_experiment) for row in rows] + own
        parameters += [_experiment_argument()] if experiment_argument else []
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def _experiment_argument() -> inspect.Parameter:
    argument = typer.Argument(
        metavar="EXPERIMENT", help="the same as --experiment EXPERIMENT", show_default=False
    )
    annotation = Annotated[str | None, argument]
    return inspect.Parameter(_ARGUMENT, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _one_experiment(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None and argument != option:
        raise BadInput(
            f"two experiments are given, {argument!r} and --experiment {option!r}; give one of them"
        )
    return option if argument is None else argument


def _parameter(row: Field[Any], *, of_experiment: bool) -> inspect.Parameter:
    """One option. Its value arrives as text: `Settings.of` converts and checks for every interface."""
    flag = f"--{row.name.replace('_', '-')}"
    default = default_of(row)
    is_flag = isinstance(default, bool)
    option = typer.Option(
        flag,
        help=_OF_EXPERIMENT if of_experiment and row.name == "suite" else _help(row),
        rich_help_panel=row.metadata["group"],
        envvar=row.metadata["env"] or None,
        metavar=None if is_flag else "|".join(row.metadata["choices"]) or _METAVARS[type(default)],
        show_default=False,
        autocompletion=_completion(row),
    )
    kind = bool | None if is_flag else list[str] | None if row.metadata["repeatable"] else str | None
    annotation = Annotated[kind, option]  # type: ignore[valid-type]
    return inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _joined(value: Any) -> Any:  # noqa: ANN401 - each option has its own type
    """An option that was given several times, as if all values were given at once; None if it is absent."""
    return ",".join(value) or None if isinstance(value, list) else value


def _help(row: Field[Any]) -> str:
    shown = shown_default(row)
    return f"{row.metadata['help']} (default: {shown})" if shown else row.metadata["help"]


def shown_default(row: Field[Any]) -> str:
    """The default as one would type it; nothing for a flag that is off or a text that is empty."""
    default = default_of(row)
    if isinstance(default, bool):
        return ""
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def _completion(row: Field[Any]) -> Callable[[str], list[str]] | None:
    if row.metadata["choices"]:
        return lambda incomplete: [
            choice for choice in row.metadata["choices"] if choice.startswith(incomplete)
        ]
    return _COMPLETIONS.get(row.name)


def _complete_suite(incomplete: str) -> list[str]:
    from tipbench.suite import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def _complete_prompts(incomplete: str) -> list[str]:
    """The last name of a list separated by commas."""
    from tipbench.suite import load_suite

    before, comma, last = incomplete.rpartition(",")
    names = [prompt.id for prompt in load_suite("tip").prompts]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


_COMPLETIONS = {"suite": _complete_suite, "prompts": _complete_prompts}
