"""`suite`: write, fill and check what is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tipbench.cli.screen import count, print_rows, say, tell, typed
from tipbench.errors import CheckFailed

app = typer.Typer(help="Write, fill and check suites: the rubric, prompts and scenarios that are evaluated.")


@app.command("new")
def new(path: Annotated[Path, typer.Argument(help="the folder to make; its name is the suite's id")]) -> None:
    """Make a small working suite to start from, with comments that say what to change."""
    from tipbench.suite import new_suite

    for written in new_suite(path):
        say(str(written))
    say(f"Next: edit the files, then {typed('suite', 'check', str(path))}")


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(help="the suite's folder")],
    scenarios: Annotated[
        Path, typer.Argument(help="a table (.csv, .tsv, .json, .jsonl): a header, then one scenario a row")
    ],
) -> None:
    """Add scenarios from a table: all of them, or none and the reason."""
    from tipbench.suite import import_scenarios

    added = import_scenarios(path, scenarios)
    some = ", ".join(added.ids[:5]) + (", …" if len(added.ids) > 5 else "")
    say(f"{count(len(added.ids), 'scenario')} added to {added.path}: {some}")
    for name, suggestion in added.unused.items():
        tell(f"no prompt uses the column '{name}'{suggestion}")


@app.command("check")
def check(
    path: Annotated[str, typer.Argument(help="the suite's folder, or the name of one that ships")],
) -> None:
    """Check every file and render every prompt on every scenario; exits 4 where something is wrong."""
    from tipbench.suite import check_suite, load_suite

    found = check_suite(path)
    for problem in found:
        tell(str(problem))
    wrong = [problem for problem in found if not problem.warning]
    if wrong:
        raise CheckFailed(f"{path}: {len(wrong)} to mend")
    suite = load_suite(path)
    say(
        f"{suite.id}: all well: {len(suite.prompts)} prompts × {len(suite.scenarios)} scenarios, "
        f"rubric {suite.rubric.id}"
    )


@app.command("list")
def list_() -> None:
    """The suites that ship with tipbench."""
    from tipbench.suite import SHIPPED, load_suite

    suites = [load_suite(name) for name in SHIPPED]
    rows = [(suite.id, str(len(suite.scenarios)), str(len(suite.prompts)), suite.title) for suite in suites]
    print_rows(("suite", "scenarios", "prompts", "what it is"), rows, right=("scenarios", "prompts"))
