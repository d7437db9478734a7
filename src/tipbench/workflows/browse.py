"""Reading what is recorded: experiments, the runs of one, one run with its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.errors import NotFound
from tipbench.settings import Settings
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


def runs(
    experiment: str, *, mlflow_url: str | None = None, mlflow_host_header: str | None = None
) -> list[Run]:
    """All cells of an experiment, oldest first, with their candidates: one bulk read, cached by revision.

    Raises NotFound for an experiment that is not there.
    """
    where = {"mlflow_url": mlflow_url, "mlflow_host_header": mlflow_host_header}
    return runs_in(Settings.of({"experiment": experiment, **where}))
