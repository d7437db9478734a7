"""What a prompt template can do: Jinja2's sandbox, cut down to what a prompt needs, bounded in every way.

A template may come from a stranger. It can print variables, branch and loop; it cannot call anything but
`range`, it sees no attributes but a mapping's keys, and neither its loops nor its texts grow without end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tipbench.suite.problems import did_you_mean

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

LONGEST_TEXT = 200_000
MOST_ROUNDS = 20_000
# Not words that a template can spell, so neither a variable nor a filter can be mistaken for them.
BUDGET = "budget of this rendering"
COUNTED = "counted items"

_PLAIN_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last"),
    *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select"),
    *("selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)


class Budget:
    """What is left to one rendering of its rounds and of the characters that its filters may make."""

    def __init__(self) -> None:
        self.rounds = MOST_ROUNDS
        self.characters = 10 * LONGEST_TEXT

    def round(self) -> None:
        self.rounds -= 1
        if self.rounds < 0:
            raise ValueError(f"the loops make more than {MOST_ROUNDS} rounds")

    def make(self, size: int) -> None:
        self.characters -= size
        if size > LONGEST_TEXT or self.characters < 0:
            raise ValueError(f"the text grows past {LONGEST_TEXT} characters")


@lru_cache(maxsize=1)
def prompt_environment() -> Environment:
    """The one environment of all prompts; making it imports Jinja2."""
    from jinja2 import StrictUndefined, TemplateRuntimeError, Undefined
    from jinja2.runtime import LoopContext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Missing(StrictUndefined):
        """A variable that is not there, in a reader's words."""

        def __init__(self, hint: str | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            super().__init__(hint or f"there is no variable '{kwargs.get('name')}'", *args, **kwargs)

    class PromptEnvironment(ImmutableSandboxedEnvironment):
        """Reads a mapping's keys, a list's items and a loop's counters; nothing else has attributes."""

        intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%"))

        def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
            if isinstance(obj, LoopContext):
                return super().getattr(obj, attribute)
            return self.getitem(obj, attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
            if isinstance(obj, Undefined) or (isinstance(obj, Mapping) and argument in obj):
                return obj[argument]
            if isinstance(obj, (str, list, tuple)) and isinstance(argument, (int, slice)):
                return super().getitem(obj, argument)
            near = did_you_mean(str(argument), obj) if isinstance(obj, Mapping) else ""
            return self.undefined(f"{_kind(obj)} has no '{argument}'{near}", obj=obj, name=str(argument))

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
            if not all(isinstance(side, (int, float)) and abs(side) < 1e15 for side in (left, right)):
                raise TemplateRuntimeError(
                    f"'{operator}' is for numbers; to put texts together, write {{{{ a }}}}{{{{ b }}}}"
                )
            return super().call_binop(context, operator, left, right)

    environment = PromptEnvironment(
        undefined=Missing, trim_blocks=True, lstrip_blocks=True, finalize=_printable, autoescape=False
    )
    environment.globals = {"range": environment.globals["range"]}
    environment.filters = {name: environment.filters[name] for name in _PLAIN_FILTERS} | _own_filters()
    return environment


def _own_filters() -> dict[str, Any]:
    """The filters that can make a text larger, each paying from the rendering's budget."""
    from jinja2 import pass_context

    @pass_context
    def counted(context: Context, items: Iterable[Any]) -> Iterable[Any]:
        if isinstance(items, str):
            raise TypeError("a loop runs over a text, letter by letter; make the variable a list")
        for item in items:
            context[BUDGET].round()
            yield item

    @pass_context
    def join(context: Context, items: Iterable[Any], separator: str = "") -> str:
        if isinstance(items, str):
            raise TypeError("|join is for lists, and this is a text")
        parts = [str(_printable(item)) for item in items]
        context[BUDGET].make(sum(map(len, parts)) + len(separator) * len(parts))
        return separator.join(parts)

    @pass_context
    def replace(context: Context, text: object, old: str, new: str) -> str:
        source = str(_printable(text))
        context[BUDGET].make(len(source) + source.count(old) * len(new))
        return source.replace(old, new)

    @pass_context
    def tojson(context: Context, value: object) -> str:
        text = json.dumps(value, ensure_ascii=False)
        context[BUDGET].make(len(text))
        return text

    return {COUNTED: counted, "join": join, "replace": replace, "tojson": tojson}


def _kind(value: object) -> str:
    names = {str: "a text", bool: "a truth value", int: "a number", float: "a number", list: "a list"}
    return "the mapping" if isinstance(value, Mapping) else names.get(type(value), "the value")


def _printable(value: object) -> object:
    """What `{{ … }}` may print: anything else would come out in Python's notation, which nobody wants."""
    from jinja2 import Undefined

    if isinstance(value, (str, int, float, Undefined)):
        return value
    if isinstance(value, Mapping):
        raise TypeError("a mapping is printed whole; print one of its keys, such as {{ persona.name }}")
    if isinstance(value, Iterable):
        raise TypeError("a list is printed whole; loop over it or use |join(', ')")
    raise TypeError("there is nothing to print here")
