from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tipbench.suite import SHIPPED, Suite, check_suite, load_suite, render
from tipbench.suite.load import find_suite


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_suite_has_no_problem(name: str) -> None:
    """What ships passes the check; all that it warns of is that no person has judged the anchors yet."""
    anchored = bool(load_suite(name).anchors)
    assert ["provisional" in problem.message for problem in check_suite(name)] == [True] * anchored


def test_the_tip_suite() -> None:
    """The tip suite is the one that is documented."""
    suite = load_suite("tip")
    rubric = suite.rubric
    assert [prompt.id for prompt in suite.prompts] == ["v1", "v2-mentor", "v3-few-shot", "v4-structured"]
    assert suite.default_prompts == ("v1", "v2-mentor", "v3-few-shot")
    assert rubric.id == "tip-v1"
    assert [(s.name, s.low, s.high) for s in rubric.scales] == [
        ("relevance", 1, 5),
        ("actionability", 1, 5),
        ("tone", 1, 5),
    ]
    assert rubric.composite.text == "relevance + actionability + tone + 2*format_ok - overlong"
    assert rubric.failure == 3
    assert [prompt.output for prompt in suite.prompts] == ["json", "json", "json", "schema"]


def _people(suite: Suite, count: int) -> set[str]:
    return {scenario.variables["persona"]["name"] for scenario in suite.scenarios[:count]}


def test_the_order_of_scenarios() -> None:
    """Four people at two times each; the first four scenarios are four people."""
    suite = load_suite("tip")
    assert len(suite.scenarios) == 8
    assert len(_people(suite, 4)) == len(_people(suite, 8)) == 4


def test_tip_wide_contains_tip() -> None:
    """The wide suite begins with the scenarios of the small one and shares rubric and prompts to the hash."""
    tip, wide = load_suite("tip"), load_suite("tip-wide")
    assert len(wide.scenarios) == 24
    assert wide.scenarios[:8] == tip.scenarios
    assert (wide.rubric, wide.prompts, wide.reply) == (tip.rubric, tip.prompts, tip.reply)
    assert wide.default_prompts == tip.default_prompts
    assert wide.hash != tip.hash


def test_the_other_kind() -> None:
    """A suite whose reply is one text, with scales and a composite of its own."""
    suite = load_suite("support-summary")
    assert suite.reply.kind == "text"
    assert [scale.name for scale in suite.rubric.scales] == ["faithfulness", "coverage", "clarity"]
    assert suite.rubric.failure == 2.5
    best = suite.rubric.score(
        {"faithfulness": 5, "coverage": 5, "clarity": 3}, {"format_ok": True, "overlong": False}
    )
    assert best == 12.5
    assert len(suite.prompts) == 2
    assert len(suite.scenarios) == 4


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("n_tips", [1, 5, 50])
def test_prompts_fit_small_models(name: str, n_tips: int) -> None:
    """A rendered prompt is short, has no leftovers of its template and says how many candidates it wants."""
    suite = load_suite(name)
    for prompt in suite.prompts:
        for scenario in suite.scenarios:
            text = "\n".join(m.content for m in render(prompt, scenario, n_tips=n_tips, reply=suite.reply))
            assert len(text) < 2600
            assert not re.search(r"\{\{|\}\}|\{%|None|True|<|object at", text.replace('"<one sentence>"', ""))
            if suite.reply.kind == "list":
                assert str(n_tips) in text


def test_prompts_ask_without_the_answers() -> None:
    """No example in a rubric or a prompt gives a scenario's own tips away to the model."""
    suite = load_suite("tip")
    examples = re.findall(r'^> .*?"(.+)"', suite.rubric.text, re.MULTILINE)
    assert len(examples) >= 30
    sources = [prompt.system + prompt.user for prompt in suite.prompts]
    assert not [example for example in examples if any(example in source for source in sources)]


def test_examples_in_the_rubric_are_not_overlong() -> None:
    """A calibrated example has the length that a tip may have."""
    rubric = load_suite("tip").rubric
    examples = re.findall(r'^> .*?"(.+)"', rubric.text, re.MULTILINE)
    assert not [example for example in examples if rubric.is_overlong(example)]


def test_suites_are_beside_the_code() -> None:
    """Installing the package installs the suites: they are its data."""
    assert all((find_suite(name).path / "suite.yaml").is_file() for name in SHIPPED)


def test_importing_suites_is_light() -> None:
    """Nothing slow is imported before a suite is loaded."""
    code = "import sys, tipbench.suite; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
