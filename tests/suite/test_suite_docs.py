from __future__ import annotations

import re
from pathlib import Path

import pytest

from tipbench.suite import SHIPPED, check_suite, import_scenarios, load_suite, new_suite
from tipbench.suite.judge_prompt import BUILT_IN, VARIABLES
from tipbench.suite.prompt import OUTPUTS
from tipbench.suite.rubric import FLAGS
from tipbench.suite.sandbox import COUNTED, LONGEST_TEXT, MOST_ROUNDS, prompt_environment

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "write-a-suite.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference" / "suite-files.md").read_text(encoding="utf-8")


def test_the_suite_in_the_how_to_works(tmp_path: Path) -> None:
    """The page, followed from `suite new` on, ends with a suite without problems; its table is imported."""
    new_suite(tmp_path / "ideas")
    blocks = re.findall(r"^`ideas/(\S+)`:\n\n```\w+\n(.*?)^```$", HOW_TO, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (tmp_path / "ideas" / name).write_text(text, encoding="utf-8")
    for name in re.findall(r"^rm (ideas/\S+)$", HOW_TO, re.MULTILINE):
        (tmp_path / name).unlink()
    assert check_suite(tmp_path / "ideas") == []
    table = re.search(r"^```\n(id,age.*?)^```$", HOW_TO, re.MULTILINE | re.DOTALL)
    assert table is not None
    (tmp_path / "more.csv").write_text(table[1], encoding="utf-8")
    import_scenarios(tmp_path / "ideas", tmp_path / "more.csv")
    variables = load_suite(tmp_path / "ideas").scenario("maps").variables
    assert variables == {"age": 10, "at_hand": ["an old map", "pins", "wool"]}


def test_the_reference_names_all_filters() -> None:
    """The list of filters is the one that templates really have."""
    listed = REFERENCE.partition("- Filters:")[2].partition("- A missing")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(prompt_environment().filters) - {COUNTED}


@pytest.mark.parametrize("word", [*SHIPPED, *FLAGS, *OUTPUTS, f"{MOST_ROUNDS:,}", f"{LONGEST_TEXT:,}"])
def test_the_reference_names_what_there_is(word: str) -> None:
    """Suites, flags, outputs and bounds in the reference are those of the code."""
    assert word in REFERENCE


def test_the_reference_has_the_judges_prompt() -> None:
    """The built-in prompt on the page can be copied into a judge.md, and all variables are named."""
    assert f"# System\n\n{BUILT_IN.system}\n\n# User\n\n{BUILT_IN.user}\n" in REFERENCE
    assert not [name for name in VARIABLES if f"| `{name}` |" not in REFERENCE]


@pytest.mark.parametrize("file", ["load.py", "rubric_file.py", "anchor_file.py", "prompt.py", "reply.py"])
def test_the_reference_names_all_keys(file: str) -> None:
    """Every key that is read from a suite's files is in the reference."""
    source = (Path(__file__).parents[2] / "src" / "tipbench" / "suite" / file).read_text(encoding="utf-8")
    keys = re.findall(r'form\.\w+\("(\w+)"', source)
    assert not [key for key in keys if f"`{key}`" not in REFERENCE and f".{key}`" not in REFERENCE]
