from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.compare.leaderboard import rank
from tipbench.compare.scores_file import read_scores, read_warning
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from tipbench.compare.scores import Row

HEADER = "model,prompt,scenario,composite\n"


def test_rows_as_rank_takes_them() -> None:
    """Each row of the table is one score; an empty composite is unjudged."""
    rows = read_scores(HEADER + "qwen,v1,s1,9.5\nqwen,v1,s2,\nllama,v1,s1,-1e1\n", "scores.csv")
    assert rows == [("qwen", "v1", "s1", 9.5), ("qwen", "v1", "s2", None), ("llama", "v1", "s1", -10)]
    assert rank(rows).n_unjudged == 1


@pytest.mark.parametrize(
    "text",
    [
        "composite,scenario,prompt,model\n9,s,v,q\n",
        "Model,PROMPT, Scenario ,Composite\nq,v,s,9\n",
        "\ufeffmodel,prompt,scenario,composite\r\nq,v,s,9\r\n",
        "model,prompt,scenario,composite\rq,v,s,9\r",
        "model;prompt;scenario;composite\nq;v;s;9\n",
        "sep=;\nmodel;prompt;scenario;composite\nq;v;s;9\n",
        "model\tprompt\tscenario\tcomposite\nq\tv\ts\t9",
        '"model","prompt","scenario","composite"\n"q","v","s","9"\n',
        "\n\nmodel,note,prompt,scenario,composite,\n\nq,any,v,s, +9.0 ,,\n,,,,\n",
        'model,note,prompt,scenario,composite\nq,"two\nlines, quoted",v,s,9\n',
    ],
    ids=[
        "order",
        "case",
        "excel",
        "old mac",
        "semicolon",
        "sep line",
        "tab",
        "quoted",
        "blank and extra",
        "newline",
    ],
)
def test_tables_as_people_have_them(text: str) -> None:
    """Order, case, other columns, line ends and separators make no difference."""
    assert read_scores(text, "x.csv") == [("q", "v", "s", 9)]


