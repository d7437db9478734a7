"""How a job ended, told from files that may hold anything, or may not be files at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tipbench.workflows.job_events import read_events
from tipbench.workflows.job_outcome import end_state, last_lines, printed, reason
from tipbench.workflows.job_process import JobFolder, Left
from tipbench.workflows.job_progress import Fold

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.store import Kind, State


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path)


def test_a_log_steers_no_terminal(folder: JobFolder) -> None:
    """Colours, cursor moves, window titles and stray controls are gone; what was said is not."""
    steering = "\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x1b(B\x1b[2J"
    folder.log.write_text(f"{steering}\x00\x08\x9b31mü\u202e end\t.\r\nnext", newline="")
    assert last_lines(folder.log, 10) == ["red link 31mü end\t.", "next"]


def test_a_log_of_any_size_is_read_from_its_end(folder: JobFolder) -> None:
    """A line without an end costs no more than a page of it, and no reason is longer than one can read."""
    folder.log.write_text("# started\n" + "é" * 3_000_000)
    (line,) = last_lines(folder.log, 5)
    assert 500_000 < len(line) < 1_000_000
    assert len(reason(folder, 2)) == 1000


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ('{"planned": 1, "failed": 1}', "its only cell failed; resume it to try again"),
        ('{"planned": 5, "failed": 1}', "1 of 5 cells failed; resume it to try again"),
    ],
)
def test_one_cell_is_not_several(folder: JobFolder, cells: str, words: str) -> None:
    """A job of a single cell says that it failed, and does not count it."""
    folder.out.write_text(f'{{"cells": {cells}}}')
    assert reason(folder, 1) == words


def test_what_cannot_be_read_says_nothing(folder: JobFolder) -> None:
    """A folder where a file should be is no reason to fail: the job is told without it."""
    for name in ("log.txt", "out.json", "events.jsonl", "exit.json", "process.json", "cancel.json"):
        (folder.path / name).mkdir()
    assert (last_lines(folder.log, 5), printed(folder.out), read_events(folder.events, 0).lines) == (
        [],
        None,
        (),
    )
    assert (folder.left(), folder.announced(), folder.runs(None)) == (None, None, False)
    assert "exit code 2" in reason(folder, 2)


def test_an_event_that_makes_no_sense_changes_nothing_else(folder: JobFolder) -> None:
    """One that was garbled is passed over, and those around it count."""
    fold = Fold()
    fold.add({"event": "plan", "planned": 2, "models": {"a": 2}})
    for strange in ({"planned": None}, {"models": [1]}, {"models": {"a": "x"}}, {"planned": 1e999}):
        fold.add({"event": "plan", **strange})
    fold.add({"event": "judged", "done": {}, "total": "many"})
    fold.add({"event": "cell", "model": "a", "status": "done", "output_tokens": "x", "tokens_per_s": 1})
    progress = fold.progress(ended=False)
    assert (progress.done, progress.models[0].total) == (1, 2)


@pytest.mark.parametrize(
    ("kind", "code", "state"),
    [
        ("gate", 0, "done"),
        ("gate", 4, "done"),
        ("gate", 2, "failed"),
        ("gate", 130, "interrupted"),
        ("collect", 4, "failed"),
        ("sim", 4, "failed"),
    ],
)
def test_a_gate_that_refuses_has_come_to_its_end(kind: Kind, code: int, state: State) -> None:
    """Only of a gate is exit code 4 an answer; of every other job it is a failure."""
    assert end_state(Left(code=code, ended_ms=1), cancelled=False, kind=kind) == state
