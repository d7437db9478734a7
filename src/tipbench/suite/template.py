"""Compiling and rendering one template: once compiled, thousands of cells cost little."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tipbench.suite.problems import did_you_mean, listed
from tipbench.suite.sandbox import BUDGET, COUNTED, LONGEST_TEXT, Budget, prompt_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jinja2 import Template, nodes

LONGEST_SOURCE = 64 * 1024
DEEPEST = 8

_NODES = frozenset(
    (
        *("Template", "Output", "TemplateData", "Name", "Const", "Getattr", "Getitem", "Slice", "Filter"),
        *("Test", "Keyword", "For", "If", "CondExpr", "Compare", "Operand", "And", "Or", "Not", "Add", "Sub"),
        *("Mul", "Div", "FloorDiv", "Mod", "Neg", "Pos", "List", "Tuple", "Call", "Assign"),
    )
)
_REFUSALS = {
    "Call": "a template may not call anything but range(); use a filter, such as {{ name|upper }}",
    "List": "a list written in a template may hold only literal values",
    "Tuple": "a list written in a template may hold only literal values",
    "Concat": "'~' is not available in a template; write {{ a }}{{ b }}",
    "AssignBlock": "a block {% set %} is not available in a template",
    "For": "a recursive loop is not available in a template",
    "Pow": "'**' is not available in a template",
}
_HALF = re.compile("[\ud800-\udfff]")
# What filters and tests raise when they are given what they are not made for.
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class TemplateProblem(Exception):
    """What is wrong with a template, and on which of its lines."""

    def __init__(self, message: str, *, line: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A template that is ready to render. `names` are the variables it reads, `lists` those it loops over."""

    template: Template
    names: frozenset[str]
    lists: frozenset[str]


@lru_cache(maxsize=512)
def compile_template(source: str) -> Compiled:
    """The template that a text spells; a TemplateProblem where it is not one, or wants more than it may."""
    from jinja2 import TemplateSyntaxError

    if len(source) > LONGEST_SOURCE:
        raise TemplateProblem(f"the section is longer than {LONGEST_SOURCE} characters")
    try:
        return _compiled(source)
    except TemplateSyntaxError as error:
        raise TemplateProblem(_worded(error.message or "cannot be read"), line=error.lineno) from None
    except (RecursionError, SyntaxError, MemoryError):
        raise TemplateProblem("the template is nested too deeply") from None
    except ValueError as error:
        raise TemplateProblem(f"cannot be read: {error}") from None


def render_template(source: str, variables: Mapping[str, Any]) -> str:
    """The text with its variables filled in; a TemplateProblem where one is missing or it has no end."""
    from jinja2 import TemplateError, UndefinedError

    compiled = compile_template(source)
    try:
        return _collected(compiled.template.generate({**variables, BUDGET: Budget()}))
    except UndefinedError as error:
        message = error.message or "there is no such variable"
        raise TemplateProblem(message + _near(message, variables), line=_line(error)) from None
    except (TemplateError, *_FAILURES) as error:
        raise TemplateProblem(f"cannot be rendered: {error}", line=_line(error)) from None


def _compiled(source: str) -> Compiled:
    from jinja2 import meta, nodes

    environment = prompt_environment()
    tree = environment.parse(source)
    _vet(tree)
    names = frozenset(meta.find_undeclared_variables(tree) - {"range"})
    lists = frozenset(_looped(tree))
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, COUNTED, [], [], None, None, lineno=loop.lineno)
    return Compiled(template=environment.from_string(tree), names=names, lists=lists)


def _collected(parts: Iterator[str]) -> str:
    kept: list[str] = []
    size = 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > LONGEST_TEXT:
            raise ValueError(f"the text grows past {LONGEST_TEXT} characters")
    text = "".join(kept)
    if _HALF.search(text):
        raise ValueError("the text holds half a character (a lone surrogate)")
    return text


def _near(message: str, variables: Mapping[str, Any]) -> str:
    """For a variable that is not there: the one that may be meant, else those that there are."""
    missing = message.partition("there is no variable '")[2].rstrip("'")
    return (did_you_mean(missing, variables) or f" (there are {listed(variables)})") if missing else ""


def _line(error: BaseException) -> int:
    """The template's line in the traceback, which Jinja2 rewrites to show it."""
    line, trace = 1, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _worded(message: str) -> str:
    unknown = message.partition("No filter named '")[2].partition("'")[0]
    return message.rstrip(".") + (did_you_mean(unknown, prompt_environment().filters) if unknown else "")


def _vet(tree: nodes.Template) -> None:
    """Refuse every construct that a prompt has no use for, or that could make a value grow."""
    from jinja2.nodes import Node

    for node in tree.find_all(Node):
        name = type(node).__name__
        if name not in _NODES or not _harmless(node):
            message = _REFUSALS.get(name, f"'{name.lower()}' is not available in a template")
            raise TemplateProblem(message, line=node.lineno)
    _check_depth(tree, 0)


def _harmless(node: nodes.Node) -> bool:
    from jinja2.nodes import Call, Const, For, List, Name, Tuple

    if isinstance(node, Call):
        return isinstance(node.node, Name) and node.node.name == "range"
    if isinstance(node, For):
        return not node.recursive
    if isinstance(node, List) or (isinstance(node, Tuple) and node.ctx == "load"):
        return all(isinstance(item, (Const, List, Tuple)) for item in node.items)
    return True


def _check_depth(node: nodes.Node, depth: int) -> None:
    if depth > DEEPEST:
        raise TemplateProblem(f"'if' and 'for' are nested more than {DEEPEST} deep", line=node.lineno)
    for child in node.iter_child_nodes():
        _check_depth(child, depth + (type(child).__name__ in {"For", "If"}))


def _looped(tree: nodes.Template) -> Iterator[str]:
    """Names of variables that a template treats as lists: it loops over them or joins them."""
    from jinja2.nodes import Filter, For, Name

    loops = [loop.iter for loop in tree.find_all(For)]
    joins = [joined.node for joined in tree.find_all(Filter) if joined.name == "join"]
    for source in [*loops, *joins]:
        inner = source
        while isinstance(inner, Filter):
            inner = inner.node
        if isinstance(inner, Name):
            yield inner.name
