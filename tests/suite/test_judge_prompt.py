"""The prompt of AI judges as a file of the suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suite_files import write_suite
from tipbench.errors import SuiteError
from tipbench.judge.ai import Block, first_question, prompt_hash
from tipbench.suite import check_suite, load_suite
from tipbench.suite.judge_prompt import BUILT_IN

if TYPE_CHECKING:
    from pathlib import Path

OWN = """\
# System
Judge by this: {{ rubric }}
Write: {{ form }}
# User
{{ context }}
{{ texts }}
"""


def with_prompt(folder: Path, text: str, **changed: str) -> Path:
    write_suite(folder, **changed)
    (folder / "judge.md").write_text(text, encoding="utf-8")
    return folder


def test_the_suite_replaces_the_prompt(tmp_path: Path) -> None:
    """The judge receives the file's text with the rubric, the form, the scenario and the texts filled in."""
    suite = load_suite(with_prompt(tmp_path, OWN))
    block = Block(scenario_id="one", context="Ann cooks.", items=(("a", "Chop the onions."),))
    asked = first_question(block, rubric=suite.rubric, prompt=suite.judge_prompt)
    system, user = (message.content for message in asked.messages)
    assert system.startswith(f"Judge by this: {suite.rubric.text.strip()}\nWrite: {{")
    assert user == 'Ann cooks.\n{"n": 1, "text": "Chop the onions."}'


def test_another_prompt_has_another_hash_and_the_suite_keeps_its_own(tmp_path: Path) -> None:
    """The prompt is a part of the judge's identity, and no part of the suite's."""
    plain = load_suite(write_suite(tmp_path / "plain"))
    own = load_suite(with_prompt(tmp_path / "own", OWN))
    assert plain.judge_prompt == BUILT_IN
    assert own.hash == plain.hash
    assert prompt_hash(own.judge_prompt) != prompt_hash() == prompt_hash(plain.judge_prompt)


def test_a_prompt_without_a_system_section_is_one_message(tmp_path: Path) -> None:
    """Some models have no system message."""
    text = OWN.replace("# System\n", "").replace("# User\n", "")
    suite = load_suite(with_prompt(tmp_path, f"# User\n{text}"))
    block = Block(scenario_id="one", context="Ann cooks.", items=(("a", "Chop the onions."),))
    asked = first_question(block, rubric=suite.rubric, prompt=suite.judge_prompt)
    assert [message.role for message in asked.messages] == ["user"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("{{ texts }}", "the texts", r"judge\.md: the judge's prompt does not use {{ texts }}"),
        ("{{ form }}", "JSON", r"judge\.md: the judge's prompt does not use {{ form }}"),
        (
            "{{ rubric }}",
            "{{ rubrik }}",
            r"judge\.md:2: there is no variable 'rubrik'; did you mean 'rubric'",
        ),
        ("{{ context }}", "{{ context", r"judge\.md:[56]: "),
        ("# User", "# Usr", r"judge\.md: the judge's prompt has no section '# User'"),
        ("# System", "---\nmodel: x\n---\n# System", r"judge\.md:2: .*'model'"),
    ],
)
def test_what_is_wrong_with_a_prompt(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """`suite check` names the file and the line, and the suite is not used."""
    folder = with_prompt(tmp_path, OWN.replace(old, new))
    (found,) = [one for one in check_suite(folder) if not one.warning]
    with pytest.raises(SuiteError, match=problem):
        load_suite(folder)
    assert found.path.name == "judge.md"


def test_a_link_is_no_prompt(tmp_path: Path) -> None:
    """As with all files of a suite."""
    (tmp_path / "elsewhere.md").write_text(OWN, encoding="utf-8")
    folder = write_suite(tmp_path / "suite")
    (folder / "judge.md").symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(SuiteError, match="is a link"):
        load_suite(folder)


def test_braces_in_a_rubric_or_a_text_are_no_template(tmp_path: Path) -> None:
    """Only the file itself is a template: what is filled in is data."""
    suite = load_suite(with_prompt(tmp_path, OWN))
    block = Block(scenario_id="one", context="{{ rubric }}", items=(("a", "{% for %} {{ form }}"),))
    asked = first_question(block, rubric=suite.rubric, prompt=suite.judge_prompt)
    assert asked.messages[1].content.startswith("{{ rubric }}\n")
    assert "{% for %} {{ form }}" in asked.messages[1].content
