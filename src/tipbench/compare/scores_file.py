"""Anybody's scores from a CSV text with the columns model, prompt, scenario and composite."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING, NoReturn

from tipbench.errors import BadInput
from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.compare.scores import Row

COLUMNS = ("model", "prompt", "scenario", "composite")
_OWN = "by_scenario."  # how a column of our own leaderboard begins
WARNING, ADVISE = "warning", "advise"
_NO_ADVICE = "The judge of these scores is not trusted to rank alone. Do not ship on them."
_SEPARATORS = ",;\t"
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_LARGEST = 1e100


def read_scores(text: str, path: str | os.PathLike[str]) -> list[Row]:
    """Rows for `rank`, one for each row of the table; an empty composite is unjudged.

    Columns may come in any order and case, with others among them; commas, semicolons or tabs separate them.
    What is wrong is told in one sentence that begins with `path:line:`.
    """
    where = str(path)
    text = text.removeprefix("\ufeff")
    empty = BadInput(f"{where}: is empty; it needs the columns {','.join(COLUMNS)} and a row for each score")
    if not text.strip():
        raise empty
    if "\0" in text:
        raise BadInput(f"{where}: is not a text file; save the table as CSV in UTF-8")
    records = _records(text, where)
    line, header = next(records, (0, []))
    if not header:
        raise empty
    own = _own_scenarios(header)
    if own:
        return [row for line, cells in records for row in _own_rows(cells, header, own, where, line)]
    places = _places(header, where, line)
    rows = [_row(cells, places, len(header), where, line) for line, cells in records]
    if not rows:
        _fail(where, line, "there are no rows below the header; add one for each score")
    return rows


def read_warning(text: str, path: str | os.PathLike[str]) -> tuple[str, bool]:
    """The warning in a leaderboard that `compare` wrote, and whether its ranking may recommend anything.

    The warning is empty, and the ranking may recommend, in any other table and in one of an earlier version.
    """
    records = _records(text.removeprefix("\ufeff"), str(path))
    _, header = next(records, (0, []))
    if not _own_scenarios(header):
        return "", True
    rows = [dict(zip(header, cells, strict=False)) for _, cells in records]
    warning = next((row[WARNING] for row in rows if row.get(WARNING)), "")
    advise = all(row.get(ADVISE, "").casefold() in {"", "true"} for row in rows)
    return warning or ("" if advise else _NO_ADVICE), advise


def _own_scenarios(header: Sequence[str]) -> dict[int, str]:
    """The scenarios of a leaderboard that `compare` wrote, by column; empty for any other table."""
    found = {at: name[len(_OWN) :] for at, name in enumerate(header) if name.startswith(_OWN)}
    return found if {"model", "prompt"} <= set(header) else {}


def _own_rows(
    cells: list[str], header: Sequence[str], scenarios: Mapping[int, str], where: str, line: int
) -> Iterator[Row]:
    """The rows behind one line of a leaderboard that `compare --format csv` wrote."""
    if len(cells) != len(header):
        _fail(where, line, f"this row has {len(cells)} cells where the header has {len(header)}")
    named = dict(zip(header, cells, strict=True))
    model, prompt = named["model"], named["prompt"]
    label = named.get("label", "")
    for at, scenario in scenarios.items():
        yield model, label.removeprefix(f"{model} · ") or prompt, scenario, _number(cells[at], where, line)


def _records(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the line on which it begins."""
    body, skipped, separator = _opened(text)
    reader = csv.reader(io.StringIO(body, newline=""), delimiter=separator, strict=True)
    line = skipped + 1
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield line, stripped
            line = skipped + reader.line_num + 1
    except csv.Error as error:
        _fail(where, line, f"this row cannot be read ({error}); look for a quote that is not closed")


def _opened(text: str) -> tuple[str, int, str]:
    """The table, how many lines were before it, and what separates its cells: Excel may say so in a line."""
    lines = list(io.StringIO(text, newline=""))
    first = next(at for at, line in enumerate(lines) if line.strip())
    said = lines[first].strip("\r\n \ufeff")
    if said.casefold().startswith("sep=") and len(said) == len("sep=,"):
        return "".join(lines[first + 1 :]), first + 1, said[-1]
    outside = "".join(lines[first].split('"')[::2])
    return "".join(lines[first:]), first, max(_SEPARATORS, key=outside.count)


def _places(header: Sequence[str], where: str, line: int) -> dict[str, int]:
    """Where each column is."""
    names = [name.casefold() for name in header]
    for column in COLUMNS:
        if column not in names:
            others = [_shown(name) for name in header if name and name.casefold() not in COLUMNS]
            hint = did_you_mean(column, others) or f"; it needs {', '.join(COLUMNS)}"
            given = listed(_shown(name) for name in header if name)
            _fail(where, line, f"there is no column '{column}' among {given}{hint}")
        if names.count(column) > 1:
            _fail(where, line, f"the column '{column}' is there twice; keep one of them")
    return {column: names.index(column) for column in COLUMNS}


def _row(cells: list[str], places: Mapping[str, int], width: int, where: str, line: int) -> Row:
    while len(cells) > width and not cells[-1]:
        cells = cells[:-1]
    if len(cells) != width:
        hint = "; quote a cell that holds the separator, and write decimals with a point"
        _fail(where, line, f"this row has {len(cells)} cells where the header has {width}{hint}")
    model, prompt, scenario, composite = (cells[places[column]] for column in COLUMNS)
    for column, cell in zip(COLUMNS, (model, prompt, scenario), strict=False):
        if not cell:
            _fail(where, line, f"the {column} is empty; give its name")
    return model, prompt, scenario, _number(composite, where, line)


def _number(cell: str, where: str, line: int) -> float | None:
    if not cell:
        return None
    if _DECIMAL_COMMA.fullmatch(cell):
        meant = cell.replace(",", ".")
        _fail(where, line, f"the composite is '{cell}'; write it with a decimal point, {meant}")
    value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
    if not abs(value) <= _LARGEST:
        shown = _shown(cell)
        _fail(
            where,
            line,
            f"the composite is '{shown}'; give a number, or leave it empty where nothing is judged",
        )
    return value


def _shown(cell: str) -> str:
    """A cell within a sentence: on one line, and not longer than one reads."""
    line = " ".join(cell.split())
    return line if len(line) <= 40 else f"{line[:40]}…"


def _fail(where: str, line: int, message: str) -> NoReturn:
    raise BadInput(f"{where}:{line}: {message}")
