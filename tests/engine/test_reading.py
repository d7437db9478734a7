"""What is read out of replies as small models really write them."""

from __future__ import annotations

import json
import random
import time
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.engine.reading import read_reply
from tipbench.records import How, Reading


def read(
    text: str,
    *,
    kind: Literal["list", "text"] = "list",
    n: int = 5,
    fenced_ok: bool = False,
    cut: bool = False,
    asked: Literal["json", "text"] | None = None,
) -> Reading:
    return read_reply(text, kind=kind, n=n, fenced_ok=fenced_ok, cut=cut, asked=asked)


AB = ["Walk.", "Rest."]
LISTS: list[tuple[str, str, list[str], How, bool]] = [
    ("a bare list", '["Walk.", "Rest."]', AB, "strict", True),
    ("white space and a byte order mark", '\ufeff\n [ "Walk." , "Rest." ]\n', AB, "strict", True),
    ("escapes, scripts", '["caf\\u00e9 \\"x\\"", "休憩する"]', ['café "x"', "休憩する"], "strict", True),
    ("a quoted tip keeps its marks", '["\\"Go\\"", "[x]", "{y}"]', ['"Go"', "[x]", "{y}"], "strict", True),
    ("the same tip twice", '["Walk.", "Walk."]', ["Walk.", "Walk."], "strict", True),
    ("more tips than asked for", json.dumps(list("abcdefg")), list("abcdefg"), "strict", True),
    ("an empty tip", '["Walk.", "", "Rest."]', AB, "strict", False),
    ("numbers among tips", '["Walk.", 7, null, true, "Rest."]', AB, "strict", False),
    ("nested lists", '[["Walk."], [["Rest."]]]', AB, "strict", False),
    ("an object with a list", '{"tips": ["Walk.", "Rest."]}', AB, "strict", False),
    ("a list beside other texts", '{"for": "Ann", "tips": ["Walk.", "Rest."]}', AB, "strict", False),
    ("lists by time of day", '{"am": ["Walk."], "pm": ["Rest."]}', AB, "strict", False),
    ("numbered members", '{"tip 1": "Walk.", "tip 2": "Rest."}', AB, "strict", False),
    ("an object in an object", '{"tips": {"1": "Walk.", "2": "Rest."}}', AB, "strict", False),
    ("one key again and again", '{"tip": "Walk.", "tip": "Rest."}', AB, "strict", False),
    ("objects with a tip", '[{"id": 1, "tip": "Walk.", "why": "x"}, {"tip": "Rest."}]', AB, "strict", False),
    ("objects with a text", '[{"text": "Walk."}, {"Text": "Rest."}]', AB, "strict", False),
    ("title and description", '[{"title": "A:", "description": "Walk."}]', ["A: Walk."], "strict", False),
    ("only a title", '[{"title": "Walk."}, {"title": "Rest."}]', AB, "strict", False),
    ("JSON in a string", json.dumps(json.dumps(AB)), AB, "strict", False),
    ("JSON in strings of a list", json.dumps([json.dumps({"tip": tip}) for tip in AB]), AB, "strict", False),
    ("a fence", '```json\n["Walk.", "Rest."]\n```', AB, "fenced", False),
    ("a fence on one line", '```json ["Walk.", "Rest."]```', AB, "fenced", False),
    ("a fence of tildes", '~~~\n["Walk.", "Rest."]\n~~~', AB, "fenced", False),
    ("thinking first", '<think>[“no”]\n["draft"]</think>\n["Walk.", "Rest."]', AB, "fenced", False),
    ("only the end of thinking", 'so ["x"]\n</think>["Walk.", "Rest."]', AB, "fenced", False),
    ("thinking, then a fence", '<THINK></THINK>```\n["Walk.", "Rest."]\n```', AB, "fenced", False),
    ("prose around", 'Sure! ["Walk.", "Rest."] Good luck!', AB, "wrapped", False),
    ("prose around a fence", 'Here:\n```json\n["Walk.", "Rest."]\n```\nEnjoy.', AB, "wrapped", False),
    ("brackets in prose", 'For [you] {name}: ["Walk.", "Rest."]', AB, "wrapped", False),
    ("several lists", '["Walk."], ["Rest."]', AB, "wrapped", False),
    ("an object a line", '{"tip": "Walk."}\n{"tip": "Rest."}', AB, "wrapped", False),
    ("a list an item", '1. ["Walk."]\n2. ["Rest."]', AB, "wrapped", False),
    ("a trailing comma", '["Walk.", "Rest.",]', AB, "repaired", False),
    ("two commas", '["Walk.",, "Rest."]', AB, "repaired", False),
    ("no comma", '["Walk."\n"Rest."]', AB, "repaired", False),
    ("a comment", '["Walk.", // first\n "Rest."]', AB, "repaired", False),
    ("an ellipsis", '["Walk.", "Rest.", ...]', AB, "repaired", False),
    ("not a number", '["Walk.", NaN, "Rest."]', AB, "repaired", False),
    ("single quotes", "['Walk.', 'Rest.']", AB, "repaired", False),
    ("apostrophes", "['Don\\'t', 'don't', \"it's\"]", ["Don't", "don't", "it's"], "repaired", False),
    ("curly quotes", "[“Walk.”, “Rest.”]", AB, "repaired", False),
    ("curly single quotes", "[‘Don’t.’, ‘Rest.’]", ["Don’t.", "Rest."], "repaired", False),
    ("angle quotes", "[«Walk.», «Rest.»]", AB, "repaired", False),
    ("quotes in a tip", '["Say "hi", then go", "Rest."]', ['Say "hi", then go', "Rest."], "repaired", False),
    ("a line break in a tip", '["Walk\nnow.", "Rest."]', ["Walk\nnow.", "Rest."], "repaired", False),
    ("an unknown escape", '["C:\\go", "Rest."]', ["C:\\go", "Rest."], "repaired", False),
    ("keys without quotes", "{tips: ['Walk.', 'Rest.']}", AB, "repaired", False),
    ("braces for a list", '{"Walk.", "Rest."}', AB, "repaired", False),
    ("the wrong closer", '["Walk.", "Rest."}', AB, "repaired", False),
    ("escaped all over", '[\\"Walk.\\", \\"Rest.\\"]', AB, "repaired", False),
    ("no end", '["Walk.", "Rest."', AB, "repaired", False),
    ("cut in a tip", '["Walk.", "Rest.", "Then g', AB, "repaired", False),
    ("cut in an open fence", '```json\n["Walk.", "Rest.", "Th', AB, "repaired", False),
    ("cut in an object's list", '{"tips": ["Walk.", "Rest.", "', AB, "repaired", False),
    ("cut in a numbered member", '{"1": "Walk.", "2": "Rest.", "3": "Th', AB, "repaired", False),
    ("cut at a key", '{"1": "Walk.", "2": "Rest.", "3"', AB, "repaired", False),
    ("cut after a title", '[{"title": "A", "text": "Walk."}, {"title": "B"', ["A: Walk."], "repaired", False),
    ("cut near doubtful quotes", '["Walk.", "Rest.", "Say "hi"', AB, "repaired", False),
    ("numbers and dots", "1. Walk.\n2. Rest.", AB, "lines", False),
    ("numbers without a space", "1.Walk.\n2.Rest.", AB, "lines", False),
    ("numbers and brackets", "Here you go:\n\n 1) Walk.\n 2) Rest.\n\nBye!", AB, "lines", False),
    ("numbers in brackets", "(1) Walk.\n(2) Rest.", AB, "lines", False),
    ("bold numbers", "**1.** Walk.\n**2.** Rest.", AB, "lines", False),
    ("bold from the number on", "**1. Walk** at 3.", ["**Walk** at 3."], "lines", False),
    ("labels", "Tip 1: Walk.\n\n**Tip 2:** Rest.", AB, "lines", False),
    ("titles", "1. **A**\n\nGo.\n\n2. B:\n\nSit.\n\nBye!", ["**A** Go.", "B: Sit."], "lines", False),
    ("headings", "### 1. Walk\nAt 3.\n\n### 2. Rest\nAt 4.", ["Walk At 3.", "Rest At 4."], "lines", False),
    ("dashes", "- Walk.\n- Rest.", AB, "lines", False),
    ("stars", "Tips:\n* Walk.\n* Rest.\n\nHope this helps!", AB, "lines", False),
    ("dots", "•Walk.\n• Rest.", AB, "lines", False),
    ("check boxes", "- [ ] Walk.\n- [x] Rest.", AB, "lines", False),
    ("quoted items", '1. "Walk.",\n2. "Rest."', AB, "lines", False),
    ("items over two lines", "1. Walk\n   now.\n2. Rest\nnow.", ["Walk now.", "Rest now."], "lines", False),
    ("bullets under numbers", "1. Walk\n   - now.\n2. Rest.", ["Walk now.", "Rest."], "lines", False),
    ("bullets under bullets", "- Walk\n    - now.\n- Rest.", ["Walk now.", "Rest."], "lines", False),
    ("a list inside an item", '1. Buy ["milk"]\n2. Rest.', ['Buy ["milk"]', "Rest."], "lines", False),
    ("plain prose", "You should walk at 3 and drink water.", [], "none", False),
    ("prose with figures", "10 minutes of walking at 10:30.\n3.5 km is plenty.", [], "none", False),
    ("nothing", "", [], "none", False),
    ("only white space", " \n\t ", [], "none", False),
    ("an empty list", "[]", [], "none", False),
    ("empty tips", '["", " "]', [], "none", False),
    ("a number", "42", [], "none", False),
    ("a constant", "NaN", [], "none", False),
    ("a nul", "\x00", [], "none", False),
    ("thinking without an end", '<think>Perhaps ["Walk."] or', [], "none", False),
    ("cut in the first tip", '["Walk a', [], "none", False),
    ("cut in the first of lines in a string", '["Do this:\n- walk\n- dri', [], "none", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tips", "how", "ok"), [case[1:] for case in LISTS], ids=[case[0] for case in LISTS]
)
def test_reads_a_list_by_the_first_rung_that_holds(text: str, tips: list[str], how: How, *, ok: bool) -> None:
    """Each way of writing tips gives exactly those tips, by the rung of the ladder that is named."""
    assert read(text) == Reading(candidates=tuple(tips), how=how, format_ok=ok)


TEXTS: list[tuple[str, str, str | None, How, bool]] = [
    ("as it is", " Dear Ann,\n\nthank you. \n", "Dear Ann,\n\nthank you.", "strict", True),
    ("a member named text", '{"text": "Dear Ann"}', "Dear Ann", "strict", True),
    ("that object in a fence", '```json\n{"text": "Dear Ann"}\n```', "Dear Ann", "fenced", False),
    ("that object in prose", 'Here: {"text": "Dear Ann"} ok?', "Dear Ann", "wrapped", False),
    ("that object, broken", "{'text': 'Dear \"Ann\"',}", 'Dear "Ann"', "repaired", False),
    ("that object, cut", '{"text": "Dear An', None, "none", False),
    ("that object, empty", '{"text": " "}', None, "none", False),
    ("in a fence", "```\nDear Ann\n```", "Dear Ann", "fenced", False),
    ("in quotes", '"Dear \\"Ann\\""', 'Dear "Ann"', "fenced", False),
    ("in curly quotes", "“Dear Ann”", "Dear Ann", "fenced", False),
    ("quotes at both ends", '"Yes" and "no"', '"Yes" and "no"', "strict", True),
    ("after thinking", "<think>Hm.</think>Dear Ann", "Dear Ann", "fenced", False),
    ("other JSON", '{"name": "Ann"}', '{"name": "Ann"}', "strict", True),
    ("a list in lines", "1. a\n2. b", "1. a\n2. b", "strict", True),
    ("a template's brace", "{name}, thank you", "{name}, thank you", "strict", True),
    ("nothing", " ", None, "none", False),
    ("thinking without an end", "<think>Dear", None, "none", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found", "how", "ok"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS]
)
def test_reads_one_text(text: str, found: str | None, how: How, *, ok: bool) -> None:
    """A reply that is to be one text gives that text without what a model puts around it."""
    assert read(text, kind="text", n=1) == Reading(
        candidates=(found,) if found else (), how=how, format_ok=ok
    )


def test_a_fence_is_fine_where_the_prompt_allows_it() -> None:
    """A fenced list is in the right format only if the prompt said that it may be fenced."""
    fenced = '```json\n["Walk."]\n```'
    assert read(fenced, fenced_ok=True).format_ok
    assert not read(fenced, fenced_ok=False).format_ok
    assert not read("Hi! " + fenced, fenced_ok=True).format_ok


@pytest.mark.parametrize("text", ['["Walk."]', "1. Walk.\n2. Rest"])
def test_a_cut_reply_is_never_in_the_right_format(text: str) -> None:
    """What an engine cut is read as far as it goes, and never passes for a good reply."""
    assert read(text, cut=True).candidates == ("Walk.",)
    assert not read(text, cut=True).format_ok
    assert not read("Dear Ann", kind="text", cut=True).format_ok


def test_the_form_that_was_asked_for_decides() -> None:
    """A plain text where an object was asked for is not in the right format, nor the other way round."""
    assert not read("Dear Ann", kind="text", asked="json").format_ok
    assert read('{"text": "Dear Ann"}', kind="text", asked="json").format_ok
    assert not read('{"text": "Dear Ann"}', kind="text", asked="text").format_ok
    assert read("Dear Ann", kind="text", asked="text").format_ok
    assert read("1. Walk\n2. Rest", asked="text").format_ok
    assert not read('["Walk", "Rest"]', asked="text").format_ok


def test_too_few_tips_are_not_also_a_format_error() -> None:
    """A short list keeps its format: each missing tip already counts as an empty slot."""
    assert read('["Walk."]', n=5) == Reading(candidates=("Walk.",), how="strict", format_ok=True)


def test_the_first_list_with_enough_tips_is_the_answer() -> None:
    """An example before the answer and a second try after it are left out."""
    text = 'Like ["x"]: ["a", "b", "c"]. Or ["d", "e", "f"].'
    assert read(text, n=3).candidates == ("a", "b", "c")
    assert read(text, n=4).candidates == ("x", "a", "b", "c", "d", "e", "f")


def test_what_no_store_takes_is_taken_out() -> None:
    """Control characters vanish and a lone surrogate becomes a replacement character."""
    assert read('["a\\u0000b\\u001f", "\\ud800c"]').candidates == ("ab", "\ufffdc")
    assert read('\x00["a"]\x00').candidates == ("a",)
    read('["\\ud800c"]').candidates[0].encode()


GARBAGE = {
    "openers": "[" * 100_000,
    "braces": "{" * 100_000,
    "deep objects": '{"a":' * 50_000,
    "deep lists with tips": '["a",' * 50_000,
    "quotes everywhere": '["' + 'x"y' * 300_000,
    "strings without end": '["' * 300_000,
    "strings in a row": '["a" ' + '"a" ' * 250_000,
    "broken lists": '["a"b"] ' * 100_000,
    "brackets in an item": "1. x " + '["a" ' * 200_000,
    "fences": "```\n" * 250_000,
    "ticks": "`" * 1_000_000,
    "thinking": "<think>" * 150_000,
    "thought": "</think>" * 100_000,
    "escapes": '["' + "\\" * 1_000_000,
    "gaps": '["' + ('"' + " " * 1000) * 1000,
    "digits": "[" + "1" * 1_000_000 + "]",
    "stars": "*" * 1_000_000,
    "bullets": "- \n" * 300_000,
    "one long item": "1. a\n" + "b\n" * 400_000,
    "noise": "".join(random.Random(1).choices('[]{}",:\\ abc\n', k=1_000_000)),  # noqa: S311 - noise, not a secret
}


@pytest.mark.parametrize("kind", ["list", "text"])
@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_read_in_no_time(text: str, kind: Literal["list", "text"]) -> None:
    """A megabyte of anything is done with within seconds of processor time, without an error."""
    began = time.process_time()
    read(text, kind=kind)
    assert time.process_time() - began < 8


TIP = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
    lambda tip: tip.strip() == tip and tip[0] not in "[{\ufeff" and "\ufeff" not in tip and "<" not in tip
)
TRICKY = st.sampled_from(
    ['", "', '"]', "a[", "]", "\\", '\\"', "1. a", "- b", "{", "'", "“x”", "a: b", ",", '"', "``` x"]
)
TIPS = st.lists(st.one_of(TIP, TRICKY.filter(lambda tip: tip != "{")), min_size=1, max_size=6)


@given(tips=TIPS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), data=st.data())
def test_a_truncated_list_gives_whole_tips_only(
    tips: list[str], *, ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    """Wherever a list is cut off, what is read is a beginning of the true list, at most one tip short."""
    text = json.dumps(tips, ensure_ascii=ascii_only, indent=indent)
    at = data.draw(st.integers(0, len(text) - 1))
    found = read(text[:at])
    closed = sum(
        1
        for i in range(len(tips))
        if len(json.dumps(tips[: i + 1], ensure_ascii=ascii_only, indent=indent)) <= at
    )
    assert list(found.candidates) == tips[: len(found.candidates)]
    assert len(found.candidates) >= closed - 1
    assert not found.format_ok


@given(tips=st.lists(st.tuples(TIP, TIP), min_size=1, max_size=4), data=st.data())
def test_a_truncated_list_of_objects_gives_whole_tips_only(
    tips: list[tuple[str, str]], data: st.DataObject
) -> None:
    """An object that was cut in two gives nothing, not its title alone."""
    text = json.dumps([{"title": title, "description": body} for title, body in tips])
    found = read(text[: data.draw(st.integers(0, len(text) - 1))])
    whole = read(text).candidates
    assert len(whole) == len(tips)
    assert found.candidates == whole[: len(found.candidates)]


@given(
    tips=TIPS,
    before=st.sampled_from(["", "Sure! ", "Here are your tips:\n\n", "```json\n", "<think>Hm [x]</think>\n"]),
    after=st.sampled_from(["", "\n```", "\n\nGood luck!", " :)"]),
)
def test_wrapping_changes_no_tip(tips: list[str], before: str, after: str) -> None:
    """Prose, fences and thinking around a list leave its tips as they are."""
    assert list(read(f"{before}{json.dumps(tips)}{after}", n=1).candidates) == tips


@given(text=st.text(max_size=200), cut=st.booleans())
def test_any_text_can_be_read(text: str, *, cut: bool) -> None:
    """No text whatever raises, and every candidate has something in it."""
    kinds: tuple[Literal["list", "text"], ...] = ("list", "text")
    for kind in kinds:
        found = read_reply(text, kind=kind, n=3, fenced_ok=True, cut=cut)
        assert all(tip.strip() == tip and tip for tip in found.candidates)
        assert (found.how == "none") == (not found.candidates)
