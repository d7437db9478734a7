"""A small suite as text, for tests that change one thing about it and look at what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """\
id: small
reply:
  kind: list
  noun: tip
"""
RUBRIC = """\
---
id: small-v1
scales:
  use: 1-3
flags: [format_ok]
composite: use + format_ok
---
## use
### 1
> bad
### 2
> so so
### 3
> good
"""
PROMPT = """\
---
output: json
---
# System
You help.
# User
Write {{ n_tips }} tips for {{ who }}.
{% for task in tasks %}
- {{ task }}
{% endfor %}
"""
SCENARIOS = """\
# Who it is about.
scenarios:
  - id: one
    who: Ann
    tasks: [cook, read]
  - id: two
    who: Bob   # a friend
    tasks:
      - swim
  - id: three
    who: Cem
    tasks: [sing]
  - id: four
    who: Dee
    tasks: [walk]
"""


def write_suite(folder: Path, **changed: str | bytes | None) -> Path:
    """A suite that is fine but for what is changed; None leaves a file out, other names are more prompts."""
    files: dict[str, str | bytes | None] = {
        "suite": SUITE,
        "rubric": RUBRIC,
        "v1": PROMPT,
        "scenarios": SCENARIOS,
        **changed,
    }
    names = {"suite": "suite.yaml", "rubric": "rubric.md", "scenarios": "scenarios.yaml"}
    (folder / "prompts").mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        if content is not None:
            data = content.encode() if isinstance(content, str) else content
            (folder / names.get(key, f"prompts/{key}.md")).write_bytes(data)
    return folder
