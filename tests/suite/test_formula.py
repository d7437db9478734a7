from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.errors import BadInput, FormulaError
from tipbench.suite.formula import LONGEST, parse_formula

NAMES = {"a": 2.0, "b": 3.5, "long_name": -1.25, "zero": 0.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (".5 + 1.", 1.5),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("8 / 4 / 2", 1),
        ("8 - 4 - 2", 2),
        ("-2 * -3", 6),
        ("--2", 2),
        ("-(a + b)", -5.5),
        ("2*-a", -4),
        ("a+\n  b", 5.5),
        ("relevance + actionability + tone + 2*format_ok - overlong", 13),
    ],
)
def test_known_values(text: str, value: float) -> None:
    """Precedence, association and signs are those of school arithmetic."""
    scores = {"relevance": 4, "actionability": 3, "tone": 5, "format_ok": 1, "overlong": 1}
    assert parse_formula(text).value({**NAMES, **scores}) == value


@pytest.mark.parametrize(
    ("text", "column", "line", "part"),
    [
        ("", 1, 1, "the formula ends"),
        ("a +", 4, 1, "the formula ends"),
        ("a + * b", 5, 1, "found '*'"),
        ("2a", 2, 1, "expected an operator"),
        ("a b", 3, 1, "expected an operator"),
        ("(a + b", 7, 1, "expected ')'"),
        ("a)", 2, 1, "expected an operator"),
        ("a ** b", 4, 1, "found '*'"),
        ("a // b", 4, 1, "found '/'"),
        ("+a", 1, 1, "found '+'"),
        ("f(a)", 2, 1, "found '('"),
        ("a.b", 2, 1, "has no place"),
        ("a\n+ %", 3, 2, "has no place"),
        ("a − b", 3, 1, "write '-'"),
        ("a, b", 2, 1, "','"),
        ("__import__('os')", 12, 1, "has no place"),
        ("1e5", 2, 1, "expected an operator"),
        ("a if b else 1", 3, 1, "expected an operator"),
        ("²", 1, 1, "has no place"),
    ],
)
def test_errors_have_a_column(text: str, column: int, line: int, part: str) -> None:
    """What is not a formula is refused where it stops making sense."""
    with pytest.raises(FormulaError) as caught:
        parse_formula(text)
    assert (caught.value.column, caught.value.line) == (column, line)
    assert part in str(caught.value)
    assert f"column {column}" in str(caught.value)


@pytest.mark.parametrize("text", ["(" * 60 + "1" + ")" * 60, "-" * 60 + "1", "1+" * LONGEST + "1"])
def test_depth_and_length_are_bounded(text: str) -> None:
    """A formula without measure is refused, not tried."""
    with pytest.raises(FormulaError, match=r"deep|longer"):
        parse_formula(text)


def test_many_terms_are_fine() -> None:
    """A long flat formula is no deep one."""
    assert parse_formula("+".join(["1"] * 480)).value({}) == 480


@pytest.mark.parametrize("text", ["1 / zero", "a / (b - b)", "1/0"])
def test_division_by_zero(text: str) -> None:
    """Dividing by zero is an error with the column of the division."""
    with pytest.raises(FormulaError, match="divides by zero") as caught:
        parse_formula(text).value(NAMES)
    assert caught.value.column == text.index("/") + 1


def test_a_missing_name() -> None:
    """A name without a value is an error, not a zero."""
    with pytest.raises(BadInput, match="'c' has no value"):
        parse_formula("a + c").value(NAMES)


def test_a_value_that_is_not_finite() -> None:
    """Infinity never comes out."""
    with pytest.raises(FormulaError, match="too large"):
        parse_formula("*".join(["9" * 90] * 8)).value({})


def test_names() -> None:
    """The names are those that the formula needs, each once."""
    assert parse_formula("a + a * long_name - 2").names == {"a", "long_name"}


Tree = tuple[str, float]


def _leaf(number: float) -> Tree:
    return (f"{number:.3f}", float(f"{number:.3f}"))


def _grown(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        children.map(lambda tree: (f"-({tree[0]})", -tree[1])),
        children.map(lambda tree: (f" ({tree[0]}) ", tree[1])),
        st.tuples(children, st.sampled_from("+-*/"), children).map(_joined),
    )


def _joined(parts: tuple[Tree, str, Tree]) -> Tree:
    (left, x), operator, (right, y) = parts
    values = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else math.nan}
    return (f"({left}){operator}({right})", values[operator])


_NAMED = st.sampled_from(sorted(NAMES)).map(lambda name: (name, NAMES[name]))
_TREES = st.recursive(st.floats(0, 99).map(_leaf) | _NAMED, _grown, max_leaves=12)


@given(_TREES)
def test_agrees_with_the_tree_it_was_written_from(tree: Tree) -> None:
    """A formula's value is what the tree that spelt it computes to."""
    text, expected = tree
    if not math.isfinite(expected):
        with pytest.raises(FormulaError):
            parse_formula(text).value(NAMES)
    else:
        assert parse_formula(text).value(NAMES) == expected


@given(st.lists(st.sampled_from([*"+-*/()", "a", "b", "2", "3.5", " "]), max_size=14).map("".join))
def test_agrees_with_python_on_any_text(text: str) -> None:
    """Any text of these letters is read as Python reads it, or refused."""
    try:
        formula = parse_formula(text)
    except FormulaError:
        return
    try:
        expected = eval(text, {"__builtins__": {}}, dict(NAMES))  # noqa: S307 - the text holds nothing but arithmetic
    except (ZeroDivisionError, NameError):
        with pytest.raises(FormulaError, match=r"zero|has no value"):
            formula.value(NAMES)
        return
    assert formula.value(NAMES) == pytest.approx(expected)


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Whatever is written, the answer is a formula or a FormulaError."""
    with contextlib.suppress(FormulaError):
        assert parse_formula(text).steps
