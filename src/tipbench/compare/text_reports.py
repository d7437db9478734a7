"""The report for documents (Markdown) and for spreadsheets (CSV)."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tipbench.compare import figures
from tipbench.compare.leaderboard import LeaderboardRow
from tipbench.compare.recognise import MD_MARK
from tipbench.compare.report import Facts
from tipbench.compare.scores_file import ADVISE, WARNING
from tipbench.compare.table import report_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tipbench.compare.report import Report
    from tipbench.compare.table import Table

# What a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian scripts.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NESTED = ("p_values", "scales", "by_scenario")
_OF_HOSTS = ("host", "by_host")
_MARKDOWN = re.compile(r"[\\`*|\[\]<>&~$]|(?<!\w)_|_(?!\w)")
_BEGINS_BLOCK = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def report_md(report: Report) -> str:
    """What must be known first, what can be said, the table, and the notes; no text is taken for Markdown."""
    blocks = [
        f"# {_line(report.title)} {MD_MARK}",
        *(f"> **{_inline(line)}**" for line in report.first),
        *([f"**{_inline(report.headline)}**"] if report.headline else []),
        *map(_line, report.sentences),
        _md_table(report_table(report)),
        *_exploration(report),
        *_baseline(report),
        *(["\n".join(f"- {_line(note)}" for note in report.notes)] if report.notes else []),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def report_csv(report: Report) -> str:
    """One line for each combination, with the names that JSON has; lines end as RFC 4180 asks.

    Numbers by test, scale and scenario are columns such as `scales.tone`. Numbers are written in full, what
    is not known is empty, and a text that a spreadsheet would run as a formula begins with an apostrophe.
    Where there are several hosts, each row has its own, and speeds by host (`latency_ms.box:11434`).
    `warning` has what a reader must know first; `advise` is there, and false, where the judge is not trusted.
    `compare --scores` reads both.
    """
    rows = [_flat(row, report) for row in report.as_dict()["rows"]]
    names = list(dict.fromkeys(name for row in rows for name in row)) or _names_of_an_empty_one()
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _exploration(report: Report) -> Iterator[str]:
    if report.exploration:
        weights = (f"{name} × {figures.short(weight)}" for name, weight in report.exploration.weights.items())
        yield f"**Exploration, not a result** ({_inline(', '.join(weights))}): " + _inline(
            report.exploration.sentence
        )


def _baseline(report: Report) -> Iterator[str]:
    if report.baseline:
        yield "## Against the baseline"
        yield from map(_line, report.baseline.sentences)


def _md_table(table: Table) -> str:
    if not table.rows:
        return ""
    rules = ["---" if column.align == "left" else "---:" for column in table.columns]
    titles = [_inline(column.title) for column in table.columns]
    rows = [
        [f"**{_inline(text)}**" if at in table.marked and text.strip() else _inline(text) for text in row[:1]]
        + [_inline(text) for text in row[1:]]
        for at, row in enumerate(table.rows)
    ]
    return "\n".join(_md_row(row) for row in [titles, rules, *rows])


def _md_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _line(text: str) -> str:
    """A text that stands alone: its first letter must not make a heading or a list of it."""
    return _BEGINS_BLOCK.sub(_held, _inline(text))


def _held(found: re.Match[str]) -> str:
    return f"{found[0]}\\" if found[0][0].isdigit() else f"\\{found[0]}"


def _inline(text: str) -> str:
    flat = " ".join(figures.readable(text).split())
    return _MARKDOWN.sub(lambda found: {"<": "&lt;", "&": "&amp;"}.get(found[0], f"\\{found[0]}"), flat)


def _flat(row: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Nested numbers as columns of their own, after all others."""
    flat = {name: value for name, value in row.items() if name not in {*_NESTED, *_OF_HOSTS}}
    for outer in _NESTED:
        flat |= {f"{outer}.{name}": value for name, value in (row.get(outer) or {}).items()}
    if report.first:
        flat[WARNING] = " ".join(report.first)
    if not report.advise:
        flat[ADVISE] = False
    if row.get("sampling"):
        flat["sampling"] = " ".join(f"{name}={_plain(value)}" for name, value in row["sampling"].items())
    return flat | (_of_hosts(row, report) if report.on_several_hosts else {})


def _plain(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _of_hosts(row: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The row's host and its speeds on each; every row has the same columns."""
    speeds = {
        f"{name}.{host.name}": row["by_host"].get(host.name, {}).get(name)
        for host in report.hosts
        for name in ("latency_ms", "tokens_per_s")
    }
    return {"host": row["host"], **speeds}


def _names_of_an_empty_one() -> Sequence[str]:
    """A file without rows still says what they would have."""
    left_out = {*_NESTED, *_OF_HOSTS, "candidates"}
    return [
        one.name for record in (LeaderboardRow, Facts) for one in fields(record) if one.name not in left_out
    ]


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _inert(figures.readable(value))
    return value


def _inert(text: str) -> str:
    dangerous = text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_FORMULA)
    return f"'{text}" if dangerous else text
