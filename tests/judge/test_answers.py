from __future__ import annotations

import pytest

from batch_samples import SCALES
from tipbench.judge.answers import LONGEST_NOTE, Answer, answer_keys, read_answer
from tipbench.suite.rubric import Scale

FULL = {"relevance": 4, "actionability": 1, "tone": 5, "overlong": None, "note": None}


def test_an_answer_has_every_scale() -> None:
    """Scores, what the judge thinks of the length, and a remark."""
    assert answer_keys(SCALES) == list(FULL)
    scores = {"relevance": 4, "actionability": 1, "tone": 5}
    assert read_answer(FULL, scales=SCALES) == Answer(scores=scores)
    assert read_answer(FULL | {"overlong": False, "note": "ok"}, scales=SCALES) == Answer(
        scores=scores, overlong=False, note="ok"
    )


def test_nothing_given_is_a_skip() -> None:
    """All null, or all left out, skips the item; a remark may say why."""
    assert read_answer(dict.fromkeys(FULL), scales=SCALES) == Answer(scores=None)
    assert read_answer({}, scales=SCALES) == Answer(scores=None)
    assert read_answer({"note": "unreadable"}, scales=SCALES) == Answer(scores=None, note="unreadable")


def test_a_scale_may_begin_at_zero() -> None:
    """Nought is a score, not a skip."""
    assert read_answer({"use": 0}, scales=[Scale(name="use", low=0, high=3)]) == Answer(scores={"use": 0})


@pytest.mark.parametrize(
    ("changed", "key", "says"),
    [
        ({"tone": "4"}, "tone", "tone is the text '4'; write 4 without quotation marks"),
        ({"tone": " 4 "}, "tone", "write 4 without quotation marks"),
        ({"tone": "four"}, "tone", "tone is the text 'four'; write a whole number from 1 to 5"),
        ({"tone": "9"}, "tone", "write a whole number from 1 to 5"),
        ({"tone": ""}, "tone", "tone is the text ''; write a whole number"),
        ({"tone": 4.0}, "tone", "tone is 4.0; write 4"),
        ({"tone": 4.5}, "tone", "tone is 4.5; write a whole number from 1 to 5"),
        ({"tone": float("inf")}, "tone", "tone is inf; write a whole number"),
        ({"tone": True}, "tone", "tone is true; write a whole number from 1 to 5"),
        ({"tone": 0}, "tone", "tone is 0, which is not between 1 and 5"),
        ({"tone": 6}, "tone", "tone is 6, which is not between 1 and 5"),
        ({"tone": 10**300}, "tone", "which is not between 1 and 5"),
        ({"tone": [4]}, "tone", "tone is no number"),
        ({"tone": None}, "tone", "tone has no score, but the others have; fill in all scales or none"),
        ({"tonne": 4}, "tonne", "there is no 'tonne' to judge; did you mean 'tone'?"),
        ({"Tone": 4}, "Tone", "did you mean 'tone'?"),
        ({"beauty": 4}, "beauty", "there are relevance, actionability, tone, overlong, note"),
        ({"overlong": "yes"}, "overlong", "overlong is neither true, false nor null"),
        ({"overlong": 1}, "overlong", "overlong is neither true, false nor null"),
        ({"note": 5}, "note", "note is neither a text nor null"),
        ({"note": "x" * (LONGEST_NOTE + 1)}, "note", "note is longer than 2000 characters"),
        ({"note": "\ud800"}, "note", "note holds the character '\\ud800', which cannot be kept"),
        ({"note": "a\x00"}, "note", "note holds the character '\\x00'"),
    ],
)
def test_a_wrong_answer_is_told_under_its_key(changed: dict[str, object], key: str, says: str) -> None:
    """Each mistake has one sentence that says what to write instead."""
    found = read_answer(FULL | changed, scales=SCALES)
    assert isinstance(found, list)
    assert [mistake.key for mistake in found] == [key]
    assert says in found[0].message


def test_all_mistakes_are_told() -> None:
    """Several mistakes in one answer are several sentences; a misspelt scale is not also a missing one."""
    found = read_answer({"relevence": 4, "actionability": 9, "tone": "x"}, scales=SCALES)
    assert isinstance(found, list)
    assert [mistake.key for mistake in found] == ["relevence", "actionability", "tone"]


def test_an_objection_needs_scores() -> None:
    """What a judge thinks of the length belongs to a verdict; without scores there is none."""
    found = read_answer({"overlong": True}, scales=SCALES)
    assert isinstance(found, list)
    assert "no score is" in found[0].message
