from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchor_samples import BANK, SMALL, anchor_of, suite_with
from suite_files import SCENARIOS
from tipbench.errors import BadInput, StaleBank, SuiteError
from tipbench.suite import (
    Anchor,
    Reference,
    Rubric,
    Scenario,
    check_suite,
    load_suite,
    normalised,
    read_anchor_bank,
    write_anchor_bank,
)

if TYPE_CHECKING:
    from tipbench.records import JudgeKind


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("rubric: small-v1\n", "", 1, "has no 'rubric'"),
        (
            f'rubric_hash: "{SMALL.hash}"\n',
            "",
            1,
            f"has no 'rubric_hash'; that of the rubric is \"{SMALL.hash}",
        ),
        (f'rubric_hash: "{SMALL.hash}"', "rubric_hash:", 2, "'rubric_hash' has no value"),
        ("rubric: small-v1", "rubric: small", 1, "'rubric' is 'small', but the hash is that of 'small-v1'"),
        ("judges:", "judge:", 1, "has no 'judges'; did you mean 'judge'?"),
        ("anchors:", "anchor:", 1, "has no 'anchors'; did you mean 'anchor'?"),
        ("judges:", "notes: x\njudges:", 3, "unknown key 'notes'"),
        ("kind: agent", "kind: ai", 5, "not one of human, agent"),
        ("{kind: agent}", "{}", 5, "the judge 'bot' has no 'kind'"),
        ("{kind: agent}", "{kind: agent, model: x}", 5, "unknown key 'model'"),
        ("  bot: {kind", "  " + "b" * 65 + ": {kind", 5, "at most 64 characters"),
        ("id: a2", "id: A1", 13, "'A1' is already used on line 7"),
        ("id: a2", "id: a 2", 13, "is not an id"),
        (
            "scenario: two",
            "scenario: twoo",
            14,
            "'twoo', which is no scenario of the suite; did you mean 'two'?",
        ),
        ("scenario: two", "scenario: xyz", 14, "there are one, two, three, four"),
        ("text: Swim.", "text: ' '", 15, "'text' is empty"),
        ("text: Swim.", "txt: Swim.", 15, "unknown key 'txt'; did you mean 'text'?"),
        (
            "scenario: two\n    text: Swim.",
            "scenario: one\n    text: ＣＯＯＫ   something.",  # full-width letters
            13,
            "'a2' has the same text as 'a1'",
        ),
        ("bot: {use: 2}", "bott: {use: 2}", 17, "'bott' is not one of the 'judges'; did you mean 'bot'?"),
        ("bot: {use: 2}", "bot: {usee: 2}", 17, "has no 'use'; did you mean 'usee'?"),
        ("bot: {use: 2}", "bot: {use: 2, tone: 2}", 17, "unknown key 'tone'"),
        ("bot: {use: 2}", "bot: {use: 4}", 17, "'use' must be a whole number from 1 to 3"),
        ("bot: {use: 2}", "bot: {use: 2.5}", 17, "a whole number"),
        ("bot: {use: 2}", "bot: {use: true}", 17, "a whole number"),
        ("bot: {use: 2}", "bot: {use: }", 17, "'use' has no value"),
        ("bot: {use: 2}", "bot: 2", 17, "the judgement of 'bot' must be {use: 3}"),
        ("bot: {use: 2}", "bot: {use: 2}\n      bot: {use: 1}", 18, "'bot' is already given on line 17"),
        ("scores:\n      bot: {use: 2}", "scores: {}", 16, "the scores of at least one judge"),
        ("scores:\n      bot: {use: 2}", "scores: 2", 16, "'scores' must be judges with {use: 3}"),
        ("    scores:\n      bot: {use: 2}\n", "", 13, "has no 'scores'"),
        ("  - id: a2", "  - just words\n  - id: a2", 13, "an anchor must be lines that begin with '- id:'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, part: str
) -> None:
    """Every mistake in a bank is a sentence with file and line, and the suite is refused."""
    assert old in BANK
    folder = suite_with(tmp_path, BANK.replace(old, new))
    found = [str(problem) for problem in check_suite(folder) if not problem.warning]
    assert [text for text in found if text.startswith(f"{folder}/anchors.yaml:{line}: ") and part in text]
    with pytest.raises(SuiteError):
        load_suite(folder)


