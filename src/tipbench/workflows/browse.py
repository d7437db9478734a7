"""Reading what is recorded: experiments, the runs of one, one run with its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.errors import BadInput, NotFound
from tipbench.ledger import open_ledger
from tipbench.settings import Settings, home
from tipbench.suite.problems import did_you_mean, listed
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from tipbench.records import ExperimentSummary, Ledger, Pin, Run, RunTexts


def experiments(settings: Settings) -> list[ExperimentSummary]:
    """Those that hold tipbench cells, the newest first."""
    return synced_ledger(settings).experiments()


def one_run(settings: Settings, run_id: str) -> tuple[Run, RunTexts]:
    return synced_ledger(settings).run(run_id)


def runs_in(settings: Settings) -> list[Run]:
    """The cells of the settings' experiment, oldest first; NotFound where there is none of that name."""
    ledger = synced_ledger(settings)
    pin_of(ledger, settings.experiment)
    return ledger.runs(settings.experiment)


def pin_of(ledger: Ledger, experiment: str) -> Pin:
    """The pin of an experiment that must be there; NotFound says what else the name may have meant."""
    pin = ledger.pinned(experiment)
    if pin is None:
        known = [entry.name for entry in ledger.experiments()]
        there = (
            f"; there are: {listed(known)}; name one with --experiment" if known else "; there is none yet"
        )
        # Nobody typed the default name, so none is close to what was meant.
        meant = (did_you_mean(experiment, known) if experiment != Settings.experiment else "") or there
        raise NotFound(f"there is no experiment {experiment!r} at {ledger.uri}{meant}")
    return pin


_EXAMPLES = {
    "model": "a string such as 'gemma3:1b'",
    "prompt": "a string such as 'v2-mentor'",
    "filter": "a string such as 'metrics.composite > 12'",
    "mlflow_url": "a string such as 'http://localhost:5000'",
    "mlflow_host_header": "a string such as 'mlflow.example'",
}


def _check_type(name: str, value: object, wanted: type, example: str) -> None:
    """Raise BadInput for an argument of `runs` that has a wrong type."""
    if not isinstance(value, wanted):
        raise BadInput(f"runs(): {name} is of the type {type(value).__name__}; give {example}")


def runs(
    experiment: str,
    *,
    model: str | None = None,
    prompt: str | None = None,
    judge_pending: bool | None = None,
    filter: str | None = None,  # noqa: A002 - the name that MLflow's users know
    mlflow_url: str | None = None,
    mlflow_host_header: str | None = None,
) -> list[Run]:
    """The cells of an experiment, oldest first, with their candidates: one bulk read, cached by revision.

    `model`, `prompt` and `judge_pending` keep the cells that have exactly this value; None keeps all.
    `filter` is a filter of MLflow's `search_runs`, such as `metrics.composite > 12`: it costs one more read.
    Raises NotFound for an experiment that is not there, and BadInput for an argument of a wrong type or a
    filter that MLflow cannot read.
    """
    texts = {"model": model, "prompt": prompt, "filter": filter, "mlflow_url": mlflow_url}
    texts["mlflow_host_header"] = mlflow_host_header
    _check_type("experiment", experiment, str, "the name of an experiment")
    for name, value in texts.items():
        if value is not None:
            _check_type(name, value, str, _EXAMPLES[name])
    if judge_pending is not None:
        _check_type("judge_pending", judge_pending, bool, "True or False")
    where = {"mlflow_url": mlflow_url, "mlflow_host_header": mlflow_host_header}
    settings = Settings.of({"experiment": experiment, **where})
    found = [
        run
        for run in runs_in(settings)
        if model in {None, run.model}
        and prompt in {None, run.prompt_id}
        and judge_pending in {None, run.judge_pending}
    ]
    if filter is None:
        return found
    ledger = open_ledger(settings.mlflow_url, home=home(), host_header=settings.mlflow_host_header)
    matching = ledger.matching(experiment, filter)
    return [run for run in found if run.run_id in matching]
