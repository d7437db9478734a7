from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tipbench.errors import SuiteError
from tipbench.suite.problems import Problems
from tipbench.suite.yamldoc import FASTEST, parse_yaml

PATH = Path("x.yaml")


LOADERS: list[type[Any]] = list(dict.fromkeys([yaml.SafeLoader, FASTEST]))


def _plain(text: str, loader: type[Any] = FASTEST) -> Any:  # noqa: ANN401 - YAML of any shape
    problems = Problems()
    value = parse_yaml(text, path=PATH, problems=problems, loader=loader).plain()
    problems.raise_first()
    return value


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("08:30", "08:30"),
        ("18:30", "18:30"),
        ("no", "no"),
        ("On", "On"),
        ("yes", "yes"),
        ("n", "n"),
        ("2026-04-27", "2026-04-27"),
        ("007", "007"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("1.10", "1.10"),
        ("1e3", "1e3"),
        (".5", ".5"),
        ("+4", "+4"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("12e03", "12e03"),
        ("30", 30),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'30'", "30"),
        ('"true"', "true"),
        ("''", ""),
        ("!!str 30", "30"),
        ("=", "="),
        ("a b  c", "a b  c"),
        ("|-\n  two\n  lines", "two\nlines"),
        ("[1, no, [18:30]]", [1, "no", ["18:30"]]),
        ("{a: 1, no: off}", {"a": 1, "no": "off"}),
    ],
)
def test_plain_words_stay_words(written: str, meant: object, loader: type[Any]) -> None:
    """Only what is written as a number prints, true, false and null are not text."""
    value = _plain(f"key: {written}\n", loader)
    assert value == {"key": meant}
    assert type(value["key"]) is type(meant)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is already given on line 1"),
        ("a:\n  b: 1\n  b: 2\n", 3, "'b' is already given on line 2"),
        ("a: [1, 2\n", 2, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a:\n\tb: 1\n", 2, "a tab stands where YAML needs spaces"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: !!python/object:os.system x\n", 1, "the tag"),
        ("a: !thing\n  b: 1\n", 1, "the tag"),
        ("a: !!int '3'\n", 1, "the tag"),
        ("a: *nobody\n", 1, "no anchor"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "'<<'"),
        ("? [a]\n: 1\n", 1, "a key must be a word"),
        ("'': 1\n", 1, "a key must be a word"),
        ('a: "\\ud800"\n', 1, "character"),
        ("a: " + "[" * 30 + "]" * 30, 1, "nested more than"),
        ("a: " + "[" * 50_000, 1, "nested more than"),
        ("a: &a [*a]\n", 1, "no anchor"),
    ],
)
def test_traps_are_told_with_their_line(text: str, line: int, part: str, loader: type[Any]) -> None:
    """What cannot be meant is refused, and the line is told."""
    with pytest.raises(SuiteError, match=r"x\.yaml") as caught:
        _plain(text, loader)
    assert part in str(caught.value)
    assert caught.value.line == line


def test_aliases_that_stay_small_are_fine() -> None:
    """A value may be named once and used again."""
    assert _plain("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("width", "levels", "part"), [(1, 60, "nested more than"), (9, 12, "unfolds to more than")]
)
def test_aliases_cannot_grow_without_end(width: int, levels: int, part: str) -> None:
    """Neither a bomb of aliases nor a long chain of them is unfolded."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    with pytest.raises(SuiteError, match=part):
        _plain("\n".join(lines))


def test_all_duplicates_are_reported() -> None:
    """One look shows every key that is there twice."""
    problems = Problems()
    parse_yaml("a: 1\na: 2\nb: 1\nb: 2\n", path=PATH, problems=problems)
    assert [problem.line for problem in problems.found] == [2, 4]


def test_lines_count_from_where_the_text_begins() -> None:
    """Front matter below other lines is pointed at where it stands in the file."""
    node = parse_yaml("a: 1\nb:\n  - 2\n", path=PATH, problems=Problems(), first_line=10)
    assert isinstance(node.value, dict)
    assert [item.line for item in node.value.values()] == [10, 11]
