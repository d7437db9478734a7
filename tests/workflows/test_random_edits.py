"""Whatever somebody does to a judge's file: all of it is recorded or none, and nothing that nobody gave."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judged_world import SCALES, World, plant
from tipbench.errors import TipbenchError
from tipbench.judge.blocks import wanted_blocks
from tipbench.judge.compose import Pool, compose
from tipbench.judge.filled_file import read_file
from tipbench.judge.judge_file import file_text
from tipbench.ledger import MemoryLedger
from tipbench.workflows.applying import apply_read
from tipbench.workflows.exporting import blank_batch
from tipbench.workflows.judged import read_judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tipbench.records import Application, Batch

    Document = dict[str, Any]
    Edit = Callable[[Document], None]

N_ITEMS = 12


class Setting:
    """A batch that was exported, in a ledger that can be had again as it was then."""

    def __init__(self) -> None:
        self._ledger = MemoryLedger()
        quality = {("qwen2.5:0.5b", "v1"): 4.0, ("llama3.2:1b", "v1"): 2.5}
        self.world: World = plant("bench", quality=quality, n_scenarios=2, ledger=self._ledger)
        state, suite = read_judged(self._ledger, "bench"), self.world.suite
        scenarios = {scenario.id: scenario.described for scenario in suite.scenarios}
        batch = compose(
            wanted_blocks(state.runs, scenarios=list(scenarios)),
            blank=blank_batch(state, purpose="judge", judge=""),
            pool=Pool(contexts=scenarios, scales=suite.rubric.scales, anchors=suite.anchors),
            key=b"key",
            rng=random.Random(0),  # noqa: S311 - the same batch each time
            size=N_ITEMS,
        )
        assert batch is not None
        assert len(batch.items) == N_ITEMS
        self.batch: Batch = batch
        self.text = file_text(batch, rubric_text=suite.rubric.text, scales=suite.rubric.scales)

    def ledger(self) -> MemoryLedger:
        fresh = MemoryLedger()
        fresh._pins = dict(self._ledger._pins)
        fresh._runs = {name: dict(runs) for name, runs in self._ledger._runs.items()}
        fresh.add_batch(self.batch)
        return fresh

    def filled(self) -> Document:
        """The file as an honest judge brings it back."""
        document: Document = json.loads(self.text)
        document["judged_by"] = {"id": "ann", "kind": "human", "model": None}
        for item in document["items"]:
            truth = self.world.true_scores(item["scenario"], item["tip"])
            item["judge"] |= {name: round(truth[name]) for name in SCALES}
        return document


@pytest.fixture(scope="module")
def exported() -> Setting:
    return Setting()


places = st.integers(0, N_ITEMS - 1)
words = st.text(max_size=12)
odd = st.one_of(st.integers(-1, 7), st.none(), st.booleans(), st.sampled_from(["4", 4.0, 2.5, [3], {}, ""]))


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One thing that somebody may do to the document."""
    kind = draw(st.sampled_from([*sorted(_EDITS), *4 * _FAIR]))
    place, other, value, text = draw(places), draw(places), draw(odd), draw(words)
    scale = draw(st.sampled_from([*SCALES, "overlong", "note"]))
    key = draw(st.sampled_from(["id", "number", "scenario", "context", "tip", "judge"]))
    top = draw(st.sampled_from(["schema", "batch", "rubric_hash", "frozen", "rubric", "items", "judged_by"]))
    known = {
        "place": place,
        "other": other,
        "value": value,
        "text": text,
        "scale": scale,
        "key": key,
        "top": top,
    }
    return lambda document: _EDITS[kind](document, **known)


def _score(document: Document, *, place: int, scale: str, value: object, **_: object) -> None:
    document["items"][place]["judge"][scale] = value


def _good_score(document: Document, *, place: int, other: int, **_: object) -> None:
    document["items"][place]["judge"] |= dict.fromkeys(SCALES, other % 5 + 1)


def _skip(document: Document, *, place: int, other: int, **_: object) -> None:
    for item in document["items"][min(place, other) : max(place, other)]:
        item["judge"] = dict.fromkeys(item["judge"])


def _note(document: Document, *, place: int, text: str, value: object, **_: object) -> None:
    document["items"][place]["judge"] |= {"note": text, "overlong": value}


def _lose(document: Document, *, place: int, **_: object) -> None:
    del document["items"][place]


def _swap(document: Document, *, place: int, other: int, **_: object) -> None:
    items = document["items"]
    items[place], items[other] = items[other], items[place]


def _swap_answers(document: Document, *, place: int, other: int, **_: object) -> None:
    one, two = document["items"][place], document["items"][other]
    one["judge"], two["judge"] = two["judge"], one["judge"]


def _double(document: Document, *, place: int, other: int, **_: object) -> None:
    document["items"].insert(other, document["items"][place])


def _change(document: Document, *, place: int, key: str, value: object, text: str, **_: object) -> None:
    document["items"][place][key] = text if isinstance(value, int) else value


def _steal_id(document: Document, *, place: int, other: int, **_: object) -> None:
    document["items"][place]["id"] = document["items"][other]["id"]


def _rename(document: Document, *, text: str, place: int, **_: object) -> None:
    document["judged_by"] |= {"id": text, "kind": ["human", "agent", "ai"][place % 3]}


