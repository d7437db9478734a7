from __future__ import annotations

from pathlib import Path

import pytest

from suite_files import RUBRIC
from tipbench.errors import BadInput
from tipbench.suite import Rubric, load_suite
from tipbench.suite.problems import Problem, Problems
from tipbench.suite.rubric_file import read_rubric

PATH = Path("rubric.md")


def _read(text: str) -> tuple[Rubric | None, list[Problem]]:
    problems = Problems()
    return read_rubric(text, path=PATH, problems=problems), problems.found


@pytest.mark.parametrize(
    ("scores", "flags", "value"),
    [
        ((5, 5, 5), (True, False), 17),
        ((1, 1, 1), (False, False), 3),
        ((1, 1, 1), (False, True), 2),
        ((4, 3, 2), (True, True), 10),
        ((4.5, 3, 2), (True, False), 11.5),
    ],
)
def test_score(scores: tuple[float, ...], flags: tuple[bool, ...], value: float) -> None:
    """The composite of a tip is what its formula says."""
    rubric = load_suite("tip").rubric
    given = dict(zip(("relevance", "actionability", "tone"), scores, strict=True))
    assert rubric.score(given, dict(zip(("format_ok", "overlong"), flags, strict=True))) == value


@pytest.mark.parametrize(
    ("scores", "flags", "part"),
    [
        ({"use": 4}, {"format_ok": True}, "'use' is 4, which is not between 1 and 3"),
        ({"use": 0.9}, {"format_ok": True}, "not between"),
        ({"use": float("nan")}, {"format_ok": True}, "not between"),
        ({}, {"format_ok": True}, "'use' has no score"),
        ({"use": 2}, {}, "needs the flag 'format_ok'"),
        ({"use": 2, "usee": 2}, {"format_ok": True}, "no scale 'usee'; did you mean 'use'?"),
    ],
)
def test_scores_that_do_not_fit(scores: dict[str, float], flags: dict[str, bool], part: str) -> None:
    """A score outside its scale, or one that is missing, is refused and never guessed."""
    rubric, _ = _read(RUBRIC)
    assert rubric is not None
    with pytest.raises(BadInput) as caught:
        rubric.score(scores, flags)
    assert part in str(caught.value)


def test_a_flag_the_rubric_does_not_use_is_ignored() -> None:
    """Code may hand over all the flags it knows."""
    rubric, _ = _read(RUBRIC)
    assert rubric is not None
    assert rubric.score({"use": 2}, {"format_ok": True, "overlong": True}) == 3


@pytest.mark.parametrize(
    ("limit", "text", "overlong"),
    [
        ("5 characters", "12345", False),
        ("5 characters", "123456", True),
        ("5 characters", "  1 \n\n 2  ", False),
        ("5 characters", "e\u0301" * 5, False),
        ("5 characters", "日本語です。", True),
        ("2 words", "one  two", False),
        ("2 words", "one two three", True),
        ("2 words", "", False),
    ],
)
def test_overlong(limit: str, text: str, overlong: bool) -> None:  # noqa: FBT001 - a parametrized value
    """Length is counted in the unit the rubric names, with runs of white space as one."""
    source = RUBRIC.replace("flags: [format_ok]", f"flags: [format_ok, overlong]\noverlong_limit: {limit}")
    rubric, _ = _read(source)
    assert rubric is not None
    assert rubric.is_overlong(text) is overlong


def test_no_limit_means_never_overlong() -> None:
    """Without a limit nothing is too long."""
    rubric, _ = _read(RUBRIC)
    assert rubric is not None
    assert not rubric.is_overlong("x" * 10_000)


