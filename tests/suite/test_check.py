from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suite_files import PROMPT, RUBRIC, SCENARIOS, SUITE, write_suite
from tipbench.errors import NotFound
from tipbench.suite import check_suite

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = PROMPT.replace("output: json", "output: schema")
LIMIT = RUBRIC.replace("[format_ok]", "[format_ok, overlong]\noverlong_limit: 400 characters").replace(
    "use + format_ok", "use + format_ok - overlong"
)


def test_a_good_suite_has_no_problems(tmp_path: Path) -> None:
    """Nothing is said about a suite that is fine."""
    assert check_suite(write_suite(tmp_path)) == []


@pytest.mark.parametrize(
    ("changed", "where", "part"),
    [
        ({"v1": PROMPT.replace("{{ n_tips }}", "some")}, "prompts/v1.md:7", "never says how many"),
        ({"suite": SUITE + "num_ctx: 500\n"}, "prompts/v1.md", "comes near num_ctx 500: raise num_ctx"),
        ({"suite": SUITE + "num_ctx: 401\n"}, "prompts/v1.md", "does not fit num_ctx 401"),
        ({"v1": PROMPT.replace("json", "json\nnum_ctx: 64")}, "prompts/v1.md", "does not fit num_ctx 64"),
        ({"v2": PROMPT}, "prompts/v2.md", "in the same words as v1.md"),
        (
            {"scenarios": SCENARIOS[: SCENARIOS.index("  - id: four")]},
            "scenarios.yaml",
            "3 scenarios decide nothing",
        ),
        (
            {"scenarios": SCENARIOS.replace("Dee", "Cem").replace("walk", "sing")},
            "scenarios.yaml",
            "'three' and 'four'",
        ),
        (
            {"scenarios": SCENARIOS.replace("who: Ann", "who: Ann\n    mood: low")},
            "scenarios.yaml",
            "no prompt uses mood",
        ),
        ({"rubric": RUBRIC.replace("> so so\n", "")}, "rubric.md:11", "no example"),
        ({"v1": SCHEMA, "rubric": LIMIT}, "suite.yaml", "hides overlong replies"),
    ],
)
def test_warnings(tmp_path: Path, changed: dict[str, str], where: str, part: str) -> None:
    """What is allowed but probably not meant is a warning with its place."""
    folder = write_suite(tmp_path, **changed)
    (problem,) = check_suite(folder)
    assert problem.warning
    assert str(problem).startswith(f"{folder}/{where}: warning: ")
    assert part in str(problem)


def test_errors_come_before_warnings(tmp_path: Path) -> None:
    """What must be mended stands first."""
    folder = write_suite(tmp_path, rubric=RUBRIC.replace("> so so\n", ""), scenarios="- id: one\n")
    assert [problem.warning for problem in check_suite(folder)] == [False, True]


def test_a_suite_that_is_not_there() -> None:
    """There is nothing to check in a suite that does not exist."""
    with pytest.raises(NotFound):
        check_suite("./not-there")


def test_other_scripts_need_more_tokens(tmp_path: Path) -> None:
    """The same number of characters comes near the limit in Chinese and not in English."""
    for name, text in (("english", "a" * 600), ("chinese", "字" * 600)):
        folder = tmp_path / name
        folder.mkdir()
        write_suite(folder, v1=PROMPT + text, suite=SUITE + "num_ctx: 1000\n")
        near = [
            problem for problem in check_suite(folder) if "an estimate from its characters" in str(problem)
        ]
        assert bool(near) is (name == "chinese")