@pytest.mark.parametrize(
    ("bank", "part"),
    [
        ("", "has no 'rubric'"),
        ("- a\n", "must be 'key: value' lines"),
        (BANK.split("anchors:", maxsplit=1)[0] + "anchors: {a: 1}\n", "'anchors' must be a list"),
        ("a: [", "is not valid YAML"),
        (BANK.encode("utf-16"), "UTF-16"),
        (BANK.encode() + b"\xff", "is not UTF-8"),
        (BANK + "#" * 9_000_000, "is larger than"),
    ],
)
def test_files_that_are_no_bank(tmp_path: Path, bank: str | bytes, part: str) -> None:
    """A bank is read as every other file of a suite: bounded, UTF-8, plain YAML."""
    with pytest.raises(SuiteError, match=r"anchors\.yaml") as caught:
        load_suite(suite_with(tmp_path, bank))
    assert part in str(caught.value)


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A bank is the suite's own file: a link or a pipe is refused, not read."""
    folder = suite_with(tmp_path / "linked", None)
    (tmp_path / "bank.yaml").write_text(BANK)
    (folder / "anchors.yaml").symlink_to(tmp_path / "bank.yaml")
    with pytest.raises(SuiteError, match=r"anchors\.yaml: is a link"):
        load_suite(folder)
    other = suite_with(tmp_path / "piped", None)
    os.mkfifo(other / "anchors.yaml")
    with pytest.raises(SuiteError, match=r"anchors\.yaml: is not a regular file"):
        load_suite(other)


def test_one_mistake_elsewhere_is_told_once(tmp_path: Path) -> None:
    """A scenario that cannot be read is not told again at each of its anchors."""
    folder = suite_with(tmp_path, BANK, scenarios=SCENARIOS.replace("who: Bob", "who:"))
    (problem,) = check_suite(folder)
    assert problem.path.name == "scenarios.yaml"


@pytest.mark.parametrize("hashed", ["0" * 64, "?", SMALL.hash[:11], SMALL.hash + "0"])
def test_anchors_under_another_rubric_are_not_used(tmp_path: Path, hashed: str) -> None:
    """A bank for another rubric text is set aside with a warning that has the present hash."""
    folder = suite_with(tmp_path, BANK.replace(SMALL.hash, hashed).replace("use:", "gone:"))
    assert load_suite(folder).anchors == ()
    (problem,) = check_suite(folder)
    assert str(problem).startswith(f"{folder}/anchors.yaml:2: warning: the anchors were judged under another")
    assert f'rubric_hash: "{SMALL.hash}"' in problem.message


def test_the_beginning_of_the_hash_is_enough(tmp_path: Path) -> None:
    """Twelve digits, as other commands show them, name the rubric's text."""
    assert len(load_suite(suite_with(tmp_path, BANK.replace(SMALL.hash, SMALL.hash[:12]))).anchors) == 2


def _read(text: str, rubric: Rubric = SMALL, *, folder: Path) -> tuple[Anchor, ...]:
    scenarios = load_suite(suite_with(folder, None)).scenarios
    return read_anchor_bank(text, path=Path("bank.yaml"), rubric=rubric, scenarios=scenarios)


