from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite_files import PROMPT, SCENARIOS, write_suite
from tipbench.errors import BadInput, SuiteError
from tipbench.suite import import_scenarios, load_suite
from tipbench.suite.append import replace_file

HEADER = "id,who,tasks\n"


def _import(folder: Path, content: str | bytes, name: str = "rows.csv") -> tuple[str, ...]:
    table = folder.parent / name
    table.write_bytes(content.encode() if isinstance(content, str) else content)
    return import_scenarios(folder, table).ids


def _variables(folder: Path, scenario_id: str) -> dict[str, Any]:
    return dict(load_suite(folder).scenario(scenario_id).variables)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (HEADER + 'x,Eve,"eat; drink"\n', "rows.csv"),
        (HEADER + "x,Eve,eat; drink", "rows.csv"),
        (HEADER + 'x,Eve,"eat\ndrink"\n', "rows.csv"),
        (b"\xef\xbb\xbf" + (HEADER + "x,Eve,eat;drink;\r\n").replace("\n", "\r\n").encode(), "rows.csv"),
        ('id;who;tasks\nx;Eve;"eat; drink"\n', "rows.csv"),
        ('sep=;\nid;who;tasks\nx;Eve;"eat; drink"\n', "rows.csv"),
        ("id\twho\ttasks\nx\tEve\teat;drink\n", "rows.csv"),
        ("id\twho\ttasks\nx\tEve\teat;drink\n", "rows.tsv"),
        ("id|who|tasks\nx|Eve|eat;drink\n", "rows.CSV"),
        ("ID , who,tasks,,\nx, Eve ,eat;drink,,\n,,,,\n\n", "rows.csv"),
        ("\n\n" + HEADER + "\nx,Eve,eat;drink\n\n", "rows.csv"),
        ('{"id": "x", "who": "Eve", "tasks": ["eat", "drink"]}\n\n', "rows.jsonl"),
        ('[{"id": "x", "who": "Eve", "tasks": ["eat", "drink"], "note": null}]', "rows.json"),
        ('{"scenarios": [{"id": "x", "who": "Eve", "tasks": ["eat", "drink"]}]}', "rows.json"),
    ],
)
def test_tables_as_people_have_them(tmp_path: Path, content: str | bytes, name: str) -> None:
    """Commas, semicolons, tabs, Excel's extras, quoted newlines and JSON all give the same scenario."""
    folder = write_suite(tmp_path / "suite")
    assert _import(folder, content, name) == ("x",)
    assert _variables(folder, "x") == {"who": "Eve", "tasks": ["eat", "drink"]}


