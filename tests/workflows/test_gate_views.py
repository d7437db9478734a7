"""Gates as they are shown: the newest first, and a damaged one hides no other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from gate_samples import gate_record
from tipbench.errors import NotFound, StateUnusable
from tipbench.workflows.gate_files import keep
from tipbench.workflows.gate_views import gate_view, newest_gates, one_gate

if TYPE_CHECKING:
    from pathlib import Path


def kept_at(folder: Path, second: int, **changes: Any) -> str:  # noqa: ANN401 - fields of a record
    gate_id = keep(gate_record(held_ms=1000 * second, **changes), folder)
    os.utime(folder / f"{gate_id}.json", (second, second))
    return gate_id


def test_the_newest_come_first(tmp_path: Path) -> None:
    """Of many, as many as asked for; what is no gate is not looked at."""
    ids = [kept_at(tmp_path, second) for second in (100, 300, 200)]
    (tmp_path / "plans").mkdir()
    (tmp_path / "notes.json").write_text("mine")
    found = newest_gates(tmp_path, limit=2)
    assert [one.gate for one in found.found] == [ids[1], ids[2]]
    assert found.troubles == []


def test_where_no_gate_was_held_there_is_none(tmp_path: Path) -> None:
    """A folder that is not there is no error; a gate that is not there is."""
    assert newest_gates(tmp_path / "gates").found == []
    with pytest.raises(NotFound):
        one_gate("0" * 16, tmp_path)


def test_a_damaged_gate_is_told_beside_the_others(tmp_path: Path) -> None:
    """Changed, cut off, or written by another version: a sentence for each, and the good one is there."""
    good, changed, cut = (kept_at(tmp_path, second) for second in (1, 2, 3))
    other = kept_at(tmp_path, 4, form=2)
    path = tmp_path / f"{changed}.json"
    path.write_text(path.read_text().replace('"passed": true', '"passed": false'))
    (tmp_path / f"{cut}.json").write_text('{"form": 1')
    found = newest_gates(tmp_path)
    assert [one.gate for one in found.found] == [good]
    assert len(found.troubles) == 3
    assert any(other in one for one in found.troubles)


@pytest.mark.parametrize("lost", ["plan", "verdict", "curves", "outcome"])
def test_a_record_without_its_parts_is_not_shown(lost: str) -> None:
    """StateUnusable, whatever is missing."""
    record = {name: value for name, value in gate_record().items() if name != lost}
    with pytest.raises(StateUnusable, match=lost):
        gate_view(record, gate_id=None)


def test_a_bound_that_is_not_known_stays_unknown() -> None:
    """An interval over one user has no ends: None, not 0."""
    record = gate_record()
    record["verdict"]["off_policy"] = {
        "stance": "neutral", "reason": "too few", "n": 1, "users": 1, "effective": 1.0,
        "logged": {"mean": 0.5, "low": None, "high": None, "n": 1},
    }  # fmt: skip
    log = gate_view(record, gate_id=None).verdict.off_policy
    assert log is not None
    assert log.logged is not None
    assert (log.logged.low, log.snips) == (None, None)
