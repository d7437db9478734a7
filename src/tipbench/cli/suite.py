"""`suite`: write, fill and check what is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tipbench.cli.screen import err, out
from tipbench.errors import CheckFailed
from tipbench.suite import SHIPPED, check_suite, import_scenarios, load_suite, new_suite

app = typer.Typer(help="Write, fill and check suites: the rubric, prompts and scenarios that are evaluated.")


@app.command("new")
def new(path: Annotated[Path, typer.Argument(help="the folder to make; its name is the suite's id")]) -> None:
    """Make a small working suite to start from, with comments that say what to change."""
    for written in new_suite(path):
        out().print(str(written), soft_wrap=True)
    out().print(f"Next: edit the files, then `tipbench suite check {path}`", soft_wrap=True)


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(help="the suite's folder")],
    scenarios: Annotated[Path, typer.Argument(help="a CSV file: a header, then one scenario a row")],
) -> None:
    """Add scenarios from a table: all of them, or none and the reason."""
    added = import_scenarios(path, scenarios)
    out().print(f"{len(added.ids)} scenarios added to {added.path}: {', '.join(added.ids)}", soft_wrap=True)
    if added.unused:
        err().print(f"no prompt uses the columns {', '.join(added.unused)}", soft_wrap=True)


@app.command("check")
def check(
    path: Annotated[str, typer.Argument(help="the suite's folder, or the name of one that ships")],
) -> None:
    """Check every file and render every prompt on every scenario; exits 4 where something is wrong."""
    found = check_suite(path)
    for problem in found:
        err().print(str(problem), soft_wrap=True, markup=False)
    wrong = [problem for problem in found if not problem.warning]
    if wrong:
        raise CheckFailed(f"{path}: {len(wrong)} to mend")
    suite = load_suite(path)
    out().print(
        f"{suite.id}: all well: {len(suite.prompts)} prompts × {len(suite.scenarios)} scenarios, "
        f"rubric {suite.rubric.id}"
    )


@app.command("list")
def list_() -> None:
    """The suites that ship with tipbench."""
    for name in SHIPPED:
        suite = load_suite(name)
        out().print(f"{name:12} {len(suite.scenarios):3} scenarios  {suite.title}", soft_wrap=True)