@pytest.mark.parametrize(
    ("content", "line", "part"),
    [
        ("", None, "has no scenarios; write one in each row, below a first row that names the columns"),
        ("\ufeff\n\n", None, "has no scenarios"),
        (HEADER, None, "has no scenarios; write one in each row"),
        (HEADER + "x,J\xf6rg,eat\n", 2, "is not UTF-8 (byte 0xF6), perhaps Latin-1"),
        ((HEADER + "x,Eve,eat\n").encode("utf-16"), None, "UTF-16"),
        (HEADER + "x,Eve\n", 2, "row 2 has 2 cells where the header has 3"),
        (HEADER + "y,Ed,eat\nx,Eve,eat,drink\n", 3, "row 3 has 4 cells"),
        (HEADER + 'y,"a\nb",eat\nx,Eve\n', 4, "row 3 has 2 cells"),
        (HEADER + 'x,"Eve,eat\n', 2, "is not a well-formed table"),
        (HEADER + 'x,"Eve"e,eat\n', 2, "is not a well-formed table"),
        (HEADER + "x,Eve,eat\0\n", 2, "U+0000"),
        ("id,who,who\nx,Eve,eat\n", 1, "'who' is there twice"),
        ("id,,tasks\nx,Eve,eat\n", 1, "column 2 has no name"),
        ("id,who is,tasks\nx,Eve,eat\n", 1, "'who is' cannot name a variable"),
        ("id,Who!,tasks\nx,Eve,eat\n", 1, "did you mean 'who'?"),
        ("id,n_tips,who,tasks\nx,3,Eve,eat\n", 1, "'n_tips' is set by tipbench"),
        ("id,tasks\nx,eat\n", 2, "row 2 does not fit the prompt 'v1': there is no variable 'who'"),
        (
            HEADER + "x,Eve,eat\ny,,eat\nz,,eat\n",
            3,
            "rows 3, 4 do not fit the prompt 'v1': there is no variable 'who'",
        ),
        (HEADER + "one,Eve,eat\n", 2, "row 2 has the id 'one', which the suite has already"),
        (HEADER + "x,Eve,eat\nX,Ed,eat\n", 3, "row 3 has the id 'X', which row 2 has already"),
        (HEADER + "x/y,Eve,eat\n", 2, "row 2: 'x/y' is not an id"),
        ("who,tasks\nEve,eat\nEve,eat\n", 3, "which row 2 has already"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, content: str | bytes, line: int | None, part: str) -> None:
    """Each mistake names its row and line, and the suite stays as it was."""
    folder = write_suite(tmp_path / "suite")
    before = (folder / "scenarios.yaml").read_bytes()
    data = (
        content if isinstance(content, bytes) else content.encode("latin-1" if "\xf6" in content else "utf-8")
    )
    with pytest.raises(SuiteError) as caught:
        _import(folder, data)
    assert part in str(caught.value)
    assert caught.value.line == line
    assert (folder / "scenarios.yaml").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {
        "suite.yaml",
        "rubric.md",
        "prompts",
        "scenarios.yaml",
    }


@pytest.mark.parametrize(
    ("content", "name", "part"),
    [
        (
            "[]",
            "rows.json",
            'rows.json: has no scenarios; write a list with one object for each, such as [{"id"',
        ),
        ('{"scenarios": []}', "rows.json", "has no scenarios; write a list"),
        ("", "rows.json", "has no scenarios; write a list"),
        ("\n", "rows.jsonl", "rows.jsonl: has no scenarios; write one object for each, on a line of its own"),
        ("[1]", "rows.json", "row 1 is not an object"),
        ('{"a": 1}', "rows.json", "must hold a list"),
        ('[{"id": "x",}]', "rows.json", "is not valid JSON"),
        ('{"id": "x"}\n{"id": }\n', "rows.jsonl", "rows.jsonl:2: is not valid JSON"),
        ('[{"id": "x", "id": "y"}]', "rows.json", "'id' is there twice"),
        ('[{"id": "x", "who": NaN, "tasks": []}]', "rows.json", "NaN"),
        ('[{"id": "x", "who": "\\ud800", "tasks": []}]', "rows.json", "surrogate"),
        ('[{"id": "x", "who": "a", "tasks": [null]}]', "rows.json", "no value"),
        ('[{"id": "x", "who": "a", "tasks": "eat"}]', "rows.json", "letter by letter"),
        ('[{"id": "x", "who": 1e999, "tasks": []}]', "rows.json", "not finite"),
        ("[" * 100_000, "rows.json", "nested too deeply"),
        ("x", "rows.xlsx", "save it as .csv, .tsv, .json, .jsonl"),
        ("x", "rows", "save it as"),
    ],
)
def test_other_tables_that_are_refused(tmp_path: Path, content: str, name: str, part: str) -> None:
    """JSON that is no table of scenarios, and files of other kinds, are told in a sentence."""
    folder = write_suite(tmp_path / "suite")
    with pytest.raises(SuiteError) as caught:
        _import(folder, content, name)
    assert part in str(caught.value)


def test_what_is_there_stays(tmp_path: Path) -> None:
    """Comments, order and layout of the scenarios that are there are kept to the letter."""
    folder = write_suite(tmp_path / "suite")
    ids = _import(folder, HEADER + "x,Eve,eat;drink\ny,18:30,no\n")
    assert ids == ("x", "y")
    text = (folder / "scenarios.yaml").read_text()
    assert text == SCENARIOS + (
        "  - id: x\n    who: Eve\n    tasks:\n      - eat\n      - drink\n"
        '  - id: y\n    who: "18:30"\n    tasks:\n      - no\n'
    )


@pytest.mark.parametrize(
    "scenarios",
    [
        None,
        "",
        "# nothing yet\n",
        "scenarios:\n",
        "scenarios: []\n",
        "scenarios: []  # none yet\n",
        "\ufeffscenarios:\n",
        SCENARIOS.rstrip("\n"),
        SCENARIOS + "# the end\n",
        SCENARIOS + "\npersonas:\n  # people\n  ann: {name: Ann}\n",
        "personas:\n  ann: {name: Ann}\n",
        "- id: one\n  who: Ann\n  tasks: [x]\n",
        "---\nscenarios:\n- id: one\n  who: Ann\n  tasks:\n  - x\n\n\n# end\n",
        "scenarios:\n    - id: one\n      who: |+\n        Ann\n\n      tasks: [x]\n",
        "scenarios:\n    -\n      tasks: [x]\n      id: one\n      who: |\n        Ann\n\n",
        SCENARIOS.replace("\n", "\r\n"),
        "scenarios:\n  - {id: one, who: Ann, tasks: [a,\n b]}\n",
    ],
)
def test_layouts_that_can_be_added_to(tmp_path: Path, scenarios: str | None) -> None:
    """However the file is laid out, the old text stays and the new scenario is the last one."""
    folder = write_suite(tmp_path / "suite", scenarios=scenarios)
    before = scenarios or ""
    _import(folder, HEADER + "x,Eve,eat\n")
    suite = load_suite(folder)
    assert suite.scenarios[-1].id == "x"
    after = (folder / "scenarios.yaml").read_bytes().decode()
    new_lines = iter(after.splitlines())
    assert all(line in new_lines for line in before.replace("scenarios: []", "scenarios:").splitlines())
    assert after.count("\r\n") in {0, after.count("\n")}
    assert ("\r\n" in after) == ("\r\n" in before)


def test_a_layout_that_cannot_be_added_to(tmp_path: Path) -> None:
    """A list in brackets is left alone, and the message says what to do."""
    folder = write_suite(tmp_path / "suite", scenarios="scenarios: [{id: one, who: Ann, tasks: [x]}]\n")
    with pytest.raises(SuiteError, match=r"scenarios\.yaml:1: the list in \[ \] cannot be added to"):
        _import(folder, HEADER + "x,Eve,eat\n")


def test_a_value_that_would_not_come_back_is_refused(tmp_path: Path) -> None:
    """What is written is read back first; a value that would change on the way is not written."""
    folder = write_suite(tmp_path / "suite")
    rows = [{"id": "x", "who": 10**120, "tasks": ["eat"]}]
    with pytest.raises(SuiteError, match="the values of 'x' cannot be kept"):
        _import(folder, json.dumps(rows), "rows.json")
    assert (folder / "scenarios.yaml").read_text() == SCENARIOS


def test_somebody_elses_change_is_not_lost(tmp_path: Path) -> None:
    """A file that changed since it was read is left alone."""
    path = tmp_path / "scenarios.yaml"
    path.write_bytes(b"theirs")
    with pytest.raises(SuiteError, match="import again"):
        replace_file(path, b"as it was", b"ours")
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_ids_come_from_the_row(tmp_path: Path) -> None:
    """Without ids, a row is named by its content, and importing it again is noticed."""
    folder = write_suite(tmp_path / "suite")
    table = "who,tasks\nEve the Great,eat\nEve the Great,drink\n\u65e5\u672c,x\n"
    ids = _import(folder, table)
    assert [i[:14] for i in ids[:2]] == ["eve-the-great-", "eve-the-great-"]
    assert len(set(ids)) == 3
    with pytest.raises(SuiteError, match="which the suite has already"):
        _import(folder, table)


def test_titles_are_for_display(tmp_path: Path) -> None:
    """A title column names the scenario and is no variable."""
    folder = write_suite(tmp_path / "suite")
    _import(folder, "id,Title,who,tasks\nx,Eve's day,Eve,eat\n")
    scenario = load_suite(folder).scenario("x")
    assert scenario.title == "Eve's day"
    assert "title" not in scenario.variables


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("30", "45"), (30, 45)),
        (("30", "1.5"), (30, 1.5)),
        (("30", "half"), ("30", "half")),
        (("08", "09"), ("08", "09")),
        (("true", "no"), ("true", "no")),
        (("null", "~"), ("null", "~")),
    ],
)
def test_numbers_only_where_a_column_holds_nothing_else(
    tmp_path: Path, cells: tuple[str, str], expected: tuple[object, object]
) -> None:
    """A cell is text unless the whole column is numbers; nothing turns into true or nothing by itself."""
    folder = write_suite(tmp_path / "suite")
    _import(folder, f"id,who,tasks,minutes\nx,Eve,eat,{cells[0]}\ny,Eve,eat,{cells[1]}\n")
    found = (_variables(folder, "x")["minutes"], _variables(folder, "y")["minutes"])
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


