"""Gates on disk: plans before results, numbers that nobody shares, ids that hold the content."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sim_samples import plan
from tipbench.errors import BadInput, NotFound, StateUnusable
from tipbench.workflows.gate_files import keep, kept, register

if TYPE_CHECKING:
    from pathlib import Path


def test_plans_are_numbered_per_champion_and_world(tmp_path: Path) -> None:
    """Every plan against one champion counts, whoever challenges; those against others count apart."""
    first = register(plan(), tmp_path)
    second = register(replace(plan(), challenger="another", margin=0.01), tmp_path)
    other = register(replace(plan(), champion_version="1-other"), tmp_path)
    assert (first.number, second.number, other.number) == (1, 2, 1)
    assert not set(first.seeds) & set(second.seeds)


def test_nobody_has_seen_the_seeds_before(tmp_path: Path) -> None:
    """The first gate of another home, or another machine, is decided on other seeds; the plan holds them."""
    one, other = register(plan(), tmp_path / "one"), register(plan(), tmp_path / "other")
    assert (one.number, other.number) == (1, 1)
    assert not set(one.seeds) & set(other.seeds)
    [path] = (tmp_path / "one" / "plans").iterdir()
    assert replace(plan(), **json.loads(path.read_text())).seeds == one.seeds


def test_a_plan_is_on_disk_before_anything_is_simulated(tmp_path: Path) -> None:
    """What is planned can be read, and a gate that is broken off after it still counts as tried."""
    register(replace(plan(), margin=0.01), tmp_path)
    [path] = (tmp_path / "plans").iterdir()
    assert json.loads(path.read_text())["margin"] == 0.01
    assert register(plan(), tmp_path).number == 2


def test_no_two_gates_have_the_same_number(tmp_path: Path) -> None:
    """Many that register at once all get a number of their own; strange files do not disturb."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "notes.json").write_text("mine")
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: register(plan(), tmp_path).number, range(24)))
    assert sorted(numbers) == list(range(1, 25))


def test_a_gate_is_found_by_its_id(tmp_path: Path) -> None:
    """The id is a hash of the content: the same content has the same id, and it is read back as it was."""
    record = {"passed": True, "numbers": [0.1, 1e-17, 3], "name": "é"}
    gate_id = keep(record, tmp_path)
    assert keep(dict(reversed(record.items())), tmp_path) == gate_id
    assert kept(gate_id, tmp_path) == record


def test_a_changed_gate_is_an_error(tmp_path: Path) -> None:
    """Somebody who writes `true` for `false` into a gate has broken it; a torn file is named too."""
    gate_id = keep({"passed": False}, tmp_path)
    path = tmp_path / f"{gate_id}.json"
    for text in ('{"passed": true}', '{"passed": fal', "[]", ""):
        path.write_text(text)
        with pytest.raises(StateUnusable, match=gate_id):
            kept(gate_id, tmp_path)


def test_gates_that_are_not_there(tmp_path: Path) -> None:
    """An unknown id says how to hold a gate; what is no id is never looked up as a path."""
    with pytest.raises(NotFound, match="sim gate --record"):
        kept("0" * 16, tmp_path)
    for wrong in ("", "../../etc/passwd", "0" * 15, "Z" * 16):
        with pytest.raises(BadInput, match="not a gate's id"):
            kept(wrong, tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Where gates cannot be kept, nothing is simulated in vain: registering says so."""
    (tmp_path / "gates").write_text("a file")
    with pytest.raises(StateUnusable, match="gates"):
        register(plan(), tmp_path / "gates")