def _other_judge(document: Document, *, place: int, **_: object) -> None:
    document["judged_by"]["id"] = f"judge {place % 2}"


def _break(document: Document, *, top: str, value: object, **_: object) -> None:
    document[top] = value


def _forget(document: Document, *, top: str, **_: object) -> None:
    document.pop(top, None)


def _more(document: Document, *, text: str, value: object, place: int, **_: object) -> None:
    document["items"][place][text] = value


_EDITS: dict[str, Callable[..., None]] = {
    edit.__name__: edit
    for edit in (
        _score, _good_score, _skip, _note, _lose, _swap, _swap_answers, _double, _change, _steal_id, _rename,
        _other_judge, _break, _forget, _more,
    )
}  # fmt: skip


_FAIR = ["_good_score", "_other_judge", "_skip"]


def _raw(text: str, how: str, at: int) -> str:
    """What an editor or a bad copy does to a file."""
    at %= len(text) + 1
    changed = {
        "whole": text,
        "cut": text[:at],
        "comma": text.replace("}\n", ",}\n", 1) if at % 2 else text.replace("]", ",]", 1),
        "comment": f"{text[:at]}// hm\n{text[at:]}",
        "lost": text[:at] + text[at + 1 :],
        "digit": f"{text[:at]}7{text[at:]}",
        "mark": "\ufeff" + text,
        "lines": text.replace("\n", "\r\n"),
    }
    return changed[how]


kinds_of_text = st.sampled_from(
    ["whole", "whole", "whole", "whole", "whole", "cut", "comma", "comment", "lost", "digit", "mark", "lines"]
)
rounds = st.lists(
    st.tuples(
        st.lists(edits(), max_size=3), kinds_of_text, st.integers(0, 10**5), st.booleans(), st.booleans()
    ),
    min_size=1,
    max_size=3,
)


def _edited(exported: Setting, changes: list[Edit], how: str, at: int) -> bytes:
    document = exported.filled()
    for change in changes:
        try:
            change(document)
        except (AttributeError, IndexError, KeyError, TypeError):
            continue  # there is nothing left to do this to
    text = json.dumps(document, indent=1, ensure_ascii=at % 2 == 0)
    return _raw(text, how, at).encode("utf-8", "surrogatepass")


def _given(data: bytes) -> dict[str, dict[str, int]]:
    """The scores that the file gives, by item id, as any reader of JSON reads it."""
    items = json.loads(data.decode("utf-8-sig"))["items"]
    answers = {item["id"]: item["judge"] or {} for item in items}
    scores: dict[str, dict[str, Any]]
    scores = {item_id: {name: found.get(name) for name in SCALES} for item_id, found in answers.items()}
    return {item_id: found for item_id, found in scores.items() if None not in found.values()}


def _judge(data: bytes) -> tuple[str, str]:
    by = json.loads(data.decode("utf-8-sig"))["judged_by"]
    return by["id"].strip(), by["kind"]


def _latest(exported: Setting, data: bytes, batch: Batch) -> dict[str, dict[str, float]]:
    """The last word on each item of the judge whom the file names."""
    ids = {item.candidate: item.id for item in exported.batch.items if item.candidate}
    found: dict[str, dict[str, float]] = {}
    for one in batch.applications:
        if (one.judge.id, one.judge.kind) == _judge(data):
            found |= {ids[verdict.candidate]: dict(verdict.scores) for verdict in one.verdicts}
            found |= {item_id: dict(scores) for item_id, scores in one.hidden.items()}
    return found


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=rounds)
def test_all_or_nothing_and_only_what_was_given(exported: Setting, rounds: list[Any]) -> None:
    """After every file, good or bad, the ledger holds what it held, or that and all that the file gives."""
    ledger = exported.ledger()
    for changes, how, at, rejudge, accept in rounds:
        data = _edited(exported, changes, how, at)
        before = ledger.batch(exported.batch.batch_id)
        try:
            apply_read(ledger, read_file(data, path="b.json"), rejudge=rejudge, accept_drift=accept)
        except TipbenchError:
            now = ledger.batch(exported.batch.batch_id)
            assert replace(now, rejections=()) == replace(before, rejections=())
            continue
        after = ledger.batch(exported.batch.batch_id)
        assert after.applications[: len(before.applications)] == before.applications
        _check_given(exported, data, after.applications[len(before.applications) :])
        said, known = _given(data), _latest(exported, data, before)
        assert rejudge or all(known.get(item_id, scores) == scores for item_id, scores in said.items())
        assert {item_id: _latest(exported, data, after)[item_id] for item_id in said} == said
        assert read_judged(ledger, "bench").marks() == {}, "the runs show what the verdicts say"


def _check_given(exported: Setting, data: bytes, new: Sequence[Application]) -> None:
    """Each new verdict stands in the file, by the judge that the file names."""
    said, ids = _given(data), {item.candidate: item.id for item in exported.batch.items if item.candidate}
    for one in new:
        assert (one.judge.id, one.judge.kind) == _judge(data)
        assert {(verdict.judge, verdict.batch_id) for verdict in one.verdicts} <= {
            (one.judge, exported.batch.batch_id)
        }
        scores = {ids[verdict.candidate]: verdict.scores for verdict in one.verdicts} | dict(one.hidden)
        for item_id, found in scores.items():
            assert dict(found) == said[item_id]
            assert all(type(value) is int and 1 <= value <= 5 for value in found.values())
