"""Rows of scenarios from a table that people have: CSV (also Excel's), TSV, JSON or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.errors import SuiteError
from tipbench.suite.files import LARGE, decoded, read_bytes
from tipbench.suite.problems import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tipbench.suite.problems import Problems

_DELIMITERS = ",;\t|"
_ROWS = "one in each row, below a first row that names the columns"
_TO_WRITE = {
    ".json": 'a list with one object for each, such as [{"id": …}]',
    ".jsonl": 'one object for each, on a line of its own, such as {"id": …}',
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row as it was found: `number` is the one a spreadsheet shows, `line` the file's."""

    number: int
    line: int
    values: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """The filled rows of a file, and all its columns: also those that are empty in every row."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def read_table(path: Path, problems: Problems) -> Table:
    """Read a file by its ending; cells of a CSV are text, and an empty one is left out.

    A row that cannot be read becomes a problem. Raises SuiteError for a file that is not a table.
    """
    ending = path.suffix.casefold()
    reader = _READERS.get(ending)
    if reader is None:
        raise SuiteError(path, f"is not a table that can be read; save it as {listed(_READERS)}")
    text = decoded(read_bytes(path, limit=LARGE, links=True), path)
    table = reader(text, path, problems) if text.strip() else _NO_ROWS
    if not table.rows and not problems.errors:
        raise SuiteError(path, f"has no scenarios; write {_TO_WRITE.get(ending, _ROWS)}")
    return table


def _separated(text: str, path: Path, problems: Problems) -> Table:
    delimiter, body, skipped = _delimiter(text, path)
    reader = csv.reader(io.StringIO(body), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[Row] = []
    line = skipped + 1
    with problems.gather():
        for number, cells in enumerate(_records(reader, path, skipped), start=skipped + 1):
            stripped = [cell.strip() for cell in cells]
            if not header:
                header = _header(stripped, path, line) if any(stripped) else []
            elif any(stripped):
                with problems.gather():
                    values = _cells(stripped, header, path, number, line)
                    rows.append(Row(number=number, line=line, values=values))
            line = skipped + reader.line_num + 1
    return Table(columns=tuple(header), rows=tuple(rows))


def _records(reader: Any, path: Path, skipped: int) -> Iterator[list[str]]:  # noqa: ANN401 - csv's reader is private
    try:
        yield from reader
    except csv.Error as error:
        message = f"is not a well-formed table: {error} (a quote that is not closed, or text around one?)"
        raise SuiteError(path, message, line=skipped + reader.line_num) from None


def _delimiter(text: str, path: Path) -> tuple[str, str, int]:
    """What separates the cells, the text to read, and how many lines were skipped to get there."""
    first, _, rest = text.lstrip("\n").partition("\n")
    if first.casefold().startswith("sep=") and len(first.strip()) == 5:
        return first[4], rest, 1
    if path.suffix.casefold() == ".tsv":
        return "\t", text, 0
    outside = "".join(first.split('"')[::2])
    return max(_DELIMITERS, key=outside.count), text, 0


def _header(cells: list[str], path: Path, line: int) -> list[str]:
    while cells and not cells[-1]:
        cells = cells[:-1]
    if not cells:
        raise SuiteError(path, "the first row must name the columns", line=line)
    if "" in cells:
        raise SuiteError(path, f"column {cells.index('') + 1} has no name", line=line)
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise SuiteError(path, f"the column '{twice[0]}' is there twice", line=line)
    return cells


def _cells(cells: list[str], header: list[str], path: Path, number: int, line: int) -> dict[str, str]:
    while len(cells) > len(header) and not cells[-1]:
        cells = cells[:-1]
    if len(cells) != len(header):
        message = (
            f"row {number} has {len(cells)} cells where the header has {len(header)}; quote a cell that "
        )
        raise SuiteError(path, message + "holds the separator", line=line)
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}


def _json_lines(text: str, path: Path, problems: Problems) -> Table:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            with problems.gather():
                rows.append(_object_row(_json(line, path, first_line=number), path, number, number))
    return _table(rows)


def _json_list(text: str, path: Path, problems: Problems) -> Table:
    value = _json(text, path, first_line=1)
    if isinstance(value, dict) and list(value) == ["scenarios"]:
        value = value["scenarios"]
    if not isinstance(value, list):
        raise SuiteError(path, "must hold a list of objects, one for each scenario")
    rows = []
    for number, item in enumerate(value, start=1):
        with problems.gather():
            rows.append(_object_row(item, path, number, None))
    return _table(rows)


def _table(rows: Sequence[Row]) -> Table:
    return Table(columns=tuple(dict.fromkeys(name for row in rows for name in row.values)), rows=tuple(rows))


def _object_row(value: object, path: Path, number: int, line: int | None) -> Row:
    if not isinstance(value, dict):
        raise SuiteError(path, f'row {number} is not an object such as {{"id": …}}', line=line)
    return Row(
        number=number, line=line or 0, values={key: item for key, item in value.items() if item is not None}
    )


def _json(text: str, path: Path, *, first_line: int) -> Any:  # noqa: ANN401 - JSON of any shape
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg} (column {error.colno})"
        raise SuiteError(path, message, line=first_line + error.lineno - 1) from None
    except ValueError as error:
        raise SuiteError(path, f"is not valid: {error}", line=first_line) from None
    except RecursionError:
        raise SuiteError(path, "is nested too deeply", line=first_line) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key '{twice}' is there twice in one object")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


_NO_ROWS = Table(columns=(), rows=())
_READERS: dict[str, Callable[[str, Path, Problems], Table]] = {
    ".csv": _separated,
    ".tsv": _separated,
    ".json": _json_list,
    ".jsonl": _json_lines,
}
