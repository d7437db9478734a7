"""Where a cell was made is recorded with it, and a plan counts on speeds of its own host alone."""

from __future__ import annotations

import base64
import platform
from dataclasses import replace
from typing import Any

import pytest

from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.engine.machine import this_machine
from tipbench.ledger import open_ledger
from tipbench.settings import Settings, home
from tipbench.workflows.collect import collect, make_grid, pin_of
from tipbench.workflows.estimate import estimate
from tipbench.workflows.trial import try_cell

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end")


def settings_for(host: StandIn, **changes: Any) -> Settings:  # noqa: ANN401 - any setting
    base = {"models": "a:1b", "prompts": "v1", "n_scenarios": 2, "ollama_url": host.url, "engine": "ollama"}
    return Settings.of(base | {"experiment": "bench", "retries": 0} | changes)


def quiet(_event: object) -> None:
    """Nobody listens."""


def test_a_cell_says_on_which_machine_and_where_in_memory_it_was_made() -> None:
    """A host at a loopback address is on this machine; the share in VRAM is what the host said."""
    with running(StandIn([FakeModel("a:1b")], vram_share=0.75)) as host:
        collect(settings_for(host), emit=quiet)
    for run in runs("bench"):
        assert (run.host, run.host_kind, run.host_version) == (host.url, "ollama", "0.17.4")
        assert (run.machine, run.hardware) == (platform.node(), this_machine().hardware)
        assert run.vram_share == 0.75


def test_a_login_is_used_for_every_request_and_kept_nowhere() -> None:
    """All that is asked of the host carries it; neither the cell nor its host's address does."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        address = host.url.replace("http://", "http://me:p%40ss@")
        collect(settings_for(host, ollama_url=address), emit=quiet)
        assert set(host.logins) == {f"Basic {base64.b64encode(b'me:p@ss').decode()}"}
    assert {run.host for run in runs("bench")} == {host.url}


def test_minutes_come_from_cells_of_the_same_host() -> None:
    """A slow machine's cells tell nothing of this one: the estimate is a guess until this one made some."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        settings = settings_for(host, n_scenarios=3)
        _copied(settings, machine="elsewhere", at=0)
        (guessed,) = estimate(settings, emit=quiet).models
        _copied(settings, machine="", at=1)
        (old,) = estimate(settings, emit=quiet).models
        collect(settings_for(host, n_scenarios=1, n_tips=3), emit=quiet)
        (measured,) = estimate(settings, emit=quiet).models
    assert (guessed.measured, old.measured, measured.measured) == (False, False, True)


def _copied(settings: Settings, *, machine: str, at: int) -> None:
    """Another machine's cell of the same model, as its ledger would have it."""
    result = try_cell(settings, model="a:1b", prompt="v1", scenario="", emit=quiet)
    grid = make_grid(settings)
    scenario = grid.scenarios[at]
    cell = replace(result.cell, scenario_id=scenario.id, scenario_hash=scenario.hash)
    ledger = open_ledger("", home=home())
    ledger.pin("bench", pin_of(grid))
    ledger.record("bench", [replace(result, cell=cell, host=replace(result.host, machine=machine))])
