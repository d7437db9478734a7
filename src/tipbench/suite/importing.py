"""`suite import`: a table's rows become scenarios, all of them or none, below those that are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.errors import SuiteError
from tipbench.records import content_hash
from tipbench.suite.append import append_scenarios
from tipbench.suite.form import bad_id
from tipbench.suite.load import Folder, find_suite, layered_personas, read_suite
from tipbench.suite.problems import Problem, Problems, did_you_mean
from tipbench.suite.scenario import Scenario, bad_variable, make_scenario
from tipbench.suite.suite import USUAL_TIPS, Suite, render
from tipbench.suite.table import Row, Table, read_table
from tipbench.suite.template import compile_template
from tipbench.suite.yamldoc import number

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

_TYPED = (".json", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The ids that were added, and the file.

    `unused` are columns that no prompt asks for, each with the suggestion of a variable that has no column,
    or with an empty text.
    """

    path: Path
    ids: tuple[str, ...]
    unused: Mapping[str, str]


def import_scenarios(suite_path: str | os.PathLike[str], table_path: str | os.PathLike[str]) -> Imported:
    """Add a table's rows to a suite's `scenarios.yaml`, whose text stays as it is; all of them or none."""
    folder, path = find_suite(suite_path), Path(table_path).expanduser()
    suite = _suite(folder)
    problems = Problems()
    table = read_table(path, problems)
    rows = [_lower_keys(row) for row in table.rows]
    _check_columns(rows, suite, path, problems)
    added = [] if problems.errors else _added(rows, folder, suite, path, problems)
    unused = _unused(table, suite)
    if problems.errors:  # an unknown column may explain all others, so it comes first
        near = [f"unknown column '{name}',{unused[name][1:]}" for name in unused if unused[name]]
        problems.found[:0] = [Problem(path=path, message="; ".join(near), line=1)] if near else []
    problems.raise_first()
    written = append_scenarios(folder, [(scenario, row.values) for scenario, row in added])
    return Imported(path=written, ids=tuple(scenario.id for scenario, _ in added), unused=unused)


def _added(
    rows: Sequence[Row], folder: Folder, suite: Suite, path: Path, problems: Problems
) -> list[tuple[Scenario, Row]]:
    """Return the scenarios of the rows. Add a problem for each that the suite cannot have."""
    converted = rows if path.suffix.casefold() in _TYPED else _converted(rows, suite)
    added = _scenarios(converted, layered_personas(folder), path, problems)
    _check_ids(added, suite, path, problems)
    _check_fit(added, suite, path, problems)
    return added


def _unused(table: Table, suite: Suite) -> dict[str, str]:
    """Return the columns that no prompt uses, each with the suggestion of a variable that has no column."""
    columns, used = {*table.columns}, _used(suite)
    known = used.union(*(scenario.variables for scenario in suite.scenarios))
    names = sorted(name for name in columns - used if name.casefold() not in {"id", "title"})
    return {
        name: "" if name in known or bad_variable(name) else did_you_mean(name, known - columns)
        for name in names
    }


def _suite(folder: Folder) -> Suite:
    if folder.shipped:
        message = "this suite ships with tipbench and is not changed; make your own with 'tipbench suite new'"
        raise SuiteError(folder.path, message)
    problems = Problems()
    suite = read_suite(folder, problems, may_be_empty=True)
    problems.raise_first()
    if suite is None:
        raise SuiteError(folder.path, "cannot be read")
    return suite


def _lower_keys(row: Row) -> Row:
    """`ID` and `Title`, as spreadsheets like them, are `id` and `title`."""
    special = ("id", "title")
    values = {
        key.casefold() if key.casefold() in special else key: value for key, value in row.values.items()
    }
    return Row(number=row.number, line=row.line, values=values)


def _check_columns(rows: Sequence[Row], suite: Suite, table: Path, problems: Problems) -> None:
    for name in dict.fromkeys(name for row in rows for name in row.values):
        wrong = None if name in {"id", "title"} else bad_variable(name)
        if wrong:
            plain = re.sub(r"\W+", "_", name.casefold()).strip("_")
            problems.add(table, f"{wrong}{did_you_mean(plain, _used(suite))}", line=1)


def _used(suite: Suite) -> set[str]:
    sources = [source for prompt in suite.prompts for source in (prompt.system, prompt.user)]
    return {name for source in sources for name in compile_template(source).names}


