from __future__ import annotations

from typing import Any

import pytest

from tipbench.suite.sandbox import LONGEST_TEXT
from tipbench.suite.template import LONGEST_SOURCE, TemplateProblem, compile_template, render_template

VARIABLES: dict[str, Any] = {
    "name": "Maya",
    "tasks": ["cook", "read a book"],
    "persona": {"role": "nurse", "values": "calm", "items": "keys", "tags": ["a", "b"]},
    "n_tips": 5,
    "share": 0.25,
    "tricky": "{{ name }} <b>&",
}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ name }}", "Maya"),
        ("{{ persona.role }}/{{ persona['role'] }}", "nurse/nurse"),
        ("{{ persona.values }} {{ persona.items }}", "calm keys"),
        ("{% for t in tasks %}\n- {{ t }}\n{% endfor %}", "- cook\n- read a book\n"),
        ("{% for t in tasks %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}", "1,2"),
        ("{% for i in range(n_tips) %}{{ i }}{% endfor %}", "01234"),
        ("{{ tasks|join(', ') }} {{ tasks|length }} {{ tasks[0] }}", "cook, read a book 2 cook"),
        ("{{ tasks|tojson }}", '["cook", "read a book"]'),
        ("{{ ['x', 'y', 'z'][:2]|tojson }}", '["x", "y"]'),
        ("{{ n_tips * 2 + 1 }} {{ n_tips // 2 }} {{ n_tips % 2 }}", "11 2 1"),
        ("{{ name|upper|replace('A', 'O') }}", "MOYO"),
        ("{{ missing|default('none') }}", "none"),
        ("{% if missing is defined %}x{% else %}y{% endif %}", "y"),
        ("{% set half = n_tips / 2 %}{{ half }}", "2.5"),
        ("{% for k, v in persona|dictsort %}{{ k }} {% endfor %}", "items role tags values "),
        ("{{ tricky }}", "{{ name }} <b>&"),
        ("{# not sent #}{% raw %}{{ kept }}{% endraw %}", "{{ kept }}"),
        ("{{ 'many' if n_tips > 3 else 'few' }}", "many"),
        ("{{ 'x' in ['x', 'y'] }}", "True"),
    ],
)
def test_what_a_template_can_do(source: str, text: str) -> None:
    """Variables, branches, loops and a few filters work as people know them."""
    assert render_template(source, VARIABLES) == text


