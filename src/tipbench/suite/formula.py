"""The composite: a small arithmetic over named scores. Nothing in it can call, import or look up anything."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING

from tipbench.errors import FormulaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LONGEST = 1000
DEEPEST = 40

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[-+*/()])|(?P<space>\s+)",
    re.ASCII,
)
_TWO: Mapping[str, Callable[[float, float], float]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_NEGATE = "negate"
# What people paste from a document, and what they meant by it.
_MEANT = {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/"}


@dataclass(frozen=True, kw_only=True)
class Token:
    kind: str
    text: str
    column: int
    line: int


@dataclass(frozen=True, kw_only=True)
class Formula:
    """An arithmetic expression of names, numbers, `+ - * /`, parentheses and a leading minus.

    `steps` is the expression in postfix order, so that evaluating it needs no recursion.
    """

    text: str
    steps: tuple[Token, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names that must have a value when the formula is evaluated."""
        return frozenset(step.text for step in self.steps if step.kind == "name")

    def value(self, names: Mapping[str, float]) -> float:
        """The formula's value, always finite; a FormulaError for a name without one or a division by zero."""
        stack: list[float] = []
        for step in self.steps:
            _apply(step, stack, names)
        if not math.isfinite(stack[0]):
            raise FormulaError("the formula's value is too large", column=1)
        return stack[0]


def parse_formula(text: str) -> Formula:
    """The formula a text spells, or a FormulaError that says at which column it stops making sense."""
    if len(text) > LONGEST:
        raise FormulaError(f"the formula is longer than {LONGEST} characters", column=LONGEST + 1)
    return Formula(text=text, steps=_Parser(text).steps())


def _apply(step: Token, stack: list[float], names: Mapping[str, float]) -> None:
    if step.kind == "number":
        stack.append(float(step.text))
    elif step.kind == "name":
        stack.append(_looked_up(step, names))
    elif step.kind == _NEGATE:
        stack.append(-stack.pop())
    else:
        right, left = stack.pop(), stack.pop()
        if step.text == "/" and right == 0:
            raise FormulaError("the formula divides by zero", column=step.column, line=step.line)
        stack.append(_TWO[step.text](left, right))


def _looked_up(step: Token, names: Mapping[str, float]) -> float:
    if step.text not in names:
        raise FormulaError(f"'{step.text}' has no value", column=step.column, line=step.line)
    return float(names[step.text])


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        match = _TOKEN.match(text, position)
        if match is None:
            raise FormulaError(_strange(text[position]), column=column, line=line)
        if match.lastgroup != "space":
            yield Token(kind=str(match.lastgroup), text=match.group(), column=column, line=line)
        position = match.end()
    yield Token(kind="end", text="", column=len(text) - text.rfind("\n"), line=text.count("\n") + 1)


def _strange(character: str) -> str:
    meant = _MEANT.get(character)
    hint = f"; write {meant!r}" if meant else ""
    return f"{character!r} has no place in a formula of names, numbers, + - * / and parentheses{hint}"


class _Parser:
    """Recursive descent; each method leaves what it read in `out`, in postfix order."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0
        self.out: list[Token] = []

    def steps(self) -> tuple[Token, ...]:
        self._sum()
        if self._now.kind != "end":
            raise self._error("an operator (+ - * /)")
        return tuple(self.out)

    @property
    def _now(self) -> Token:
        return self.tokens[self.at]

    def _next(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _sum(self) -> None:
        self._product()
        while self._now.text in {"+", "-"}:
            operator = self._next()
            self._product()
            self.out.append(operator)

    def _product(self) -> None:
        self._factor()
        while self._now.text in {"*", "/"}:
            operator = self._next()
            self._factor()
            self.out.append(operator)

    def _factor(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise FormulaError(
                f"the formula is nested more than {DEEPEST} deep",
                column=self._now.column,
                line=self._now.line,
            )
        token = self._next()
        if token.text == "-":
            self._factor()
            self.out.append(Token(kind=_NEGATE, text="-", column=token.column, line=token.line))
        elif token.text == "(":
            self._group()
        elif token.kind in {"number", "name"}:
            self.out.append(token)
        else:
            self.at -= 1
            raise self._error("a name, a number or '('")
        self.depth -= 1

    def _group(self) -> None:
        self._sum()
        if self._now.text != ")":
            raise self._error("')'")
        self._next()

    def _error(self, expected: str) -> FormulaError:
        found = repr(self._now.text) if self._now.text else "the formula ends"
        return FormulaError(
            f"expected {expected} but {'found ' if self._now.text else ''}{found}",
            column=self._now.column,
            line=self._now.line,
        )