@pytest.mark.parametrize(
    ("composite", "extra", "failure"),
    [
        ("use + format_ok", "", 1.0),
        ("10 - use", "", 9.0),
        ("use", "failure: 0", 0.0),
        ("use", "failure: -1.5", -1.5),
    ],
)
def test_failure_value(composite: str, extra: str, failure: float) -> None:
    """What a failure counts is given, or the composite at the lowest scores without flags."""
    source = RUBRIC.replace("composite: use + format_ok", f"composite: {composite}\n{extra}")
    rubric, _ = _read(source)
    assert rubric is not None
    assert rubric.failure == failure


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("composite: use + format_ok", "composite: use + usee", 6, "'usee' is neither a scale nor a flag"),
        ("composite: use + format_ok", "composite: use + overlong", 6, "it may name use, format_ok"),
        ("composite: use + format_ok", "composite: use +", 6, "column 6"),
        ("composite: use + format_ok", "composite: 1 / (use - 2)", 6, "divides by zero"),
        ("composite: use + format_ok", "composite: 1 / format_ok", 6, "divides by zero"),
        ("composite: use + format_ok", "composite: |\n  use\n  + foo", 6, "at line 2, column 3"),
        ("composite: use + format_ok", "composite: [use]", 6, "'composite' must be text"),
        ("composite: use + format_ok", "compsite: use", 6, "did you mean 'composite'?"),
        ("composite: use + format_ok", "composite:", 6, "'composite' has no value"),
        ("use: 1-3", "use: 3-1", 4, "such as 1-5"),
        ("use: 1-3", "use: high", 4, "such as 1-5"),
        ("use: 1-3", "Use: 1-3", 4, "cannot name a scale"),
        ("use: 1-3", "note: 1-3", 4, "cannot name a scale"),
        ("use: 1-3", "format_ok: 1-3", 4, "cannot name a scale"),
        ("scales:\n  use: 1-3", "scales: 1-3", 3, "must be 'key: value' lines"),
        ("scales:\n  use: 1-3", "scales: {}", 3, "must name 1 to 10 scales"),
        ("[format_ok]", "[format_okay]", 5, "no flag 'format_okay'; did you mean 'format_ok'?"),
        ("[format_ok]", "[format_ok, overlong]", 5, "needs an 'overlong_limit'"),
        ("[format_ok]", "[format_ok]\noverlong_limit: 20", 6, "such as '160 characters'"),
        ("id: small-v1", "id: small v1", 2, "is not an id"),
        ("id: small-v1", "title: x", 2, "has no 'id'"),
        ("id: small-v1", "id: small-v1\nfailure: low", 3, "'failure' must be a number"),
        ("---\n##", "##", 1, "no closing '---'"),
        ("id: small-v1", "id: a: b", 2, "not valid YAML"),
    ],
)
def test_front_matter_that_is_wrong(old: str, new: str, line: int, part: str) -> None:
    """Each mistake is one sentence with the line it is on."""
    assert old in RUBRIC
    problems = Problems()
    with problems.gather():
        read_rubric(RUBRIC.replace(old, new), path=PATH, problems=problems)
    found = [problem for problem in problems.errors if part in problem.message]
    assert found, [str(problem) for problem in problems.errors]
    assert found[0].line == line


def test_a_level_without_an_example_is_a_warning() -> None:
    """A level that is not pinned down by an example, or not at all, is pointed at."""
    rubric, found = _read(RUBRIC.replace("> so so\n", "").replace("### 3\n> good\n", ""))
    assert rubric is not None
    assert [str(problem) for problem in found] == [
        "rubric.md:11: warning: 'use' 2 has no example (a line with '>')",
        "rubric.md: warning: 'use' does not say what a 3 is ('### 3')",
    ]


def test_a_scale_outside_the_composite_is_a_warning() -> None:
    """A scale that is scored for nothing is pointed at."""
    _, found = _read(RUBRIC.replace("use + format_ok", "use"))
    assert [problem.warning for problem in found] == [True]
    assert "'format_ok' has no part in the composite" in found[0].message


def test_the_text_is_the_identity() -> None:
    """Any change of the words is another hash."""
    one, _ = _read(RUBRIC)
    other, _ = _read(RUBRIC.replace("> good", "> very good"))
    assert one is not None
    assert other is not None
    assert one.text == RUBRIC
    assert one.hash != other.hash
