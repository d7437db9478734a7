"""What an experiment is called before judges: its name, unless that tells which models are in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tipbench.errors import BadSetting, NotFound
from tipbench.records import content_hash
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tipbench.records import Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.service_state import Service

# Shorter parts of a model's name are in too many words to tell anything.
_WORD = re.compile(r"[a-z]{3,}")


def shown_name(experiment: str, models: Iterable[str]) -> str:
    """The name as a judge may read it; one made up where a part of a model's name is in it."""
    name = experiment.lower()
    parts = {part for model in models for part in _WORD.findall(model.lower())}
    return made_up(experiment) if any(part in name for part in parts) else experiment


def made_up(experiment: str) -> str:
    """A name that tells nothing, always the same for the same experiment."""
    return f"experiment-{content_hash(experiment)[:10]}"


def name_for(ledger: Ledger, experiment: str, who: Principal) -> str:
    """What this experiment is called before whoever asks."""
    if who.role == "admin":
        return experiment
    return shown_name(experiment, {run.model for run in ledger.runs(experiment)})


def named(service: Service, given: str) -> str:
    """The experiment that a judge means, by its own name or by the made-up one; NotFound for neither."""
    absent = NotFound(f"there is no experiment {given!r} to judge")
    try:
        ledger = synced_ledger(service.settings({"experiment": given}))
    except BadSetting as error:
        if error.name == "experiment":
            raise absent from None
        raise
    if ledger.pinned(given) is not None:
        return given
    for entry in ledger.experiments():
        if made_up(entry.name) == given:
            return entry.name
    raise absent
