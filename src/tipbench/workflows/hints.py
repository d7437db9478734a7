"""Commands in messages, with the options that make them work as printed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tipbench.settings import Settings, home

if TYPE_CHECKING:
    from collections.abc import Sequence


def experiment_command(*words: str, experiment: str, options: Sequence[str] = ()) -> str:
    """Return a command about an experiment; `options` are those of `ledger_options`."""
    return shlex.join(["tipbench", *words, "--experiment", experiment, *options])


def ledger_options(settings: Settings) -> list[str]:
    """Return the options with which a command uses the same ledger as these settings."""
    from tipbench.ledger import public_uri  # noqa: PLC0415 - every command imports this module at its start

    usual = Settings.of({})
    options = []
    if settings.mlflow_url != usual.mlflow_url:
        options += ["--mlflow-url", public_uri(settings.mlflow_url, home=home())]
    if settings.mlflow_host_header != usual.mlflow_host_header:
        options += ["--mlflow-host-header", settings.mlflow_host_header]
    return options


def suite_options(settings: Settings) -> list[str]:
    """Return the option with which a command uses the same suite; none for the usual one."""
    usual = Settings.of({}).suite
    return [] if settings.suite in {"", usual} else ["--suite", settings.suite]
