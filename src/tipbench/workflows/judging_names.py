"""What an experiment is called before judges: its name, unless that tells which models are in it."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from tipbench.errors import BadSetting, NotFound
from tipbench.workflows.recording import synced_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tipbench.records import Ledger
    from tipbench.workflows.access import Principal
    from tipbench.workflows.service_state import Service

# Shorter parts of a model's name are in too many words to tell anything, unless they stand alone.
_WORD = re.compile(r"[a-z]{3,}")
_ALONE = re.compile(r"(?=[\d.]*[a-z])[a-z\d.]{2,}")


def tells_of(name: str, models: Iterable[str]) -> bool:
    """Whether a part of a model's name is in it."""
    name = name.lower()
    alone = set(_ALONE.findall(name))
    return any(
        not alone.isdisjoint(_ALONE.findall(model)) or any(word in name for word in _WORD.findall(model))
        for model in {model.lower() for model in models}
    )


def made_up(service: Service, experiment: str) -> str:
    """A name that tells nothing, always the same for the same experiment.

    It is keyed, so that nobody can try out which name it was made from.
    """
    key = service.store.secrets.get("names")
    return f"experiment-{hmac.new(key, experiment.encode(), hashlib.sha256).hexdigest()[:10]}"


def name_for(service: Service, ledger: Ledger, experiment: str, who: Principal) -> str:
    """What this experiment is called before whoever asks."""
    models = {run.model for run in ledger.runs(experiment)} if who.role != "admin" else set()
    return made_up(service, experiment) if tells_of(experiment, models) else experiment


def named(service: Service, given: str, who: Principal) -> str:
    """The experiment that whoever asks means; NotFound for a name that they were not told.

    An admin may also use the made-up one; a judge who guesses a name that is hidden learns nothing.
    """
    absent = NotFound(f"there is no experiment {given!r} to judge")
    try:
        ledger = synced_ledger(service.settings({"experiment": given}))
    except BadSetting as error:
        if error.name == "experiment":
            raise absent from None
        raise
    if ledger.pinned(given) is not None and name_for(service, ledger, given, who) == given:
        return given
    for entry in ledger.experiments():
        if made_up(service, entry.name) == given:
            return entry.name
    raise absent