@pytest.mark.parametrize(
    ("source", "line", "part"),
    [
        ("a\n{{ nam }}", 2, "there is no variable 'nam'; did you mean 'name'?"),
        ("{{ zzz }}", 1, "(there are name, tasks"),
        ("\n\n{{ persona.rol }}", 3, "the mapping has no 'rol'; did you mean 'role'?"),
        ("{{ persona.keys }}", 1, "the mapping has no 'keys'"),
        ("{{ name.upper }}", 1, "a text has no 'upper'"),
        ("{{ tasks.append }}", 1, "a list has no 'append'"),
        ("{{ tasks[7] }}", 1, "there is no"),
        ("{{ missing.inner.more }}", 1, "'missing'"),
        ("{% if missing %}x{% endif %}", 1, "'missing'"),
        ("{{ tasks }}", 1, "a list is printed whole"),
        ("{{ persona }}", 1, "a mapping is printed whole"),
        ("{{ tasks|map('upper') }}", 1, "a list is printed whole"),
        ("{% for c in name %}{{ c }}{% endfor %}", 1, "letter by letter"),
        ("{{ name|join(',') }}", 1, "|join is for lists"),
        ("{% for t in n_tips %}{% endfor %}", 1, "cannot be rendered"),
        ("{{ 1 / 0 }}", 1, "division by zero"),
        ("{{ '\\ud800' }}", 1, "half a character"),
        ("{{ name|truncate(-5) }}", 1, "cannot be rendered"),
        ("{{ tasks|map('nofilter')|join }}", 1, "cannot be rendered"),
        ("{{ n_tips|join }}", 1, "cannot be rendered"),
        ("{{ n_tips|length }}", 1, "cannot be rendered"),
        ("{{ tasks|sort(attribute='__class__')|join }}", 1, "a text has no '__class__'"),
        ("{{ name + name }}", 1, "'+' is for numbers"),
        ("{{ 'x' * 99999999999 }}", 1, "'*' is for numbers"),
        ("{{ '%999999999d' % 1 }}", 1, "'%' is for numbers"),
    ],
)
def test_what_goes_wrong_while_rendering(source: str, line: int, part: str) -> None:
    """A missing or misused variable is told with its line and, where one is near, the name that was meant."""
    with pytest.raises(TemplateProblem) as caught:
        render_template(source, VARIABLES)
    assert part in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("source", "line", "part"),
    [
        ("a\n{{ name", 2, "end of"),
        ("{% for t in tasks %}", 1, "endfor"),
        ("{{ name|uper }}", 1, "did you mean 'upper'?"),
        ("{{ name|format(1) }}", 1, "No filter"),
        ("{{ name|center(9) }}", 1, "No filter"),
        ("{{ name.upper() }}", 1, "may not call"),
        ("{{ lipsum() }}", 1, "may not call"),
        ("{{ range.__class__ }}{{ cycler('a') }}", 1, "may not call"),
        ("\n{% include 'x' %}", 2, "'include' is not available"),
        ("{% import 'x' as y %}", 1, "'import' is not available"),
        ("{% extends 'x' %}", 1, "'extends' is not available"),
        ("{% macro m() %}{% endmacro %}", 1, "'macro' is not available"),
        ("{% set x %}a{% endset %}", 1, "block {% set %}"),
        ("{{ 2 ** 99999999 }}", 1, "'**'"),
        ("{{ name ~ name }}", 1, "'~'"),
        ("{% set x = [name, name] %}", 1, "literal values"),
        ("{{ {'a': 1} }}", 1, "'dict' is not available"),
        ("{% for t in tasks recursive %}{% endfor %}", 1, "recursive"),
        ("{% do x %}", 1, "do"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", 1, "too deeply"),
        ("{% if n_tips %}" * 30 + "{% endif %}" * 30, 1, "nested more than"),
        ("{{ " + "9" * 5000 + " }}", 1, "cannot be read"),
        ("x" * (LONGEST_SOURCE + 1), 1, "longer than"),
    ],
)
def test_what_a_template_may_not_do(source: str, line: int, part: str) -> None:
    """Calls, other files and everything that could grow are refused when the template is read."""
    with pytest.raises(TemplateProblem) as caught:
        compile_template(source)
    assert part in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(10000) %}" + "x" * 100 + "{% endfor %}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% set x = name %}" + "{% set x = x|replace('', x)|replace('a', x) %}" * 60 + "{{ x }}",
        "{% set x = tasks|join(name) %}" + "{% set x = x|tojson|tojson|tojson %}" * 40 + "{{ x }}",
        "{% set s = big|join(' ') %}{{ big|join(s) }}",
    ],
)
def test_no_template_runs_without_end(source: str) -> None:
    """Loops, texts and filters are bounded together, and the message says so."""
    with pytest.raises(TemplateProblem, match=r"rounds|grows past|Range too big"):
        render_template(source, {**VARIABLES, "big": ["word"] * 5000})


def test_a_long_text_is_fine_up_to_the_bound() -> None:
    """The bound is on what comes out, and it is exact."""
    assert len(render_template("{{ x }}", {"x": "y" * LONGEST_TEXT})) == LONGEST_TEXT
    with pytest.raises(TemplateProblem, match="grows past"):
        render_template("{{ x }}!", {"x": "y" * LONGEST_TEXT})


def test_compiled_once() -> None:
    """The same text is compiled once, however many cells it is rendered for."""
    assert compile_template("once {{ name }}") is compile_template("once {{ name }}")


def test_what_a_template_reads() -> None:
    """The names it reads, and those it treats as lists, are known without rendering."""
    compiled = compile_template(
        "{{ a }}{% for x in b %}{{ x }}{% endfor %}{{ c|sort|join(',') }}"
        "{% set d = 1 %}{{ d }}{{ range(1)|first }}"
    )
    assert compiled.names == {"a", "b", "c"}
    assert compiled.lists == {"b", "c"}


def test_variables_are_not_changed() -> None:
    """Rendering leaves the scenario's values as they are."""
    before = repr(VARIABLES)
    render_template("{% for t in tasks|sort|reverse %}{{ t }}{% endfor %}", VARIABLES)
    assert repr(VARIABLES) == before
