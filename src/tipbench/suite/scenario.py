"""A fixed input: the variables that every prompt version is filled with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tipbench.errors import SuiteError
from tipbench.records import content_hash
from tipbench.suite.form import Form
from tipbench.suite.problems import did_you_mean, listed
from tipbench.suite.yamldoc import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tipbench.suite.problems import Problems
    from tipbench.suite.yamldoc import Node

LONGEST = 100_000
# Set for every scenario, or of the template language itself.
RESERVED = frozenset(("n_tips", "noun", "loop", "range", "self", "true", "false", "none"))
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One fixed input. Its hash covers id and variables; the title is for display."""

    id: str
    title: str
    variables: Mapping[str, Any] = field(hash=False)
    hash: str

    @classmethod
    def of(cls, scenario_id: str, variables: Mapping[str, Any], *, title: str | None = None) -> Scenario:
        hashed = content_hash({"id": scenario_id, "variables": variables})
        return cls(id=scenario_id, title=title or scenario_id, variables=variables, hash=hashed)

    @property
    def text(self) -> str:
        """All its values in one text: what a candidate may repeat without having thought of it."""
        return "\n".join(_values(self.variables))

    @property
    def described(self) -> str:
        """The scenario as a judge reads it: its title, then each variable by name."""
        return "\n".join([self.title, *_described(self.variables)])


@dataclass(frozen=True, kw_only=True)
class ScenarioFile:
    """What `scenarios.yaml` holds: scenarios with their lines, and where the list of them is written."""

    scenarios: tuple[tuple[Scenario, int], ...]
    personas: Mapping[str, Any]
    items: Node | None


def bad_variable(name: str) -> str | None:
    """What keeps a name from being a variable's, or None."""
    if name in RESERVED:
        return f"the variable '{name}' is set by tipbench; choose another name"
    if _VARIABLE.fullmatch(name):
        return None
    return f"'{name}' cannot name a variable: use letters, digits and '_', beginning with a letter"


def read_scenarios(text: str, *, path: Path, personas: Mapping[str, Any], problems: Problems) -> ScenarioFile:
    """The scenarios of a file; `personas` are those already known from the suite it extends."""
    root = parse_yaml(text, path=path, problems=problems)
    items: Node | None = root
    known = dict(personas)
    if isinstance(root.value, dict):
        form = Form(root, path=path, problems=problems, what="scenarios.yaml")
        known |= _personas(form)
        items = root.value.get("scenarios")
        form.asked.append("scenarios")
        form.finish()
    scenarios = _scenarios(items, path=path, personas=known, problems=problems) if items else ()
    return ScenarioFile(scenarios=tuple(scenarios), personas=known, items=items)


def _personas(form: Form) -> dict[str, Any]:
    inner = form.form("personas")
    if inner is None:
        return {}
    found = {}
    for name, node in inner.nodes.items():
        value = node.plain()
        if isinstance(value, dict) and value and not list(_nulls(value)):
            found[name] = value
        else:
            inner.problem(f"the persona '{name}' must have keys with values, such as 'name: Maya'", key=name)
    return found


def _scenarios(
    items: Node, *, path: Path, personas: Mapping[str, Any], problems: Problems
) -> Iterator[tuple[Scenario, int]]:
    if items.value is None:
        return
    if not isinstance(items.value, list):
        problems.add(path, "the scenarios must be a list: lines that begin with '- id:'", line=items.line)
        return
    for node in items.value:
        with problems.gather():
            scenario = _scenario(node, path=path, personas=personas, problems=problems)
            if scenario:
                yield scenario, node.line


def _scenario(node: Node, *, path: Path, personas: Mapping[str, Any], problems: Problems) -> Scenario | None:
    if not isinstance(node.value, dict):
        raise SuiteError(
            path, "a scenario must be 'key: value' lines that begin with '- id:'", line=node.line
        )
    form = Form(node, path=path, problems=problems, what="the scenario")
    scenario_id = form.ident("id", required=True)
    title = form.text("title")
    if scenario_id is None:
        return None
    variables: dict[str, Any] = {}
    for name, value in node.value.items():
        if name not in {"id", "title"}:
            variables[name] = _variable(name, value, path=path)
    return make_scenario(scenario_id, variables, title=title, personas=personas, path=path, line=node.line)


def _variable(name: str, node: Node, *, path: Path) -> object:
    wrong = bad_variable(name)
    if wrong:
        raise SuiteError(path, wrong, line=node.line)
    return node.plain()


def make_scenario(
    scenario_id: str,
    variables: Mapping[str, Any],
    *,
    title: str | None,
    personas: Mapping[str, Any],
    path: Path,
    line: int,
) -> Scenario:
    """A scenario with its persona looked up; a SuiteError for an unknown one or a variable with no value."""
    filled = dict(variables)
    who = filled.get("persona")
    if personas and isinstance(who, str):
        if who not in personas:
            near = did_you_mean(who, personas) or f"; there are {listed(personas)}"
            raise SuiteError(path, f"'{scenario_id}' names the unknown persona '{who}'{near}", line=line)
        filled["persona"] = personas[who]
    empty = next(_nulls(filled), None)
    if empty:
        raise SuiteError(
            path, f"'{scenario_id}' gives '{empty}' no value; write '' for an empty text", line=line
        )
    if _size(filled) > LONGEST:
        raise SuiteError(path, f"'{scenario_id}' holds more than {LONGEST} characters", line=line)
    return Scenario.of(scenario_id, filled, title=title)


def _nulls(value: object, name: str = "") -> Iterator[str]:
    """The names under which there is no value, at any depth."""
    if value is None:
        yield name
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _nulls(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _nulls(inner, name)


def _described(variables: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in variables.items():
        shown = name.replace("_", " ")
        if isinstance(value, dict):
            yield f"{indent}{shown}:"
            yield from _described(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{shown}:"
            yield from (f"{indent}  - {', '.join(_values(entry))}" for entry in value)
        else:
            yield f"{indent}{shown}: {value}"


def _values(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner)
    else:
        yield str(value)


def _size(value: object) -> int:
    if isinstance(value, dict):
        return sum(len(key) + _size(inner) for key, inner in value.items())
    if isinstance(value, list):
        return sum(1 + _size(inner) for inner in value)
    return len(str(value))
