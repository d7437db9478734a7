from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest

from report_samples import nasty_report, sample_report
from tipbench.compare.leaderboard import rank
from tipbench.compare.report import Exploration
from tipbench.compare.text_reports import report_csv, report_md


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_csv_has_the_names_and_values_of_json() -> None:
    """One line for each combination; numbers are written in full, so that nothing is lost."""
    report = sample_report()
    head, *lines = rows(report_csv(report))
    first = report.as_dict()["rows"][0]
    nested = {"p_values", "scales", "by_scenario"}
    assert set(first) - nested == {name for name in head if "." not in name}
    assert len(lines) == len(report.board.rows)
    line = dict(zip(head, lines[0], strict=True))
    assert line["model"] == first["model"]
    assert float(line["mean"]) == first["mean"]
    assert float(line["scales.tone"]) == first["scales"]["tone"]
    assert float(line["by_scenario.s01"]) == first["by_scenario"]["s01"]
    assert line["tied_for_first"] == "true"


def test_csv_leaves_the_unknown_empty() -> None:
    """Neither None nor a dash is a number."""
    report = replace(sample_report(n_scenarios=1), facts={})
    head, first, *_ = rows(report_csv(report))
    line = dict(zip(head, first, strict=True))
    assert (line["low"], line["latency_ms"], line["behind"]) == ("", "", "0.0")


def test_csv_is_square_and_ends_lines_as_the_standard_says() -> None:
    """RFC 4180: CRLF, quotes where needed, as many fields in every line."""
    text = report_csv(nasty_report())
    assert text.endswith("\r\n")
    assert len({len(row) for row in rows(text)}) == 1
    assert text.encode().decode() == text


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1"])
def test_csv_runs_no_formula(start: str) -> None:
    """A text that a spreadsheet would calculate is held back by an apostrophe; negative numbers are not."""
    values = [
        (start, "v1", "s", -1.0),
        (start, "v1", "t", -2.0),
        ("m", "v1", "s", -3.0),
        ("m", "v1", "t", -3.5),
    ]
    head, *lines = rows(report_csv(replace(sample_report(), board=rank(values), facts={})))
    line = next(dict(zip(head, line, strict=True)) for line in lines if line[0] != "m")
    assert line["model"].startswith("'")
    assert float(line["mean"]) == -1.5


def test_csv_without_rows_has_its_head() -> None:
    """Nothing to compare is an empty table, not an empty file."""
    (head,) = rows(report_csv(replace(sample_report(), board=rank([]))))
    assert head[:3] == ["model", "prompt", "n_scenarios"]
    assert "latency_ms" in head


def test_md_has_the_answer_the_table_and_the_notes() -> None:
    """In the order in which they should be read."""
    report = sample_report(first=("Judged by the proxy.",), notes=("3 cells failed.",))
    explored = Exploration(weights={"tone": 2.0}, board=report.board, sentence="The winner stays.")
    text = report_md(replace(report, exploration=explored))
    order = [
        "# tips-may",
        "> **Judged by the proxy.**",
        report.sentences[0],
        report.sentences[1],
        "| model |",
    ]
    order += ["Exploration, not a result", "The winner stays.", "- 3 cells failed."]
    found = [text.index(part) for part in order]
    assert found == sorted(found)


def test_md_tables_are_square_whatever_the_names() -> None:
    """Pipes and line breaks in names do not make cells; markup in them is not markup."""
    text = report_md(nasty_report())
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 14
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "<script" not in text
    assert "\n# not" not in text
    assert r"\`c\` \*d\* \[e\]" in text
    assert "\n\\- second" in text


def test_md_of_nothing_has_no_table() -> None:
    """Only the sentences are left."""
    text = report_md(replace(sample_report(), board=rank([]), facts={}))
    assert "|" not in text
