"""Taking the keys of one YAML mapping: what is missing, of a wrong kind or unknown becomes a problem."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tipbench.suite.problems import Problems
    from tipbench.suite.yamldoc import Node

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def bad_id(text: str) -> str | None:
    """What keeps a text from being an id, or None: ids appear in options, URLs and file names."""
    if _ID.fullmatch(text):
        return None
    return (
        f"'{text}' is not an id of at most 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    )


class Form:
    """The keys of one mapping. Each is taken once; `finish` reports those that nobody asked for."""

    def __init__(self, node: Node, *, path: Path, problems: Problems, what: str) -> None:
        self.path = path
        self.problems = problems
        self.what = what
        self.line = node.line
        self.asked: list[str] = []
        self.nodes: Mapping[str, Node] = {}
        if isinstance(node.value, dict):
            self.nodes = node.value
        elif node.value is not None:
            self.problem(f"{what} must be 'key: value' lines")

    def problem(self, message: str, *, key: str | None = None) -> None:
        line = self.nodes[key].line if key is not None and key in self.nodes else self.line
        self.problems.add(self.path, message, line=line)

    def node(self, key: str, *, required: bool = False) -> Node | None:
        """The value under a key. No value is a problem, and so is no key where it is required."""
        self.asked.append(key)
        node = self.nodes.get(key)
        if node is not None and node.value is not None:
            return node
        if node is not None:
            self.problem(f"'{key}' has no value", key=key)
        elif required:
            self.problem(f"{self.what} has no '{key}'{did_you_mean(key, set(self.nodes) - set(self.asked))}")
        return None

    def text(self, key: str, *, required: bool = False) -> str | None:
        node = self.node(key, required=required)
        if node is None:
            return None
        if isinstance(node.value, bool) or not isinstance(node.value, (str, int, float)):
            self.problem(f"'{key}' must be text", key=key)
            return None
        if not str(node.value).strip():
            self.problem(f"'{key}' is empty", key=key)
            return None
        return str(node.value).strip()

    def ident(self, key: str, *, required: bool = False) -> str | None:
        text = self.text(key, required=required)
        wrong = bad_id(text) if text else None
        if wrong:
            self.problem(wrong, key=key)
            return None
        return text

    def choice(self, key: str, choices: Sequence[str], *, required: bool = False) -> str | None:
        text = self.text(key, required=required)
        if text is None or text in choices:
            return text
        near = did_you_mean(text, choices)
        self.problem(f"'{key}' is '{text}', which is not one of {', '.join(choices)}{near}", key=key)
        return None

    def whole(self, key: str, *, low: int, high: int, required: bool = False) -> int | None:
        node = self.node(key, required=required)
        if node is None:
            return None
        if isinstance(node.value, int) and not isinstance(node.value, bool) and low <= node.value <= high:
            return node.value
        self.problem(f"'{key}' must be a whole number from {low} to {high}", key=key)
        return None

    def number(self, key: str) -> float | None:
        node = self.node(key)
        if node is None:
            return None
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return float(node.value)
        self.problem(f"'{key}' must be a number", key=key)
        return None

    def truth(self, key: str, *, default: bool) -> bool:
        node = self.node(key)
        if node is None:
            return default
        if isinstance(node.value, bool):
            return node.value
        self.problem(f"'{key}' must be true or false", key=key)
        return default

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or one text on its own."""
        node = self.node(key)
        if node is None:
            return None
        items = node.plain() if isinstance(node.value, list) else [node.value]
        if not items or any(isinstance(item, (bool, list, dict)) or item is None for item in items):
            self.problem(f"'{key}' must be a list of names", key=key)
            return None
        return tuple(str(item) for item in items)

    def form(self, key: str, *, required: bool = False) -> Form | None:
        """The mapping under a key, as a form of its own."""
        node = self.node(key, required=required)
        if node is None:
            return None
        return Form(node, path=self.path, problems=self.problems, what=f"'{key}'")

    def finish(self) -> None:
        """Report the keys that have no meaning here; a misspelt key must not pass for an absent one."""
        for key in self.nodes:
            if key not in self.asked:
                near = did_you_mean(key, self.asked) or f"; it may have {listed(self.asked)}"
                self.problem(f"{self.what} has the unknown key '{key}'{near}", key=key)
