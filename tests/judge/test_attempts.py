"""When a batch is closed, whom that concerns, and which texts are kept from that judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batch_samples import anchor, bank, blank, block, dice, pool, small_batch
from tipbench.judge.answers import Answer
from tipbench.judge.attempts import closed_to, hidden_texts, submission_id
from tipbench.judge.blocks import unseen_first
from tipbench.judge.candidates import candidate_key, normalised
from tipbench.judge.compose import compose
from tipbench.records import Batch, Judge, Rejection, Release


def rejection(name: str, judge: str = "ann", at_ms: int = 0) -> Rejection:
    return Rejection(rejection_id=name, judge=Judge(id=judge, kind="human"), at_ms=at_ms, reason="far off")


def closed(judge: str = "ann", by: str = "ann") -> Batch:
    return replace(small_batch(), judge=judge, rejections=tuple(rejection(name, by) for name in "abc"))


def test_a_batch_is_closed_after_three_different_rejections() -> None:
    """Two are not enough; a release forgives those before it, and three more close the batch again."""
    two = replace(small_batch(), rejections=(rejection("a"), rejection("b")))
    assert not two.is_closed
    three = replace(two, rejections=(*two.rejections, rejection("c")))
    assert three.is_closed
    released = replace(three, releases=(Release(at_ms=9, by="root", forgiven=("a", "b", "c")),))
    assert not released.is_closed
    more = (*released.rejections, *(rejection(name) for name in "def"))
    assert replace(released, rejections=more).is_closed


@pytest.mark.parametrize(
    ("batch", "judge", "concerned"),
    [
        (closed(), "ann", True),
        (closed(), " ANN ", True),
        (closed("ＡＮＮ"), "ann", True),
        (closed(), "bob", False),
        (closed(judge="", by="ann"), "ann", True),
        (closed(judge="", by="ann"), "", True),
        (closed(judge="", by="ann"), "bob", False),
        (closed(judge="ann"), "", False),
        (replace(closed(), rejections=()), "ann", False),
    ],
)
def test_a_closed_batch_concerns_its_judge(batch: Batch, judge: str, *, concerned: bool) -> None:
    """The judge that it was for, in any case and width, and the judge who submitted it."""
    assert bool(closed_to([batch], judge)) is concerned


def test_the_same_scores_are_the_same_submission() -> None:
    """Notes and `overlong` make no difference; a score, an item and a batch do."""
    plain = {"i": Answer(scores={"tone": 1})}
    assert submission_id("b", plain) == submission_id("b", {"i": Answer(scores={"tone": 1}, note="hm")})
    others = [
        submission_id("c", plain),
        submission_id("b", {"i": Answer(scores={"tone": 2})}),
        submission_id("b", {"j": Answer(scores={"tone": 1})}),
    ]
    assert len({submission_id("b", plain), *others}) == 4


def test_withheld_texts_are_neither_anchors_nor_foils() -> None:
    """A batch that withholds what another one hid shares no hidden text with it, however often it is made."""
    first = small_batch()
    withheld = hidden_texts([first])
    assert withheld
    for seed in range(30):
        blocks = [block("bakery", 4), block("clinic", 4)]
        again = compose(
            blocks,
            blank=blank(),
            pool=replace(pool(), withheld=withheld),
            key=b"k",
            rng=dice(seed),
            size=12,
        )
        assert again is not None
        assert any(item.role == "anchor" for item in again.items)
        assert not withheld & hidden_texts([again])


def test_an_anchor_under_another_id_is_withheld_by_its_text() -> None:
    """Renaming an anchor in the suite does not bring its text back."""
    renamed = [replace(one, id=f"new-{one.id}") for one in bank()]
    every = frozenset(normalised(one.text) for one in renamed)
    assert replace(pool(anchors=renamed), withheld=every).usable_anchors == ()
    kept = replace(pool(anchors=[*renamed, anchor("bakery", 7.0, text="Fresh.")]), withheld=every)
    assert [one.text for one in kept.usable_anchors] == ["Fresh."]


def test_candidates_that_were_seen_come_last() -> None:
    """Blocks are cut where needed, and both parts keep their order."""
    blocks = [block("bakery", 2), block("clinic", 2)]
    seen = {candidate_key("bakery", "tip 0 for bakery"), candidate_key("clinic", "tip 1 for clinic")}
    found = [(one.scenario_id, one.texts) for one in unseen_first(blocks, seen)]
    assert found == [
        ("bakery", ("tip 1 for bakery",)),
        ("clinic", ("tip 0 for clinic",)),
        ("bakery", ("tip 0 for bakery",)),
        ("clinic", ("tip 1 for clinic",)),
    ]
    assert unseen_first(blocks, ()) == blocks