def test_a_text_variable_stays_text(tmp_path: Path) -> None:
    """A name that looks like a number is a name where the suite's scenarios hold names."""
    folder = write_suite(tmp_path / "suite")
    _import(folder, HEADER + "x,7,eat\n")
    assert _variables(folder, "x")["who"] == "7"


def test_personas_are_looked_up(tmp_path: Path) -> None:
    """A persona column names personas of the suite; the file keeps the name, not a copy."""
    scenarios = "personas:\n  ann: {name: Ann}\nscenarios: []\n"
    prompt = "# User\n{{ n_tips }} {{ persona.name }}\n"
    folder = write_suite(tmp_path / "suite", v1=prompt, scenarios=scenarios)
    _import(folder, "id,persona\nx,ann\n")
    assert _variables(folder, "x") == {"persona": {"name": "Ann"}}
    assert "    persona: ann\n" in (folder / "scenarios.yaml").read_text()
    with pytest.raises(SuiteError, match=r"rows\.csv:2: .*unknown persona 'an'; did you mean 'ann'\?"):
        _import(folder, "id,persona\ny,an\n")


def test_a_suite_that_extends_takes_personas_from_there(tmp_path: Path) -> None:
    """Rows may name personas of the suite that is extended, and may not reuse its ids."""
    folder = write_suite(
        tmp_path / "suite", suite="id: mine\nextends: tip\n", rubric=None, v1=None, scenarios=None
    )
    _import(folder, "id,persona,when,energy,tasks\nx,carl,now,low,rest;eat\n")
    assert _variables(folder, "x")["persona"]["name"] == "Carl"
    assert len(load_suite(folder).scenarios) == 9
    with pytest.raises(SuiteError, match="the suite has already"):
        _import(folder, "id,persona,when,energy,tasks\ncarl-closing-time,carl,now,low,rest\n")


