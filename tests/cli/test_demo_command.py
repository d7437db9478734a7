"""`demo` as it is typed: a leaderboard, what to do next, and at last where the report is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from command import tipbench
from demo_world import plant_demo


@pytest.mark.parametrize("form", ["words", "json"])
def test_the_demo_ends_with_the_page(home: Path, form: str) -> None:
    """The last line is the path of a page that is there; what must be known first is the first line."""
    plant_demo(home)
    ran = tipbench("demo", *(["--json"] if form == "json" else []))
    assert ran.code == 0, ran.err
    if form == "json":
        told = ran.json
        assert (told["judge"], told["leaderboard"]["ground"]) == ("proxy", "proxy")
        assert told["leaderboard"]["recommended"] is None
        page = told["report"]
    else:
        lines = ran.out.splitlines()
        assert lines[0] == "Demo scores come from simple word rules. Do not ship on them."
        _check_next_lines(ran.out, home.parent)
        page = lines[-1].removeprefix("The whole report, for a browser: ")
    assert Path(page).read_text().lstrip().lower().startswith("<!doctype html>")
    assert "Traceback" not in ran.err


def _check_next_lines(out: str, folder: Path) -> None:
    """Every command that is printed works as it stands, on a machine without Ollama."""
    block = out.partition("Next: ")[2].partition("The whole report")[0]
    commands = [line.partition("   (")[0].strip() for line in block.splitlines() if line.strip()]
    assert len(commands) == 3
    for command in commands:
        before, name, arguments = command.partition("tipbench ")
        assert name, f"{before!r} is not followed by the command"
        ran = tipbench(*shlex.split(arguments.replace("batch.json", str(folder / "batch.json"))))
        assert ran.code == 0, ran.err


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_home")
def test_the_demo_from_nothing() -> None:
    """A real model writes 32 cells in minutes, and the page stands at the end; run again, it asks nothing."""
    ran = tipbench("demo", timeout_s=900)
    assert ran.code == 0, ran.err
    assert Path(ran.out.splitlines()[-1].rpartition(": ")[2]).is_file()
    again = tipbench("demo", "--json")
    assert (again.json["collection"]["calls"], again.json["collection"]["cells"]["skipped"]) == (0, 32)