def _converted(rows: Sequence[Row], suite: Suite) -> list[Row]:
    """Cells in the types that the suite's scenarios and prompts give to their variables."""
    lists, numbers = _list_names(suite), _number_names(rows, suite)

    def convert(name: str, cell: str) -> object:
        if name in lists:
            return [part.strip() for part in re.split(r"[;\n]", cell) if part.strip()]
        return number(cell) if name in numbers else cell

    return [
        Row(
            number=row.number,
            line=row.line,
            values={name: convert(name, cell) for name, cell in row.values.items()},
        )
        for row in rows
    ]


def _list_names(suite: Suite) -> set[str]:
    sources = [source for prompt in suite.prompts for source in (prompt.system, prompt.user)]
    looped = {name for source in sources for name in compile_template(source).lists}
    listed = {
        name
        for scenario in suite.scenarios
        for name, value in scenario.variables.items()
        if type(value) is list
    }
    return (looped | listed) - {"id", "title"}


def _number_names(rows: Sequence[Row], suite: Suite) -> set[str]:
    """Variables that are numbers wherever they are known; a column of its own decides for a new one."""
    known: dict[str, list[Any]] = {}
    for scenario in suite.scenarios:
        for name, value in scenario.variables.items():
            known.setdefault(name, []).append(value)
    names = {name for row in rows for name in row.values} - {"id", "title"}
    cells = {name: [number(row.values[name]) for row in rows if name in row.values] for name in names}
    return {
        name for name in names if all(type(value) in (int, float) for value in known.get(name, cells[name]))
    }


def _scenarios(
    rows: Sequence[Row], personas: Mapping[str, Any], table: Path, problems: Problems
) -> list[tuple[Scenario, Row]]:
    made = []
    for row in rows:
        with problems.gather():
            made.append((_scenario(row, personas, table), row))
    return made


def _scenario(row: Row, personas: Mapping[str, Any], table: Path) -> Scenario:
    variables = {name: value for name, value in row.values.items() if name not in {"id", "title"}}
    try:
        hashed = content_hash(variables)
    except UnicodeEncodeError:
        message = f"row {row.number} holds half a character (a lone surrogate); remove it"
        raise SuiteError(table, message, line=row.line) from None
    title = str(row.values["title"]) if "title" in row.values else None
    scenario_id = str(row.values.get("id") or _derived_id(title, variables, hashed))
    wrong = bad_id(scenario_id)
    if wrong:
        raise SuiteError(table, f"row {row.number}: {wrong}", line=row.line)
    return make_scenario(scenario_id, variables, title=title, personas=personas, path=table, line=row.line)


def _derived_id(title: str | None, variables: Mapping[str, Any], hashed: str) -> str:
    """An id from what the row says, so that importing the same row again is noticed."""
    first = title or next((value for value in variables.values() if isinstance(value, str)), "row")
    words = re.findall(r"[a-z0-9]+", first.casefold())[:5]
    return "-".join([*words, hashed[:6]])[-64:].lstrip("-")


def _check_ids(added: Sequence[tuple[Scenario, Row]], suite: Suite, table: Path, problems: Problems) -> None:
    seen = {scenario.id.casefold(): "the suite" for scenario in suite.scenarios}
    for scenario, row in added:
        where = seen.setdefault(scenario.id.casefold(), f"row {row.number}")
        if where != f"row {row.number}":
            message = f"row {row.number} has the id '{scenario.id}', which {where} has already"
            problems.add(table, message, line=row.line)


def _check_fit(added: Sequence[tuple[Scenario, Row]], suite: Suite, table: Path, problems: Problems) -> None:
    """Add one problem for each prompt and reason, with all its rows."""
    found: dict[tuple[str, str], list[Row]] = {}
    for prompt in suite.prompts:
        for scenario, row in added:
            try:
                render(prompt, scenario, n_tips=USUAL_TIPS, reply=suite.reply)
            except SuiteError as error:
                reason = error.message.partition(": ")[2] or error.message
                found.setdefault((prompt.id, reason), []).append(row)
    for (prompt_id, reason), rows in found.items():
        which = f"row {rows[0].number} does" if len(rows) == 1 else f"rows {_numbers(rows)} do"
        problems.add(table, f"{which} not fit the prompt '{prompt_id}': {reason}", line=rows[0].line)


def _numbers(rows: Sequence[Row]) -> str:
    shown = ", ".join(str(row.number) for row in rows[:10])
    return shown if len(rows) <= 10 else f"{shown} and {len(rows) - 10} more"
