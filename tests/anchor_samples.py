"""A small anchor bank as text and as records, for tests that change one thing about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite_files import RUBRIC, write_suite
from tipbench.suite import Anchor, Reference
from tipbench.suite.rubric_file import rubric_from_text

if TYPE_CHECKING:
    from pathlib import Path

SMALL = rubric_from_text(RUBRIC, name="rubric.md")


BANK = f"""\
rubric: small-v1
rubric_hash: "{SMALL.hash}"
judges:
  ann: {{kind: human}}
  bot: {{kind: agent}}
anchors:
  - id: a1
    scenario: one
    text: "Cook something."
    scores:
      ann: {{use: 3}}
      bot: {{use: 1}}
  - id: a2
    scenario: two
    text: Swim.
    scores:
      bot: {{use: 2}}
"""


def suite_with(folder: Path, bank: str | bytes | None, **changed: str | bytes | None) -> Path:
    """A small suite's folder with this text as its bank, or with none."""
    write_suite(folder, **changed)
    if bank is not None:
        (folder / "anchors.yaml").write_bytes(bank.encode() if isinstance(bank, str) else bank)
    return folder


def anchor_of(anchor_id: str, text: str = "Cook.", *, scenario_id: str = "one", **scores: int) -> Anchor:
    """An anchor by its judges' scores; ann and ben are people, all others agents."""
    references = tuple(
        Reference(judge=judge, kind="human" if judge in {"ann", "ben"} else "agent", scores={"use": score})
        for judge, score in scores.items()
    )
    return Anchor(id=anchor_id, scenario_id=scenario_id, text=text, references=references)
