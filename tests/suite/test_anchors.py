from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from anchor_samples import BANK, SMALL, anchor_of, suite_with
from suite_files import RUBRIC
from tipbench.errors import BadInput, SuiteError
from tipbench.suite import (
    Anchor,
    Reference,
    check_suite,
    load_suite,
    merge_banks,
    normalised,
    read_anchor_bank,
    write_anchor_bank,
)

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-suite.md"


def test_a_suite_has_its_anchors(tmp_path: Path) -> None:
    """Each anchor has its scenario, its text, and who gave which scores."""
    one, two = load_suite(suite_with(tmp_path, BANK)).anchors
    assert one == anchor_of("a1", "Cook something.", ann=3, bot=1)
    assert two == anchor_of("a2", "Swim.", scenario_id="two", bot=2)


def test_a_suite_without_a_bank_has_no_anchors(tmp_path: Path) -> None:
    """A bank may be left out, and is then not missed."""
    folder = suite_with(tmp_path, None)
    assert load_suite(folder).anchors == ()
    assert check_suite(folder) == []


def test_anchors_change_no_hash(tmp_path: Path) -> None:
    """Anchors change nothing that is generated, so an experiment goes on when they are added."""
    assert (
        load_suite(suite_with(tmp_path / "a", BANK)).hash == load_suite(suite_with(tmp_path / "b", None)).hash
    )


def test_people_go_before_agents() -> None:
    """The reference is the mean of the people's judgements if there are any, else of all."""
    both = anchor_of("x", ann=3, ben=2, bot=1)
    assert (both.reference, both.n_references, both.by_people) == ({"use": 2.5}, 2, True)
    agents = anchor_of("x", bot=1, bat=2)
    assert (agents.reference, agents.n_references, agents.by_people) == ({"use": 1.5}, 2, False)


def _full_bank(**kinds: str) -> str:
    """Four anchors from 1 to 3 for each scenario, by the judges given."""
    judges = "\n".join(f"  {judge}: {{kind: {kind}}}" for judge, kind in kinds.items())
    lines = [f"rubric: small-v1\nrubric_hash: {SMALL.hash}\njudges:\n{judges}\nanchors:"]
    for scenario in ("one", "two", "three", "four"):
        for number, score in enumerate((1, 2, 3, 3)):
            lines.append(f"  - id: {scenario}-{number}\n    scenario: {scenario}\n    text: text {number}")
            lines.append("    scores:")
            lines += [f"      {judge}: {{use: {score}}}" for judge in kinds]
    return "\n".join(lines) + "\n"


PEOPLE = {"a": "human", "b": "human", "c": "human", "d": "human"}


def test_a_full_bank_has_no_warning(tmp_path: Path) -> None:
    """Four anchors per scenario over the whole range, each judged by four people, leave nothing to say."""
    assert check_suite(suite_with(tmp_path, _full_bank(**PEOPLE))) == []


@pytest.mark.parametrize(
    ("bank", "part"),
    [
        (
            _full_bank(**PEOPLE).rpartition("  - id: four-3")[0],
            "fewer than 4 anchors are of the scenarios four",
        ),
        (
            _full_bank(a="human", b="human", c="human"),
            "fewer than 4 judgements are behind the anchors one-0,",
        ),
        (_full_bank(**PEOPLE).replace("use: 3", "use: 2"), "no anchor is near 3 on 'use'"),
        (_full_bank(**PEOPLE).replace("use: 1", "use: 2"), "no anchor is near 1 on 'use'"),
        (
            _full_bank(**dict.fromkeys(PEOPLE, "agent")),
            "no person has judged 16 of the 16 anchors, so that what they say of a judge is provisional",
        ),
    ],
)
def test_warnings(tmp_path: Path, bank: str, part: str) -> None:
    """A bank that is thin, narrow or given by no person can be used, and the check says what it lacks."""
    folder = suite_with(tmp_path, bank)
    (problem,) = check_suite(folder)
    assert problem.warning
    assert str(problem).startswith(f"{folder}/anchors.yaml: warning: ")
    assert part in problem.message
    assert load_suite(folder).anchors


EXTENDING = "id: mine\nextends: tip\n"


def _extending(folder: Path, bank: str | None, *, rubric: str | None = None) -> Path:
    return suite_with(folder, bank, suite=EXTENDING, v1=None, scenarios=None, rubric=rubric)


def _tip_bank(anchor_id: str, text: str, kind: str = "human") -> str:
    rubric = load_suite("tip").rubric
    return (
        f"rubric: tip-v1\nrubric_hash: {rubric.hash}\njudges: {{me: {{kind: {kind}}}}}\nanchors:\n"
        f"  - id: {anchor_id}\n    scenario: carl-closing-time\n    text: {text!r}\n"
        "    scores: {me: {relevance: 2, actionability: 3, tone: 4}}\n"
    )


def test_a_suite_adds_to_the_bank_it_extends(tmp_path: Path) -> None:
    """New anchors come after those that are inherited; another judgement of one of those joins the others."""
    inherited = load_suite("tip").anchors
    first = next(anchor for anchor in inherited if anchor.scenario_id == "carl-closing-time")
    more = load_suite(_extending(tmp_path / "more", _tip_bank("mine", "Sing."))).anchors
    assert more[:-1] == inherited
    assert more[-1].id == "mine"
    again = load_suite(_extending(tmp_path / "again", _tip_bank(first.id, first.text))).anchors
    assert len(again) == len(inherited)
    (joined,) = [anchor for anchor in again if anchor.id == first.id]
    assert [one.judge for one in joined.references] == [*(one.judge for one in first.references), "me"]
    assert joined.reference == {"relevance": 2, "actionability": 3, "tone": 4}