UNKNOWN = "rows.csv:1: unknown column 'taks', did you mean 'tasks'?"


@pytest.mark.parametrize(
    "rows",
    [
        "id,who,taks\nx,Eve,eat\n",
        "id,who,taks\none,Eve,eat\n",
        "id,who,taks\nx/y,Eve,eat\n",
        "id,who,taks\nx,Eve,eat\nx,Ed,eat\n",
        "id,who,taks\nx,Eve\n",
        "id,who,taks\nx,Eve,eat\ny,Ed,eat,drink\n",
        'id,who,taks\nx,"Eve,eat\n',
        "id,who is,taks\nx,Eve,eat\n",
        "id,who,taks\nx,Eve,\n",
        "id,taks\nx,eat\n",
        "title,who,taks\n,Eve,eat\n,Eve,eat\n",
    ],
)
def test_an_unknown_column_is_named_before_other_mistakes(tmp_path: Path, rows: str) -> None:
    """The first sentence names the column, whatever else is wrong with the table."""
    with pytest.raises(SuiteError) as caught:
        _import(write_suite(tmp_path / "suite"), rows)
    assert UNKNOWN in str(caught.value)


def test_an_unknown_column_of_an_optional_variable_is_named(tmp_path: Path) -> None:
    """Rows that fit are added, with the suggestion. Rows with mistakes are refused, the column first."""
    v1 = PROMPT.replace("in tasks", "in tasks | default([])")
    folder, table = write_suite(tmp_path / "suite", v1=v1), tmp_path / "rows.csv"
    with pytest.raises(SuiteError) as caught:
        _import(folder, "id,who,taks\none,Eve,eat\n")
    assert UNKNOWN in str(caught.value)
    table.write_text("id,who,taks\nx,Eve,eat\ny,Ed,\n")
    assert import_scenarios(folder, table).unused == {"taks": "; did you mean 'tasks'?"}


