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
from tipbench.suite.problems import Problems, did_you_mean
from tipbench.suite.scenario import Scenario, bad_variable, make_scenario
from tipbench.suite.suite import USUAL_TIPS, Suite, render
from tipbench.suite.table import Row, read_table
from tipbench.suite.template import compile_template
from tipbench.suite.yamldoc import number

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

_TYPED = (".json", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What was added, to which file; `unused` are columns that no prompt asks for."""

    path: Path
    ids: tuple[str, ...]
    unused: tuple[str, ...]


def import_scenarios(suite_path: str | os.PathLike[str], table_path: str | os.PathLike[str]) -> Imported:
    """Add a table's rows to a suite's `scenarios.yaml`, whose text stays as it is; all of them or none."""
    folder, table = find_suite(suite_path), Path(table_path).expanduser()
    suite = _suite(folder)
    rows = [_lower_keys(row) for row in read_table(table)]
    _check_columns(rows, suite, table)
    if table.suffix.casefold() not in _TYPED:
        rows = _converted(rows, suite)
    problems = Problems()
    added = _scenarios(rows, layered_personas(folder), table, problems)
    _check_ids(added, suite, table, problems)
    if _check_fit(added, suite, table, problems):
        _check_names(rows, suite, table)
    problems.raise_first()
    path = append_scenarios(folder, [(scenario, row.values) for scenario, row in added])
    unused = {name for row in rows for name in row.values} - _used(suite) - {"id", "title"}
    return Imported(path=path, ids=tuple(scenario.id for scenario, _ in added), unused=tuple(sorted(unused)))


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


def _check_columns(rows: Sequence[Row], suite: Suite, table: Path) -> None:
    for name in dict.fromkeys(name for row in rows for name in row.values):
        wrong = None if name in {"id", "title"} else bad_variable(name)
        if wrong:
            plain = re.sub(r"\W+", "_", name.casefold()).strip("_")
            raise SuiteError(table, f"{wrong}{did_you_mean(plain, _used(suite))}", line=1)


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


def _check_names(rows: Sequence[Row], suite: Suite, table: Path) -> None:
    """Raise for a column that no prompt uses, if its name is close to a variable that has no column."""
    columns, used = {name for row in rows for name in row.values}, _used(suite)
    for name in sorted(columns - used - {"id", "title"}):
        near = did_you_mean(name, used - columns)
        if near:
            raise SuiteError(table, f"unknown column '{name}'{near.replace(';', ',', 1)}", line=1)


def _check_fit(added: Sequence[tuple[Scenario, Row]], suite: Suite, table: Path, problems: Problems) -> bool:
    """Add one problem for each prompt and reason, with all its rows. Return whether there is any."""
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
    return bool(found)


def _numbers(rows: Sequence[Row]) -> str:
    shown = ", ".join(str(row.number) for row in rows[:10])
    return shown if len(rows) <= 10 else f"{shown} and {len(rows) - 10} more"