def test_a_suite_cannot_give_an_inherited_anchor_another_text(tmp_path: Path) -> None:
    """An id of the suite that is extended stands for its text; another one is told at its line."""
    folder = _extending(tmp_path, _tip_bank("carl-closing-time-a", "Sing."))
    with pytest.raises(SuiteError, match=r"anchors\.yaml:5: the anchor id 'carl-closing-time-a' stands for"):
        load_suite(folder)


def test_a_rubric_of_its_own_sets_inherited_anchors_aside(tmp_path: Path) -> None:
    """Anchors of the suite that is extended do not count under another rubric, and the check says so."""
    folder = _extending(tmp_path, None, rubric=RUBRIC)
    assert load_suite(folder).anchors == ()
    (problem,) = check_suite(folder)
    assert str(problem).startswith(f"{folder}/rubric.md: warning: the anchors of 'tip' are not used")


def test_merging_banks() -> None:
    """An anchor in both banks has the judgements of both, the later one of each judge; new ones are added."""
    base = (anchor_of("a", ann=3, bot=1), anchor_of("b", "Read.", bot=2))
    merged = merge_banks(base, [anchor_of("c", "Walk.", bot=3), anchor_of("a", ann=2, ben=1)])
    assert merged == (anchor_of("a", ann=2, bot=1, ben=1), base[1], anchor_of("c", "Walk.", bot=3))
    assert merge_banks(base, ()) == merge_banks((), base) == base


def test_the_same_text_is_the_same_anchor() -> None:
    """A text that is in the bank already keeps its id, whatever it is called in the other bank."""
    (merged,) = merge_banks([anchor_of("a", "Cook now.", bot=1)], [anchor_of("x", " COOK  now.", ann=2)])
    assert merged == anchor_of("a", "Cook now.", bot=1, ann=2)
    assert len(merge_banks([anchor_of("a", bot=1)], [anchor_of("x", scenario_id="two", bot=1)])) == 2


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (anchor_of("a", "Read.", bot=1), "'a' stands for another text already"),
        (anchor_of("A", "Read.", bot=1), "'A' stands for another text already"),
        (anchor_of("a", scenario_id="two", bot=1), "'a' stands for another text already"),
        (
            replace(
                anchor_of("b", "Read."), references=(Reference(judge="bot", kind="human", scores={"use": 1}),)
            ),
            "the judge 'bot' is 'agent' in one place and 'human' in another",
        ),
    ],
)
def test_banks_that_contradict_each_other(other: Anchor, part: str) -> None:
    """An id for two texts, or a judge of two kinds, is refused."""
    with pytest.raises(BadInput) as caught:
        merge_banks([anchor_of("a", bot=1)], [other])
    assert part in str(caught.value)


@pytest.mark.parametrize("name", ["tip", "tip-wide"])
def test_the_bank_that_ships(name: str) -> None:
    """Each scenario has four anchors or more, from bad to good, with four judgements or more behind each."""
    suite = load_suite(name)
    count = Counter(anchor.scenario_id for anchor in suite.anchors)
    assert all(count[scenario.id] >= 4 for scenario in suite.scenarios)
    assert all(anchor.n_references >= 4 for anchor in suite.anchors)
    for scenario in suite.scenarios:
        sums = [sum(a.reference.values()) for a in suite.anchors if a.scenario_id == scenario.id]
        assert min(sums) <= 7, scenario.id
        assert max(sums) >= 13, scenario.id


@pytest.mark.parametrize("name", ["tip", "tip-wide"])
def test_the_bank_that_ships_spans_every_scale(name: str) -> None:
    """On every scale there are anchors near each level, so that drift is seen wherever it happens."""
    suite = load_suite(name)
    for scale in suite.rubric.scales:
        near = Counter(round(anchor.reference[scale.name]) for anchor in suite.anchors)
        assert all(near[level] >= 3 for level in scale.levels), scale.name
    middle = [anchor for anchor in suite.anchors if 7 <= sum(anchor.reference.values()) <= 11]
    assert len(middle) >= len(suite.anchors) / 4


def test_judges_of_the_bank_that_ships_agree() -> None:
    """No anchor is kept whose judges were far apart: two points on a scale is the most."""
    for anchor in load_suite("tip-wide").anchors:
        for scale in anchor.reference:
            scores = [one.scores[scale] for one in anchor.references]
            assert max(scores) - min(scores) <= 2, anchor.id


def test_anchors_are_not_among_the_examples() -> None:
    """A judge who has read the rubric, or a model its prompt, has not met an anchor in it."""
    suite = load_suite("tip-wide")
    sources = [suite.rubric.text, *(prompt.system + prompt.user for prompt in suite.prompts)]
    seen = "\n".join(map(normalised, sources))
    assert not [anchor.id for anchor in suite.anchors if normalised(anchor.text) in seen]


@pytest.mark.parametrize("name", ["tip", "tip-wide"])
def test_the_bank_that_ships_is_as_written(name: str) -> None:
    """Below its comment, the file is what would be written: adding to it changes the lines that are added."""
    suite = load_suite(name)
    path = suite.path / "anchors.yaml"
    text = path.read_text(encoding="utf-8")
    own = read_anchor_bank(text, path=path, rubric=suite.rubric, scenarios=suite.scenarios)
    assert re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).lstrip() == write_anchor_bank(
        own, rubric=suite.rubric
    )


def test_the_bank_in_the_how_to(tmp_path: Path) -> None:
    """The beginning of a bank on the page fits the suite on the page."""
    page = HOW_TO.read_text(encoding="utf-8")
    blocks = re.findall(r"^`ideas/(\S+)`[^`\n]*:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    suite = load_suite(tmp_path)
    assert suite.anchors
    assert suite.anchors[0].by_people