def test_a_bank_outside_the_suite(tmp_path: Path) -> None:
    """A bank that is kept elsewhere is read by the same rules."""
    assert [anchor.id for anchor in _read(BANK, folder=tmp_path)] == ["a1", "a2"]
    with pytest.raises(SuiteError, match=r"^bank\.yaml:14: 'scenario' names 'tow'"):
        _read(BANK.replace("scenario: two", "scenario: tow"), folder=tmp_path)
    with pytest.raises(StaleBank, match=r"^bank\.yaml:2: the anchors were judged under another text"):
        _read(BANK, replace(SMALL, hash="0" * 64), folder=tmp_path)


def test_a_bank_as_it_is_written(tmp_path: Path) -> None:
    """One line for each thing that may change, in the order given."""
    scores = {"Ann Lee": 3, "no: 1": 2}
    references = tuple(Reference(judge=who, kind="agent", scores={"use": scores[who]}) for who in scores)
    anchor = replace(anchor_of("a1", "Cook: now."), references=references)
    text = write_anchor_bank([anchor], rubric=SMALL)
    assert text == (
        f'rubric: small-v1\nrubric_hash: "{SMALL.hash}"\n\n'
        'judges:\n  Ann Lee: {kind: agent}\n  "no: 1": {kind: agent}\n\n'
        'anchors:\n  - id: a1\n    scenario: one\n    text: "Cook: now."\n'
        '    scores:\n      Ann Lee: {use: 3}\n      "no: 1": {use: 2}\n'
    )
    assert _read(write_anchor_bank([], rubric=SMALL), folder=tmp_path) == ()


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)


JUDGES = st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable() and name == name.strip())


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)


KINDS: tuple[JudgeKind, ...] = ("human", "agent")


@st.composite
def _banks(draw: st.DrawFn) -> tuple[Anchor, ...]:
    kinds = draw(st.dictionaries(JUDGES, st.sampled_from(KINDS), min_size=1, max_size=4))
    ids = draw(st.lists(NAMES, unique_by=str.casefold, max_size=4))
    texts = draw(st.lists(TEXTS, min_size=len(ids), max_size=len(ids), unique_by=normalised))
    anchors = []
    for anchor_id, text in zip(ids, texts, strict=True):
        judges = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, unique=True))
        references = tuple(
            Reference(judge=judge, kind=kinds[judge], scores={"use": draw(st.integers(1, 3))})
            for judge in judges
        )
        anchors.append(Anchor(id=anchor_id, scenario_id="one", text=text, references=references))
    return tuple(anchors)


@given(bank=_banks())
def test_what_is_written_reads_back_the_same(bank: tuple[Anchor, ...]) -> None:
    """Any bank, whatever its texts, ids and names look like, is the same after writing and reading."""
    scenarios = [Scenario.of("one", {})]
    text = write_anchor_bank(bank, rubric=SMALL)
    assert read_anchor_bank(text, path=Path("x"), rubric=SMALL, scenarios=scenarios) == bank
    assert write_anchor_bank(bank, rubric=SMALL) == text


@pytest.mark.parametrize(
    ("anchor", "part"),
    [
        (anchor_of("a"), "'scores' has no value"),
        (anchor_of("a b", bot=1), "is not an id"),
        (anchor_of("a", bot=4), "a whole number from 1 to 3"),
        (anchor_of("a", " ", bot=1), "'text' is empty"),
        (anchor_of("a", "\ud800", bot=1), "half a character"),
        (
            replace(anchor_of("a"), references=(Reference(judge="p", kind="proxy", scores={"use": 1}),)),
            "not one of",
        ),
        (
            replace(anchor_of("a"), references=(Reference(judge="p", kind="agent", scores={"use": 1.5}),)),
            "whole number",
        ),
        (
            replace(anchor_of("a"), references=(Reference(judge="p", kind="agent", scores={"tone": 1}),)),
            "has no 'use'",
        ),
    ],
)
def test_what_could_not_be_read_is_not_written(anchor: Anchor, part: str) -> None:
    """A bank that reading would refuse is refused before it is written."""
    with pytest.raises(BadInput) as caught:
        write_anchor_bank([anchor], rubric=SMALL)
    assert part in str(caught.value)