def test_all_unknown_columns_are_named_at_once(tmp_path: Path) -> None:
    """Also in a JSON table, and beside a row that is not an object."""
    rows = '[{"id": "x", "whom": "Eve", "taks": ["eat"]}, 7]'
    with pytest.raises(SuiteError) as caught:
        _import(write_suite(tmp_path / "suite"), rows, "rows.json")
    for sentence in ("unknown column 'taks', did you mean 'tasks'?", "'whom', did you mean 'who'?"):
        assert sentence in str(caught.value)


def test_columns_that_no_prompt_uses_are_named(tmp_path: Path) -> None:
    """An extra column is kept, and told."""
    folder = write_suite(tmp_path / "suite")
    table = tmp_path / "rows.csv"
    table.write_text("id,who,tasks,mood\nx,Eve,eat,low\n")
    done = import_scenarios(folder, table)
    assert done.unused == {"mood": ""}
    assert done.path == folder / "scenarios.yaml"


def test_shipped_suites_are_not_changed(tmp_path: Path) -> None:
    """What ships stays as it is, and so does a suite that has mistakes."""
    table = tmp_path / "rows.csv"
    table.write_text(HEADER + "x,Eve,eat\n")
    with pytest.raises(SuiteError, match="tipbench suite new"):
        import_scenarios("tip", table)
    broken = write_suite(tmp_path / "broken", v1=PROMPT.replace("output: json", "output: xml"))
    with pytest.raises(SuiteError, match=r"v1\.md:2"):
        import_scenarios(broken, table)
    with pytest.raises(SuiteError, match=r"missing\.csv: there is no such file"):
        import_scenarios(write_suite(tmp_path / "suite"), tmp_path / "missing.csv")


def test_the_file_keeps_its_mode(tmp_path: Path) -> None:
    """Writing in one step does not change who may read the file."""
    folder = write_suite(tmp_path / "suite")
    (folder / "scenarios.yaml").chmod(0o640)
    _import(folder, HEADER + "x,Eve,eat\n")
    assert (folder / "scenarios.yaml").stat().st_mode & 0o777 == 0o640


# Text that a table can carry: what CSV readers drop at a cell's ends is left out.
_CELL = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n"), min_size=1, max_size=30
).map(str.strip)
_ROWS = st.lists(_CELL.filter(bool), min_size=1, max_size=4)


@settings(max_examples=60)
@given(_ROWS, st.sampled_from([",", ";", "\t"]), st.booleans())
def test_any_text_survives_a_table(cells: list[str], delimiter: str, windows: bool) -> None:  # noqa: FBT001
    """Whatever is in a cell comes out of the suite as it went in."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n" if windows else "\n")
    writer.writerows([["id", "who", "tasks"], *([f"r{n}", cell, "a;b"] for n, cell in enumerate(cells))])
    with tempfile.TemporaryDirectory() as home:
        folder = write_suite(Path(home) / "suite")
        _import(folder, out.getvalue().encode())
        found = [_variables(folder, f"r{n}")["who"] for n in range(len(cells))]
    assert found == cells


_JSON = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.lists(_JSON, min_size=1, max_size=3))
def test_any_json_survives_or_is_refused(values: list[Any]) -> None:
    """A JSON value is kept exactly, or refused as a whole."""
    rows = [{"id": f"r{n}", "who": "x", "tasks": [], "extra": value} for n, value in enumerate(values)]
    with tempfile.TemporaryDirectory() as home:
        folder = write_suite(Path(home) / "suite")
        before = (folder / "scenarios.yaml").read_bytes()
        try:
            _import(folder, json.dumps(rows), "rows.json")
        except BadInput:
            assert (folder / "scenarios.yaml").read_bytes() == before
        else:
            assert [_variables(folder, f"r{n}")["extra"] for n in range(len(values))] == values