def test_names_may_hold_anything() -> None:
    """A quoted name keeps its separators and quotes, and is text even if it looks like a number."""
    rows = read_scores(HEADER + '"a,b","say ""hi""",007,1\n', "x.csv")
    assert rows == [("a,b", 'say "hi"', "007", 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv: is empty; it needs the columns model,prompt,scenario,composite"),
        ("\ufeff \n\n", "x.csv: is empty"),
        (HEADER, "x.csv:1: there are no rows below the header"),
        ("PK\x03\x04\0\0", "x.csv: is not a text file"),
        (
            "model,prompt,scenario,compsite\nq,v,s,1\n",
            "x.csv:1: there is no column 'composite' among model, ",
        ),
        ("model,prompt,scenario,compsite\nq,v,s,1\n", "; did you mean 'compsite'?"),
        (
            "\nmodel,prompt,scenario,score\n",
            "x.csv:2: there is no column 'composite' among model, prompt, scenario, score; it needs",
        ),
        ("q,v1,s1,9\n", "x.csv:1: there is no column 'model'"),
        ("model,prompt,scenario,composite,Model\n", "x.csv:1: the column 'model' is there twice"),
        (HEADER + "q,v,s,9\nq,v,s\n", "x.csv:3: this row has 3 cells where the header has 4"),
        (HEADER + "q,v,s,9,5\n", "x.csv:2: this row has 5 cells where the header has 4"),
        (HEADER + ",v,s,9\n", "x.csv:2: the model is empty"),
        (HEADER + "q, ,s,9\n", "x.csv:2: the prompt is empty"),
        (HEADER + 'q,v,"",9\n', "x.csv:2: the scenario is empty"),
        (HEADER + "q,v,s,nan\n", "x.csv:2: the composite is 'nan'; give a number, or leave it empty"),
        (HEADER + "q,v,s,-inf\n", "x.csv:2: the composite is '-inf'"),
        (HEADER + "q,v,s,1e999\n", "x.csv:2: the composite is '1e999'"),
        (HEADER + "q,v,s,1e101\n", "x.csv:2: the composite is '1e101'"),
        (HEADER + "q,v,s,1_0\n", "x.csv:2: the composite is '1_0'"),
        (HEADER + "q,v,s,٣\n", "x.csv:2: the composite is '٣'"),
        (HEADER + "q,v,s,good\n", "x.csv:2: the composite is 'good'"),
        (HEADER + 'q,v,s,"9,5"\n', "x.csv:2: the composite is '9,5'; write it with a decimal point, 9.5"),
        (
            "model;prompt;scenario;composite\n\nq;v;s;9,5\n",
            "x.csv:3: the composite is '9,5'; write it with a",
        ),
        ("\n\n" + HEADER + "q,v,s,x\n", "x.csv:4: the composite is 'x'"),
        ("sep=,\n" + HEADER + "q,v,s,1\n\nq,v,s,x\n", "x.csv:5: the composite is 'x'"),
        (HEADER + 'q,v,s,"so\nso"\n', "x.csv:2: the composite is 'so so'"),
        (HEADER + 'q,"v\nw",s,1\nq,v,s,x\n', "x.csv:4: the composite is 'x'"),
        (HEADER + 'q,v,s,1\n"q,v,s,1\nq,v,s,1\n', "x.csv:3: this row cannot be read"),
        (HEADER + "q,v,s," + "z" * 99 + "\n", "z" * 40 + "…'; give a number"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, message: str) -> None:
    """One sentence that begins with the file and the line as an editor counts it."""
    with pytest.raises(BadInput) as caught:
        read_scores(text, Path("x.csv"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.csv:")
    assert "\n" not in str(caught.value)


NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=8)


@given(
    st.lists(
        st.tuples(NAMES, NAMES, NAMES, st.one_of(st.none(), st.floats(-1e9, 1e9))), min_size=1, max_size=8
    )
)
def test_what_a_spreadsheet_writes_is_read_back(rows: list[tuple[str, str, str, float | None]]) -> None:
    """Any names and numbers survive being written by the csv module."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["model", "prompt", "scenario", "composite"])
    writer.writerows(rows)
    assert read_scores(out.getvalue(), "x.csv") == rows


@given(st.text(max_size=80))
def test_any_text_gives_rows_or_a_sentence(text: str) -> None:
    """Nothing but BadInput comes of a bad file."""
    for beginning in ("", HEADER):
        found, said = rows_or_sentence(beginning + text)
        assert found or said.startswith("x.csv:")
        assert len(said.splitlines()) <= 1


def rows_or_sentence(text: str) -> tuple[list[Row], str]:
    try:
        return read_scores(text, "x.csv"), ""
    except BadInput as error:
        return [], str(error)


@pytest.mark.parametrize(
    ("columns", "cells", "found"),
    [
        ("", "", ("", True)),
        (",advise", ",", ("", True)),
        (",advise", ",true", ("", True)),
        (",advise,warning", ",FALSE,Do not.", ("Do not.", False)),
        (",warning", ",Drift not checked.", ("Drift not checked.", True)),
    ],
)
def test_the_warning_of_an_own_leaderboard_is_read(columns: str, cells: str, found: tuple[str, bool]) -> None:
    """Also from a spreadsheet that writes FALSE; a table of another kind has no warning."""
    own = f"model,prompt,by_scenario.s1{columns}\nq,v1,3{cells}\nr,v1,4{cells}\n"
    assert read_warning(own, "x.csv") == found
    assert read_warning(own.replace(",", ";"), "x.csv") == found
    assert read_scores(own, "x.csv") == [("q", "v1", "s1", 3), ("r", "v1", "s1", 4)]
    assert read_warning(f"model,prompt,scenario,composite{columns}\nq,v1,s1,3{cells}\n", "x.csv") == (
        "",
        True,
    )


def test_a_leaderboard_without_advice_has_a_warning_also_where_its_text_is_gone() -> None:
    """Somebody deleted the column with the words."""
    warning, advise = read_warning("model,prompt,by_scenario.s1,advise\nq,v1,3,false\n", "x.csv")
    assert not advise
    assert "Do not ship on them" in warning
